"""TCP segments that arrive one by one leave as large frames, by ports that take such."""

import pytest
from scapy.layers.inet import TCP
from scapy.layers.l2 import Dot1Q, Ether
from scapy.packet import NoPayload, Raw

from lab import frames, traffic
from lab.daemon import FrozenThread
from lab.links import vlan
from lab.netns import SERVER4, SERVER6
from lab.raw import RawPort
from lab.wire import tap_ends, wire_config

FRAME = 1514
SIZE = 1000
BOTH = pytest.mark.parametrize("address", [SERVER4, SERVER6], ids=["ip4", "ip6"])
LARGE = pytest.mark.parametrize("driver", ["af-packet", "tap"])
STATEFUL = "add-stateful in left tcp-dport 5001 accept\nadd tcp-dport 5001 drop\nadd tcp-sport 5001 drop\n"


@pytest.fixture
def make_mixed(make_bench, make_daemon):
    """make_mixed(driver, config) -> (bench, daemon) with a wire from an af-xdp port to one of another kind."""

    def make(driver, config="", workers=1):
        bench = make_bench()
        daemon = make_daemon(bench.mbox, wire_config("af-xdp", driver) + config, workers=workers)
        bench.move_taps(*tap_ends("af-xdp", driver))
        bench.know_neighbours()
        return bench, daemon

    return make


def received(namespace):
    counters = [f"/sys/class/net/s0/statistics/rx_{what}" for what in ("bytes", "packets")]
    return [int(word) for word in namespace.run("cat", *counters).stdout.split()]


def average(bench, address, size=16 << 20):
    """Bytes per frame that the server's interface receives during a transfer, whose hashes must agree."""
    before = received(bench.server)
    sent, came = traffic.bulk_transfer(bench.client, bench.server, address, size=size)
    assert sent == came
    octets, packets = (now - then for now, then in zip(received(bench.server), before, strict=True))
    return octets / packets


@LARGE
@BOTH
@pytest.mark.parametrize("config, workers", [("", 1), (STATEFUL, 2)], ids=["plain", "stateful"])
def test_segments_leave_as_large_frames(make_mixed, driver, address, config, workers):
    bench, daemon = make_mixed(driver, config, workers)
    assert average(bench, address) > 2 * FRAME
    right = daemon.interfaces()["right"]
    segments = (16 << 20) // 1460
    assert right["tx_packets"] < segments <= right["tx_packets"] + right["tx_merged"]
    assert daemon.interfaces()["left"]["tx_merged"] == 0
    assert sum(daemon.drops().values()) == 0
    daemon.line("set gro off")
    assert "set gro off\n" in daemon.command("show", "config").stdout
    merged = daemon.interfaces()["right"]["tx_merged"]
    assert average(bench, address) <= FRAME
    assert daemon.interfaces()["right"]["tx_merged"] == merged


@LARGE
def test_tagged_segments(make_mixed, driver):
    bench, _ = make_mixed(driver)
    for namespace, interface in ((bench.client, "c0"), (bench.server, "s0")):
        vlan.tag(namespace, interface)
        # XDP does not see tags that the kernel keeps beside the frame.
        namespace.run("ethtool", "-K", interface, "txvlan", "off", "tx-vlan-stag-hw-insert", "off")
    assert average(bench, SERVER4) > 2 * FRAME


@BOTH
def test_segments_that_functions_need_leave_as_large_frames(make_wire, address):
    """Large frames are cut for the function when they are received."""
    wire = make_wire("af-packet", "nf add each police 100mpps\nchain add c each\nadd-stateful in left tcp-dport 5001 chain c\n")
    wire.bench.know_neighbours()
    assert average(wire.bench, address) > 2 * FRAME
    assert wire.daemon.hits(1) > (16 << 20) // 1460


@BOTH
def test_a_device_that_cannot_segment_gets_segments(make_mixed, address):
    """The kernel drops large frames there, so mmb cuts them again."""
    bench, daemon = make_mixed("af-packet")
    bench.mbox.run("ethtool", "-K", "m1", "tx", "off", "tso", "off", "gso", "off")
    assert average(bench, address) <= FRAME
    assert sum(daemon.drops().values()) == 0


NETWORKS = pytest.mark.parametrize("network", [frames.ip4, frames.ip6], ids=["ip4", "ip6"])
TAGS = pytest.mark.parametrize("tag", [NoPayload(), Dot1Q(vlan=5)], ids=["plain", "tagged"])


class Train:
    """Frames that arrive at once are one vector: the worker stands while they are sent."""

    def __init__(self, bench, daemon):
        self.bench, self.daemon = bench, daemon
        self.left, self.right = RawPort(bench.client, "c0"), RawPort(bench.server, "s0")

    def cross(self, *sent):
        self.right.drain()
        with FrozenThread(self.daemon.thread("mmb-worker-0")):
            for frame in sent:
                self.left.send(frame)
        arrived = []
        # Packets of one vector may overtake each other, so a second sentinel shows the end.
        for _ in range(2):
            last = frames.sentinel()
            self.left.send(last)
            arrived += self.right.receive_until(last.__eq__)
        # The client's kernel sends to other addresses.
        return [frame for frame in arrived if frame[:6] == bytes(frames.ether())[:6]]

    def close(self):
        self.left.close()
        self.right.close()


@pytest.fixture
def train(make_mixed):
    made = Train(*make_mixed("af-packet"))
    yield made
    made.close()


def segments(network, tag, flags="A", size=SIZE):
    """Consecutive segments of a connection, with right checksums."""

    def one(number):
        header = network(id=100 + number, flags="DF") if network is frames.ip4 else network()
        tcp = TCP(sport=1, dport=2, seq=7 + number * size, ack=9, flags=flags)
        link = frames.ether() / tag if isinstance(tag, Dot1Q) else frames.ether()
        return bytes(link / header / tcp / Raw(bytes([number]) * size))

    return [one(number) for number in range(3)]


@NETWORKS
@TAGS
def test_a_train_is_one_frame(train, network, tag):
    sent = segments(network, tag)
    (came,) = train.cross(*sent)
    payloads = [bytes(Ether(frame)[TCP].payload) for frame in sent]
    assert bytes(Ether(came)[TCP].payload) == b"".join(payloads)
    assert (Ether(came)[TCP].seq, len(came)) == (7, len(sent[0]) + 2 * SIZE)


@NETWORKS
@TAGS
def test_a_bad_checksum_is_not_repaired(train, network, tag):
    sent = segments(network, tag)
    sent[1] = sent[1][:-1] + b"\xff"
    assert train.cross(*sent) == sent


@NETWORKS
def test_acknowledgements_and_other_flags_stay_alone(train, network):
    for flags in ("S", "AU", "AR", "AC"):
        sent = segments(network, NoPayload(), flags=flags)
        assert train.cross(*sent) == sent
    acknowledgements = segments(network, NoPayload(), size=0)
    assert train.cross(*acknowledgements) == acknowledgements
