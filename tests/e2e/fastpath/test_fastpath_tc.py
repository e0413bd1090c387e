"""What the fast path at tc does with buffers of many segments, and with interfaces."""

import concurrent.futures

import pytest

from lab import traffic, wait
from lab.fastpath import FIREWALL, TC_ONLY, fast, hits, receives_by_napi, the_connection
from lab.netns import SERVER4, SERVER6
from lab.routebench import BOX, BOX6, CLIENT, CLIENT6
from lab.routebench import SERVER as FAR4
from lab.routebench import SERVER6 as FAR6

# The client's address of the same network.
CLIENTS = {BOX: CLIENT, BOX6: CLIENT6}


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
def test_packets_go_past_the_interface(fast_router, address):
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


@TC_ONLY
@pytest.mark.parametrize("address", [BOX, BOX6])
def test_packets_for_the_machine_go_past_the_engine(fast_router, address):
    """Without a limit for them, tc passes them between the port's interface and its twin, whole. A connection lives on when
    there is a limit again, and the counters have all packets."""
    bench = fast_router(FIREWALL + "set punt-limit local off\n")
    size, frame = 64 << 20, 1514

    def by_engine(transfer):
        """What the engine gives to the kernel meanwhile."""
        before = bench.daemon.json("show", "runtime")["routing"]["punted_by_class"]["local"]
        sent, received = transfer()
        assert sent == received
        return bench.daemon.json("show", "runtime")["routing"]["punted_by_class"]["local"] - before

    def counts():
        left = bench.daemon.interfaces()["left"]
        twin = left["routed"]["twin"]
        return left["rx_packets"], left["tx_packets"], twin["to_kernel"], twin["from_kernel"]

    def upload():
        return traffic.bulk_transfer(bench.client, bench.mbox, address, size=size)

    assert by_engine(upload) == 0
    first = counts()
    rx, tx, to_kernel, from_kernel = first
    assert min(rx, to_kernel) > size // frame and min(tx, from_kernel) > 0
    # And those of the kernel, of many segments each.
    assert by_engine(lambda: traffic.bulk_transfer(bench.mbox, bench.client, CLIENTS[address], 5002, size)) == 0
    _, tx, _, from_kernel = counts()
    assert min(tx, from_kernel) > size // frame
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        running = pool.submit(traffic.bulk_transfer, bench.client, bench.mbox, address, 5003, 8 * size)
        bench.daemon.line("set punt-limit local 1000000")
        sent, received = running.result()
    assert sent == received
    assert by_engine(upload) > 0
    bench.daemon.line("set fast-path off")
    assert all(now > before for now, before in zip(counts(), first, strict=True))
