"""Clients that try to bring a word past `match`: their segments are made by hand, the server is a real kernel.

What counts is what the server's program reads. With `mask`, it must not read the word, whatever the client sends.
"""

import random
import socket
import threading

import pytest

from lab import wait
from lab.frames import IP, TCP, Ether, Raw
from lab.netns import CLIENT_MAC, SERVER4, SERVER_MAC

PORT, CLIENT = 7000, "10.77.0.50"
WORD, MASKED = b"evil word", b"*********"
CONFIG = f'nf add m match "{WORD.decode()}" mask\nchain add c m\nadd-stateful tcp-dport {PORT} chain c\n'


class Server:
    """A program that reads all connections."""

    def __init__(self, namespace):
        with namespace.entered():
            self.listener = socket.create_server((SERVER4, PORT), backlog=64)
        self.streams = {}
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        try:
            while True:
                connection, peer = self.listener.accept()
                self.streams[peer[1]] = stream = bytearray()
                threading.Thread(target=self._read, args=(connection, stream), daemon=True).start()
        except OSError:
            return

    @staticmethod
    def _read(connection, stream):
        try:
            with connection:
                while data := connection.recv(65_536):
                    stream += data
        except OSError:
            return

    def close(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()


class Attacker:
    """One end of a connection, made of frames."""

    def __init__(self, wire, port, seq=None, options=()):
        self.raw, self.port = wire.left, port
        self.seq = random.Random(port).randrange(1 << 32) if seq is None else seq
        self.ack, self.options = 0, list(options)

    def frame(self, seq, data=b"", flags="A", **fields):
        tcp = {"sport": self.port, "dport": PORT, "seq": seq % (1 << 32), "flags": flags, "window": 65_000}
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
        answer = self._await(lambda tcp: tcp.flags == "SA")
        self.seq, self.ack = (self.seq + 1) % (1 << 32), (answer.seq + 1) % (1 << 32)
        self.send(self.seq)
        return self

    def acknowledged(self, number):
        """Waits until the server has acknowledged all in front of a number."""
        self._await(lambda tcp: "A" in tcp.flags and (tcp.ack - number) % (1 << 32) < 1 << 31)


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
    """Harmless bytes with a wrong checksum, an acknowledgement of them from the client's side, and the word."""
    client.send(client.seq, b"x" * len(WORD), chksum=1)
    forged = TCP(sport=PORT, dport=client.port, seq=client.ack, ack=(client.seq + len(WORD)) % (1 << 32), flags="A")
    client.raw.send(Ether(src=CLIENT_MAC, dst=SERVER_MAC) / IP(src=SERVER4, dst=CLIENT) / forged)
    client.send(client.seq, WORD)
    return b"x" * len(WORD)


def wrong_checksum(client):
    """Harmless bytes that the server does not take, and the word in their place."""
    client.send(client.seq, b"x" * len(WORD), chksum=1)
    client.send(client.seq, WORD)
    return b"x" * len(WORD)


def urgent_byte(client):
    """An urgent byte inside the word. Programs do not read it in the stream, so they read the word without it."""
    client.send(client.seq, WORD[:4] + b"!" + WORD[4:], flags="AU", urgptr=5)
    return WORD[:4] + b"!" + WORD[4:]


def lost_end(client):
    """A FIN with a wrong checksum, then bytes in its place and the word. The word arrives masked or not at all."""
    client.send(client.seq, b"abc", flags="FA", chksum=1)
    client.send(client.seq, b"abc" + WORD, flags="A")
    client.send(client.seq, b"abc", flags="FA")
    return b"abc"


def old_numbers(client):
    """Bytes in front of the SYN, and half a number space away."""
    for away in (-1, -100, 1 << 31, (1 << 31) - 1, (1 << 31) + 1):
        client.send(client.seq + away, WORD[:4])
    client.send(client.seq, WORD)
    return MASKED


@pytest.mark.parametrize("way", [forged_acknowledgement, wrong_checksum, urgent_byte, lost_end, old_numbers])
def test_ways_around(attack, way):
    wire, server = attack()
    client = Attacker(wire, 4001).open()
    expected = way(client)
    read = sent(server, client, len(expected))
    assert read[: len(expected)] == expected and WORD not in read


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
