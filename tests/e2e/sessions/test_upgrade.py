"""Sessions outlive the daemon: a stop saves them and the next start goes on with them, or another daemon takes over."""

import contextlib
import os
import pathlib
import socket
import subprocess
import threading

import pytest

from lab import daemon as lab_daemon
from lab import wait
from lab.natbench import INSIDE, OUTSIDE, SERVER, Mirror, Speaker
from lab.traffic import WebServer

# Only a SYN opens a connection: one that goes on has been restored.
CONFIG = f"""set tcp-pickup off
nat pool add wan {OUTSIDE[0]} ports 30000-40000
add-stateful ip-saddr 10.0.0.0/24 nat wan accept
add all drop
"""
# More than the buffers of both kernels hold: some of it always has yet to come.
SIZE = 32 << 20
STEP = SIZE // 64


class Download:
    """curl, which fetches a file through NAT: slowly, and to the end when the test says so."""

    def __init__(self, bench):
        self.web = WebServer(bench.servers, 80, SIZE)
        self.process = bench.hosts.popen(
            "curl", "--silent", "--show-error", "--fail", "--noproxy", "*", "--max-time", "120",
            "--interface", INSIDE[0], f"http://{SERVER}/file", stdout=subprocess.PIPE,
        )  # fmt: skip
        self.received, self.may_have, self.hurry = bytearray(), 4 * STEP, threading.Event()
        self.reader = threading.Thread(target=self.read)
        self.reader.start()
        self.progress()

    def read(self):
        """Reads what curl writes. curl waits meanwhile, so that the server always has more to send."""
        while chunk := self.process.stdout.read1(1 << 14):
            self.received += chunk
            self.hurry.wait(0.02)
            while len(self.received) >= self.may_have and not self.hurry.wait(0.02):
                pass

    def progress(self):
        """Waits until a piece more has arrived."""
        size = len(self.received) + STEP
        self.may_have = max(self.may_have, size)
        wait.until(lambda: len(self.received) >= size, f"{size} bytes")

    def finish(self):
        self.hurry.set()
        assert wait.for_end(self.process, "curl", 60) == 0
        self.reader.join()
        assert self.received == self.web.content
        (line,) = self.web.log_lines()
        assert line.split()[0] == OUTSIDE[0], "it was translated"

    def close(self):
        self.process.kill()
        self.process.wait()
        self.hurry.set()
        self.reader.join()
        self.process.stdout.close()
        self.web.close()


class Talks:
    """Hosts that ask a server how it sees them."""

    def __init__(self, bench):
        self.mirrors = [Mirror(bench.servers, SERVER, 7000, kind) for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM)]
        self.speakers = [
            Speaker(bench.hosts, host, 31_000, kind).connect(SERVER, 7000)
            for host in INSIDE[:3]
            for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM)
        ]
        self.seen = self.ask()
        assert len(set(self.seen[::2])) == len(set(self.seen[1::2])) == 3, "each host has its own port"

    def ask(self):
        return [speaker.ask() for speaker in self.speakers]

    def check(self):
        assert self.ask() == self.seen

    def close(self):
        for end in (*self.speakers, *self.mirrors):
            end.close()


@contextlib.contextmanager
def traffic(bench):
    """Hosts that talk to a server, and a download."""
    talks, download = Talks(bench), Download(bench)
    try:
        yield talks, download
    finally:
        talks.close()
        download.close()


def logs(daemon, text):
    """Waits until a daemon has written a text: it is ready before its lines are."""
    wait.until(lambda: text in daemon.log(), text)


def flows(bench):
    """The protocols and directions of all sessions."""
    return sorted(str((c["protocol"], c["forward"]["source"], c["reverse"]["destination"])) for c in bench.connections()["connections"])


def restart(bench):
    assert bench.daemon.stop() == 0
    bench.daemon.start()


@pytest.mark.parametrize("workers", [1, 2])
def test_a_download_survives_a_restart(make_nat, driver, workers):
    bench = make_nat(CONFIG, driver, workers=workers, seed=None)
    with traffic(bench) as (talks, download):
        before = flows(bench)
        restart(bench)
        assert flows(bench) == before
        download.progress()
        talks.check()
        restart(bench)
        talks.check()
        download.finish()
    log = bench.daemon.log()
    assert log.count(" saved\n") == 2 and log.count(" restored in ") == 2, log
    assert not (bench.daemon.state_directory / "sessions").exists(), "the file is taken"


def test_without_the_file_connections_end(make_nat):
    bench = make_nat(CONFIG)
    talks = Talks(bench)
    try:
        bench.daemon.stop()
        (bench.daemon.state_directory / "sessions").unlink()
        bench.daemon.start()
        stream = talks.speakers[1]
        stream.socket.settimeout(1)
        with pytest.raises(TimeoutError):
            stream.ask()
    finally:
        talks.close()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda data: data[:-1], "it is truncated or damaged"),
        (lambda data: data[:99] + bytes([data[99] ^ 1]) + data[100:], "it is truncated or damaged"),
        (lambda _: b"#!/bin/sh\n", "it is not a file of sessions"),
        (lambda data: data[:8] + b"\x09\0\0\0" + data[12:], "its format is of version 9, and this program reads version 1"),
    ],
)
def test_a_wrong_file_is_refused(make_nat, change, reason):
    bench = make_nat(CONFIG)
    talks = Talks(bench)
    try:
        bench.daemon.stop()
        file = bench.daemon.state_directory / "sessions"
        file.write_bytes(change(file.read_bytes()))
        bench.daemon.start()
        logs(bench.daemon, f"error: the sessions in {file} are not restored: {reason}\n")
        assert bench.connections()["connections"] == []
        assert not file.exists()
    finally:
        talks.close()


def test_the_configuration_of_the_new_start_decides(make_nat):
    bench = make_nat(CONFIG)
    talks = Talks(bench)
    try:
        bench.daemon.stop()
        text = bench.daemon.config.read_text(encoding="utf-8")
        bench.daemon.config.write_text(text.replace("add-stateful ip-saddr", "add-stateful udp-dport 7000 ip-saddr"))
        bench.daemon.start()
        logs(bench.daemon, "left out: 6 not allowed by the rules")
        assert bench.connections()["connections"] == []
    finally:
        talks.close()


def take_over(bench, workers=1, arguments=()):
    """Starts a daemon that takes over from the bench's daemon, which ends."""
    old = bench.daemon
    new = lab_daemon.Daemon(
        bench.mbox, None, workers, old.directory, arguments=["--takeover", *arguments], seed=None
    )  # fmt: skip
    bench.on_close(new.close)
    new.start()
    assert wait.for_end(old.process, "the daemon that was taken over") == 0
    bench.daemon = new


@pytest.mark.parametrize("workers", [1, 2])
def test_a_download_survives_a_takeover(make_nat, driver, workers):
    bench = make_nat("set add blocked address\n" + CONFIG, driver, workers=workers, seed=None)
    bench.daemon.line("set blocked add 192.0.2.7 timeout 1h")
    bench.daemon.line("add tcp-dport 9 drop")
    with traffic(bench) as (talks, download):
        before, config = flows(bench), bench.daemon.json("show", "config")
        take_over(bench, workers)
        assert flows(bench) == before
        assert bench.daemon.json("show", "config") == config
        (element,) = bench.daemon.json("show", "set", "blocked")["elements"]
        assert element["element"] == "192.0.2.7"
        talks.check()
        download.progress()
        take_over(bench, workers)
        talks.check()
        download.finish()
    log = bench.daemon.log()
    assert log.count(" has taken over: stopping") == 2 and "error" not in log, log


@contextlib.contextmanager
def offer(daemon):
    """A connection to a daemon that offers to be taken over."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stream:
        stream.settimeout(wait.PATIENCE)
        stream.connect(f"{daemon.socket}.next")
        with stream.makefile("rb") as reader:
            assert reader.read(1) == b"c"
            for _ in range(2):
                reader.read(int.from_bytes(reader.read(4), "little"))
        yield stream


def useless_copies(file):
    """The number of copies that a file of sessions replaces."""
    return int.from_bytes(os.pread(file, 4, 0), "little")


def are_acknowledged(namespace):
    """Whether no TCP of a namespace waits for an acknowledgement: the third column is `Send-Q`."""
    return all(line.split()[2] == "0" for line in namespace.run("ss", "-tnH").stdout.splitlines())


def test_sessions_that_change_are_copied_again(make_nat):
    """Sessions are copied while packets go on, and those that have changed since are copied at the end."""
    bench = make_nat(CONFIG)
    talks = Talks(bench)
    try:
        wait.until(lambda: are_acknowledged(bench.hosts) and are_acknowledged(bench.servers), "delayed acknowledgements")
        with offer(bench.daemon) as stream:
            stream.send(b"x")
            message, [copies], *_ = socket.recv_fds(stream, 2, 8)
            assert message == b"k\0" and useless_copies(copies) == 0
            assert talks.speakers[0].ask() == talks.seen[0]
            stream.send(b"g")
            message, [changes, *others], *_ = socket.recv_fds(stream, 2, 8)
            assert message == b"s\0" and 1 <= useless_copies(changes) < len(talks.speakers)
            assert os.fstat(changes).st_size < os.fstat(copies).st_size
        for file in (copies, changes, *others):
            os.close(file)
        wait.until(lambda: "another daemon has not taken over" in bench.daemon.log(), "the old daemon to go on")
        talks.check()
    finally:
        talks.close()


@contextlib.contextmanager
def half_a_takeover(daemon, waits):
    """What a daemon does that dies when it has got everything; `waits`: also the message that the ports are closed."""
    with offer(daemon) as stream:
        stream.send(b"g")
        message, files, *_ = socket.recv_fds(stream, 2, 8)
        assert message == b"s\0" and len(files) == 4
        if waits:
            assert stream.recv(1) == b"p"
        yield
    for file in files:
        with contextlib.suppress(OSError):
            socket.close(file)


@pytest.mark.parametrize("waits", [True, False])
def test_the_old_daemon_goes_on_if_the_new_one_dies(make_nat, driver, waits):
    bench = make_nat(CONFIG, driver)
    talks = Talks(bench)
    try:
        before = flows(bench)
        with half_a_takeover(bench.daemon, waits):
            assert bench.daemon.running()
        wait.until(lambda: "another daemon has not taken over" in bench.daemon.log(), "the old daemon to go on")
        talks.check()
        assert flows(bench) == before
        bench.daemon.line("add tcp-dport 9 drop")
        take_over(bench)
        talks.check()
    finally:
        talks.close()


def test_a_change_that_waits_is_not_taken_over(make_nat, tmp_path):
    bench = make_nat(CONFIG)
    file = tmp_path / "next"
    file.write_text("add udp-dport 9 drop\n", encoding="utf-8")
    bench.daemon.command("apply", "--confirm", "60s", file)
    with pytest.raises(lab_daemon.DidNotStart, match="a change waits for its confirmation"):
        take_over(bench)
    assert bench.daemon.running()
    bench.daemon.command("confirm")
    take_over(bench)
    assert [rule["text"] for rule in bench.daemon.rules().values()] == ["add udp-dport 9 drop"]


def test_strangers_do_not_take_over(make_nat):
    bench = make_nat(CONFIG)
    socket_file = pathlib.Path(f"{bench.daemon.socket}.next")
    assert socket_file.stat().st_mode & 0o777 == 0o600


@contextlib.contextmanager
def user(number):
    """The process as another user."""
    os.seteuid(number)
    try:
        yield
    finally:
        os.seteuid(0)


def test_programs_of_other_users_are_not_taken_over(root, make_daemon):
    """Their configuration could name any file, which the new daemon would open with its own rights."""
    daemon = make_daemon(config=None, start=False, arguments=["--takeover"])
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.settimeout(wait.PATIENCE)
        listener.bind(f"{daemon.socket}.next")
        with user(65534):
            listener.listen()
        daemon.launch()
        stream, _ = listener.accept()
        with stream:
            stream.settimeout(wait.PATIENCE)
            with contextlib.suppress(BrokenPipeError):
                stream.sendall(b"c" + bytes(8))
            with contextlib.suppress(ConnectionResetError):
                assert stream.recv(1) == b"", "it asks for the sessions"
        assert wait.for_end(daemon.process, "the new daemon") == 1
    assert "user 65534" in daemon.log()


def test_without_a_daemon_there_is_nothing_to_take_over(root, make_daemon):
    with pytest.raises(lab_daemon.DidNotStart, match="cannot take over the daemon at"):
        make_daemon(None, None, arguments=["--takeover"])
