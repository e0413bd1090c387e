"""Clients that try to bring a word past `match`: their segments are made by hand, the server is a real kernel.

What counts is what the server's program reads. It must not read the word, whatever the client sends. With `alert`, it may
read a word that is counted.
"""

import random
import socket
import threading

import pytest
from scapy.layers.inet import fragment

from lab import wait
from lab.daemon import report
from lab.frames import IP, TCP, Ether, Raw
from lab.netns import CLIENT_MAC, SERVER4, SERVER_MAC

PORT, CLIENT = 7000, "10.77.0.50"
WORD, MASKED = b"evil word", b"*********"
CONFIG = f'nf add m match "{WORD.decode()}" mask\nchain add c m\nadd-stateful tcp-dport {PORT} chain c\n'
ACTIONS = ["mask", "reset", "close", "alert"]


class Server:
    """A program that reads all connections while `reads` is set."""

    def __init__(self, namespace):
        with namespace.entered():
            self.listener = socket.create_server((SERVER4, PORT), backlog=64)
        self.namespace, self.streams, self.reads = namespace, {}, threading.Event()
        self.reads.set()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        try:
            while True:
                connection, peer = self.listener.accept()
                threading.Thread(target=self._read, args=(connection, peer[1]), daemon=True).start()
        except OSError:
            return

    def _read(self, connection, port):
        self.streams[port] = stream = bytearray()
        try:
            with connection:
                while self.reads.wait() and (data := connection.recv(65_536)):
                    stream += data
        except OSError:
            return

    def connect(self, port):
        """Connects from a port to the attacker, and reads."""
        connection = self.namespace.socket(socket.AF_INET, socket.SOCK_STREAM)
        connection.bind((SERVER4, port))

        def run():
            connection.connect((CLIENT, PORT))
            self._read(connection, PORT)

        threading.Thread(target=run, daemon=True).start()

    def close(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()


class Attacker:
    """One end of a connection, made of frames: it has the port `port`, the other end `to`."""

    def __init__(self, wire, port, seq=None, options=(), to=PORT):
        self.raw, self.port, self.to = wire.left, port, to
        self.seq = random.Random(port).randrange(1 << 32) if seq is None else seq
        self.ack, self.options = 0, list(options)

    def frame(self, seq, data=b"", flags="A", **fields):
        tcp = {"sport": self.port, "dport": self.to, "seq": seq % (1 << 32), "flags": flags, "window": 65_000}
        tcp |= {"ack": self.ack if "A" in flags else 0} | {name: fields[name] for name in fields if name != "ip"}
        packet = IP(src=CLIENT, dst=SERVER4, **fields.get("ip", {})) / TCP(**tcp) / Raw(data)
        return Ether(src=CLIENT_MAC, dst=SERVER_MAC) / packet

    def send(self, *arguments, **fields):
        self.raw.send(self.frame(*arguments, **fields))

    def _await(self, is_it):
        found = []

        def matches(frame):
            packet = Ether(frame)
            if TCP in packet and packet[TCP].dport == self.port and is_it(packet[TCP]):
                found.append(packet[TCP])
            return bool(found)

        self.raw.receive_until(matches)
        return found[0]

    def open(self):
        self.send(self.seq, flags="S", options=[("MSS", 1400), *self.options])
        self.answered("SA")
        self.send(self.seq, options=[option for option in self.options if option[0] == "Timestamp"])
        return self

    def answered(self, flags):
        """Waits for a segment with these flags, and goes on behind the SYNs of both ends."""
        answer = self._await(lambda tcp: tcp.flags == flags)
        self.ack = (answer.seq + 1) % (1 << 32)
        self.seq = answer.ack or self.seq

    def acknowledged(self, number):
        """Waits until the server has acknowledged all in front of a number. Returns that segment."""
        return self._await(lambda tcp: "A" in tcp.flags and (tcp.ack - number) % (1 << 32) < 1 << 31)


@pytest.fixture
def attack(make_wire):
    """attack(config) -> wire, server; the client's kernel knows nothing of the connections."""

    def make(config=CONFIG, driver="af-packet"):
        wire = make_wire(driver, config)
        wire.bench.know_neighbours()
        wire.server.run("ip", "neigh", "replace", CLIENT, "lladdr", CLIENT_MAC, "dev", "s0", "nud", "permanent")
        server = Server(wire.server)
        wire.bench.on_close(server.close)
        return wire, server

    return make


def sent(server, client, count):
    """What the server's program has read when it has read `count` bytes."""
    wait.until(lambda: client.port in server.streams, "a connection")
    stream = server.streams[client.port]
    wait.until(lambda: len(stream) >= count, f"{count} bytes")
    return bytes(stream)


def test_the_plain_word(attack):
    """The tools work: words arrive masked, cut or not."""
    wire, server = attack()
    client = Attacker(wire, 4000).open()
    client.send(client.seq, b"a " + WORD + b" b")
    assert sent(server, client, 13) == b"a " + MASKED + b" b"
    client.send(client.seq + 13, WORD[:4])
    client.send(client.seq + 17, WORD[4:])
    assert sent(server, client, 22) == b"a " + MASKED + b" b" + MASKED


def forged_acknowledgement(client):
    """Harmless bytes that no machine takes, an acknowledgement of them from the client's side, and the word."""
    client.send(client.seq, b"x" * len(WORD), ip={"chksum": 1})
    forged = TCP(sport=PORT, dport=client.port, seq=client.ack, ack=(client.seq + len(WORD)) % (1 << 32), flags="A")
    client.raw.send(Ether(src=CLIENT_MAC, dst=SERVER_MAC) / IP(src=SERVER4, dst=CLIENT) / forged)
    client.send(client.seq, WORD)
    return b"x" * len(WORD)


def wrong_checksum(client):
    """Harmless bytes that the server does not take, and the word in their place."""
    client.send(client.seq, b"x" * len(WORD), chksum=1)
    client.send(client.seq, WORD)
    return MASKED


def urgent_byte(client):
    """An urgent byte inside the word. Programs do not read it in the stream, so they read the word without it."""
    client.send(client.seq, WORD[:4] + b"!" + WORD[4:], flags="AU", urgptr=5)
    return WORD[:4] + b"!" + WORD[4:]


def lost_end(client):
    """A FIN that no machine takes, then bytes in its place and the word. The word does not arrive."""
    client.send(client.seq, b"abc", flags="FA", ip={"chksum": 1})
    client.send(client.seq, b"abc" + WORD, flags="A")
    client.send(client.seq, b"abc", flags="FA")
    return b"abc"


def damaged_end(client):
    """A FIN with a wrong checksum, then bytes in its place and the word."""
    client.send(client.seq, b"abc", flags="FA", chksum=1)
    client.send(client.seq, b"abc" + WORD, flags="A")
    return b"abc" + MASKED


def old_numbers(client):
    """Bytes in front of the SYN, and half a number space away."""
    for away in (-1, -100, 1 << 31, (1 << 31) - 1, (1 << 31) + 1):
        client.send(client.seq + away, WORD[:4])
    client.send(client.seq, WORD)
    return MASKED


def header_checksum(client):
    """Harmless bytes in a packet that no machine takes, and the word in their place."""
    client.send(client.seq, b"x" * len(WORD), ip={"chksum": 1})
    client.send(client.seq, WORD)
    return b"x" * len(WORD)


def in_fragments(client, data):
    """A segment in fragments, the first of which has 12 bytes of the data."""
    parts = fragment(client.frame(client.seq, data)[IP], 32)
    return [Ether(src=CLIENT_MAC, dst=SERVER_MAC) / part for part in parts]


def fragments(client):
    """The word lies in two fragments. They come in order, in reverse order, and then in one packet."""
    whole = b"a" * 8 + WORD
    for part in (*in_fragments(client, whole), *reversed(in_fragments(client, whole))):
        client.raw.send(part)
    client.send(client.seq, whole)
    return b"a" * 8 + MASKED


def between_fragments(client):
    """The word comes between two fragments of harmless bytes with the same numbers."""
    first, *rest = in_fragments(client, b"x" * 32)
    client.raw.send(first)
    client.send(client.seq, WORD)
    for part in rest:
        client.raw.send(part)
    return MASKED


WAYS = [
    forged_acknowledgement, wrong_checksum, header_checksum, urgent_byte, lost_end, damaged_end, old_numbers, fragments,
    between_fragments,
]


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("way", WAYS)
def test_ways_around(attack, way, action):
    wire, server = attack(CONFIG.replace("mask", action))
    client = Attacker(wire, 4001).open()
    expected = way(client)
    if MASKED in expected and action in ("reset", "close"):
        wait.until(lambda: wire.daemon.drops()["match"] >= 1, "the end of the connection")
        assert WORD not in server.streams.get(client.port, b"")
        return
    read = sent(server, client, len(expected))
    if action == "alert":
        assert read[: len(expected)] == expected.replace(MASKED, WORD)
        wait.until(lambda: report(wire.daemon, "m")["matches"] == str(read.count(WORD)), "the count")
    else:
        assert read[: len(expected)] == expected and WORD not in read


@pytest.mark.parametrize("action", ACTIONS)
def test_an_urgent_byte_of_a_kernel(attack, action):
    """The byte at the urgent pointer lies in the word. Without the pointer, programs read it there (RFC 6093, section 3.1)."""
    wire, server = attack(CONFIG.replace("mask", action))
    with wire.client.socket(socket.AF_INET, socket.SOCK_STREAM) as client:
        client.connect((SERVER4, PORT))
        port = client.getsockname()[1]
        client.send(b"an evil!", socket.MSG_OOB)
        wait.until(lambda: len(server.streams.get(port, b"")) >= 7, "the bytes in front")
        client.send(b" word.")
        wait.until(lambda: server.streams[port].endswith(b"."), "the last byte")
        assert server.streams[port] == b"an evil! word."


def test_half_a_word_is_repeated(attack):
    """A sender that repeats held bytes gets an acknowledgement of them, and goes on with the rest of the word."""
    wire, server = attack()
    client = Attacker(wire, 4004).open()
    client.send(client.seq, WORD[:4])
    client.send(client.seq, WORD[:4])
    client.acknowledged(client.seq + 3)
    client.send(client.seq + 3, WORD[3:])
    assert sent(server, client, 9) == MASKED
    first = client.seq + 9
    client.send(first, WORD[:4])
    client.send(first, WORD[:4])
    client.send(first + 4, WORD[4:])
    assert sent(server, client, 18) == 2 * MASKED


def test_half_a_word_is_in_front_of_an_early_end(attack):
    """The middle of a word comes late. The sender repeats what is in front of it until it gets an acknowledgement."""
    wire, server = attack("set stream-hold-time 0\n" + CONFIG)
    client = Attacker(wire, 4005).open()
    client.send(client.seq, WORD[:4])
    client.send(client.seq + 6, WORD[6:])
    client.send(client.seq, WORD[:4])
    client.acknowledged(client.seq + 4)
    client.send(client.seq + 4, WORD[4:6])
    assert sent(server, client, 9) == MASKED


def test_bytes_that_may_begin_a_word_arrive_at_last(attack):
    """The limit of the promise: a sender that waits for an answer, and repeats, does not wait for ever."""
    wire, server = attack("set stream-hold-time 1\n" + CONFIG)
    client = Attacker(wire, 4006).open()
    client.send(client.seq, WORD[:4])

    def repeats():
        client.send(client.seq, WORD[:4])
        return len(server.streams.get(client.port, b"")) >= 4

    wait.until(repeats, "the bytes")
    assert sent(server, client, 4) == WORD[:4]
    client.acknowledged(client.seq + 4)


@pytest.mark.parametrize("option", [(29, bytes([1, 1, *range(12)])), (30, b"\1\1"), (34, b"")], ids=["ao", "mptcp", "tfo"])
def test_options_of_the_syn(attack, option):
    """Signatures that the server does not answer (RFC 5925), several paths, and a request for a cookie change nothing."""
    wire, server = attack()
    client = Attacker(wire, 4002, options=[option]).open()
    client.send(client.seq, WORD)
    assert sent(server, client, len(WORD)) == MASKED


def test_a_stray_segment_and_data_of_the_syn(attack):
    """A segment in front of the SYN does not leave the connection unread, nor does data of the SYN (RFC 7413)."""
    wire, server = attack()
    wire.server.sysctl("net/ipv4/tcp_fastopen", 0x602)
    client = Attacker(wire, 4003)
    client.send(client.seq, b"?")
    client.send(client.seq, WORD, flags="S", options=[(34, b"")])
    client.open()
    client.send(client.seq, WORD)
    assert sent(server, client, len(WORD)) == MASKED


def test_a_wrapped_timestamp(attack):
    """Harmless bytes that the server takes for old ones (RFC 7323, section 5.3), and the word in their place."""
    wire, server = attack()
    client = Attacker(wire, 4004, options=[("Timestamp", (1000, 0))]).open()
    client.send(client.seq, b"a", options=[("Timestamp", (1001, 0))])
    client.acknowledged(client.seq + 1)
    client.send(client.seq + 1, b"x" * len(WORD), options=[("Timestamp", (10, 0))])
    client.send(client.seq + 1, WORD, options=[("Timestamp", (1002, 0))])
    assert sent(server, client, 1 + len(WORD)) == b"a" + b"x" * len(WORD)


def test_bytes_behind_the_window(attack):
    """Harmless bytes for which a server that does not read may have no room, and the word in their place."""
    wire, server = attack()
    server.listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
    server.reads.clear()
    client = Attacker(wire, 4005).open()
    first, window = client.seq, 500
    while window:
        client.send(client.seq, b"a" * window)
        client.seq = (client.seq + window) % (1 << 32)
        window = min(500, client.acknowledged(client.seq).window)
    client.send(client.seq, b"x" * len(WORD))
    server.reads.set()
    before = (client.seq - first) % (1 << 32)
    sent(server, client, before)
    client.send(client.seq, WORD)
    assert sent(server, client, before + len(WORD)) == b"a" * before + b"x" * len(WORD)


@pytest.mark.parametrize("acknowledges_first", [False, True], ids=["simultaneous", "split"])
def test_a_handshake_of_two_syns(attack, acknowledges_first):
    """A program behind the box connects to the attacker, who answers with a SYN (RFC 9293, section 3.5)."""
    wire, server = attack()
    peer = Attacker(wire, PORT, to=4006)
    server.connect(peer.to)
    peer.answered("S")
    if acknowledges_first:
        peer.send(peer.seq)
    peer.send(peer.seq, flags="S", options=[("MSS", 1400)])
    peer.answered("SA")
    peer.send(peer.seq)
    peer.send(peer.seq, WORD)
    assert sent(server, peer, len(WORD)) == MASKED


def test_a_restart_in_the_word(attack):
    """A reset that is too old, a SYN that gets a challenge (RFC 5961), and the second half of the word.

    `reset` lets the first half through, and must know it when the rest comes.
    """
    wire, server = attack(CONFIG.replace("mask", "reset"))
    client = Attacker(wire, 4007).open()
    client.send(client.seq, b"0" * 10 + WORD[:4])
    behind = client.seq + 14
    client.acknowledged(behind)
    client.send(client.seq, flags="RA")
    client.send(behind - 1, flags="S", options=[("MSS", 1400)])
    client.send(behind, WORD[4:])
    wait.until(lambda: wire.daemon.drops()["match"] >= 1, "the reset")
    assert WORD not in sent(server, client, 14)
