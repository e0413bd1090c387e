"""A killed daemon: the next one restores what it changed in the kernel."""

import pathlib
import signal

import pytest

from lab.netns import Bench

SETTINGS = ("ipv4/conf/m0/arp_ignore", "ipv4/conf/m0/rp_filter", "ipv4/conf/m0/forwarding", "ipv6/conf/m0/disable_ipv6")


@pytest.fixture
def bench(make_bench) -> Bench:
    return make_bench()


def settings(bench):
    return [bench.mbox.run("cat", f"/proc/sys/net/{name}").stdout.strip() for name in SETTINGS]


def gro(bench):
    """Whether generic receive offload is on."""
    lines = bench.mbox.run("ethtool", "-k", "m0").stdout.splitlines()
    (line,) = (line for line in lines if line.startswith("generic-receive-offload: "))
    return line.split()[1]


def test_receive_offload_is_left_alone(bench, make_daemon):
    """Ports take what GRO merges, so that nothing is left off by a killed daemon."""
    bench.mbox.run("ethtool", "-K", "m0", "gro", "on")
    daemon = make_daemon(bench.mbox, "interface add p af-packet m0\n")
    assert gro(bench) == "on"
    daemon.stop(signal.SIGKILL)
    assert gro(bench) == "on"


@pytest.mark.parametrize("again", ["routed", "not routed"])
def test_settings_of_a_killed_daemon_are_restored(bench, make_daemon, again):
    """SIGKILL left arp_ignore, rp_filter and disable_ipv6 changed, and the next start took them for the originals."""
    before = settings(bench)
    port = "interface add p af-packet m0\n"
    daemon = make_daemon(bench.mbox, port + "route p\n")
    changed = settings(bench)
    assert changed == ["8", "1", "0", "1"] != before
    daemon.stop(signal.SIGKILL)
    assert settings(bench) == changed
    daemon.config.write_text(port + ("route p\n" if again == "routed" else ""), encoding="utf-8")
    daemon.start()
    assert settings(bench) == (changed if again == "routed" else before)
    daemon.stop()
    assert settings(bench) == before
    assert not list(pathlib.Path(daemon.state_directory / "kernel-settings").iterdir())
