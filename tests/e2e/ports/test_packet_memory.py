"""Packet buffers have memory when they are needed, and as many as ports need before the kernel shares them."""

import re

from lab import wait
from lab.wire import wire_config

MIB = 1 << 20
# Half of the default `--memory` of 256 MiB, in whole buffers, and what a daemon with one worker begins with.
ALL, FIRST = 121 * MIB, 42 * MIB
# With up to three ports by AF_XDP, and room for a fourth one.
XDP = range(91 * MIB, 98 * MIB)


def packet_memory(daemon):
    """Bytes of packet buffers that are in memory."""
    maps = (daemon.process_directory() / "smaps").read_text(encoding="ascii")
    return sum(int(size) << 10 for size in re.findall(r"memfd:mmb-packets[^\n]*\n(?:[^\n]*\n)*?Rss: +(\d+) kB", maps))


def test_buffers_have_memory_when_they_are_needed(make_bench, make_daemon):
    bench = make_bench()
    daemon = make_daemon(bench.mbox, wire_config("af-packet"))
    bench.client.run("ping", "-c", 3, "-i", "0.01", "10.77.0.2")
    assert 30 * MIB < packet_memory(daemon) < FIRST
    # Functions may hold more packets than there are buffers.
    daemon.line("set held-packets worker 100000")
    wait.until(lambda: packet_memory(daemon) >= ALL, "all buffers")
    bench.client.run("ping", "-c", 3, "-i", "0.01", "10.77.0.2")
    assert not any(daemon.drops().values())


def test_af_xdp_has_the_buffers_that_ports_need_as_soon_as_one_is_added(make_bench, make_daemon):
    bench = make_bench(offloads=False)
    daemon = make_daemon(bench.mbox, wire_config("af-packet").replace("wire left right\n", ""))
    assert packet_memory(daemon) < FIRST
    daemon.line("interface del left")
    daemon.line("interface add left af-xdp m0")
    one = packet_memory(daemon)
    assert one in XDP
    daemon.line("wire left right")
    bench.client.run("ping", "-c", 100, "-i", "0.005", "10.77.0.2")
    # The kernel has the memory, so that there cannot be more.
    daemon.line("set held-packets worker 100000")
    assert packet_memory(daemon) == one
    assert daemon.stop() == 0
    # Those that are there from the start, and functions that hold more than by default.
    again = make_daemon(bench.mbox, wire_config("af-xdp"))
    assert packet_memory(again) in XDP
    bench.client.run("ping", "-c", 100, "-i", "0.005", "10.77.0.2")
    assert again.stop() == 0
    assert packet_memory(make_daemon(bench.mbox, wire_config("af-xdp") + "set held-packets worker 100000\n")) >= ALL


def test_af_xdp_has_all_buffers_of_the_memory_that_was_asked_for(make_bench, make_daemon):
    bench = make_bench(offloads=False)
    daemon = make_daemon(bench.mbox, wire_config("af-xdp"), arguments=("--memory", "256"))
    assert packet_memory(daemon) >= ALL


def test_many_ports_share_the_buffers_of_the_first_one(make_bench, make_daemon):
    bench = make_bench(offloads=False)
    daemon = make_daemon(bench.mbox, "")
    for n in range(4):
        bench.mbox.run("ip", "link", "add", f"x{n}", "type", "veth", "peer", "name", f"y{n}")
        bench.mbox.run("ip", "link", "set", f"x{n}", "up")
        bench.mbox.run("ip", "link", "set", f"y{n}", "up")
    short = lambda name: any("packet buffers" in note for note in daemon.interfaces()[name].get("notes", []))
    daemon.line("interface add left af-xdp m0")
    daemon.line("interface add right af-xdp m1")
    daemon.line("wire left right")
    memory = packet_memory(daemon)
    for n in range(4):
        daemon.line(f"interface add i{n} af-xdp x{n}")
    assert packet_memory(daemon) == memory
    assert [short(name) for name in ("left", "right", "i1", "i2", "i3")] == [False] * 3 + [True] * 2
    bench.client.run("ping", "-c", 100, "-i", "0.005", "10.77.0.2")
    # Without ports that share it, the memory is planned anew.
    daemon.line("wire del left")
    for name in ("left", "right", "i0", "i1", "i2", "i3"):
        daemon.line(f"interface del {name}")
    daemon.line("interface add left af-xdp m0")
    assert not short("left")


def test_jumbo_frames_take_memory_when_they_are_needed(make_bench, make_daemon):
    bench = make_bench(mtu=9000)
    daemon = make_daemon(bench.mbox, wire_config("af-packet"))
    bench.client.run("ping", "-c", 100, "-i", "0.005", "-s", 8000, "-M", "do", "10.77.0.2")
    # Half of the 4,096 jumbo buffers, which have 67 MiB.
    assert packet_memory(daemon) < FIRST + 40 * MIB
    assert not any(daemon.drops().values())


def test_a_port_that_cannot_be_opened_adds_no_buffers(make_bench, make_daemon):
    bench = make_bench(offloads=False, mtu=9000)
    daemon = make_daemon(bench.mbox, "interface add left af-xdp m0\n")
    assert "MTU" in daemon.interfaces()["left"]["reason"]
    assert packet_memory(daemon) < FIRST
