"""What the daemon may do, and what the members of its groups may."""

import contextlib
import os
import pathlib
import re
import shutil
import socket
import subprocess
import tempfile
import threading

import pytest

from lab import daemon as lab_daemon
from lab import wait
from lab.netns import SERVER4

# CAP_NET_ADMIN, CAP_NET_RAW, CAP_IPC_LOCK, CAP_PERFMON, CAP_BPF (linux/capability.h).
CAPABILITIES = 1 << 12 | 1 << 13 | 1 << 14 | 1 << 38 | 1 << 39
# Groups that Debian always has.
OPERATORS, READERS = "games", "news"


@pytest.fixture
def open_directory():
    """A directory that every user can enter."""
    path = pathlib.Path(tempfile.mkdtemp(prefix="mmb-e2e-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def grouped(make_daemon, open_directory):
    daemon = lab_daemon.Daemon(
        directory=open_directory, arguments=("--group", OPERATORS, "--read-group", READERS)
    )
    yield daemon.start()
    daemon.close()


def as_member(group, *command):
    """The command line that runs a command as a user without rights, in a group."""
    groups = ["--groups", group] if group else ["--clear-groups"]
    return ["setpriv", "--reuid", "nobody", "--regid", "nogroup", *groups, *map(str, command)]


def run_as(group, path, *words):
    """Runs an mmb command as a member of a group; the exit status and the whole output."""
    # The binary may be in a directory that only root enters.
    result = subprocess.run(
        as_member(group, path.parent / "mmb", "--socket", path, *words),
        check=False, capture_output=True, text=True, timeout=wait.PATIENCE,
    )
    return result.returncode, result.stdout + result.stderr


@pytest.fixture
def program(open_directory):
    shutil.copy(lab_daemon.binary(), open_directory / "mmb")


def threads(daemon):
    """What the kernel shows of each thread, as dictionaries."""
    for path in pathlib.Path(f"/proc/{daemon.process.pid}/task").glob("*/status"):
        yield dict(line.split(":\t", 1) for line in path.read_text(encoding="utf-8").splitlines() if ":\t" in line)


def test_the_daemon_gives_up_what_it_does_not_need(make_daemon):
    daemon = make_daemon()
    daemon.line("interface add t tap")
    for status in threads(daemon):
        assert (status["Seccomp"], status["NoNewPrivs"]) == ("2", "1"), status
        for held in ("CapEff", "CapPrm", "CapBnd"):
            assert int(status[held], 16) == CAPABILITIES, (held, status)
        assert int(status["CapInh"], 16) == int(status["CapAmb"], 16) == 0
    assert daemon.stop() == 0


def test_a_user_of_its_own(make_bench, open_directory):
    """Ports of all kinds open at run time without root, and rules forward. The audit file belongs to the user."""
    bench, audit = make_bench(), open_directory / "audit"
    arguments = ("--user", "nobody", "--audit", audit)
    daemon = lab_daemon.Daemon(bench.mbox, directory=open_directory, arguments=arguments).start()
    for status in threads(daemon):
        assert status["Uid"].split() == ["65534"] * 4 and status["Groups"].strip() in ("", "65534"), status
        assert int(status["CapEff"], 16) == CAPABILITIES
    daemon.line("interface add left af-xdp m0")
    daemon.line("interface add right af-packet m1")
    daemon.line("interface add own tap")
    daemon.line("nf add l log file sessions.log")
    daemon.line("wire left right")
    assert {i["state"] for i in daemon.interfaces().values()} == {"up"}
    bench.client.run("ping", "-c", "1", "-W", "5", SERVER4)
    assert (audit.stat().st_uid, audit.stat().st_mode & 0o777) == (65534, 0o640)
    assert "wire left right" in audit.read_text(encoding="utf-8")
    assert daemon.stop() == 0


def test_readers_read_operators_change_and_strangers_do_neither(grouped, program):
    read = grouped.socket.with_name(grouped.socket.name + ".read")
    for words in (["list"], ["show", "interfaces"], ["show", "config", "--json"]):
        assert run_as(READERS, read, *words)[0] == 0, words
    for words in (["add", "all", "drop"], ["flush"], ["clear", "connections"], ["interface", "add", "n", "null"]):
        status, text = run_as(READERS, read, *words)
        assert status == 1 and f"the role read does not permit `{words[0]}`" in text, text
    assert run_as(READERS, grouped.socket, "list")[0] == 1
    assert run_as(OPERATORS, grouped.socket, "add", "all", "drop")[0] == 0
    for path in (read, grouped.socket):
        status, text = run_as(None, path, "list")
        assert status == 1 and "no permission" in text, text
    assert len(grouped.rules()) == 1
    metrics = grouped.request("GET", "/metrics")[1].decode()
    assert 'mmb_api_refused_total{reason="role"} 4' in metrics


HOLD = """
import socket, sys
held = []
for _ in range(400):
    s = socket.socket(socket.AF_UNIX)
    s.connect(sys.argv[1])
    held.append(s)
print("held", flush=True)
sys.stdin.read()
"""


def test_a_member_that_holds_connections_locks_nobody_out(grouped, program):
    """1,024 descriptors, held by one member of the group, locked the operator out."""
    with subprocess.Popen(
        as_member(OPERATORS, "/usr/bin/python3", "-c", HOLD, grouped.socket), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout.readline() == b"held\n"
        # The connections beyond the limit are refused first, a few at a time.
        wait.until(
            lambda: "there are 128 connections already" in run_as(OPERATORS, grouped.socket, "list")[1],
            "the sentence for an operator beyond the limit",
        )
        grouped.line("add all drop")
        assert run_as(READERS, grouped.socket.with_name(grouped.socket.name + ".read"), "list")[0] == 0
        holder.stdin.close()


def test_a_full_pipe_and_a_held_connection_do_not_delay_the_end(make_daemon, tmp_path):
    """A full pipe behind standard error froze the daemon with its lock held."""
    daemon = make_daemon(start=False)
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    try:
        while True:
            os.write(writer, b"x" * 65536)
    except BlockingIOError:
        pass
    os.set_blocking(writer, True)
    daemon.process = subprocess.Popen(
        [str(word) for word in (lab_daemon.binary(), *daemon.arguments)], stdin=subprocess.DEVNULL, stdout=writer, stderr=writer
    )
    os.close(writer)
    wait.until(daemon.socket.exists, "the socket of a daemon that nobody reads")
    daemon.line("add all drop")
    with socket.socket(socket.AF_UNIX) as held:
        held.connect(str(daemon.socket))
        held.sendall(b"POST /v1/apply HTTP/1.1\r\nContent-Length: 10\r\n\r\n")
        daemon.send_signal(15)
        daemon.process.wait(timeout=10)
    os.close(reader)


def test_changes_are_logged_with_their_user(grouped, program):
    """The log names the user and the process of each change, and has no line that a client wrote."""
    user = int(subprocess.run(["id", "-u", "nobody"], check=True, capture_output=True, text=True).stdout)
    assert run_as(OPERATORS, grouped.socket, "add", "tcp-dport", "80", "drop")[0] == 0
    assert run_as(OPERATORS, grouped.socket, "list")[0] == 0
    assert run_as(OPERATORS, grouped.socket, "del", "77")[0] != 0
    grouped.line("flush")
    assert grouped.request("POST", "/v1/command", '{"line": "add all drop #\\nchange by user 0: x"}')[0] == 400
    assert grouped.request("POST", "/v1/apply", "add all drop\n")[0] == 200
    assert grouped.request("DELETE", "/v1/rules")[0] == 200
    wait.until(lambda: "DELETE /v1/rules" in grouped.log(), "the last change")
    lines = [line for line in grouped.log().splitlines() if line.startswith("change by ")]
    assert len(lines) == 4, lines
    who = rf"change by user {user}, process \d+: "
    own = rf"change by user {os.geteuid()}, process \d+: "
    for line, expected in zip(
        lines,
        [who + "add tcp-dport 80 drop", own + "flush", own + r"apply \(13 bytes\)", own + "DELETE /v1/rules"],
        strict=True,
    ):
        assert re.fullmatch(expected, line), (line, expected)


@pytest.mark.skipif(not os.environ.get("E2E_LONG"), reason="sends 2 GiB; E2E_LONG=1")
def test_many_large_requests_take_a_limited_amount_of_memory(make_daemon, figure):
    """Eight bodies of 256 MiB at once took 2.3 GB. Together they get the memory of one, with room for its growth."""
    daemon = make_daemon()
    before, size, piece = daemon.memory(), 256 << 20, b"# " + b"x" * 65_533 + b"\n"
    statuses = []

    def send():
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(60)
            client.connect(str(daemon.socket))
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                client.sendall(f"POST /v1/check HTTP/1.1\r\nHost: m\r\nContent-Length: {size}\r\n\r\n".encode())
                for _ in range(size // len(piece)):
                    client.sendall(piece)
            with contextlib.suppress(ConnectionResetError):
                statuses.append(client.recv(4096).split(b" ")[1:2])

    threads = [threading.Thread(target=send) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    peak = daemon.memory("VmHWM") - before
    figure("memory that eight requests of 256 MiB took", f"{peak / 1024:.0f} MiB")
    assert peak << 10 < 3 * size, f"{peak >> 10} MiB"
    assert [b"503"] in statuses, statuses
    daemon.line("add all drop")
