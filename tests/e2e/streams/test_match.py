"""`match` between two real kernels: patterns wherever packets are cut, resets, ends, and patterns that change."""

import contextlib
import random
import re
import socket
import threading

import pytest
from scapy.utils import rdpcap, wrpcap

from lab import frames, routebench, wait
from lab.daemon import mmb, report
from lab.frames import IP, TCP, UDP
from lab.links.impair import BadBench, Impairment
from lab.netns import CLIENT4, CLIENT6, SERVER4, SERVER6

PORT = 7000
WORDS = (b"evil word", b"other")
# Of asm-generic/socket.h; Python has no name for it.
SO_NO_CHECK = 11


def configuration(function):
    rules = "".join(f"add-stateful {protocol}-dport {PORT} chain c\n" for protocol in ("tcp", "udp"))
    return f"nf add m match {function}\nchain add c m\n{rules}"


@contextlib.contextmanager
def connection(bench, address):
    """The two ends of a TCP connection."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    sockets = [bench.server.socket(family, socket.SOCK_STREAM), bench.client.socket(family, socket.SOCK_STREAM)]
    with sockets[0] as listener, sockets[1] as near:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, PORT))
        listener.listen(1)
        listener.settimeout(wait.PATIENCE)
        near.settimeout(wait.PATIENCE)
        near.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        near.connect((address, PORT))
        far = listener.accept()[0]
        far.settimeout(wait.PATIENCE)
        with far:
            yield near, far


def has_ended(sender):
    """Whether a connection ends whose last bytes were not let through. Its program reads the end of it. What TCP repeats of the bytes is
    answered by a reset, which a program gets that reads later than that.
    """
    try:
        return sender.recv(100) == b""
    except ConnectionResetError:
        return True


def exactly(end, count):
    read = b""
    while len(read) < count:
        part = end.recv(count - len(read))
        assert part, (len(read), count)
        read += part
    return read


def received(end, content):
    """Sends content from another thread of the other end, and reads it."""
    far, near = end
    sender = threading.Thread(target=near.sendall, args=(content,), daemon=True)
    sender.start()
    read = exactly(far, len(content))
    sender.join()
    return read


def content_with_words(rng):
    """Random bytes with words in them, and where each word ends: {(word, position)}."""
    content = b"".join(rng.randbytes(rng.randrange(3000)) + rng.choice(WORDS) for _ in range(60))
    return content, {(word.decode(), found.end()) for word in WORDS for found in re.finditer(re.escape(word), content)}


def found_in(log):
    """The words of a log, and where each of them ends."""
    text = log.read_text(encoding="ascii") if log.exists() else ""
    return {(word, int(end)) for word, end in re.findall(r'match: "(.*)" ends at byte (\d+) of tcp', text)}


@pytest.mark.parametrize("address", [SERVER4, SERVER6])
def test_positions_are_found_wherever_segments_are_cut(root, make_daemon, tmp_path, address):
    log = tmp_path / "match.log"
    function = f'"{WORDS[0].decode()}" {WORDS[1].decode()} alert forward log {log}'
    bad = Impairment(loss=5, duplication=30, reordering=40, cuts=400)
    bench = BadBench(make_daemon, configuration(function), seed=3, before=bad)
    try:
        content, expected = content_with_words(random.Random(4))
        with connection(bench, address) as (near, far):
            assert received((far, near), content) == content
        wait.until(lambda: len(found_in(log)) >= len(expected), "a line for each word")
        assert found_in(log) == expected
        assert report(bench.daemon, "m")["matches"] == str(len(expected))
    finally:
        bench.close()


@pytest.mark.parametrize("address", [SERVER4, SERVER6])
def test_a_connection_with_a_word_is_reset(make_wire, address):
    wire = make_wire("af-packet", configuration('"evil word" reset'))
    with connection(wire, address) as (near, far):
        near.sendall(b"an evil ")
        assert exactly(far, 8) == b"an evil "
        near.sendall(b"word")
        for end in (near, far):
            with pytest.raises(ConnectionResetError):
                end.recv(100)
    wait.until(lambda: wire.daemon.drops().get("match"), "the drop")
    assert report(wire.daemon, "m")["reset sessions"] == "1"


@pytest.mark.parametrize("address", [SERVER4, SERVER6])
def test_a_connection_with_a_word_is_closed(make_wire, address):
    """Both programs read the end, and nothing of the packet with the end of the word."""
    wire = make_wire("af-packet", configuration('"/evil +word/i" close'))
    with connection(wire, address) as (near, far):
        near.sendall(b"an EVIL ")
        assert exactly(far, 8) == b"an EVIL "
        near.sendall(b"word and more")
        assert far.recv(100) == b"" and has_ended(near)
    for namespace in (wire.client, wire.server):
        waiting = ("ss", "-tanH", "state", "last-ack", "state", "fin-wait-1", "state", "closing")
        wait.until(lambda one=namespace: not one.run(*waiting).stdout, "the end of the sockets")
    assert report(wire.daemon, "m")["closed sessions"] == "1"


@pytest.mark.parametrize("addresses", [(CLIENT4, SERVER4), (CLIENT6, SERVER6)])
def test_a_word_in_two_datagrams(make_wire, addresses):
    wire = make_wire("af-packet", configuration("word reset"))
    family = socket.AF_INET6 if ":" in addresses[1] else socket.AF_INET
    sockets = [wire.client.socket(family, socket.SOCK_DGRAM), wire.server.socket(family, socket.SOCK_DGRAM)]
    with sockets[0] as near, sockets[1] as far:
        far.bind((addresses[1], PORT))
        far.settimeout(wait.PATIENCE)
        near.connect((addresses[1], PORT))
        near.send(b"a wo")
        assert far.recv(100) == b"a wo"
        near.send(b"rd")
        wait.until(lambda: report(wire.daemon, "m")["reset sessions"] == "1", "the match")
        near.send(b"more")
        wait.until(lambda: wire.daemon.drops().get("match", 0) >= 2, "the drops")


@contextlib.contextmanager
def datagrams(client, server, address):
    """Two sockets of UDP. The one at the server has no checksum of its own over IPv4 in what it sends."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with client.socket(family, socket.SOCK_DGRAM) as near, server.socket(family, socket.SOCK_DGRAM) as far:
        far.bind((address, PORT))
        near.connect((address, PORT))
        for one in (near, far):
            one.settimeout(wait.PATIENCE)
        if family == socket.AF_INET:
            far.setsockopt(socket.SOL_SOCKET, SO_NO_CHECK, 1)
        yield near, far


def exchange_datagrams(client, server, address):
    """Kernels verify lengths and checksums of edited datagrams."""
    with datagrams(client, server, address) as (near, far):
        for text in (b"an evil word", b"evil" * 90, b"none"):
            near.send(text)
            received, sender = far.recvfrom(4000)
            assert received == text.replace(b"evil", b"harmless")
            far.sendto(text, sender)
            assert near.recv(4000) == text.replace(b"evil", b"harmless")
        for text, expected in ((b"an ev", b"an ev"), (b"il word", b"harmless word")):
            near.send(text)
            assert far.recv(4000) == expected
        # One byte too long with another word, and just short enough.
        headers = 48 if ":" in address else 28
        for length, is_edited in ((1500 - headers - 3, False), (1500 - headers - 4, True)):
            text = b"evil".rjust(length, b".")
            near.send(text)
            assert far.recv(4000) == (text.replace(b"evil", b"harmless") if is_edited else text)


EDITED = 2 * 91 + 2


@pytest.mark.parametrize("driver, address", [("af-packet", SERVER4), ("af-xdp", SERVER6)])
def test_edits_of_datagrams(make_wire, driver, address):
    wire = make_wire(driver, configuration("evil replace harmless"))
    exchange_datagrams(wire.client, wire.server, address)
    names = ("edited", "edited in two datagrams", "not edited: mtu")
    assert [report(wire.daemon, "m")[name] for name in names] == [str(EDITED), "1", "1"]
    listed = wire.daemon.json("show", "functions")["functions"]
    counts = next(one["stream"] for one in listed if one["name"] == "(stream)")
    assert (counts["events"]["edits"], counts["refused"]["mtu"]) == (EDITED, 1)
    # The last word that was split had two bytes left.
    assert (counts["bytes"]["removed"], counts["bytes"]["inserted"]) == (4 * EDITED - 2, 8 * EDITED)
    metrics = wire.daemon.request("GET", "/metrics")[1].decode().splitlines()
    assert 'mmb_stream_refused_total{function="(stream)",reason="mtu"} 1' in metrics
    assert f'mmb_stream_events_total{{function="(stream)",event="edits"}} {EDITED}' in metrics


@pytest.mark.parametrize("address", [routebench.SERVER, routebench.SERVER6])
def test_edits_of_datagrams_on_a_router(make_router, address):
    router = make_router(configuration("evil replace harmless"))
    exchange_datagrams(router.client, router.servers, address)


def test_ten_thousand_patterns_are_reloaded_under_load(make_wire):
    wire = make_wire("af-packet")
    words = wire.daemon.state_directory / "files" / "words.txt"
    lines = [f"word{number:06d}" for number in range(10_000)]
    words.write_text("\n".join(["# old", *lines]), encoding="ascii")
    for line in configuration("file words.txt alert").splitlines():
        wire.daemon.line(line)
    with connection(wire, SERVER4) as (near, far):
        assert received((far, near), b" word000007 neither") == b" word000007 neither"
        assert report(wire.daemon, "m")['pattern "word000007"'] == "1"
        done, content = threading.Event(), random.Random(5).randbytes(100_000)

        def reload():
            try:
                for number in range(5):
                    words.write_text("\n".join([f"turn{number}", *lines]), encoding="ascii")
                    wire.daemon.line("nf set m reload")
            finally:
                done.set()

        thread = threading.Thread(target=reload, daemon=True)
        thread.start()
        turns = 0
        while not done.is_set() or turns < 2:
            assert received((far, near), content) == content
            turns += 1
        thread.join()
        assert received((far, near), b" turn3 turn4 word000007") == b" turn3 turn4 word000007"
    found = report(wire.daemon, "m")
    assert found["patterns"] == "10001" and found["matches"] == "3"
    assert found['pattern "turn4"'] == "1" and found['pattern "word000007"'] == "2"
    # A file that is wrong changes nothing.
    words.write_text("ok\n/(/\n", encoding="ascii")
    refused = wire.daemon.line("nf set m reload", check=False)
    assert refused.returncode != 0 and "line 2 of" in refused.stderr, refused
    assert report(wire.daemon, "m")["patterns"] == "10001"


def test_replay(tmp_path):
    (tmp_path / "policy").write_text(configuration("/ev.l/ word reset"), encoding="ascii")
    ends = frames.ether() / IP(src=CLIENT4, dst=SERVER4)
    tcp = [("S", 99, b""), ("A", 100, b"an e"), ("A", 106, b"l"), ("A", 104, b"vi")]
    packets = [ends / TCP(sport=4000, dport=PORT, flags=flags, seq=seq) / payload for flags, seq, payload in tcp]
    packets += [ends / UDP(sport=4000, dport=PORT) / payload for payload in (b"wo", b"rd")]
    wrpcap(str(tmp_path / "in.pcap"), packets)
    shown = mmb("replay", "-c", tmp_path / "policy", tmp_path / "in.pcap").stdout
    assert "4 forwarded, 2 dropped" in shown and "dropped, match: 2" in shown, shown


def test_replay_of_edited_datagrams(tmp_path):
    (tmp_path / "policy").write_text(configuration("evil remove"), encoding="ascii")
    ends = frames.ether() / IP(src=CLIENT4, dst=SERVER4)
    texts = [b"an evil word", b"ev", b"il", b"evil"]
    wrpcap(str(tmp_path / "in.pcap"), [ends / UDP(sport=4000, dport=PORT) / text for text in texts])
    mmb("replay", "-c", tmp_path / "policy", tmp_path / "in.pcap", "-w", tmp_path / "out.pcap")
    left = [frame[UDP] for frame in rdpcap(str(tmp_path / "out.pcap"))]
    assert [bytes(one.payload)[: one.len - 8] for one in left] == [b"an  word", b"ev", b"", b""]
