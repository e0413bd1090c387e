"""`set worker-mode`: what workers do without packets, and that nothing waits for a worker that sleeps."""

import os
import time

import pytest

from lab import frames, wait
from lab.frames import UDP

MODES = ("poll", "event", "adaptive")
EVENT = "set worker-mode event\n"
# Seconds for which an idle worker is observed.
IDLE = 3


def udp(port=2):
    return frames.ether() / frames.ip4() / UDP(sport=1, dport=port) / frames.payload()


def sleeps(daemon):
    return daemon.json("show", "runtime")["workers"][0]["sleeps"]


def used(daemon):
    """Nanoseconds of processor time of all threads of a daemon, and how often they have gone to sleep."""
    nanoseconds = switches = 0
    for task in (daemon.process_directory() / "task").iterdir():
        nanoseconds += int((task / "schedstat").read_text(encoding="utf-8").split()[0])
        status = (task / "status").read_text(encoding="utf-8")
        switches += int(status.split("\nvoluntary_ctxt_switches:")[1].split()[0])
    return nanoseconds, switches


def test_the_mode_changes_under_traffic(make_wire, driver):
    """Packets pass in each mode. A worker that polls never sleeps, one of another mode does."""
    wire = make_wire(driver)
    for mode in (*MODES, "poll", "event"):
        wire.daemon.line(f"set worker-mode {mode}")
        # A worker that has seen a packet since has seen the mode.
        assert wire.passes(udp())
        before = sleeps(wire.daemon)
        for _ in range(5):
            assert wire.passes(udp())
        if mode == "poll":
            assert sleeps(wire.daemon) == before
        else:
            wait.until(lambda before=before: sleeps(wire.daemon) > before, "the worker to sleep")
        shown = wire.daemon.command("show", "config").stdout
        assert (f"set worker-mode {mode}\n" in shown) == (mode != "adaptive")


def test_an_idle_daemon_takes_no_processor_time(make_wire, driver, figure):
    """In the mode `event`, some sleeps a second, and no work between them. The bounds are far above that: the kernel's own
    packets of the interfaces wake the worker, too. A fixed time has to pass, whatever happens in it.
    """
    wire = make_wire(driver, EVENT)
    assert wire.passes(udp())
    before = used(wire.daemon)
    time.sleep(IDLE)
    after = used(wire.daemon)
    share, times = (after[0] - before[0]) / (IDLE * 1e9), (after[1] - before[1]) / IDLE
    figure(f"idle daemon, {driver}, event", f"{share:.3%} of a core, {times:.1f} sleeps/s")
    assert share < 0.01 and times < 100
    assert wire.passes(udp())


def test_a_sleeping_worker_keeps_its_timers(make_wire, driver):
    """A session ends on time, though no packet wakes the worker."""
    wire = make_wire(driver, EVENT + "set timeout udp-unreplied 1\nadd-stateful udp-dport 7000 accept\n")
    assert wire.passes(udp(7000))
    wait.until(lambda: wire.daemon.json("show", "runtime")["sessions"]["sessions"] == 0, "the end of the session")


def test_a_sleeping_worker_takes_commands(make_wire, driver):
    """A rule applies to the first packet behind it, and the counters are those of all packets."""
    wire = make_wire(driver, EVENT)
    for _ in range(3):
        assert wire.passes(udp())
        index = wire.daemon.add("udp-dport 2 drop")
        assert not wire.passes(udp())
        assert wire.daemon.hits(index) == 1
        wire.daemon.command("del", index)


@pytest.mark.parametrize("mode", MODES)
def test_rare_packets_arrive(make_wire, driver, mode, figure):
    """How long one takes behind a pause is reported only: kernel, Python and busy cores are part of it."""
    wire = make_wire(driver, f"set worker-mode {mode}\n")
    taken = wire.one_way(udp(), 0.02, 30)
    figure(f"one way behind 20 ms, {driver}, {mode}", f"median {taken[15]:.0f} µs, worst {taken[-1]:.0f} µs")


def test_workers_wake_each_other(make_wire, driver):
    """A packet passes from the worker that receives it to the one that sends it, both asleep before."""
    if (os.cpu_count() or 1) < 2:
        pytest.skip("needs two processors")
    wire = make_wire(driver, EVENT, workers=2)
    for port in range(100, 120):
        for source, sink in ((wire.left, wire.right), (wire.right, wire.left)):
            frame = bytes(udp(port))
            source.send(frame)
            sink.receive_until(frame.__eq__)
