"""The fast path at XDP and at tc: offloaded flows, and their revocation."""

import concurrent.futures
import contextlib
import json
import os
import signal
import socket
import struct
import subprocess
import time

import pytest
from scapy.all import ICMP, IP, TCP, Ether

from lab import raw, traffic, wait
from lab.daemon import FrozenThread, binary
from lab.natbench import INSIDE, SERVER, Mirror, Speaker
from lab.netns import CLIENT4, SERVER4, SERVER6
from lab.routebench import SERVER as FAR4
from lab.routebench import SERVER6 as FAR6
from lab.routebench import answered, ping

ON = "set fast-path auto\n"


def receives_by_napi(namespace, *interfaces):
    """Enables GRO, which a veth needs to receive redirected frames."""
    for interface in interfaces:
        namespace.run("ethtool", "-K", interface, "gro", "on")


@pytest.fixture(params=["af-xdp", "af-packet"])
def ports(request):
    """The kind of ports, each of which has a fast path of its own. The end points' segmentation offload is on."""
    return request.param


XDP_ONLY = pytest.mark.parametrize("ports", ["af-xdp"])
TC_ONLY = pytest.mark.parametrize("ports", ["af-packet"])


@pytest.fixture
def fast_wire(make_wire, ports):
    """fast_wire(config) -> a wire with the fast path on, whose end points accept redirected frames."""

    def make(config="", workers=1, **options):
        wire = make_wire(ports, ON + config, workers=workers, **options)
        wire.right.close()
        wire.left.close()
        wire.bench.know_neighbours()
        receives_by_napi(wire.client, "c0")
        receives_by_napi(wire.server, "s0")
        wait.until(lambda: all(i["egress"] for i in fast(wire)["interfaces"]), "interfaces to take frames")
        return wire

    return make


def fast(bench):
    return bench.daemon.json("show", "fast-path")


def hits(bench):
    return fast(bench)["packets"]


class Stream:
    """Sends numbered datagrams, a few in flight at a time, until a condition holds."""

    def __init__(self, client, server, address, port=7000):
        self.datagrams = traffic.Datagrams(client, server, address, port=port)

    def until(self, condition, what):
        def more():
            for _ in range(16):
                self.datagrams.send(4)
                self.datagrams.settle()
            return condition()

        return wait.until(more, what)

    def send(self, count):
        self.datagrams.send(count)
        self.datagrams.settle()

    def close(self):
        self.datagrams.close()


@pytest.fixture
def stream():
    streams = []

    def make(*arguments, **options):
        streams.append(Stream(*arguments, **options))
        return streams[-1]

    yield make
    for one in streams:
        one.close()


def learnt(bench, one):
    """Sends datagrams until the kernel forwards them; returns how many it has forwarded."""
    before = hits(bench)
    return one.until(lambda: hits(bench) > before and hits(bench), "the kernel to take over")


def test_off_unless_it_is_switched_on(make_wire, stream):
    wire = make_wire("af-xdp")
    wire.right.close()
    wire.bench.know_neighbours()
    stream(wire.client, wire.server, SERVER4).send(2048)
    shown = fast(wire)
    assert (shown["enabled"], shown["active"], shown["entries"], shown["packets"]) == (False, False, 0, 0)
    assert "fast-path" not in wire.daemon.command("show", "config").stdout
    wire.daemon.line("set fast-path auto")
    assert "set fast-path auto\n" in wire.daemon.command("show", "config").stdout
    assert fast(wire)["active"]


@pytest.mark.parametrize("address", [SERVER4, SERVER6])
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(
    "matches, others, key",
    [("udp-dport 7000", "! tcp-dport 9", "flow"), ("udp-dport 7000", "all", "pair"), ("udp-dport", "all", "pair")],
)
def test_every_packet_is_counted_wherever_it_went(fast_wire, stream, address, workers, matches, others, key):
    wire = fast_wire(f"add {matches} accept\nadd {others} accept\n", workers=workers)
    one = stream(wire.client, wire.server, address)
    learnt(wire, one)
    one.send(20_000)
    wait.until(lambda: hits(wire) > 15_000, "what the kernel sent on to be counted")
    sent = one.datagrams.sent
    wait.until(lambda: wire.daemon.hits(1) >= sent, "the rule to have all")
    assert wire.daemon.hits(1) == sent
    assert fast(wire)["key"] == key
    shown = wire.daemon.interfaces()
    assert shown["left"]["rx_packets"] >= sent <= shown["right"]["tx_packets"]
    assert sum(wire.daemon.drops().values()) == 0


def test_a_rule_holds_from_its_command_on(fast_wire, stream):
    wire = fast_wire("add all accept\n")
    one = stream(wire.client, wire.server, SERVER4)
    for _ in range(3):
        learnt(wire, one)
        wire.daemon.command("flush")
        index = wire.daemon.add("udp-dport 7000 drop")
        before = len(one.datagrams.arrived)
        for _ in range(300):
            one.datagrams.sender.send(struct.pack("!Q", 1 << 40) + bytes(40))
        wait.until(lambda index=index: wire.daemon.hits(index) == 300, "all to be dropped")
        one.datagrams.collect()
        assert len(one.datagrams.arrived) == before
        wire.daemon.command("del", index)


def test_elements_of_a_set_hold_from_their_command_on(fast_wire, stream):
    """Flows that the kernel forwards return to the rules when an element comes; without it they are learnt again."""
    wire = fast_wire("set add blocked address\nadd all accept\nadd ip-saddr @blocked block\n")
    one = stream(wire.client, wire.server, SERVER4)
    for _ in range(2):
        learnt(wire, one)
        wire.daemon.line(f"set blocked add {CLIENT4}")
        before, dropped = len(one.datagrams.arrived), wire.daemon.drops()["rule"]
        for _ in range(300):
            one.datagrams.sender.send(struct.pack("!Q", 1 << 40) + bytes(40))
        wait.until(lambda dropped=dropped: wire.daemon.drops()["rule"] == dropped + 300, "all to be dropped")
        one.datagrams.collect()
        assert len(one.datagrams.arrived) == before
        wire.daemon.line(f"set blocked del {CLIENT4}")


def test_an_element_concerns_its_sessions_only(fast_wire, stream):
    """With stateful rules, flows with other addresses stay in the kernel when an element comes."""
    wire = fast_wire("set add blocked address\nadd-stateful all accept\nadd ip-saddr @blocked block\n")
    one = stream(wire.client, wire.server, SERVER4)
    learnt(wire, one)
    installed = fast(wire)["installed"]
    for number in range(20):
        wire.daemon.line(f"set blocked add 192.0.2.{number}")
        one.send(64)
    learnt(wire, one)
    assert fast(wire)["installed"] == installed
    wire.daemon.line(f"set blocked add {CLIENT4}")
    before, dropped = len(one.datagrams.arrived), wire.daemon.drops()["rule"]
    for _ in range(300):
        one.datagrams.sender.send(struct.pack("!Q", 1 << 40) + bytes(40))
    wait.until(lambda: wire.daemon.drops()["rule"] == dropped + 300, "all to be dropped")
    one.datagrams.collect()
    assert len(one.datagrams.arrived) == before


def test_ports_of_a_pair(fast_wire, stream):
    """If no rule reads ports, one entry covers a pair of addresses; a new rule that reads ports takes effect
    at once.
    """
    wire = fast_wire("add ip-daddr 192.0.2.1 udp-dport 7001 drop\n")
    assert fast(wire)["key"] == "pair"
    one, other = stream(wire.client, wire.server, SERVER4), stream(wire.client, wire.server, SERVER4, port=7001)
    learnt(wire, one)
    before = fast(wire)["installed"]
    for port in range(8000, 8200):
        stream(wire.client, wire.server, SERVER4, port=port).send(8)
    assert fast(wire)["installed"] < before + 20
    for _ in range(3):
        other.until(lambda before=hits(wire): hits(wire) > before, "the kernel to have it")
        index = wire.daemon.add(f"ip-daddr {SERVER4} udp-dport 7001 drop")
        for count in (300, 600):
            arrived = len(other.datagrams.arrived)
            for _ in range(300):
                other.datagrams.sender.send(struct.pack("!Q", 1 << 40) + bytes(40))
            wait.until(lambda index=index, count=count: wire.daemon.hits(index) == count, "all to be dropped")
            other.datagrams.collect()
            assert len(other.datagrams.arrived) == arrived
            learnt(wire, one)
        wire.daemon.command("del", index)
        other.send(64)


def test_rules_that_come_and_go_lose_nothing(fast_wire, stream):
    wire = fast_wire()
    one = stream(wire.client, wire.server, SERVER4)
    for _ in range(20):
        index = wire.daemon.add("udp-dport 9 drop")
        one.send(512)
        wire.daemon.command("del", index)
        one.send(512)
    learnt(wire, one)
    wire.daemon.line("set fast-path off")
    wait.until(lambda: fast(wire)["entries"] == 0, "all flows to be given up")
    before = hits(wire)
    one.send(2048)
    assert hits(wire) == before
    assert sum(wire.daemon.drops().values()) == 0


def test_other_rules_keep_it_off_and_say_so(fast_wire, stream):
    wire = fast_wire("add ip-ttl 1 drop\n")
    one = stream(wire.client, wire.server, SERVER4)
    one.send(2048)
    shown = fast(wire)
    assert (shown["enabled"], shown["active"], shown["packets"]) == (True, False, 0)
    assert "rule 1" in shown["obstacle"] and "ip-ttl" in shown["obstacle"]
    assert "ip-ttl" in wire.daemon.command("show", "fast-path").stdout
    wire.daemon.command("del", 1)
    learnt(wire, one)


@XDP_ONLY
def test_frames_are_not_sent_where_they_would_be_lost(fast_wire, stream):
    """A veth whose peer does not use NAPI accepts no redirected frames: the engine forwards, and no packet is
    lost.
    """
    wire = fast_wire()
    wire.server.run("ethtool", "-K", "s0", "gro", "off")
    wait.until(lambda: not fast(wire)["interfaces"][1]["egress"], "mmb to see it")
    time.sleep(0.2)
    one = stream(wire.client, wire.server, SERVER4)
    one.send(4096)
    shown = fast(wire)
    assert shown["packets"] == 0 and shown["refused"]["no-redirect"] > 0
    assert "gro on" in shown["interfaces"][1]["reason"]


@XDP_ONLY
def test_ports_are_checked_before_flows_are_learned(fast_wire, stream):
    """No flow is refused at the start because nobody has asked yet whether its egress port takes frames."""
    wire = fast_wire("add-stateful all accept\n")
    one = stream(wire.client, wire.server, SERVER4)
    for _ in range(5):
        wire.server.run("ethtool", "-K", "s0", "gro", "off")
        wait.until(lambda: not fast(wire)["interfaces"][1]["egress"], "mmb to see it")
        wire.daemon.line("set fast-path off")
        receives_by_napi(wire.server, "s0")
        refused, before = fast(wire)["refused"], hits(wire)
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            one.until(pool.submit(wire.daemon.line, "set fast-path auto").done, "the fast path to be on")
        one.until(lambda before=before: hits(wire) > before, "the kernel to take over")
        assert fast(wire)["refused"] == refused


def test_tcp_with_unfinished_checksums(fast_wire):
    """Both end points use checksum offload, the default of Linux on a veth."""
    wire = fast_wire("add all accept\n")
    sent, received = traffic.bulk_transfer(wire.client, wire.server, SERVER4)
    assert sent == received
    wait.until(lambda: hits(wire) > 10_000, "what the kernel sent on to be counted")


@pytest.fixture
def fast_router(make_router, ports):
    def make(config=""):
        bench = make_router(ON + config, driver=ports)
        # At tc, the ends have no GRO: packets go past the interfaces of the box.
        if ports == "af-xdp":
            receives_by_napi(bench.client, "c0")
            receives_by_napi(bench.servers, "s0")
        wait.until(lambda: all(i["egress"] for i in fast(bench)["interfaces"][:2]), "interfaces to take frames")
        return bench

    return make


@pytest.mark.parametrize("address", [FAR4, FAR6])
def test_a_router_in_the_kernel(fast_router, address):
    """The TTL of pings is decremented in both directions, by the engine and by the kernel."""
    bench = fast_router("add all accept\n")
    # The addresses of twins are tentative for a while (RFC 4862, 5.4).
    wait.until(lambda: "ttl=" in ping(bench.client, address), "the first answer")
    ttls = answered(bench.client, address, "-i", "0.002", count=400)
    assert set(ttls) == {63}
    wait.until(lambda: hits(bench) > 300, "what the kernel sent on to be counted")


def test_routes_hold_at_once(fast_router, stream):
    bench = fast_router()
    one = stream(bench.client, bench.servers, FAR4)
    learnt(bench, one)
    bench.ip("route add blackhole 10.2.0.2/32")
    bench.until_routed(FAR4, "blackhole")
    # What was counted before is credited within a tenth of a second.
    time.sleep(0.2)
    before = hits(bench)
    for _ in range(200):
        one.datagrams.sender.send(bytes(48))
    wait.until(lambda: bench.daemon.drops()["blackhole"] >= 200, "all to be dropped")
    assert hits(bench) == before


def test_addresses_are_rewritten(fast_router):
    """The kernel applies `mod` of a destination: datagrams arrive at another address and port."""
    bench = fast_router("add udp-dport 4000 mod ip-daddr 10.9.0.7 mod udp-dport 4001\n")
    receiver = bench.servers.socket(socket.AF_INET, socket.SOCK_DGRAM)
    receiver.bind(("10.9.0.7", 4001))
    receiver.setblocking(False)
    sender = bench.client.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sender.connect((FAR4, 4000))
    bench.ip("route add 10.9.0.0/16 via 10.2.0.2")
    bench.until_routed("10.9.0.7")
    sent = 0
    with receiver, sender:
        while hits(bench) < 100 and sent < 20_000:
            for number in range(sent, sent + 8):
                sender.send(struct.pack("!Q", number))
            for number in range(sent, sent + 8):
                assert wait.readable([receiver], 5), f"datagram {number} is missing"
                data, (source, _) = receiver.recvfrom(64)
                assert struct.unpack("!Q", data) == (number,) and source == "10.1.0.2"
            sent += 8
    assert hits(bench) >= 100


def test_nothing_about_the_interface_is_left_when_it_goes(fast_wire, stream, ports):
    wire = fast_wire()
    one = stream(wire.client, wire.server, SERVER4)
    learnt(wire, one)
    for line in ("wire del left", "interface del right", f"interface add right {ports} m1", "wire left right"):
        wire.daemon.line(line)
    learnt(wire, one)
    shown = wire.bench.mbox.run("ip", "-o", "link", "show").stdout
    assert shown.count(" m1@") == 1 and ("xdp" in shown) == (ports == "af-xdp")


def frame_size(bench, interface):
    """(frames, bytes) that an interface of the box has received."""
    counted = bench.mbox.run("cat", *(f"/sys/class/net/{interface}/statistics/rx_{what}" for what in ("packets", "bytes")))
    return [int(word) for word in counted.stdout.split()]


@TC_ONLY
@pytest.mark.parametrize("address", [SERVER4, SERVER6])
def test_buffers_of_many_segments_stay_whole(fast_wire, address):
    """The offload of the ends stays on, and their buffers are forwarded as they are, through a stateful firewall. The
    counters have the segments."""
    wire = fast_wire(FIREWALL)
    frames, octets = frame_size(wire, "m0")
    sent, received = traffic.bulk_transfer(wire.client, wire.server, address, size=256 << 20)
    assert sent == received
    frames, octets = (after - before for after, before in zip(frame_size(wire, "m0"), (frames, octets), strict=True))
    # On a busy machine they are smaller, but still of several segments.
    assert octets / frames > 2 * 1514
    assert "tcp-segmentation-offload: on" in wire.client.run("ethtool", "-k", "c0").stdout
    wait.until(lambda: hits(wire) > 150_000, "segments to be counted")
    assert wire.daemon.drops().get("gso-frame", 0) == 0
    wait.until(lambda: wire.daemon.interfaces()["left"]["rx_packets"] > 150_000, "the interface to have them")


@TC_ONLY
@pytest.mark.parametrize("address", [FAR4, FAR6])
def test_routed_packets_go_past_the_interface(fast_router, address):
    """The kernel gives them to the other end of the veth pair, unless that end has GRO or an XDP program. A connection
    lives on when that changes, and mmb's counters have all packets."""
    bench = fast_router("add all accept\n")

    def through():
        return int(bench.mbox.run("cat", "/sys/class/net/m1/statistics/tx_packets").stdout)

    def download(size):
        before = through()
        sent, received = traffic.bulk_transfer(bench.client, bench.servers, address, size=size)
        assert sent == received
        return through() - before

    download(1 << 20)
    # The first packets are the engine's, which sends them out of the interface.
    assert download(64 << 20) < 100
    receives_by_napi(bench.servers, "s0")
    wait.until(lambda: download(64 << 20) > 1_000, "packets to go through the interface")
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        running = pool.submit(traffic.bulk_transfer, bench.client, bench.servers, address, 5002, 512 << 20)
        bench.servers.run("ethtool", "-K", "s0", "gro", "off")
        sent, received = running.result()
    assert sent == received
    wait.until(lambda: download(64 << 20) < 100, "packets to go past the interface again")
    wait.until(lambda: bench.daemon.interfaces()["right"]["tx_bytes"] > 640 << 20, "the interface to have them")
    assert sum(bench.daemon.drops().values()) == 0


@TC_ONLY
@pytest.mark.parametrize("address", [SERVER4, SERVER6])
def test_functions_get_buffers_whole(fast_wire, address):
    """Sessions that pass a function stay in the engine, which gets their buffers as one packet each."""
    wire = fast_wire("nf add m payload-count\nchain add c m\nadd-stateful in left tcp-dport 5001 chain c\n")
    assert fast(wire)["active"]
    sent, received = traffic.bulk_transfer(wire.client, wire.server, address, size=16 << 20)
    assert sent == received
    assert hits(wire) == 0 and (16 << 20) // 65_536 < wire.daemon.hits(1) < 5_000
    assert sum(wire.daemon.drops().values()) == 0


@TC_ONLY
def test_ends_of_connections_reach_the_engine(fast_wire):
    """Buffers of many segments with FIN go to the engine, which closes the session."""
    wire = fast_wire(FIREWALL)
    for port in range(5001, 5021):
        sent, received = traffic.bulk_transfer(wire.client, wire.server, SERVER4, port=port, size=300_000)
        assert sent == received
    wait.until(lambda: fast(wire)["entries"] == 0, "the closed connections to be given up", 30)
    states = {the_connection(wire, "tcp-dport", port)["state"] for port in range(5001, 5021)}
    # Whoever closes before the last segment of the other end has come answers it with RST.
    assert states <= {"closed", "time-wait", "reset"}, states


@TC_ONLY
def test_the_setting_chooses_the_program(fast_wire):
    wire = fast_wire()
    shown = fast(wire)
    assert (shown["mode"], [one["program"] for one in shown["interfaces"]]) == ("auto", ["tc", "tc"])
    assert "left: in and out at tc\n" in wire.daemon.command("show", "fast-path").stdout
    wire.daemon.line("set fast-path xdp")
    assert not any(one["ingress"] for one in fast(wire)["interfaces"])
    assert "leaves it out" in wire.daemon.command("show", "fast-path").stdout
    sent, received = traffic.bulk_transfer(wire.client, wire.server, SERVER4, size=8 << 20)
    assert sent == received and hits(wire) == 0
    wire.daemon.line("set fast-path tc")
    sent, received = traffic.bulk_transfer(wire.client, wire.server, SERVER4)
    assert sent == received
    wait.until(lambda: hits(wire) > 10_000, "segments to be counted")


FIREWALL = "add-stateful in left accept\nadd all drop\n"
NAT = "nat pool add isp 200.0.0.1\nadd-stateful ip-saddr 10.0.0.0/24 nat isp\n"


def the_connection(bench, *matches):
    (one,) = bench.daemon.json("show", "connections", *matches)["connections"]
    return one


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


def test_a_stream_that_no_function_reads_any_more(fast_wire):
    """`sni` lets go of what does not begin with a ClientHello: the kernel forwards the rest."""
    chain = "nf add names sni errors pass deny a\nchain add tls names\n"
    wire = fast_wire(f"{chain}add-stateful in left tcp-dport 5001 chain tls\n")
    sent, received = traffic.bulk_transfer(wire.client, wire.server, SERVER4)
    assert sent == received
    wait.until(lambda: hits(wire) > 10_000, "what the kernel sent on to be counted")
    assert the_connection(wire, "tcp-dport", 5001)["chain"] == "tls"


def lossy(namespace, one_of):
    """From now on, a namespace loses one of so many packets for it, at random."""
    namespace.run("nft", "add table inet lossy")
    namespace.run("nft", "add chain inet lossy input { type filter hook input priority 0; }")
    namespace.run("nft", f"add rule inet lossy input numgen random mod {one_of} == 0 drop")


LONGER = "a longer name of nginx/"
EDITED = f'nf add words match nginx/ replace "{LONGER}" reverse first 4096\nchain add web words\n'


@pytest.mark.parametrize("address", [SERVER4, SERVER6])
def test_downloads_whose_heads_are_edited(fast_wire, address):
    """The kernel forwards what is behind the head, with the numbers that both ends expect, also if packets are lost
    behind mmb in both directions.
    """
    wire = fast_wire(f"{EDITED}add-stateful in left tcp-dport 80 chain web\n")
    server = traffic.WebServer(wire.server, 80, size=24 << 20)
    url = f"http://[{address}]/file" if ":" in address else f"http://{address}/file"
    try:
        assert f"Server: {LONGER}" in wire.client.run("curl", "-s", "-D", "-", "-o", "/dev/null", url).stdout
        lossy(wire.client, 300)
        lossy(wire.server, 300)
        before = hits(wire)

        def has_forwarded():
            # A download may end before its flow is in the kernel.
            assert traffic.fetch(wire.client, url, patience=40) == server.content
            return hits(wire) > before + 5_000

        wait.until(has_forwarded, "downloads that the kernel forwards", patience=90)
    finally:
        server.close()
    assert sum(wire.daemon.drops().values()) == 0


def test_downloads_with_edited_heads_and_numbers_of_rules(fast_wire):
    """The functions leave behind the head. The numbers of the rule and those of the edits are both kept."""
    wire = fast_wire(f"{EDITED}add-stateful in left tcp-dport 80 shuffle tcp-seq-num shuffle tcp-ack-num chain web\n")
    server = traffic.WebServer(wire.server, 80, size=8 << 20)
    try:
        url = f"http://{SERVER4}/file"
        assert f"Server: {LONGER}" in wire.client.run("curl", "-s", "-D", "-", "-o", "/dev/null", url).stdout
        lossy(wire.client, 300)
        lossy(wire.server, 300)
        assert traffic.fetch(wire.client, url, patience=40) == server.content
    finally:
        server.close()
    assert sum(wire.daemon.drops().values()) == 0


def exchange(near, far, size=1 << 20):
    """Both ends send random bytes at once, and get those of the other end."""
    sent = [os.urandom(size) for _ in range(2)]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        sending = [pool.submit(end.sendall, content) for end, content in zip((near, far), sent)]
        got = [read(end, size) for end in (far, near)]
        for one in sending:
            one.result()
    assert got == sent


def read(end, size):
    content = bytearray()
    while len(content) < size:
        piece = end.recv(size - len(content))
        assert piece, "the connection has ended"
        content += piece
    return bytes(content)


@pytest.mark.parametrize("workers", [1, 2])
def test_functions_that_leave_an_edited_connection(fast_wire, workers):
    """Rules and functions are removed: the kernel forwards the connection with offsets. Later functions of a new chain
    see it, and then the kernel again. Both ends always get what the other one has sent.
    """
    chain = 'nf add words match "evil word" replace "harmless words"\nchain add web words\n'
    wire = fast_wire(f"{chain}add-stateful in left tcp-dport 5001 chain web\n", workers=workers)
    with wire.server.entered():
        listener = socket.create_server((SERVER4, 5001))
    near = wire.client.socket(socket.AF_INET, socket.SOCK_STREAM)
    with listener, near:
        near.connect((SERVER4, 5001))
        far, _ = listener.accept()
        with far:
            for end in (near, far):
                end.settimeout(wait.PATIENCE)

            def offloaded(before):
                def more():
                    exchange(near, far, 64 << 10)
                    return hits(wire) > before + 100

                wait.until(more, "the kernel to take over")

            near.sendall(b"an evil word.")
            assert read(far, 18) == b"an harmless words."
            far.sendall(b"an evil word.")
            assert read(near, 18) == b"an harmless words."
            exchange(near, far)
            wire.daemon.command("del", 1)
            exchange(near, far)
            offloaded(hits(wire))
            (shown,) = wire.daemon.json("show", "connections", "verbose", "tcp-dport", 5001)["connections"]
            assert "offset +5 / offset +5" in str(shown["functions"]), shown
            wire.daemon.line("nf add volume payload-count")
            wire.daemon.line("chain add other volume")
            wire.daemon.line("add-stateful in left tcp-dport 5001 chain other")
            (index,) = wire.daemon.rules()
            exchange(near, far)
            wire.daemon.command("del", index)
            exchange(near, far)
            offloaded(hits(wire))
            near.shutdown(socket.SHUT_WR)
            assert far.recv(1) == b""
        assert near.recv(1) == b""
    wait.until(lambda: the_connection(wire, "tcp-dport", 5001)["state"] == "closed", "the connection to close")
    assert sum(wire.daemon.drops().values()) == 0


def test_functions_get_all_of_their_sessions_beside_the_fast_path(fast_wire, stream):
    chain = "nf add bytes payload-count\nchain add read bytes\n"
    wire = fast_wire(f"{chain}add-stateful in left tcp-dport 5001 chain read\nadd-stateful in left udp-dport accept\n")
    learnt(wire, stream(wire.client, wire.server, SERVER4))
    sent, received = traffic.bulk_transfer(wire.client, wire.server, SERVER4, size=16 << 20)
    assert sent == received
    functions = wire.daemon.json("show", "functions")["functions"]
    (count,) = (one["report"]["bytes forward"] for one in functions if one["name"] == "bytes")
    assert count == str(16 << 20)


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


def test_a_stopped_daemon_forwards_nothing(fast_wire, stream):
    """SIGSTOP: a second later, the kernel forwards nothing more. SIGCONT: it goes on."""
    wire = fast_wire(FIREWALL)
    one = stream(wire.client, wire.server, SERVER4)
    learnt(wire, one)
    ends = one.datagrams

    def crosses():
        arrived = len(ends.arrived)
        ends.sender.send(struct.pack("!Q", ends.sent) + bytes(40))
        ends.sent += 1
        wait.readable([ends.receiver], 0.3)
        ends.collect()
        return len(ends.arrived) > arrived

    assert crosses()
    os.kill(wire.daemon.process.pid, signal.SIGSTOP)
    try:
        wait.until(lambda: not crosses(), "the kernel to stop forwarding", 5)
        assert not any(crosses() for _ in range(4))
    finally:
        os.kill(wire.daemon.process.pid, signal.SIGCONT)
    # What waited in the socket comes now.
    ends.settle()
    before = hits(wire)
    one.until(lambda: hits(wire) > before, "the kernel to take over again")


@pytest.mark.parametrize("worker", [0, 1])
def test_a_policy_that_waits_for_a_worker_holds_in_the_kernel(fast_wire, stream, worker):
    """A worker hangs, so that a publication waits for it. A second later at most, the kernel forwards nothing that the
    new policy drops, whichever of the workers hangs and has the entries.
    """
    wire = fast_wire(FIREWALL, workers=2)
    ones = []
    # The kernel chooses the ports of the client: until each worker has a session.
    while not all(one["sessions"] for one in wire.daemon.json("show", "runtime")["workers"]):
        ones.append(stream(wire.client, wire.server, SERVER4, port=7000 + len(ones)))
        learnt(wire, ones[-1])
        assert len(ones) < 32

    def crosses():
        for one in ones:
            ends = one.datagrams
            arrived = len(ends.arrived)
            ends.sender.send(struct.pack("!Q", ends.sent) + bytes(40))
            ends.sent += 1
            wait.readable([ends.receiver], 0.1)
            ends.collect()
            if len(ends.arrived) > arrived:
                return True
        return False

    assert crosses()
    with concurrent.futures.ThreadPoolExecutor(1) as pool, FrozenThread(wire.daemon.thread(f"mmb-worker-{worker}")):
        change = pool.submit(wire.daemon.line, "del 1")
        begin = time.monotonic()
        wait.until(lambda: not crosses(), "the kernel to stop forwarding", 5)
        assert time.monotonic() - begin < 3
        assert not change.done() and not crosses()
    assert change.result().returncode == 0
    # What the worker had in its hands met the rules of before.
    while ready := wait.readable([one.datagrams.receiver for one in ones], 0.2):
        for receiver in ready:
            receiver.recv(2048)
    assert len(wire.daemon.rules()) == 1 and not crosses()


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


@pytest.fixture
def fast_nat(make_nat, ports):
    def make(config, **options):
        nat = make_nat(ON + config, driver=ports, **options)
        if ports == "af-xdp":
            receives_by_napi(nat.hosts, "c0")
            receives_by_napi(nat.router, "r0")
        wait.until(lambda: all(i["egress"] for i in fast(nat)["interfaces"]), "interfaces to take frames")
        return nat

    return make


@pytest.mark.parametrize("workers", [1, 2])
def test_translation_both_ways(fast_nat, workers):
    nat = fast_nat(NAT, workers=workers)
    mirror = Mirror(nat.servers, SERVER, 7)
    speaker = Speaker(nat.hosts, INSIDE[0]).connect(SERVER, 7)
    seen = speaker.ask()
    assert seen[0] == "200.0.0.1"
    asked = 1

    def more():
        nonlocal asked
        for _ in range(40):
            assert speaker.ask() == seen
        asked += 40
        return hits(nat) > 400

    wait.until(more, "the kernel to take over")
    time.sleep(0.2)
    one = the_connection(nat)
    assert one["translated"] and one["forward"]["packets"] == one["reverse"]["packets"] == asked
    # Where the workers hand a session to each other as it opens, both count the packet that opens it.
    assert nat.daemon.hits(1) - 2 * asked in range(workers)
    # Both directions are the kernel's: of a question and its answer, the engine sees neither.
    before, nodes = hits(nat), nat.daemon.nodes()["port-rx"]
    for _ in range(100):
        assert speaker.ask() == seen
    wait.until(lambda: hits(nat) >= before + 190, "both to be counted")
    assert nat.daemon.nodes()["port-rx"] < nodes + 50
    speaker.close()
    mirror.close()


def test_downloads_through_nat(fast_nat):
    nat = fast_nat(NAT)
    server = traffic.WebServer(nat.servers, 80, size=32 << 20)
    try:
        for _ in range(3):
            assert traffic.fetch(nat.hosts, f"http://{SERVER}/file") == server.content
    finally:
        server.close()
    wait.until(lambda: hits(nat) > 30_000, "what the kernel sent on to be counted")
    assert sum(nat.daemon.drops().values()) == 0


def test_pings_through_nat(fast_nat):
    nat = fast_nat(NAT)
    assert len(answered(nat.hosts, SERVER, "-i", "0.002", count=300)) == 300
    wait.until(lambda: hits(nat) > 400, "both ways to be counted")


# SYN and SYN-ACK, both FINs with their acknowledgements, and one more.
ENGINE_PACKETS = 7


def shortly(bench, client, server, url, most):
    """Makes short connections with a real client, after some for learning, in rounds until the engine has processed
    less than `most` packets of each connection of a round: a busy machine learns late.
    """
    web = traffic.WebServer(server, 80, size=1024)
    try:

        def seen(count):
            before = bench.daemon.nodes()["port-rx"]
            for _ in range(count):
                assert traffic.fetch(client, url) == web.content
            return (bench.daemon.nodes()["port-rx"] - before) / count

        seen(50)
        before = hits(bench)
        rounds = [seen(50) for _ in range(3)]
        wait.until(lambda: hits(bench) > before + 3 * 150, "what the kernel sent on to be counted")
        while min(rounds) >= most and len(rounds) < 20:
            rounds.append(seen(50))
        assert min(rounds) < most, rounds
    finally:
        web.close()


def test_short_connections_through_a_router(fast_router):
    """Entries by destination: the engine sees no packet, not even the SYNs."""
    bench = fast_router()
    shortly(bench, bench.client, bench.servers, f"http://{FAR4}/file", 0.5)


def test_short_connections_through_a_firewall(fast_router):
    """Stateless rules: the engine sees the first packet of each direction."""
    bench = fast_router("add tcp-dport 9 drop\nadd all accept\n")
    shortly(bench, bench.client, bench.servers, f"http://{FAR4}/file", 4)


def test_short_connections_through_a_firewall_that_has_nothing_to_say_of_their_ports(fast_router):
    """Rules about other addresses: the engine sees no packet, and matching rules count all packets."""
    others = "".join(f"add ip-saddr 10.77.{n}.1 ip-daddr {FAR4} tcp-sport {n} tcp-dport 80 drop\n" for n in range(1, 201))
    bench = fast_router(others + f"add ip-daddr {FAR4} ip-proto tcp accept\n")
    assert fast(bench)["key"] == "pair"
    shortly(bench, bench.client, bench.servers, f"http://{FAR4}/file", 0.5)
    # A connection has five packets there, at least.
    wait.until(lambda: bench.daemon.hits(201) >= 5 * 200, "the rule to have all")
    assert fast(bench)["entries"] < 20


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


def test_short_connections_through_a_firewall_with_sessions(fast_wire):
    """The engine sees both SYNs, and from the first FIN on; the kernel forwards the rest."""
    wire = fast_wire(FIREWALL)
    shortly(wire, wire.client, wire.server, f"http://{SERVER4}/file", ENGINE_PACKETS)

    def over():
        every = wire.daemon.json("show", "connections", "tcp-dport", 80)["connections"]
        return len(every) >= 200 and all(one["state"] == "closed" for one in every)

    wait.until(over, "all connections to be closed")
    wait.until(lambda: fast(wire)["entries"] < 20, "their places to be free")

    def packets():
        every = wire.daemon.json("show", "connections")["connections"]
        return sum(one[way]["packets"] for one in every for way in ("forward", "reverse"))

    # What the kernel has sent on is counted a moment later.
    wait.until(lambda: packets() == wire.daemon.hits(1), "sessions and rule to have counted the same packets")


def test_short_connections_through_nat(fast_nat):
    nat = fast_nat(NAT + "set timeout tcp-closed 1\n")
    shortly(nat, nat.hosts, nat.servers, f"http://{SERVER}/file", ENGINE_PACKETS)
    connections = lambda: nat.daemon.json("show", "connections")["connections"]  # noqa: E731
    wait.until(lambda: not [one for one in connections() if one["protocol"] == "tcp"], "sessions to end on time", 10)
    assert sum(nat.daemon.drops().values()) == 0


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
