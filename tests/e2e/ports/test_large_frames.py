"""Large frames: what segmentation offload leaves uncut crosses af-packet and tap ports whole, and is cut where it must
be.
"""

import contextlib
import itertools
import random

import pytest
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import GRE, Dot1AD, Dot1Q, Ether
from scapy.layers.vxlan import VXLAN
from scapy.packet import NoPayload, Raw

from lab import frames, traffic, wait
from lab.links import guest, vlan
from lab.netns import CLIENT4, SERVER4, SERVER6
from lab.raw import RawPort
from lab.routebench import FAR as BOX
from lab.routebench import SERVER as FAR
from lab.routebench import SERVER6 as FAR6
from lab.wire import tap_ends, wire_config

FRAME = 1514
BOTH = pytest.mark.parametrize("address", [SERVER4, SERVER6])
# Kinds of ports that take large frames.
LARGE = pytest.mark.parametrize("driver", ["af-packet", "tap"])
NAT = "nat pool add wan 10.2.0.1\nadd-stateful in left ip-saddr 10.1.0.0/24 nat wan\n"
FIREWALL = "add-stateful in left tcp-dport 5001 accept\nadd tcp-dport 5001 drop\nadd tcp-sport 5001 drop\n"


def average(namespace, interface, transfer):
    """Bytes per frame that an interface receives during a transfer, whose hashes must agree."""
    counters = [f"/sys/class/net/{interface}/statistics/rx_{what}" for what in ("packets", "bytes")]

    def count():
        return [int(word) for word in namespace.run("cat", *counters).stdout.split()]

    before = count()
    sent, received = transfer()
    are_equal = sent == received
    assert are_equal
    packets, octets = (now - then for now, then in zip(count(), before, strict=True))
    return octets / packets


def to_server(wire, address, size=64 << 20):
    return average(wire.server, "s0", lambda: traffic.bulk_transfer(wire.client, wire.server, address, size=size))


@LARGE
@BOTH
@pytest.mark.parametrize("config", ["", FIREWALL], ids=["plain", "stateful"])
def test_large_frames_cross_a_wire_whole(make_wire, driver, address, config):
    wire = make_wire(driver, config=config)
    wire.bench.know_neighbours()
    # On a busy machine frames are smaller, but still of several segments.
    assert to_server(wire, address) > 2 * FRAME
    assert wire.daemon.drops().get("gso-frame", 0) == 0
    left, right = (wire.daemon.interfaces()[name] for name in ("left", "right"))
    assert min(left["rx_bytes"] / left["rx_packets"], right["tx_bytes"] / right["tx_packets"]) > 2 * FRAME


@LARGE
@BOTH
@pytest.mark.parametrize("workers", [1, 2])
def test_datagrams_cross_whole(make_wire, driver, address, workers):
    """A sender that leaves datagrams to segmentation offload (UDP_SEGMENT), and a receiver that checks them."""
    wire = make_wire(driver, config="add-stateful in left ip-proto udp accept\n", workers=workers)
    wire.bench.know_neighbours()
    sent = [bytes([number]) * 1200 * 40 for number in range(50)]

    def transfer():
        return b"".join(sent), traffic.segmented_datagrams(wire.client, wire.server, address, sent, size=1200)

    assert average(wire.server, "s0", transfer) > 2 * FRAME
    assert sum(wire.daemon.drops().values()) == 0


MIXED = [("tap", "af-xdp"), ("af-xdp", "tap"), ("af-packet", "tap"), ("tap", "af-packet")]


@BOTH
@pytest.mark.parametrize("kinds", MIXED, ids="-".join)
def test_taps_beside_other_ports(make_bench, make_daemon, address, kinds):
    """The receiving end checks the checksum of each segment, also of those that the other kernel left open."""
    bench = make_bench()
    daemon = make_daemon(bench.mbox, wire_config(*kinds))
    bench.move_taps(*tap_ends(*kinds))
    bench.know_neighbours()

    def transfer():
        return traffic.bulk_transfer(bench.client, bench.server, address, size=16 << 20)

    octets = average(bench.server, "s0", transfer)
    # Segments of an af-xdp port are merged.
    assert octets <= FRAME if kinds[1] == "af-xdp" else octets > 2 * FRAME
    assert sum(daemon.drops().values()) == 0


@LARGE
@BOTH
def test_edits_of_options_hold_in_each_segment(make_bench, make_daemon, driver, address):
    """Timestamps leave each segment but those of the handshake. A captured segment has all numbers right."""
    bench = make_bench()
    make_daemon(
        bench.mbox, wire_config(driver, "af-xdp") + "add tcp-dport 5001 ! tcp-syn strip tcp-opt-timestamp\n"
    )
    bench.move_taps(*tap_ends(driver, "af-xdp"))
    bench.know_neighbours()
    right = RawPort(bench.server, "s0")
    sent, received = traffic.bulk_transfer(bench.client, bench.server, address, size=4 << 20)
    assert sent == received
    parsed = [Ether(frame) for frame in iter(right.receive_one, None)]
    segments = [frame for frame in parsed if TCP in frame and not frame[TCP].flags.S]
    assert len(segments) > (4 << 20) // 1460 and max(len(frame) for frame in segments) <= FRAME
    for frame in segments:
        assert frame[TCP].dataofs == 5
        again = frame.copy()
        del again[TCP].chksum
        if IP in again:
            del again[IP].chksum
            del again[IP].len
        assert bytes(again.__class__(bytes(again))) == bytes(frame)
    right.close()


DOMAINS = "domain add box private\ndomain add shared zero-copy\n"


def chain(*functions):
    added = [f"nf add f{number} {function}\n" for number, function in enumerate(functions)]
    names = " | ".join(f"f{number}" for number in range(len(functions)))
    return "".join(added) + f"chain add c {names}\nadd-stateful in left tcp-dport 5001 chain c\n"


@LARGE
@BOTH
@pytest.mark.parametrize(
    "functions",
    [
        ["payload-count"],
        ["count", "digest crc32c", "mss-clamp 1400", "police 100gbit"],
        ["count process box", "mss-clamp 1400 process box", "payload-count process box", "match ATTACK alert process box"],
        ["monitor process shared", "mss-clamp 1400 process shared"],
    ],
    ids=["one", "all", "processes", "zero-copy"],
)
def test_functions_take_large_frames(make_wire, driver, address, functions):
    wire = make_wire(driver, config="set gro off\n" + DOMAINS + chain(*functions))
    wire.bench.know_neighbours()
    assert to_server(wire, address, size=16 << 20) > 2 * FRAME
    assert sum(wire.daemon.drops().values()) == 0
    # One function that needs each segment is enough, and the next change takes it away.
    wire.daemon.command("nf", "add", "each", "police", "100mpps")
    wire.daemon.command("chain", "add", "other", "each")
    assert to_server(wire, address, size=16 << 20) <= FRAME
    wire.daemon.command("chain", "del", "other")
    assert to_server(wire, address, size=16 << 20) > 2 * FRAME


@BOTH
@pytest.mark.parametrize("function", ["police 100mpps", "match ATTACK mask process box"], ids=["packets", "edits"])
def test_other_functions_get_each_segment(make_wire, address, function):
    wire = make_wire("af-packet", config="set gro off\n" + DOMAINS + chain(function))
    wire.bench.know_neighbours()
    assert to_server(wire, address, size=4 << 20) <= FRAME
    assert wire.daemon.hits(1) > 2500


@BOTH
def test_other_ports_send_segments(make_bench, make_daemon, address):
    """The receiving end checks the checksum of each segment."""
    bench = make_bench()
    daemon = make_daemon(bench.mbox, "interface add left af-packet m0\ninterface add right af-xdp m1\nwire left right\n")
    bench.know_neighbours()

    def transfer():
        return traffic.bulk_transfer(bench.client, bench.server, address, size=16 << 20)

    assert average(bench.server, "s0", transfer) <= FRAME
    assert daemon.drops().get("too-big", 0) == 0


@BOTH
@pytest.mark.parametrize("functions", [[], ["match ff replace 0000"]], ids=["plain", "edited"])
def test_a_device_that_cannot_segment_gets_segments(make_wire, address, functions):
    """The kernel drops large frames then, so mmb segments them."""
    wire = make_wire("af-packet", config=chain(*functions) if functions else "")
    wire.bench.know_neighbours()
    wire.bench.mbox.run("ethtool", "-K", "m1", "tx", "off", "tso", "off", "gso", "off")
    sent = b"".join(b"%08x" % number for number in range(1 << 20))
    expected = sent.replace(b"ff", b"0000") if functions else sent

    def transfer():
        return expected, traffic.deliver(wire.client, wire.server, address, sent)

    assert average(wire.server, "s0", transfer) <= FRAME
    assert sum(wire.daemon.drops().values()) == 0


@pytest.mark.parametrize("config", ["", NAT], ids=["routed", "translated"])
@pytest.mark.parametrize("workers", [1, 2])
def test_routed_frames_stay_whole(make_router, workers, config):
    bench = make_router(driver="af-packet", workers=workers, config=config)

    def transfer():
        return traffic.bulk_transfer(bench.client, bench.servers, FAR)

    assert average(bench.servers, "s0", transfer) > 2 * FRAME
    sent, received = traffic.bulk_transfer(bench.client, bench.servers, FAR6)
    assert sent == received


def test_the_kernel_of_a_router_has_large_frames(make_router):
    """They come from the twin of a port, and go to it."""
    bench = make_router(driver="af-packet")

    def sent():
        return traffic.bulk_transfer(bench.mbox, bench.servers, FAR)

    def received():
        return traffic.bulk_transfer(bench.servers, bench.mbox, BOX, port=5002)

    assert average(bench.servers, "s0", sent) > 2 * FRAME
    assert average(bench.mbox, "right", received) > 2 * FRAME


@pytest.mark.parametrize("server", [FAR, FAR6])
def test_the_path_mtu_is_that_of_segments(make_router, server):
    """A link behind the router takes shorter packets: segments are compared with its MTU, and the sender learns it."""
    bench = make_router(driver="af-packet")
    bench.mbox.run("ip", "link", "set", "m1", "mtu", "1400")
    bench.servers.run("ip", "link", "set", "s0", "mtu", "1400")
    # The sender knows only its own link's MTU: the receiver announces the segment size of a longer one.
    route = ("route", "replace", server, "dev", "right", "mtu", "lock", "1300")
    bench.mbox.run("ip", *(("-6",) if ":" in server else ()), *route)
    sent, received = traffic.bulk_transfer(bench.client, bench.servers, server, size=4 << 20)
    assert sent == received


@LARGE
@pytest.mark.parametrize("checksum", ["udpcsum", "noudpcsum"])
def test_large_frames_inside_a_tunnel_are_segmented(make_wire, driver, checksum):
    """The kernel of each end checks the outer and the inner checksums."""
    wire = make_wire(driver)
    wire.bench.know_neighbours()
    ends = (wire.client, "c0", CLIENT4, SERVER4, "192.0.2.1/24"), (wire.server, "s0", SERVER4, CLIENT4, "192.0.2.2/24")
    for namespace, interface, local, remote, address in ends:
        tunnel = ("type", "vxlan", "id", 7, "dstport", 4789, "local", local, "remote", remote, "dev", interface, checksum)
        namespace.run("ip", "link", "add", "vx0", *tunnel)
        namespace.run("ip", "address", "add", address, "dev", "vx0")
        namespace.run("ip", "link", "set", "vx0", "up")
    assert to_server(wire, "192.0.2.2", size=16 << 20) <= FRAME
    assert wire.daemon.drops().get("gso-frame", 0) == 0


@pytest.mark.parametrize("kinds", itertools.product(["af-packet", "tap"], ["af-packet", "tap", "af-xdp"]), ids="-".join)
@pytest.mark.parametrize("qinq", [False, True], ids=["802.1Q", "802.1ad"])
def test_tagged_frames(make_bench, make_daemon, kinds, qinq):
    """The kernel keeps the outer tag beside a large frame; tags are part of each segment."""
    bench = make_bench()
    make_daemon(bench.mbox, wire_config(*kinds))
    bench.move_taps(*tap_ends(*kinds))
    for namespace, interface in ((bench.client, "c0"), (bench.server, "s0")):
        # A link of this MTU has no room for two tags around a full-sized packet.
        namespace.run("ip", "route", "replace", "10.77.0.0/24", "dev", interface, "mtu", 1492)
        vlan.tag(namespace, interface, qinq)
        # XDP does not see tags that the kernel keeps beside the frame.
        namespace.run("ethtool", "-K", interface, "txvlan", "off", "tx-vlan-stag-hw-insert", "off")

    def transfer():
        return traffic.bulk_transfer(bench.client, bench.server, SERVER4, size=16 << 20)

    octets = average(bench.server, "s0", transfer)
    assert octets <= FRAME if "af-xdp" in kinds else octets > 2 * FRAME


LINK = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
SMALL = frames.ip4() / UDP(sport=1, dport=2)


@pytest.fixture
def guest_wire(make_bench, make_daemon):
    """guest_wire(driver, config) -> (daemon, guest, arrives): a wire from a virtual machine to the server.
    `arrives(frame, expected, …)` sends a frame until one with the expected bytes arrives; without a frame, small ones.
    """
    with contextlib.ExitStack() as closers:

        def make(driver="af-packet", config=""):
            bench = make_bench()
            virtual = guest.Guest(bench.mbox, "g0")
            closers.callback(virtual.close)
            daemon = make_daemon(bench.mbox, wire_config("af-packet", driver).replace(" m0", " g0") + config)
            bench.move_taps(*tap_ends("af-packet", driver))
            right = RawPort(bench.server, "s0")
            closers.callback(right.close)

            def arrives(frame=None, expected=None, **header):
                expected = expected or bytes(frames.payload(40))
                frame = frame or LINK / SMALL / expected

                def more():
                    assert daemon.running(), daemon.log()
                    assert virtual.send(frame, **header)
                    return any(expected in found for found in iter(right.receive_one, None))

                right.drain()
                wait.until(more, "the frame to arrive")

            return daemon, virtual, arrives

        yield make


def test_a_frame_that_the_kernel_cannot_describe_ends_nothing(guest_wire):
    """The kernel drops it, and all frames behind it, for it never leaves the slot of the ring that it had taken."""
    daemon, virtual, arrives = guest_wire()
    arrives()
    for _ in range(3):
        datagram = LINK / SMALL / Raw(bytes(5000))
        assert virtual.send(datagram, guest.NEEDS_CHECKSUM, guest.UFO, 42, 1480, 34, 6)
        arrives()
    assert "the kernel cannot hand over" in str(daemon.interfaces()["left"]["notes"])
    assert daemon.interfaces()["left"]["rx_missed"] > 0


@pytest.mark.parametrize("driver", ["af-packet", "af-xdp", "tap"])
@pytest.mark.parametrize("network", [frames.ip4(), frames.ip6()], ids=["ip4", "ip6"])
def test_the_checksum_of_gre_is_completed(guest_wire, driver, network):
    """A kernel leaves it to the interface, if nothing inside the tunnel has one left."""
    _, _, arrives = guest_wire(driver)
    frame = LINK / network / GRE(chksum_present=1) / IP(src="192.0.2.1", dst="192.0.2.2") / Raw(frames.payload(40))
    complete, start = bytes(frame), len(LINK / network)
    left = complete[: start + 4] + bytes(2) + complete[start + 6 :]
    arrives(left, complete, flags=guest.NEEDS_CHECKSUM, start=start, offset=4)


@pytest.mark.parametrize("driver", ["af-packet", "tap"])
@pytest.mark.parametrize("words", range(5))
def test_a_short_tcp_header_in_a_tunnel_ends_nothing(guest_wire, driver, words):
    """A data offset of less than 5 words. The last segment has one byte, fewer than the fields of a TCP header need."""
    daemon, virtual, arrives = guest_wire(driver)
    outer = LINK / IP(src="10.77.0.1", dst="10.77.0.2", proto=4)
    inner = IP(src="10.0.0.1", dst="10.0.0.2") / TCP(sport=1, dport=2, dataofs=words)
    start = len(outer) + 20
    # What follows the data offset is payload, of segments of 100 bytes.
    frame = outer / inner / Raw(bytes(201 + words * 4 - 20))
    assert virtual.send(frame, guest.NEEDS_CHECKSUM, guest.TCP4, start + 20, 100, start, 16)
    arrives()
    assert daemon.drops()["gso-frame"] == 1


def forged(choose):
    """A frame with headers in up to two tunnels, and a virtio-net header for it that may be right."""
    tags = [Dot1Q(vlan=5), Dot1AD(vlan=6), NoPayload(), NoPayload()]
    tunnels = [UDP(sport=1, dport=4789, chksum=0) / VXLAN(vni=7) / LINK, GRE(), GRE(chksum_present=1), Raw(b"")]

    def network():
        return choose([IP(src="10.77.0.1", dst="10.77.0.2"), IPv6(src="fd77::1", dst="fd77::2")])

    frame = LINK / choose(tags) / choose(tags) / network()
    starts = [len(frame)]
    for _ in range(choose([0, 0, 1, 1, 2])):
        frame = frame / choose(tunnels) / network()
        starts.append(len(frame))
    options = choose([[], [("Timestamp", (1, 2))], [("NOP", None)] * 40])
    frame = frame / choose([TCP(sport=1, dport=2, flags=choose(["A", "S", "FA", "CA"]), options=options), UDP(sport=1, dport=2)])
    # A last segment of one byte has little but its headers, if the size is 100.
    length = choose([0, 1, 100, 201, 1400, 3000, 20_000, 60_000])
    if TCP in frame and choose([False, False, False, True]):
        frame[TCP].dataofs = choose(range(5))
    frame = bytearray(bytes(frame / Raw(bytes(length))))
    for _ in range(choose([0, 0, 1, 3])):
        frame[choose(range(min(len(frame), 120)))] = choose(range(256))
    frame = frame[: choose([len(frame), len(frame), len(frame), choose(range(1, len(frame)))])]
    header = {
        "flags": choose([1, 1, 1, 0, 2, 255]),
        # No UFO: each of them takes the kernel some time.
        "kind": choose([0, guest.TCP4, guest.TCP4, guest.TCP6, guest.TCP6, guest.USO, 0x81, 0x84, 0x20]),
        "headers": choose([0, starts[-1] + 20, choose(range(65_536))]),
        "size": choose([0, 1, 2, 8, 100, 536, 1448, 1448, 9000, 65_535]),
        "start": choose([*starts, starts[-1], starts[-1], choose(range(200)), choose(range(65_536))]),
        "offset": choose([16, 16, 6, 6, 10, 0, choose(range(65_536))]),
    }
    return frame, header


@pytest.mark.parametrize(
    "driver, config",
    [
        ("af-packet", ""),
        ("af-packet", "add all mod ip-ttl 9\nadd ip-proto tcp strip tcp-opt-timestamp\n"),
        ("af-packet", "nf add m payload-count\nchain add c m\nadd-stateful all chain c\n"),
        ("af-xdp", "add-stateful in left accept\n"),
        ("tap", ""),
        ("tap", "add all mod ip-ttl 9\nadd ip-proto tcp strip tcp-opt-timestamp\n"),
    ],
    ids=["plain", "edited", "segmented", "other-port", "tap", "tap-edited"],
)
def test_forged_headers(guest_wire, driver, config):
    """Whatever a virtual machine says of its frames, the next one arrives."""
    daemon, virtual, arrives = guest_wire(driver, config)
    choose = random.Random(1).choice
    taken = 0
    for number in range(600):
        frame, header = forged(choose)
        taken += virtual.send(frame, **header)
        if number % 100 == 0:
            arrives()
    arrives()
    # Neither the kernel nor mmb has refused all of them.
    assert taken > 50 and daemon.drops()["gso-frame"] > 0
    assert "panic" not in daemon.log()
