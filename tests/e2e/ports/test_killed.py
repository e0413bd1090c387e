"""What is left in the kernel of a daemon that has ended or was killed, and what the next one restores."""

import contextlib
import os
import pathlib
import signal

import pytest

from lab import bpf, wait
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


# Commands that show what a daemon can change in its network namespace.
SHOWN = [
    "ip -details link",
    "ip address",
    "ip route show table all",
    "ip -6 route show table all",
    "ip rule",
    "ip -6 rule",
    "ip neighbour",
    "ip netns list-id",
    "ip tuntap",
    "tc qdisc",
    "ethtool -k m0",
    "ethtool -k m1",
    "nft list ruleset",
]


def kernel_state(namespace):
    """What a daemon can change in a network namespace, by command and sysctl."""
    state = {command: namespace.run(*command.split()).stdout for command in SHOWN}
    with namespace.entered():
        for path in pathlib.Path("/proc/sys/net").glob("ipv[46]/**/*"):
            if path.is_file():
                try:
                    state[str(path)] = path.read_text(encoding="ascii")
                except OSError:
                    # Some can only be written.
                    continue
    return state


def changes(namespace, before):
    """What is different in a namespace, as {command or sysctl: (before, now)}."""
    after = kernel_state(namespace)
    return {name: (before.get(name), after.get(name)) for name in before | after if before.get(name) != after.get(name)}


def family(process):
    """A process and those that it and its threads have started."""
    found = [process]
    for children in pathlib.Path(f"/proc/{process}/task").glob("*/children"):
        # A thread may end meanwhile.
        with contextlib.suppress(OSError):
            for child in children.read_text(encoding="ascii").split():
                found += family(int(child))
    return found


def shared_files(process):
    """Shared memory of a process that has a name, so that it would stay."""
    for line in pathlib.Path(f"/proc/{process}/maps").read_text(encoding="utf-8").splitlines():
        _, rights, *_, path = line.split(maxsplit=5) if line.count("/") else (None, "", None)
        if rights.endswith("s") and not path.endswith(" (deleted)"):
            yield path


def ended(handle):
    return bool(wait.readable([handle], 0))


WIRE = "interface add left {0} m0\ninterface add right {0} m1\nwire left right\nset fast-path auto\n"
# All that has processes, memory, namespaces and settings of its own.
ROUTER = """interface add left {0} m0
interface add right {0} m1
route left right
set fast-path auto
domain add tenant private buffers 256
nf add fw acl allow process tenant
chain add c fw
nf add page url-rewrite ^/nowhere$ /
chain add site page
broker add all transparent chain site
add in left tcp-dport 80 broker all
add-stateful in left udp-dport 9 chain c
"""


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("config", [WIRE, ROUTER], ids=["wire", "router"])
@pytest.mark.parametrize(
    "driver, hook, programs", [("af-xdp", "xdp", {"steer"}), ("af-packet", "tcx", {"accept", "ingress"})]
)
def test_nothing_is_left_in_the_kernel(bench, make_daemon, driver, hook, programs, config, end):
    """Neither BPF objects of either fast path, processes, shared memory, interfaces, namespaces nor settings."""
    before = kernel_state(bench.mbox)
    daemon = make_daemon(bench.mbox, config.format(driver))
    assert [one["ingress"] for one in daemon.json("show", "fast-path")["interfaces"]] == [True, True]
    if config is ROUTER:
        assert changes(bench.mbox, before)
        wait.until(lambda: len(family(daemon.process.pid)) > 2, "a supervisor and its processes")
    objects = bpf.objects(daemon.process.pid)
    assert [one.name for one in objects if one.kind == "link"].count(hook) == 2
    assert {one.name for one in objects if one.kind == "program"} >= programs
    processes = family(daemon.process.pid)
    assert not [path for process in processes for path in shared_files(process)]
    handles = [os.pidfd_open(process) for process in processes]
    try:
        daemon.stop(end)
        wait.until(lambda: all(map(ended, handles)), "the end of all processes")
    finally:
        for handle in handles:
            os.close(handle)
    # The kernel frees some of it a moment later.
    wait.until(lambda: not any(map(bpf.exists, objects)), "the kernel to free the BPF objects")
    if end == signal.SIGKILL:
        # What the kernel does not know to be the daemon's is restored by the next one.
        daemon.start()
        daemon.stop()
    with contextlib.suppress(wait.Late):
        wait.until(lambda: not changes(bench.mbox, before), "the kernel to remove the rest")
    assert changes(bench.mbox, before) == {}
