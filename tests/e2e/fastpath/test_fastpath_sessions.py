"""Sessions in the fast path: their state, timers, errors and ends."""

import contextlib
import json
import socket
import subprocess
import time

from scapy.all import ICMP, IP, TCP, Ether

from lab import raw, traffic, wait
from lab.daemon import binary
from lab.fastpath import FIREWALL, fast, hits, learnt, the_connection
from lab.netns import SERVER4


def test_a_firewall_with_sessions(fast_wire):
    """The kernel forwards most of a stream through a stateful firewall; session and rules count all of it."""
    wire = fast_wire(FIREWALL)
    sent, received = traffic.bulk_transfer(wire.client, wire.server, SERVER4)
    assert sent == received
    wait.until(lambda: hits(wire) > 10_000, "what the kernel sent on to be counted")
    wait.until(lambda: fast(wire)["entries"] == 0, "the closed connection to be given up", 30)
    one = the_connection(wire, "tcp-dport", 5001)
    assert one["forward"]["bytes"] > 64 << 20
    every = wire.daemon.json("show", "connections")["connections"]
    packets = sum(one[way]["packets"] for one in every for way in ("forward", "reverse"))
    assert packets == wire.daemon.hits(1) > hits(wire)
    # What the server's kernel says of its own accord is the firewall's to drop.
    assert sum(n for reason, n in wire.daemon.drops().items() if reason != "rule") == 0


def test_sessions_last_while_the_kernel_has_them(fast_wire, stream):
    wire = fast_wire(FIREWALL + "set timeout udp-unreplied 2\n")
    one = stream(wire.client, wire.server, SERVER4)
    learnt(wire, one)
    datagrams = ("udp-dport", 7000)
    before, uid = hits(wire), the_connection(wire, *datagrams)["uid"]
    for _ in range(25):
        one.send(4)
        time.sleep(0.2)
    assert the_connection(wire, *datagrams)["uid"] == uid
    assert hits(wire) >= before + 96
    wait.until(lambda: not wire.daemon.json("show", "connections", *datagrams)["connections"], "the session to end")
    one.send(4)


def test_a_captured_session_comes_back_from_the_kernel(fast_wire, stream, tmp_path):
    """`capture session` sees each packet of a flow that the kernel forwarded, which has it back afterwards."""
    wire = fast_wire(FIREWALL)
    one = stream(wire.client, wire.server, SERVER4)
    learnt(wire, one)
    name = the_connection(wire, "udp-dport", 7000)["id"]
    command = [binary(), "capture", "session", name, "count", "500", "--json", "--socket", wire.daemon.socket]
    output = tmp_path / "captured"
    with output.open("w") as file:
        process = subprocess.Popen([str(word) for word in command], stdout=file)
    one.until(lambda: process.poll() is not None, "packets of the session")
    captured = json.loads(output.read_text(encoding="utf-8"))
    assert len(captured["packets"]) == 500
    assert {packet["summary"].split()[0] for packet in captured["packets"]} == {"udp"}
    learnt(wire, one)


def test_what_is_cleared_is_gone_at_once(fast_wire):
    wire = fast_wire(FIREWALL + "set tcp-pickup off\n")
    with wire.server.entered():
        listener = socket.create_server((SERVER4, 5001))
    client = wire.client.socket(socket.AF_INET, socket.SOCK_STREAM)
    with listener, client:
        client.connect((SERVER4, 5001))
        connection, _ = listener.accept()
        connection.settimeout(5)

        def more():
            for _ in range(20):
                client.sendall(b"x" * 64)
                assert connection.recv(64, socket.MSG_WAITALL)
            return hits(wire)

        with connection:
            wait.until(more, "the kernel to take over")
            wire.daemon.line("clear connections")
            time.sleep(0.2)
            before = hits(wire)
            client.sendall(b"y")
            wait.until(lambda: wire.daemon.drops()["session-middle"] + wire.daemon.drops()["rule"], "it to be dropped")
            assert hits(wire) == before


ROUNDS = 30


def test_an_icmp_error_and_the_next_segment(fast_wire, figure):
    """An ICMP error takes the way by the engine, and the segment behind it the one by the kernel. Both arrive; the
    segment may be first, as on two paths of a network (RFC 791 promises no order). The engine knows what the kernel
    has forwarded, so that the error counts though no segment that it quotes came to the engine.
    """
    wire = fast_wire(FIREWALL)
    sniffer, sink, source = (
        raw.RawPort(*end) for end in ((wire.server, "s0"), (wire.client, "c0"), (wire.server, "s0"))
    )
    with wire.server.entered():
        listener = socket.create_server((SERVER4, 5001))
    client = wire.client.socket(socket.AF_INET, socket.SOCK_STREAM)
    with listener, client, contextlib.closing(sniffer), contextlib.closing(sink), contextlib.closing(source):
        client.connect((SERVER4, 5001))
        connection, _ = listener.accept()
        connection.settimeout(wait.PATIENCE)

        def exchange():
            client.sendall(b"x" * 64)
            assert connection.recv(64, socket.MSG_WAITALL)

        def more():
            for _ in range(20):
                exchange()
            return hits(wire)

        with connection:
            wait.until(more, "the kernel to take over")
            overtaken = 0
            for number in range(ROUNDS):
                sniffer.drain()
                exchange()
                segment = None
                while segment is None:
                    wait.readable([sniffer], wait.PATIENCE)
                    frame = Ether(sniffer.receive_one())
                    segment = frame if TCP in frame and frame[TCP].dport == 5001 and len(frame[TCP].payload) >= 64 else None
                tcp, link = segment[TCP], Ether(src=segment.dst, dst=segment.src)
                # The next segment of the client, which is on its way as far as anybody knows.
                quoted = IP(src=segment[IP].src, dst=SERVER4, len=104) / TCP(
                    sport=tcp.sport, dport=5001, seq=tcp.seq + 64, ack=tcp.ack, flags="A")
                error = link / IP(src=SERVER4, dst=segment[IP].src, id=number) / ICMP(type=11) / bytes(quoted)[:28]
                answer = link / IP(src=SERVER4, dst=segment[IP].src, id=40_000 + number) / TCP(
                    sport=5001, dport=tcp.sport, seq=tcp.ack, ack=tcp.seq + 64, flags="A", window=500)
                sink.drain()
                source.send(error)
                source.send(answer)
                order = []
                while len(order) < 2:
                    assert wait.readable([sink], wait.PATIENCE), f"round {number}: {order} of two packets"
                    frame = Ether(sink.receive_one())
                    if IP in frame and frame[IP].id in (number, 40_000 + number) and frame[IP].src == SERVER4:
                        order.append(frame[IP].id)
                overtaken += order[0] != number
            figure("segments in the fast path that overtook an ICMP error", f"{overtaken} of {ROUNDS}")
            exchange()
            assert wire.daemon.drops()["icmp-forged"] == 0
            assert the_connection(wire, "tcp-dport", 5001)["state"] == "established"


def test_forged_segments_neither_close_a_connection_nor_slow_it_down(fast_wire):
    """FINs, RSTs and SYNs with guessed numbers, from either side, while the kernel forwards the connection."""
    wire = fast_wire(FIREWALL)
    with wire.server.entered():
        listener = socket.create_server((SERVER4, 5001))
    client = wire.client.socket(socket.AF_INET, socket.SOCK_STREAM)
    macs = [wire.client.run("cat", "/sys/class/net/c0/address").stdout.strip()]
    macs.append(wire.server.run("cat", "/sys/class/net/s0/address").stdout.strip())
    left, right = raw.RawPort(wire.client, "c0"), raw.RawPort(wire.server, "s0")
    with listener, client, contextlib.closing(left), contextlib.closing(right):
        client.connect((SERVER4, 5001))
        connection, _ = listener.accept()
        (host, port), state = client.getsockname(), lambda: the_connection(wire, "tcp-dport", 5001)["state"]
        with connection:

            def talk(count):
                for _ in range(count):
                    client.sendall(b"x" * 100)
                    assert connection.recv(100, socket.MSG_WAITALL)
                    connection.sendall(b"y" * 100)
                    assert client.recv(100, socket.MSG_WAITALL)

            def forged(flags, seq):
                ends = [(left, macs, (host, port), (SERVER4, 5001)), (right, macs[::-1], (SERVER4, 5001), (host, port))]
                for raw_port, (own, other), (source, sport), (destination, dport) in ends:
                    segment = TCP(sport=sport, dport=dport, flags=flags, seq=seq, ack=(seq + (1 << 31)) % (1 << 32))
                    raw_port.send(Ether(src=own, dst=other) / IP(src=source, dst=destination) / segment)

            def forwarded():
                before = hits(wire)
                talk(20)
                wait.until(lambda: hits(wire) >= before + 40, "the kernel to forward the connection")

            talk(5)
            forwarded()
            # The first SYN of each side is noted, and revokes the entries. Nothing else does.
            installed = fast(wire)["installed"]
            forged("S", 1)
            wait.until(lambda: talk(1) or fast(wire)["installed"] >= installed + 2, "the connection to be offloaded again")
            forwarded()
            installed = fast(wire)["installed"]
            for guess in range(0, 1 << 32, 1 << 26):
                for flags in ("FA", "R", "RA", "S"):
                    forged(flags, guess)
            forged("FA", 3_000_000_000)
            talk(5)
            forwarded()
            assert (state(), fast(wire)["installed"]) == ("established", installed)
            client.shutdown(socket.SHUT_WR)
            assert connection.recv(1) == b""
        assert client.recv(1) == b""
        wait.until(lambda: state() == "closed", "the connection to close")


def test_a_connection_is_open_when_the_kernel_has_seen_it(fast_wire):
    """The client sends no data: the ACK of the handshake is the only packet that the kernel forwards."""
    wire = fast_wire(FIREWALL)
    with wire.server.entered():
        listener = socket.create_server((SERVER4, 5001))
    client = wire.client.socket(socket.AF_INET, socket.SOCK_STREAM)
    with listener, client:
        time.sleep(0.1)
        before = hits(wire)
        client.connect((SERVER4, 5001))
        connection, _ = listener.accept()
        with connection:
            wait.until(lambda: the_connection(wire, "tcp-dport", 5001)["state"] == "established", "it to be known")
            assert hits(wire) == before + 1
            entry = the_connection(wire, "tcp-dport", 5001)
            assert [entry[way]["packets"] for way in ("forward", "reverse")] == [2, 1], "the engine has seen the SYNs"


def test_connections_that_nobody_acknowledges(fast_wire):
    """SYNs from absent hosts: the SYN-ACKs open no session, and no slot is kept."""
    wire = fast_wire(FIREWALL + "set timeout tcp-handshake 2\n")
    mac = wire.client.run("cat", "/sys/class/net/c0/address").stdout.strip()
    to = wire.server.run("cat", "/sys/class/net/s0/address").stdout.strip()
    network = SERVER4.rsplit(".", 1)[0]
    absent = [f"{network}.{n}" for n in range(200, 240)]
    for address in absent:
        wire.server.run("ip", "neigh", "replace", address, "lladdr", mac, "dev", "s0")
    with wire.server.entered():
        listener = socket.create_server((SERVER4, 5001))
    port = raw.RawPort(wire.client, "c0")
    with listener, contextlib.closing(port):
        time.sleep(0.1)
        before = fast(wire)
        for address in absent:
            port.send(Ether(src=mac, dst=to) / IP(src=address, dst=SERVER4) / TCP(sport=4000, dport=5001, flags="S", seq=7))
        open_ones = lambda: wire.daemon.json("show", "connections", "tcp-dport", 5001)["connections"]  # noqa: E731
        wait.until(lambda: fast(wire)["installed"] > before["installed"], "some to be lent")
        assert {one["state"] for one in open_ones()} <= {"syn-sent", "syn-received"}
        assert fast(wire)["packets"] == before["packets"], "nothing for the kernel to send on"
        wait.until(lambda: not open_ones(), "sessions to end on time", 20)
        wait.until(lambda: fast(wire)["entries"] < 5, "places to be free again")


def test_a_flood_of_first_packets_does_little(fast_wire):
    """Unanswered connections occupy a few slots at most, for one second."""
    wire = fast_wire("add udp-dport > 0 accept\n")
    sender = wire.client.socket(socket.AF_INET, socket.SOCK_DGRAM)
    receiver = wire.server.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with sender, receiver:
        receiver.bind((SERVER4, 7100))
        before, began = fast(wire)["installed"], time.monotonic()
        for port in range(10_000, 30_000):
            sender.sendto(b"x", (SERVER4, port))
        # A machine that is busy may lose some of them on the way.
        wait.until(lambda: wire.daemon.hits(1) >= 5_000, "many to be treated", 20)
        passed = time.monotonic() - began
    # A thousand a second, those at once, and some for what the ends say of their own accord.
    assert fast(wire)["installed"] - before < 1000 * passed + 200
    wait.until(lambda: fast(wire)["entries"] < 50, "places to be free again")
