"""Streams of two real kernels over bad links: functions read what the receiver gets, and nothing stalls."""

import fcntl
import hashlib
import os
import random
import socket
import struct
import sys
import termios
import threading
import time

import pytest

from lab import natbench, routebench, wait
from lab.links.impair import Impairment
from lab.netns import SERVER4, SERVER6

PORT = 7000
# Losses of what is repeated cost retransmission timeouts, and they add up.
PATIENCE = 120
BAD = Impairment(loss=12, duplication=30, reordering=40, cuts=150)
ROUNDS = 20 if os.environ.get("E2E_LONG") else 1


def content(seed, size):
    return random.Random(seed).randbytes(size)


def words(seed, size):
    """Bytes with many words `evil`, and with beginnings of it."""
    rng, parts = random.Random(seed), []
    for _ in range(size // 8):
        other = rng.randbytes(rng.randrange(40)).translate(None, b"evil")
        parts.append(rng.choice((b"evil", b"evi", b"ev", b"vil", b"evevil", other)))
    return b"".join(parts)


class Peer(threading.Thread):
    """One end of a connection: it sends its bytes and closes, and receives until the other end has closed."""

    def __init__(self, connection, to_send):
        super().__init__(daemon=True)
        self.connection, self.to_send, self.received, self.error = connection, to_send, b"", None
        self.peer = connection.getpeername()[0]

    def run(self):
        sender = threading.Thread(target=self._send, daemon=True)
        sender.start()
        try:
            while part := self.connection.recv(65536):
                self.received += part
        except OSError as error:
            self.error = error
        sender.join()

    def _send(self):
        try:
            self.connection.sendall(self.to_send)
            self.connection.shutdown(socket.SHUT_WR)
        except OSError as error:
            self.error = error


def exchange(client, server, address, sizes, seed, mss=None, make=content):
    """Opens a connection for each pair of sizes. Returns client ports, and the ends with their bytes."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    listener = server.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if mss:
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, mss)
    listener.bind((address, PORT))
    listener.listen(len(sizes))
    listener.settimeout(PATIENCE)
    pairs = []
    for number, (up, down) in enumerate(sizes):
        near = client.socket(family, socket.SOCK_STREAM)
        near.settimeout(PATIENCE)
        near.connect((address, PORT))
        far, (_, port, *_) = listener.accept()
        far.settimeout(PATIENCE)
        assert port == near.getsockname()[1], "connections come in order"
        pairs.append((port, Peer(near, make(seed + number, up)), Peer(far, make(seed - number - 1, down))))
    begin = time.monotonic()
    for _, *peers in pairs:
        for peer in peers:
            peer.start()
    for port, *peers in pairs:
        for peer in peers:
            peer.join(max(0, begin + PATIENCE - time.monotonic()))
            assert not peer.is_alive() and peer.error is None, (port, peer.error, len(peer.received))
            peer.connection.close()
    listener.close()
    return pairs


def logged(path):
    """The digests of a log file: {(client port, direction): (digest, bytes)}."""
    lines = {}
    for line in path.read_text(encoding="ascii").splitlines() if path.exists() else []:
        words = line.split()
        at = words.index("tcp")
        port = int(words[at + 1].rsplit(":", 1)[1])
        lines[port, words[at + 4]] = (words[at - 1], int(words[at + 5]))
    return lines


def configuration(log):
    return (
        f"nf add files digest sha256 file {log}\nnf add volume payload-count\n"
        f"chain add c files then volume\nadd-stateful tcp-dport {PORT} chain c\n"
    )


def verify(pairs, log):
    """Both ends have got what was sent, and the digests are those of it. Returns the bytes of each direction."""
    expected, total = {}, [0, 0]
    for port, client, server in pairs:
        assert server.received == client.to_send and client.received == server.to_send
        for number, (direction, peer) in enumerate((("forward", client), ("reverse", server))):
            total[number] += len(peer.to_send)
            if peer.to_send:
                expected[port, direction] = (hashlib.sha256(peer.to_send).hexdigest(), len(peer.to_send))
    wait.until(lambda: expected.keys() <= logged(log).keys(), "the digests of all streams")
    found = logged(log)
    assert {key: found[key] for key in expected} == expected
    return total


def reports(daemon):
    return {one["name"]: one["report"] for one in daemon.json("show", "functions")["functions"]}


@pytest.mark.parametrize("name", ["lossy-in-front", "lossy-behind", "ip6-two-workers", "vlan-small-mss"])
def test_functions_read_what_the_receiver_gets(make_bad, tmp_path, name):
    options = {
        "lossy-in-front": {"before": BAD},
        "lossy-behind": {"behind": BAD},
        "ip6-two-workers": {"before": BAD, "behind": BAD, "workers": 2},
        "vlan-small-mss": {"before": Impairment(5, 30, 60, 300), "vlan": 7},
    }[name]
    mss = 300 if name == "vlan-small-mss" else None
    address = SERVER6 if name.startswith("ip6") else SERVER4
    log = tmp_path / "streams.log"
    bench = make_bad(configuration(log), seed=7, **options)
    total = [0, 0]
    for turn in range(ROUNDS):
        # Nothing at all in one direction, one byte, and more than a window.
        sizes = [(60_000, 40_000), (1, 30_000), (0, 20_000), (90_000, 0)]
        pairs = exchange(bench.client, bench.server, address, sizes, 1000 * turn, mss)
        total = [sum(both) for both in zip(total, verify(pairs, log))]
    found = reports(bench.daemon)
    assert [found["volume"][f"bytes {way}"] for way in ("forward", "reverse")] == [str(n) for n in total]
    assert found["(stream)"]["bytes"] == str(sum(total))
    if "before" in options:
        assert bench.links[0].lost and int(found["(stream)"]["early segments"]) > 0
    assert not {"no SYN seen", "gap in the bytes seen", "no room to hold"} & found["(stream)"].keys()


@pytest.mark.parametrize("driver", ["af-packet", "af-xdp"])
def test_frames_of_a_kernel_with_offloads(make_wire, tmp_path, driver):
    """Segments that the kernel leaves to the interface to cut, with partial checksums."""
    log = tmp_path / "streams.log"
    wire = make_wire(driver, configuration(log))
    total = verify(exchange(wire.client, wire.server, SERVER4, [(400_000, 300_000)], 5), log)
    assert reports(wire.daemon)["(stream)"]["bytes"] == str(sum(total))


@pytest.mark.parametrize("address", [routebench.SERVER, routebench.SERVER6])
def test_streams_on_a_router(make_router, tmp_path, address):
    log = tmp_path / "streams.log"
    router = make_router(configuration(log))
    verify(exchange(router.client, router.servers, address, [(100_000, 70_000), (10, 0)], 9), log)


def test_connections_show_their_streams(make_wire, tmp_path):
    wire = make_wire("af-packet", configuration(tmp_path / "streams.log"))
    listener = wire.server.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.bind((SERVER4, PORT))
    listener.listen(1)
    client = wire.client.socket(socket.AF_INET, socket.SOCK_STREAM)
    client.connect((SERVER4, PORT))
    server = listener.accept()[0]
    client.sendall(b"question")
    assert server.recv(100) == b"question"
    (connection,) = wire.daemon.json("show", "connections", "tcp-dport", str(PORT))["connections"]
    assert connection["functions"]["volume"] == "8/0 bytes in 1/0 packets"
    assert connection["functions"]["(stream)"].startswith("next ")
    shown = wire.daemon.command("show", "connections", "verbose").stdout
    assert "c; (stream): next " in shown and "volume: 8/0 bytes in 1/0 packets" in shown
    for end in (client, server, listener):
        end.close()


EDITS = {"masked": "****", "same-length": "good", "longer": "very-harmless", "shorter": "x", "removed": ""}


def edits(new):
    """A configuration that edits, with a function that reads what is left."""
    chain = "chain add c polite then volume\n"
    action = {"": "remove", "****": "mask"}.get(new, f"replace {new}")
    # A segment may be lost several times, and its sender doubles its timeout from 200 ms on.
    return f"set stream-hold-time 5000\nnf add polite match evil {action}\nnf add volume payload-count\n{chain}add-stateful tcp-dport {PORT} chain c\n"


def verify_edits(pairs, new):
    """Both ends have got the edit applied to what was sent. Returns how many words there were."""
    count = 0
    for _, client, server in pairs:
        for sender, receiver in ((client, server), (server, client)):
            expected = sender.to_send.replace(b"evil", new.encode())
            assert receiver.received.count(b"evil") == expected.count(b"evil")
            assert len(receiver.received) == len(expected)
            assert hashlib.sha256(receiver.received).digest() == hashlib.sha256(expected).digest()
            count += sender.to_send.count(b"evil")
    return count


LINKS = ["lossy-in-front", "lossy-behind", "ip6-two-workers", "vlan-small-mss"]
ALL_EDITS = [(name, edit) for name in LINKS for edit in EDITS]
USUAL_EDITS = list(zip(LINKS, ["masked", "longer", "shorter", "removed"]))


@pytest.mark.parametrize("name, edit", ALL_EDITS if os.environ.get("E2E_LONG") else USUAL_EDITS)
def test_receivers_get_the_edited_bytes(make_bad, name, edit):
    options = {
        "lossy-in-front": {"before": BAD},
        "lossy-behind": {"behind": BAD},
        "ip6-two-workers": {"before": BAD, "behind": BAD, "workers": 2},
        "vlan-small-mss": {"before": Impairment(5, 30, 60, 300), "vlan": 7},
    }[name]
    mss = 300 if name == "vlan-small-mss" else None
    address = SERVER6 if name.startswith("ip6") else SERVER4
    bench = make_bad(edits(EDITS[edit]), seed=11, **options)
    count = 0
    for turn in range(ROUNDS):
        # One direction without a byte, and more than a window.
        sizes = [(60_000, 40_000), (8, 30_000), (90_000, 0)]
        pairs = exchange(bench.client, bench.server, address, sizes, 1000 * turn, mss, words)
        count += verify_edits(pairs, EDITS[edit])
    assert reports(bench.daemon)["polite"]["edited"] == str(count)


# What functions of a chain do with their words. Packets of the reverse direction meet them in reverse order.
MIXED = [(b"ALPHA", "mask", b"*****"), (b"BRAVO", "remove", b""), (b"CHARLIE", "replace a-longer-text", b"a-longer-text")]


def mixture(seed, size):
    """Bytes with words of no, one or each kind at any place, and with parts of them."""
    rng, parts, length = random.Random(seed), [], 0
    names = [word for word, *_ in MIXED]
    kinds = rng.choice([[], names, *([name] for name in names)])
    while length < size:
        word = rng.choice([*kinds, b""])
        part = rng.randbytes(rng.randrange(200)).translate(None, b"".join(names))
        parts += [rng.choice((word, word[: rng.randrange(len(word) + 1)])), part]
        length += len(parts[-2]) + len(part)
    return b"".join(parts)


def mixed(content, functions):
    """The edit applied to what was sent, and how many words of each kind it changes."""
    counts = {}
    for word, _, new in functions:
        counts[word] = content.count(word)
        content = content.replace(word, new)
    return content, counts


@pytest.mark.parametrize("address, workers", [(SERVER4, 1), (SERVER6, 2)], ids=["ip4", "ip6-two-workers"])
def test_hundreds_of_connections_are_edited_at_once(make_bad, address, workers):
    lines = "".join(f"nf add f{n} match {word.decode()} {action}\n" for n, (word, action, _) in enumerate(MIXED))
    config = f"set stream-hold-time 5000\n{lines}chain add c f0 then f1 then f2\nadd-stateful tcp-dport {PORT} chain c\n"
    bench = make_bad(config, seed=13, before=BAD, behind=BAD, workers=workers)
    counts = dict.fromkeys((word for word, *_ in MIXED), 0)
    for turn in range(ROUNDS):
        rng = random.Random(turn)
        sizes = [(rng.choice((0, 1, 3000, 20_000)), rng.choice((0, 1, 3000, 20_000))) for _ in range(200)]
        pairs = exchange(bench.client, bench.server, address, sizes, 10_000 * (turn + 1), make=mixture)
        for port, client, server in pairs:
            for sender, receiver, functions in ((client, server, MIXED), (server, client, MIXED[::-1])):
                expected, found = mixed(sender.to_send, functions)
                assert hashlib.sha256(receiver.received).digest() == hashlib.sha256(expected).digest(), port
                counts = {word: count + found[word] for word, count in counts.items()}
    edited = reports(bench.daemon)
    assert {word: edited[f"f{n}"]["edited"] for n, word in enumerate(counts)} == {word: str(n) for word, n in counts.items()}
    assert min(counts.values()) > 0


@pytest.mark.parametrize("driver", ["af-packet", "af-xdp"])
def test_edited_frames_of_a_kernel_with_offloads(make_wire, driver):
    wire = make_wire(driver, edits("very-harmless"))
    pairs = exchange(wire.client, wire.server, SERVER4, [(400_000, 300_000)], 5, make=words)
    assert verify_edits(pairs, "very-harmless") > 0


def test_jumbo_frames_are_edited(make_wire):
    """Segments of 8,960 bytes, which the ends do not leave to the interface, become longer, and two."""
    wire = make_wire("af-packet", edits("very-harmless"), mtu=9000, offloads=False)
    pairs = exchange(wire.client, wire.server, SERVER4, [(400_000, 300_000), (8000, 9000)], 15, make=words)
    assert verify_edits(pairs, "very-harmless") > 0


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("edit", ["longer", "removed"])
@pytest.mark.parametrize("place", ["rule", "chain"])
def test_edits_and_translated_addresses(make_nat, place, edit, workers):
    """A rule, or a function of the chain, gives connections another source. The path behind it has a smaller MTU."""
    lines = f"nat pool add wan {natbench.OUTSIDE[0]}\n{edits(EDITS[edit])}"
    if place == "rule":
        lines = lines.replace(" chain c\n", " nat wan chain c\n")
    else:
        lines = lines.replace("chain add c polite then volume", "nf add n nat wan\nchain add c polite then volume then n")
    nat = make_nat(lines, workers=workers, mtu=1400)
    sizes = [(150_000, 120_000), (8, 30_000), (90_000, 0)]
    pairs = exchange(nat.hosts, nat.servers, natbench.SERVER, sizes, 33, make=words)
    assert {server.peer for _, _, server in pairs} == {natbench.OUTSIDE[0]}
    assert reports(nat.daemon)["polite"]["edited"] == str(verify_edits(pairs, EDITS[edit]))


@pytest.mark.parametrize("address", [routebench.SERVER, routebench.SERVER6])
def test_edits_on_a_router(make_router, address):
    router = make_router(edits("x"))
    pairs = exchange(router.client, router.servers, address, [(100_000, 70_000), (16, 0)], 9, make=words)
    assert verify_edits(pairs, "x") > 0


@pytest.mark.parametrize("name, edit", [("ip4", "longer"), ("ip6-two-workers", "removed")])
def test_edits_and_numbers_of_rules(make_bad, name, edit):
    """A rule gives both ends other sequence numbers than those that the functions edit, and packets are lost and
    reordered on both sides, so that both ends acknowledge selectively.
    """
    bad = Impairment(loss=5, duplication=10, reordering=30, cuts=50)
    options, address = ({}, SERVER4) if name == "ip4" else ({"workers": 2}, SERVER6)
    lines = edits(EDITS[edit]).replace(" chain c\n", " shuffle tcp-seq-num shuffle tcp-ack-num chain c\n")
    assert "shuffle" in lines
    bench = make_bad(lines, seed=3, before=bad, behind=bad, **options)
    pairs = exchange(bench.client, bench.server, address, [(60_000, 40_000), (8, 30_000)], 21, make=words)
    assert reports(bench.daemon)["polite"]["edited"] == str(verify_edits(pairs, EDITS[edit]))


NEW = EDITS["longer"]


def unacknowledged(end):
    """Bytes that an end has sent, or will send, and that are not acknowledged (tcp(7), SIOCOUTQ)."""
    return struct.unpack("i", fcntl.ioctl(end, termios.TIOCOUTQ, bytes(4)))[0]


class Connection:
    """A connection that is open during the whole test. Both ends receive all the time."""

    def __init__(self, client, server):
        listener = server.socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((SERVER4, PORT))
        listener.listen(1)
        self.ends = [client.socket(socket.AF_INET, socket.SOCK_STREAM)]
        self.ends[0].connect((SERVER4, PORT))
        self.ends.append(listener.accept()[0])
        listener.close()
        self.sent, self.received, self.readers = [b"", b""], [b"", b""], []
        for number, end in enumerate(self.ends):
            end.settimeout(PATIENCE)
            self.readers.append(threading.Thread(target=self._read, args=(number,), daemon=True))
            self.readers[-1].start()

    def _read(self, number):
        while part := self.ends[number].recv(65536):
            self.received[1 - number] += part

    def send(self, number, content):
        """Sends bytes of an end: 0 is the client."""
        self.ends[number].sendall(content)
        self.sent[number] += content

    def restored(self, number):
        """What an end's peer has received, with the word put back."""
        return self.received[number].replace(NEW.encode(), b"evil")

    def wait(self):
        """Until all bytes are received in both directions, and acknowledged: the next ones are new ones."""
        wait.until(lambda: [self.restored(0), self.restored(1)] == self.sent, "all bytes in both directions")
        wait.until(lambda: not any(map(unacknowledged, self.ends)), "all acknowledgements")

    def close(self):
        for end in self.ends:
            end.shutdown(socket.SHUT_WR)
        for reader in self.readers:
            reader.join(PATIENCE)
            assert not reader.is_alive()
        for end in self.ends:
            end.close()


CHANGES = {
    "chain": "chain set c volume",
    "other function": "nf add other match wicked mask\nchain set c other",
    "rule without chain": f"add-stateful tcp-dport {PORT} accept\ndel FIRST",
}
FILES = {"apply": f"add-stateful tcp-dport {PORT} accept\n", "apply of nothing": ""}


@pytest.mark.parametrize("change", [*CHANGES, *FILES])
def test_a_connection_outlives_its_function(make_wire, tmp_path, change):
    wire = make_wire("af-packet", edits(NEW))
    connection = Connection(wire.client, wire.server)
    for number in (0, 1):
        connection.send(number, words(number, 60_000))
    connection.wait()
    assert all(NEW.encode() in received for received in connection.received)
    (shown,) = wire.daemon.json("show", "connections", "tcp-dport", str(PORT))["connections"]
    assert shown["functions"]["(edits)"].startswith("offset +")
    # The change comes while bytes are under way.
    senders = [threading.Thread(target=connection.send, args=(n, words(n + 2, 400_000))) for n in (0, 1)]
    for sender in senders:
        sender.start()
    if change in CHANGES:
        first = min(wire.daemon.rules())
        for line in CHANGES[change].splitlines():
            wire.daemon.line(line.replace("FIRST", str(first)))
    else:
        kept = [line for line in wire.daemon.config.read_text().splitlines() if line.split()[0] in ("port", "wire", "set")]
        path = tmp_path / "changed"
        path.write_text("\n".join(kept) + "\n" + FILES[change])
        wire.daemon.command("apply", path, "--allow-empty")
    for sender in senders:
        sender.join(PATIENCE)
    connection.wait()
    before = [len(received) for received in connection.received]
    for number in (0, 1):
        connection.send(number, words(number + 4, 300_000))
    connection.wait()
    for number in (0, 1):
        after = connection.received[number][before[number] :]
        assert after == connection.sent[number][-len(after) :], "bytes behind the change are not edited"
    connection.close()


# What a connection passes before the function that edits comes, and the line that brings it.
BEFORE = {
    "rule without chain": ("accept", "add-stateful tcp-dport {PORT} chain c"),
    "function": ("chain second", "chain set second polite then volume"),
    "reader": ("chain first", "chain set first polite then volume"),
    "reader of content": ("chain third", "chain set third polite then sums"),
}


@pytest.mark.parametrize("lossy", [False, True], ids=["", "lossy"])
@pytest.mark.parametrize("before", BEFORE)
def test_functions_join_open_connections(make_bad, before, lossy):
    """A function comes while bytes are under way in both directions, and lost on both sides. It edits from some byte on."""
    rule, change = (text.format(PORT=PORT) for text in BEFORE[before])
    lines = "nf add count count\nnf add sums digest sha256\nchain add first volume\nchain add second count\nchain add third sums\n"
    functions = edits(NEW).rpartition("add-stateful")[0]
    bad = Impairment(loss=10, duplication=10, reordering=20, cuts=50) if lossy else Impairment()
    # A connection whose SYN no function of streams has seen is read with this setting only.
    config = f"set stream-pickup inspect\n{functions}{lines}add-stateful tcp-dport {PORT} {rule}\n"
    bench = make_bad(config, seed=31, before=bad, behind=bad)
    connection = Connection(bench.client, bench.server)
    # Nothing is held back at the end.
    senders = [threading.Thread(target=connection.send, args=(n, words(n, 300_000) + b".")) for n in (0, 1)]
    for sender in senders:
        sender.start()
    wait.until(lambda: min(map(len, connection.received)) > 20_000, "some bytes")
    bench.daemon.line(change)
    for sender in senders:
        sender.join(PATIENCE)
    for turn in range(2, 12, 2):
        for number in (0, 1):
            connection.send(number, words(number + turn, 30_000) + b".")
        connection.wait()
    connection.close()
    for sent, received in zip(connection.sent, connection.received):
        first = len(os.path.commonprefix([sent, received]))
        assert 20_000 < first < len(sent) - 50_000
        assert received == sent[:first] + sent[first:].replace(b"evil", NEW.encode())


@pytest.mark.parametrize("edit", EDITS)
def test_edited_connections_are_tracked(make_wire, edit):
    wire = make_wire("af-packet", "set tcp-window-check on\n" + edits(EDITS[edit]))
    pairs = exchange(wire.client, wire.server, SERVER4, [(300_000, 200_000)], 17, make=words)
    assert verify_edits(pairs, EDITS[edit]) > 0
    assert wire.daemon.drops()["tcp-window"] == 0


IPPROTO_MPTCP = 262


def is_multipath(connection):
    """Whether a connection of the kernel has not fallen back to TCP (`MPTCP_INFO`, its flags)."""
    try:
        flags = int.from_bytes(connection.getsockopt(284, 1, 100)[8:12], sys.byteorder)
    except OSError:
        return False
    return not flags & 1


def carried(sender, receiver, sent):
    """Sends bytes and ends the direction; returns what arrives."""
    sender.sendall(sent)
    sender.shutdown(socket.SHUT_WR)
    return b"".join(iter(lambda: receiver.recv(65536), b""))


@pytest.mark.parametrize("mode", ["strip", "pass"])
@pytest.mark.parametrize("edit", ["match evil replace harmless", "match evil mask"])
def test_multipath_tcp_of_the_kernel(make_wire, mode, edit):
    """Both ends are MPTCP sockets. With `strip` they fall back to TCP and are edited; otherwise they are not."""
    lines = f"set stream-mptcp {mode}\nnf add f {edit}\nchain add c f\nadd-stateful tcp-dport {PORT} chain c\n"
    wire = make_wire("af-packet", lines)
    for namespace in (wire.client, wire.server):
        namespace.sysctl("net/mptcp/enabled", 1)
    sent = 300 * b"an evil word, and more. "
    new = b"harmless" if "replace" in edit else b"****"
    expected = sent if mode == "pass" else sent.replace(b"evil", new)
    with wire.server.socket(socket.AF_INET, socket.SOCK_STREAM, IPPROTO_MPTCP) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((SERVER4, PORT))
        listener.listen()
        with wire.client.socket(socket.AF_INET, socket.SOCK_STREAM, IPPROTO_MPTCP) as client:
            client.settimeout(wait.PATIENCE)
            client.connect((SERVER4, PORT))
            server, _ = listener.accept()
            with server:
                server.settimeout(wait.PATIENCE)
                assert carried(client, server, sent) == carried(server, client, sent) == expected
                assert [is_multipath(one) for one in (client, server)] == [mode == "pass"] * 2
    functions = {one["name"]: one for one in wire.daemon.json("show", "functions")["functions"]}
    assert functions["(stream)"]["stream"] is not None
    report = functions["(stream)"]["report"]
    counted = "connections of several paths, not edited" if mode == "pass" else "options of several paths removed"
    assert int(report[counted]) >= 1
    assert mode == "strip" or int(report["edits refused: not-editable"]) > 0
