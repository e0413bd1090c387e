"""What the machine lacks or does wrong: the daemon goes on, or ends with one sentence, and the policy stays whole."""

import itertools
import os
import pathlib
import re
import resource
import signal
import struct
import subprocess

import pytest

from lab import traffic, wait
from lab.daemon import DidNotStart
from lab.natbench import INSIDE, SERVER, Mirror, Speaker
from lab.netns import SERVER4
from lab.wire import wire_config

MIB = 1 << 20
_serial = itertools.count()


class MemoryGroup:
    """A control group with a limit of memory, of whichever version the machine has."""

    def __init__(self, limit):
        root = pathlib.Path("/sys/fs/cgroup")
        controllers = root / "cgroup.controllers"
        if controllers.exists() and "memory" in controllers.read_text(encoding="ascii").split():
            (root / "cgroup.subtree_control").write_text("+memory", encoding="ascii")
            self._limit, self._used = "memory.max", "memory.current"
        elif (root / "memory/memory.limit_in_bytes").exists():
            root = root / "memory"
            self._limit, self._used = "memory.limit_in_bytes", "memory.usage_in_bytes"
        else:
            pytest.skip("this machine has no control groups that limit memory")
        self.path = root / f"mmb-test-{os.getpid()}-{next(_serial)}"
        self.path.mkdir()
        self.limit(limit)

    def limit(self, limit):
        (self.path / self._limit).write_text(str(limit), encoding="ascii")

    def used(self):
        return int((self.path / self._used).read_text(encoding="ascii"))

    def wrapper(self):
        return shell(f"echo $$ > {self.path}/cgroup.procs")


def shell(before):
    """A command that runs some lines of shell, and then its arguments."""
    return ("sh", "-ec", f'{before}\nexec "$@"', "sh")


def own_mounts(before):
    """The same with mounts of its own."""
    return ("unshare", "--mount", *shell(before))


@pytest.fixture
def make_group(root):
    groups = []

    def make(limit):
        groups.append(MemoryGroup(limit))
        return groups[-1]

    yield make
    for group in groups:
        wait.until(lambda group=group: not (group.path / "cgroup.procs").read_text(encoding="ascii"), "a group to be empty")
        group.path.rmdir()


@pytest.fixture
def limited(make_group, make_daemon):
    """limited(limit, config) -> a daemon in a control group, and the group. The daemon ends before the group."""

    def make(limit, config="", **options):
        group = make_group(limit)
        return make_daemon(config=config, wrapper=group.wrapper(), **options), group

    return make


def one_sentence(text):
    """The only error in an output."""
    errors = [line for line in text.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1, text
    assert "panicked" not in text
    return errors[0]


def failed_start(daemon):
    """The sentence of a daemon that does not start."""
    with pytest.raises(DidNotStart) as caught:
        daemon.start()
    assert daemon.process.returncode == 1, caught.value
    return one_sentence(daemon.log())


def test_too_little_memory_at_the_start_is_said(limited):
    """The kernel killed the daemon in the middle of the start: no allocation fails in a control group."""
    daemon, group = limited(100 * MIB, start=False)
    sentence = failed_start(daemon)
    assert str(group.path) in sentence and "of 100 MiB" in sentence and "--memory" in sentence


def test_a_change_that_does_not_fit_is_refused(limited, tmp_path):
    """The kernel killed the daemon that was given too many rules."""
    daemon, group = limited(256 * MIB, "add tcp-dport 9 drop\n")
    before = daemon.state()
    many = tmp_path / "many.conf"
    with many.open("w", encoding="ascii") as file:
        for n in range(400_000):
            file.write(f"add ip-saddr 10.{n >> 16}.{n >> 8 & 255}.{n & 255} tcp-dport {n % 60_000 + 1} drop\n")
    refused = daemon.command("apply", many, check=False)
    assert refused.returncode == 1 and f"the control group {group.path} leaves" in refused.stderr, refused.stderr
    assert daemon.running() and daemon.state() == before
    daemon.line("add udp-dport 9 drop")
    # Something else uses up the memory.
    group.limit(group.used() + 8 * MIB)
    for line in ("add udp-dport 10 drop", "nf add f count", "nat pool add p 192.0.2.1", "interface add t tap"):
        refused = daemon.line(line, check=False)
        assert refused.returncode == 1 and "raise its limit, or delete rules" in refused.stderr, refused.stderr
    assert len(daemon.rules()) == 2
    daemon.line("del 2")
    daemon.line("flush")
    group.limit(256 * MIB)
    daemon.line("add udp-dport 10 drop")
    assert daemon.stop() == 0


def limit_descriptors(number):
    return shell(f"ulimit -n {number}")


def test_too_few_descriptors_at_the_start_are_said(make_daemon):
    sentence = failed_start(make_daemon(start=False, wrapper=limit_descriptors(32)))
    assert "may open 32 files" in sentence and "LimitNOFILE" in sentence


def test_without_free_descriptors_the_daemon_goes_on(root, make_bench, make_daemon):
    """A daemon whose descriptors were all in use answered nobody any more."""
    bench = make_bench()
    daemon = make_daemon(bench.mbox, wire_config("af-packet") + "add tcp-dport 9 drop\n")
    directory = pathlib.Path(f"/proc/{daemon.process.pid}/fd")
    before = resource.prlimit(daemon.process.pid, resource.RLIMIT_NOFILE)

    def exhaust():
        """Permits no descriptor beyond those that are open."""
        used = {int(path.name) for path in directory.iterdir()}
        lowest = next(number for number in itertools.count() if number not in used)
        resource.prlimit(daemon.process.pid, resource.RLIMIT_NOFILE, (lowest, before[1]))

    # The daemon says that it is ready before its server runs; one that answers has all that it needs.
    daemon.line("list")
    exhaust()
    daemon.line("list", timeout=wait.PATIENCE)
    refused = daemon.line("interface add t tap", check=False)
    assert refused.returncode == 1 and one_sentence(refused.stderr)
    daemon.line("add udp-dport 9 drop")
    assert len(daemon.rules()) == 2 and set(daemon.interfaces()) == {"left", "right"}
    bench.client.run("ping", "-c", "1", "-W", "5", SERVER4)
    resource.prlimit(daemon.process.pid, resource.RLIMIT_NOFILE, before)
    daemon.line("interface add t tap")
    assert daemon.stop() == 0


# Both are mounts of the daemon alone.
DISKS = {
    "read-only": "mount -o remount,ro {0}",
    "full": "cat /dev/zero > {0}/fill 2> /dev/null || true",
}


@pytest.mark.parametrize("disk", DISKS)
def test_a_state_directory_that_takes_nothing(root, make_bench, make_daemon, tmp_path, disk):
    """Logs and captures fail with a reason; packets, rules and routes go on."""
    place = tmp_path / "mmb0/state"
    prepare = f"mkdir {place}\nmount -t tmpfs -o size=64k none {place}\nmkdir {place}/files\n{DISKS[disk].format(place)}"
    bench = make_bench()
    daemon = make_daemon(bench.mbox, wire_config("af-packet"), wrapper=own_mounts(prepare))
    assert daemon.state_directory == place
    # The kernel's settings of a routed interface are kept in the directory.
    daemon.line("wire del left")
    daemon.line("route left")
    wait.until(lambda: "cannot keep the kernel's settings of m0" in daemon.log(), "the line about settings")
    daemon.line("route del left")
    daemon.line("wire left right")
    for line in ("nf add l log file sessions.log", "chain add c l", "add-stateful all chain c"):
        daemon.line(line)
    bench.client.run("ping", "-c", "1", "-W", "5", SERVER4)
    reason = {"read-only": "Read-only file system", "full": "No space left on device"}[disk]
    wait.until(lambda: reason in daemon.line("show functions").stdout, "the reason of the log")
    refused = daemon.line("interface add p pcap in.pcap out.pcap", check=False)
    assert refused.returncode == 1
    assert len(daemon.rules()) == 1 and daemon.stop() == 0


def test_huge_pages_that_are_not_there(root, make_daemon, tmp_path):
    """/proc/meminfo counts the pages of the whole machine, and this process may get none: it did not start."""
    text = pathlib.Path("/proc/meminfo").read_text(encoding="ascii")
    total, free = (re.search(rf"HugePages_{name}:\s+(\d+)", text) for name in ("Total", "Free"))
    if int(free.group(1)) > 0:
        pytest.skip("this machine has free huge pages")
    wrong = tmp_path / "meminfo"
    for found, number in ((free, 4096), (total, 4096)):
        text = text.replace(found.group(0), found.group(0)[: -len(found.group(1))] + str(number))
    wrong.write_text(text, encoding="ascii")
    daemon = make_daemon(config="add tcp-dport 9 drop\n", wrapper=own_mounts(f"mount --bind {wrong} /proc/meminfo"))
    # A thread of its own writes the log.
    wait.until(lambda: "ordinary pages" in daemon.log(), "the line about pages")
    assert len(daemon.rules()) == 1


@pytest.fixture
def wall_clock(tmp_path):
    """A wrapper that gives the daemon a wall clock of its own, and a function that moves this clock by seconds."""
    library, file = tmp_path / "wallclock.so", tmp_path / "wallclock"
    source = pathlib.Path(__file__).parent / "wallclock.c"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, source], check=True)
    file.write_bytes(struct.pack("=q", 0))

    def move(seconds):
        with file.open("r+b", buffering=0) as out:
            out.write(struct.pack("=q", seconds))

    return ("env", f"LD_PRELOAD={library}", f"WALL_CLOCK={file}"), move


@pytest.mark.parametrize("years", [20, -20])
def test_the_wall_clock_jumps(make_nat, wall_clock, years):
    """Sessions, translations and timeouts follow the monotonic clock; only texts have the wall clock's time."""
    wrapper, move = wall_clock
    bench = make_nat("set timeout udp-unreplied 1\nnat pool add wan 200.0.0.1\n", wrapper=wrapper)
    for line in ("nf add l log file sessions.log", "chain add c l", "add-stateful ip-saddr 10.0.0.0/24 nat wan chain c"):
        bench.daemon.line(line)
    mirror = Mirror(bench.servers, SERVER, 7000)
    bench.on_close(mirror.close)
    lasting = Speaker(bench.hosts, INSIDE[0])
    bench.on_close(lasting.close)
    seen = lasting.ask(SERVER, 7000)
    (before,) = bench.connections("udp-sport", str(lasting.port()))["connections"]
    move(years * 365 * 86_400)
    assert lasting.ask(SERVER, 7000) == seen
    (after,) = bench.connections("udp-sport", str(lasting.port()))["connections"]
    assert abs(after["age_seconds"] - before["age_seconds"]) < 60 and after["expires_seconds"] < 600
    # A session that begins and ends behind the jump: nobody answers it.
    silent = Speaker(bench.hosts, INSIDE[1])
    bench.on_close(silent.close)
    silent.socket.sendto(b"?", (SERVER, 7001))
    words = ("udp-sport", str(silent.port()))
    log = bench.daemon.state_directory / "files/sessions.log"
    wait.until(lambda: not bench.connections(*words)["connections"], "the session's timeout")
    year = int(subprocess.run(["date", "+%Y"], capture_output=True, check=True).stdout) + years
    # Leap years move the date by a few days.
    years_near = f"{year - 1}-|{year}-|{year + 1}-"
    wait.until(lambda: log.exists() and re.search(years_near, log.read_text(encoding="ascii")), "the moved clock's year")
    assert bench.daemon.stop() == 0


ONE_MONTH = 30 * 86_400


@pytest.mark.parametrize("seconds", [ONE_MONTH, -1])
def test_a_time_namespace_does_not_keep_a_stopped_daemon_forwarding(make_wire, seconds):
    """The XDP program reads the machine's clock. With the namespace's, the heartbeat lay in the future or in the past."""
    wrapper = ("unshare", "--time", "--monotonic", str(seconds), "--")
    wire = make_wire("af-xdp", "set fast-path auto\nadd udp-dport 7000 accept\n", wrapper=wrapper)
    wire.right.close()
    wire.left.close()
    wire.bench.know_neighbours()
    for namespace, interface in ((wire.client, "c0"), (wire.server, "s0")):
        # A veth needs GRO to receive redirected frames.
        namespace.run("ethtool", "-K", interface, "gro", "on")
    ends = traffic.Datagrams(wire.client, wire.server, SERVER4, port=7000)
    wire.bench.on_close(ends.close)

    def by_kernel():
        ends.send(64)
        ends.settle()
        return wire.daemon.json("show", "fast-path")["packets"]

    wait.until(by_kernel, "the kernel to take over")

    def crosses():
        arrived = len(ends.arrived)
        ends.sender.send(struct.pack("!Q", ends.sent) + bytes(40))
        ends.sent += 1
        wait.readable([ends.receiver], 0.3)
        ends.collect()
        return len(ends.arrived) > arrived

    wire.daemon.send_signal(signal.SIGSTOP)
    try:
        wait.until(lambda: not crosses(), "the kernel to stop forwarding", 5)
    finally:
        wire.daemon.send_signal(signal.SIGCONT)


@pytest.mark.parametrize("limit", [0, 64 * 1024])
def test_little_memory_that_may_be_locked(make_bench, make_daemon, limit):
    """Ports that share memory with the kernel say what they need. Functions in processes and brokers lock none."""
    bench = make_bench()
    config = (
        "domain add tenant private\nnf add seen monitor process tenant\nchain add inside seen\n"
        "nf add page respond 200 hello process tenant\nchain add site page\n"
        "broker add web listen 127.0.0.1:8080 chain site\nbroker add all transparent chain site\n"
    )
    lowered = ("prlimit", f"--memlock={limit}", "setpriv", "--bounding-set=-ipc_lock", "--inh-caps=-ipc_lock", "--")
    daemon = make_daemon(bench.mbox, config, wrapper=lowered)
    before = daemon.state()
    for kind in ("af-xdp", "af-packet"):
        refused = daemon.line(f"interface add left {kind} m0", check=False)
        assert refused.returncode == 1 and "may not lock enough memory" in refused.stderr, (kind, refused)
        assert daemon.state() == before, kind
    assert [one.get("down") for one in daemon.json("show", "brokers")["brokers"]] == [None, None]
    assert all(one["process"] for domain in daemon.json("show", "domains")["domains"] for one in domain["functions"])
    assert bench.mbox.run("curl", "-sS", "http://127.0.0.1:8080").stdout == "hello"
