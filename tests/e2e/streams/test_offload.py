"""Stream functions between ends with segmentation offload: frames of up to 64 KiB come, and leave, as they are."""

import hashlib
import random

import pytest

from lab import traffic
from lab.links.impair import Impairment
from lab.netns import SERVER4, SERVER6

FRAME = 1514
SIZE = 8 << 20
WORD = b"evil"
EDITS = {
    "longer": ("match evil replace very-harmless", b"very-harmless"),
    "shorter": ("match evil replace x", b"x"),
    "removed": ("match evil remove", b""),
    "masked": ("match evil mask", b"****"),
}


def chain(function):
    return f"nf add f {function}\nchain add c f\nadd-stateful tcp-dport 5001 chain c\n"


def text(size, seed=1):
    """Random bytes with words at random distances, also at the borders of frames and buffers."""
    rng = random.Random(seed)
    block = b"".join(rng.randbytes(rng.randrange(3000)).replace(WORD, b"good") + WORD for _ in range(size // 6000))
    return (block * (size // len(block) + 1))[:size]


def received(namespace, interface):
    """Bytes and frames that an interface has received."""
    counters = [f"/sys/class/net/{interface}/statistics/rx_{what}" for what in ("bytes", "packets")]
    return [int(word) for word in namespace.run("cat", *counters).stdout.split()]


def average(namespace, interface, transfer):
    """What a transfer returns, and the bytes per frame that an interface receives meanwhile."""
    before = received(namespace, interface)
    result = transfer()
    octets, packets = (now - then for now, then in zip(received(namespace, interface), before, strict=True))
    return result, octets / packets


def check(came, expected):
    """A difference of megabytes is not shown."""
    are_equal = came == expected
    assert are_equal, (len(came), len(expected))


@pytest.mark.parametrize("address", [SERVER4, SERVER6], ids=["ip4", "ip6"])
@pytest.mark.parametrize("edit", EDITS)
def test_edited_streams_leave_in_large_frames(make_wire, edit, address):
    function, new = EDITS[edit]
    wire = make_wire("af-packet", chain(function))
    sent = text(SIZE)
    came, octets = average(wire.server, "s0", lambda: traffic.deliver(wire.client, wire.server, address, sent))
    check(came, sent.replace(WORD, new))
    assert octets > 2 * FRAME
    assert sum(wire.daemon.drops().values()) == 0


@pytest.mark.parametrize("edit", ["longer", "masked"])
def test_ports_that_take_no_large_frames_get_segments(make_bench, make_daemon, edit):
    function, new = EDITS[edit]
    bench = make_bench()
    ports = "interface add left af-packet m0\ninterface add right af-xdp m1\nwire left right\n"
    daemon = make_daemon(bench.mbox, ports + chain(function))
    sent = text(SIZE)
    came, octets = average(bench.server, "s0", lambda: traffic.deliver(bench.client, bench.server, SERVER4, sent))
    check(came, sent.replace(WORD, new))
    assert octets <= FRAME
    assert daemon.drops().get("too-big", 0) == 0


def test_functions_read_large_frames(make_wire, tmp_path):
    log = tmp_path / "log"
    wire = make_wire("af-packet", chain(f"digest sha256 file {log}"))
    sent = text(SIZE)
    came, octets = average(wire.server, "s0", lambda: traffic.deliver(wire.client, wire.server, SERVER4, sent))
    check(came, sent)
    assert octets > 2 * FRAME
    wire.daemon.close()
    assert hashlib.sha256(sent).hexdigest() in log.read_text(encoding="ascii")


def test_segments_fit_the_link_behind(make_bench, make_daemon):
    """The ends know only the MTU of their own links: the receiver announces what its link takes."""
    bench = make_bench()
    for namespace, interface in ((bench.mbox, "m1"), (bench.server, "s0")):
        namespace.run("ip", "link", "set", interface, "mtu", "1400")
    ports = "interface add left af-packet m0\ninterface add right af-packet m1\nwire left right\n"
    make_daemon(bench.mbox, ports + chain(EDITS["longer"][0]))
    # Frames that the kernel cuts for the receiver show the length of segments.
    bench.server.run("ethtool", "-K", "s0", "gro", "off")
    bench.mbox.run("ethtool", "-K", "m1", "tx", "off", "tso", "off", "gso", "off")
    sent = text(SIZE)
    came, octets = average(bench.server, "s0", lambda: traffic.deliver(bench.client, bench.server, SERVER4, sent))
    check(came, sent.replace(WORD, b"very-harmless"))
    assert octets <= 1400 + 14


# There are fewer large frames than segments, of which some have to be lost.
BAD = {"near": Impairment(loss=20, duplication=10, reordering=10), "both": Impairment(loss=40, duplication=30, reordering=30)}


@pytest.mark.parametrize("offload", ["near", "both"])
@pytest.mark.parametrize("edit", EDITS)
def test_edits_on_bad_links(make_bad, edit, offload):
    """near: large frames come, and segments of them are lost behind mmb. both: large frames are lost as they are."""
    function, new = EDITS[edit]
    bench = make_bad(chain(function), seed=5, before=BAD[offload], behind=BAD[offload], offload=offload)
    sent = text(1 << 20)
    came = traffic.deliver(bench.client, bench.server, SERVER4, sent, patience=100)
    check(came, sent.replace(WORD, new))
    assert sum(link.lost for link in bench.links) > 0


def test_readers_on_bad_links(make_bad, tmp_path):
    log = tmp_path / "log"
    bench = make_bad(chain(f"digest sha256 file {log}"), seed=6, before=BAD["both"], behind=BAD["both"], offload="both")
    sent = text(1 << 20)
    check(traffic.deliver(bench.client, bench.server, SERVER4, sent, patience=100), sent)
    bench.daemon.close()
    assert hashlib.sha256(sent).hexdigest() in log.read_text(encoding="ascii")
