"""Packet buffers have memory when they are needed, and all of them before the kernel shares them."""

import re

from lab import wait
from lab.wire import wire_config

MIB = 1 << 20
# Half of the default `--memory` of 256 MiB, in whole buffers, and what a daemon with one worker begins with.
ALL, FIRST = 121 * MIB, 42 * MIB


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


def test_af_xdp_has_all_buffers_as_soon_as_the_port_is_added(make_bench, make_daemon):
    bench = make_bench(offloads=False)
    daemon = make_daemon(bench.mbox, wire_config("af-packet").replace("wire left right\n", ""))
    assert packet_memory(daemon) < FIRST
    daemon.line("interface del left")
    daemon.line("interface add left af-xdp m0")
    assert packet_memory(daemon) >= ALL
    daemon.line("wire left right")
    bench.client.run("ping", "-c", 100, "-i", "0.005", "10.77.0.2")
    # So has one that is there from the start.
    assert daemon.stop() == 0
    again = make_daemon(bench.mbox, wire_config("af-xdp"))
    assert packet_memory(again) >= ALL
    bench.client.run("ping", "-c", 100, "-i", "0.005", "10.77.0.2")


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
