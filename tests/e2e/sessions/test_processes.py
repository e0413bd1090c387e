"""Functions in processes of their own: real clients, faults under load, and the end of the daemon.

MMB_SOAK is the long mode: hundreds of faults, where the ordinary run has a few.
"""

import contextlib
import os
import pathlib
import random
import signal
import socket
import subprocess
import time

import pytest

from lab import frames, traffic, wait
from lab.daemon import children, functions_of, process_of, report
from lab.frames import UDP
from lab.netns import SERVER4

FAULTS = 300 if os.environ.get("MMB_SOAK") else 6
LINES = (
    "domain add tenant private buffers 1024",
    "nf add seen monitor process tenant",
    "nf add fw acl deny tcp-dport 23 allow process tenant",
    "chain add c seen | fw",
    "add-stateful all chain c",
)


@pytest.fixture
def tenant(make_wire):
    wire = make_wire("af-packet", workers=2)
    for line in LINES:
        wire.daemon.line(line)
    return wire


def test_real_connections_pass_processes(tenant):
    """TCP through two processes, with two workers; what one of them denies does not pass."""
    source, sink = tenant.bench.client, tenant.bench.server
    traffic.bulk_transfer(source, sink, SERVER4, size=4 << 20)
    with pytest.raises(Exception):
        traffic.bulk_transfer(source, sink, SERVER4, port=23, size=1 << 10, patience=2)
    for name in ("seen", "fw"):
        values = report(tenant.daemon, name)
        assert (values["rejected"], values["lost"], values["restarts"]) == ("0", "0", "0")
        assert int(values["descriptors"]) > 50
    assert tenant.daemon.drops()["acl"] > 0
    shown = tenant.daemon.command("show", "functions").stdout
    assert "domain tenant: private, 1024 buffers, on-failure drop: seen,fw" in shown


def test_a_killed_function_is_back_and_others_go_on(tenant):
    """kill -9 and SIGSTOP again and again: the connection outlives them, and no buffer is lost."""
    before = process_of(tenant.daemon, "fw")
    # Besides, there are spare processes.
    assert {process_of(tenant.daemon, name) for name in ("seen", "fw")} < set(functions_of(tenant.daemon))
    for restarts, number in enumerate((signal.SIGKILL, signal.SIGSTOP, signal.SIGKILL), start=1):
        os.kill(process_of(tenant.daemon, "fw"), number)
        if number == signal.SIGSTOP:
            # It hangs once something waits for it.
            tenant.left.send(bytes(frame(1)))
        wait.until(lambda: report(tenant.daemon, "fw")["restarts"] == str(restarts), "a new process")
        traffic.bulk_transfer(tenant.bench.client, tenant.bench.server, SERVER4, port=5000 + restarts, size=1 << 20)
    assert process_of(tenant.daemon, "fw") != before
    assert report(tenant.daemon, "seen")["restarts"] == "0"
    log = tenant.daemon.log()
    assert log.count("function fw: its process has ended (signal 9)") == 2
    assert log.count("function fw: its process was stopped, and was killed") == 1

    def all_free():
        free, _, buffers = report(tenant.daemon, "fw")["free buffers"].split()
        # Each worker caches a few for each function.
        return int(free) >= int(buffers) - 4 * 64

    wait.until(all_free, "free buffers")


def datagram(port, number):
    return bytes(frames.ether() / frames.ip4() / UDP(sport=1000, dport=port) / f"{number:08}".encode())


def exchange(wire, number):
    """Sends a vector through the chain with processes and a packet of the other chain; waits for the latter.

    Returns when the last packet of the former that came before it was seen. None: there was none."""
    for _ in range(16):
        wire.left.send(datagram(2000, number))
    other = datagram(2001, number)
    wire.left.send(other)
    passed, deadline = None, time.monotonic() + wait.PATIENCE
    while time.monotonic() < deadline:
        got = wire.right.receive_one()
        if got is None:
            wait.readable([wire.right.socket], deadline - time.monotonic())
        elif got[36:38] == other[36:38] and got[42:50] == other[42:50]:
            return passed
        elif got[36:38] == (2000).to_bytes(2, "big"):
            passed = time.monotonic()
    raise AssertionError("the other chain has lost a packet")


@pytest.mark.parametrize("kind", ["private", "zero-copy"])
def test_faults_under_load(make_wire, kind):
    """kill -9 and SIGSTOP at random moments: the function is back each time, and the other chain loses no packet."""
    wire = make_wire("af-packet", workers=2)
    daemon, chance = wire.daemon, random.Random(kind)
    lines = (LINES[0].replace("private", kind), *LINES[1:4], "nf add near monitor", "chain add other near")
    for line in (*lines, "add-stateful udp-dport 2001 chain other", "add-stateful udp-dport 2000 chain c"):
        daemon.line(line)
    wait.until(lambda: exchange(wire, 0), "the first packet")
    times = {signal.SIGKILL: [], signal.SIGSTOP: []}
    for number in range(FAULTS):
        if number % 7 == 6:
            # More ends in a row, each within a second, are answered with pauses.
            deadline = time.monotonic() + 1.1
            while time.monotonic() < deadline:
                exchange(wire, number)
        name, fault = chance.choice(["seen", "fw"]), chance.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGSTOP])
        # A busy machine may have kept a process waiting for so long that it was replaced.
        wait.until(lambda name=name: processes(daemon)[name].get("process"), "a process")
        before = processes(daemon)[name]
        time.sleep(chance.random() / 100)
        with contextlib.suppress(ProcessLookupError):
            os.kill(before["process"], fault)
        begin, passed = time.monotonic(), None
        while not passed:
            assert time.monotonic() < begin + wait.PATIENCE, "no packet passes the function"
            # Packets wait for a stopped process until it is replaced.
            is_replaced = processes(daemon)[name]["restarts"] > before["restarts"]
            last = exchange(wire, number)
            passed = last if is_replaced else None
        times[fault].append(passed - begin)
    for fault, all_of_it in times.items():
        ordered = sorted(1000 * one for one in all_of_it) or [0]
        p50, p99 = (ordered[len(ordered) * share // 100] for share in (50, 99))
        print(f"{kind}, {fault.name}: {len(all_of_it)} times; away for {p50:.1f} ms, {p99:.1f} ms (99 %), {ordered[-1]:.1f} ms at most")
    wait.until(lambda: daemon.json("show", "domains")["domains"][0]["used"] == 0, "free buffers")
    assert all(one["refused"] == 0 for one in processes(daemon).values())


def frame(number):
    return frames.ether() / frames.ip4() / UDP(sport=1000 + number, dport=2000) / frames.payload(32)


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_behind(make_wire, end):
    """Processes of the daemon's first file start once it has given up its rights, and end with it in any case."""
    daemon = make_wire("af-packet", "\n".join(LINES) + "\n").daemon
    wait.until(lambda: len(functions_of(daemon)) == 4, "two processes and two spare ones")
    (supervisor,) = [pid for pid, word in children(daemon.process.pid).items() if word == "function-supervisor"]
    everything = [supervisor, *functions_of(daemon)]
    daemon.stop(end)
    wait.until(lambda: not any(is_there(pid) for pid in everything), "the end of all processes")


def is_there(pid):
    try:
        state = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"


def processes(daemon):
    """The processes of the only domain, by function."""
    (domain,) = daemon.json("show", "domains")["domains"]
    return {one["function"]: one for one in domain["functions"]}


def apply(daemon, path, lines):
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    daemon.command("apply", path)


def test_modes_and_domains(tenant, tmp_path):
    """An idle process does not run in the mode `event`, and `show domains` has what it did."""
    daemon = tenant.daemon
    apply(daemon, tmp_path / "file", (LINES[0], LINES[1] + " event", *LINES[2:]))
    traffic.bulk_transfer(tenant.bench.client, tenant.bench.server, SERVER4, size=1 << 20)
    seen, fw = processes(daemon)["seen"], processes(daemon)["fw"]
    assert (seen["mode"], fw["mode"]) == ("event", "adaptive")
    # Large frames are one descriptor each.
    assert seen["wakeups"] > 0 and seen["descriptors"] > (1 << 20) // 65536
    assert (seen["refused"], seen["restarts"], seen["lost"]) == (0, 0, 0)
    wait.until(lambda: daemon.json("show", "domains")["domains"][0]["used"] == 0, "free buffers")
    shown = daemon.command("show", "domains", "verbose").stdout
    assert "tenant  private" in shown and "seen: wakeups: " in shown
    assert 'mmb_process_up{domain="tenant",function="seen"} 1' in daemon.request("GET", "/metrics")[1].decode()


def test_a_function_moves_without_breaking_a_connection(tenant, tmp_path):
    """A connection that is open goes on while its functions move out of their processes and back."""
    local = [line.replace(" process tenant", "") for line in LINES]
    listener = tenant.bench.server.socket(socket.AF_INET, socket.SOCK_STREAM)
    client = tenant.bench.client.socket(socket.AF_INET, socket.SOCK_STREAM)
    with listener, client:
        listener.bind((SERVER4, 6000))
        listener.listen()
        client.settimeout(wait.PATIENCE)
        client.connect((SERVER4, 6000))
        server, _ = listener.accept()
        with server:
            server.settimeout(wait.PATIENCE)
            for lines, places in ((local, ["", ""]), (LINES, ["tenant", "tenant"]), (local, ["", ""])):
                apply(tenant.daemon, tmp_path / "file", lines)
                for source, sink in ((client, server), (server, client)):
                    source.sendall(bytes(8192))
                    with sink.makefile("rb") as stream:
                        assert len(stream.read(8192)) == 8192
                functions = tenant.daemon.json("show", "functions")["functions"]
                assert [one["domain"] for one in functions[:2]] == places


def send_segments(client):
    """Large frames lie in several buffers, and are copied."""
    client.run("ethtool", "-K", "c0", "tso", "off", "gso", "off")


@pytest.mark.parametrize("driver", ["af-packet", "af-xdp"])
def test_zero_copy(make_wire, tmp_path, driver):
    """Processes read packets where they are, cannot write to them, and lose none of their buffers when they are killed."""
    tenant = make_wire(driver, workers=2)
    daemon = tenant.daemon
    send_segments(tenant.bench.client)
    # Functions move from a private domain into one without copies, and to one with functions that write.
    for line in LINES:
        daemon.line(line)
    apply(daemon, tmp_path / "file", (LINES[0].replace("private", "zero-copy"), *LINES[1:]))
    assert "domain add tenant zero-copy buffers 1024" in daemon.command("show", "config").stdout
    traffic.bulk_transfer(tenant.bench.client, tenant.bench.server, SERVER4, size=4 << 20)
    for name, values in processes(daemon).items():
        assert values["in_place"] > 1000 and values["refused"] == 0, (name, values)
        maps = pathlib.Path(f"/proc/{values['process']}/maps").read_text(encoding="utf-8").splitlines()
        inodes = {kind: {line.split()[4] for line in maps if line.split()[1] == kind} for kind in ("r--s", "rw-s")}
        assert len(inodes["r--s"]) == 1 and not inodes["r--s"] & inodes["rw-s"], maps
    assert daemon.json("show", "domains")["domains"][0]["kind"] == "zero-copy"
    # A function that changes packets gets copies, in the same chain.
    lines = (LINES[0].replace("private", "zero-copy"), LINES[1], "nf add mss mss-clamp 1000 process tenant", LINES[2])
    apply(daemon, tmp_path / "file", (*lines, "chain add c seen | mss | fw", LINES[4]))
    for round_, name in enumerate(("seen", "mss", "fw", "seen"), start=1):
        os.kill(processes(daemon)[name]["process"], signal.SIGKILL)
        wait.until(lambda name=name: processes(daemon)[name].get("process"), "a new process")
        traffic.bulk_transfer(tenant.bench.client, tenant.bench.server, SERVER4, port=7000 + round_, size=1 << 20)
    wait.until(lambda: daemon.json("show", "domains")["domains"][0]["used"] == 0, "free buffers")
    values = processes(daemon)
    assert values["mss"]["in_place"] == 0 and values["mss"]["descriptors"] > 100
    assert values["seen"]["in_place"] > 100


def test_a_pinned_process(tenant, tmp_path):
    """A process runs on the processor of its line, which `show`, the API and the file have."""
    daemon = tenant.daemon
    cpu = max(os.sched_getaffinity(daemon.process.pid))
    apply(daemon, tmp_path / "file", (LINES[0], f"{LINES[1]} cpu {cpu}", *LINES[2:]))
    traffic.bulk_transfer(tenant.bench.client, tenant.bench.server, SERVER4, size=1 << 20)
    seen, fw = processes(daemon)["seen"], processes(daemon)["fw"]
    assert (seen["processor"], fw.get("processor")) == (cpu, None)
    assert os.sched_getaffinity(seen["process"]) == {cpu}
    assert f"process tenant adaptive cpu {cpu}" in daemon.command("show", "functions").stdout
    assert f"adaptive cpu {cpu}" in daemon.command("show", "domains").stdout
    before = daemon.command("show", "config").stdout
    assert f"nf add seen monitor process tenant cpu {cpu}\n" in before
    # A file with a processor that is not there is refused as a whole; `check` finds what needs no daemon.
    for words, number, sentence in (
        ("apply", 1023, "the machine has no processor 1023; it has 0"),
        ("check", 1024, "invalid processor `1024`"),
    ):
        (tmp_path / "file").write_text(before.replace(f"cpu {cpu}", f"cpu {number}"), encoding="utf-8")
        result = daemon.command(words, tmp_path / "file", check=False)
        assert result.returncode != 0 and sentence in result.stderr, result.stderr
    assert daemon.command("show", "config").stdout == before
    assert processes(daemon)["seen"]["process"] == seen["process"]


def test_no_other_process_becomes_a_function(tenant):
    """Sockets and memory of functions have no name, so nobody finds them; the program alone does nothing."""
    daemon = tenant.daemon
    own = {f"/proc/{pid}" for pid in (daemon.process.pid, *children(daemon.process.pid), *functions_of(daemon))}
    inodes = {
        link.split("[")[1].rstrip("]")
        for process in own
        for link in (os.readlink(file) for file in pathlib.Path(process, "fd").iterdir())
        if link.startswith("socket:[")
    }
    sockets = [line.split() for line in pathlib.Path(f"/proc/{daemon.process.pid}/net/unix").read_text(encoding="utf-8").splitlines()[1:]]
    named = {words[7] for words in sockets if words[6] in inodes and len(words) > 7}
    assert named and all(name.startswith(str(daemon.socket.parent)) for name in named), named
    binary = os.readlink(f"/proc/{daemon.process.pid}/exe")
    for word in ("function-process", "function-supervisor"):
        done = subprocess.run([binary, word], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 1 and done.stderr.count("\n") == 1, done


def test_refusals(tenant):
    """Bad input changes nothing, and each refusal is one sentence with the way out."""
    line = tenant.daemon.command
    before = line("show", "config").stdout
    for words, sentence in (
        ("nf add x acl allow process nowhere", "there is no domain `nowhere`"),
        ("nf add x proxy 192.0.2.10:80 process tenant poll", "`x` works in brokers, whose processes sleep while nothing comes: leave `poll` out"),
        ("nf add x log file a.log process tenant", "`x` works with files or sockets of its own"),
        ("nf add x police 1000pps per source process tenant", "`x` shares state between sessions"),
        ("domain add tenant private", "there is a domain `tenant` already"),
        ("domain del tenant", "domain `tenant` is used by function `seen`"),
        ("domain add other private buffers 8", "invalid number of buffers `8`"),
        ("nf add x acl allow process tenant cpu 1023", "the machine has no processor 1023; it has 0"),
        ("nf add x acl allow process tenant cpu 1024", "invalid processor `1024`"),
        ("nf add x acl allow process tenant cpu", "the number of the processor is missing"),
    ):
        result = line(*words.split(), check=False)
        assert result.returncode != 0 and sentence in result.stderr, (words, result.stderr)
    assert line("show", "config").stdout == before
