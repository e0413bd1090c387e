"""Bad input: one clear sentence, a non-zero exit status, and nothing changed."""

import contextlib
import itertools
import os
import re
import socket

import pytest

from lab import wait
from lab.daemon import mmb
from lab.wire import wire_config

# What a daemon refuses does not depend on its ports.
DRIVERS = ("af-packet",)


@pytest.fixture
def daemon(shared_wire):
    """A daemon with a wire and two rules."""
    shared_wire.daemon.command("flush")
    shared_wire.daemon.add("udp-dport 1 drop")
    shared_wire.daemon.add("tcp-dport 80 mod tcp-dport 8080")
    return shared_wire.daemon


def assert_refused(done, *expected):
    """The command fails: non-zero status, nothing on stdout, one error on stderr that names the cause."""
    assert done.returncode != 0, done.stdout
    message = done.stderr.strip()
    assert message and done.stdout.strip() == ""
    assert len(message) < 2000 and "panicked" not in message and "Traceback" not in message
    assert len(re.findall(r"(?mi)^error", message)) <= 1
    for word in expected:
        assert word in message, message


BAD_COMMANDS = {
    "unknown field": ("add tcp-dprot 80 drop", "tcp-dprot", "tcp-dport"),
    "unknown target": ("add tcp-dport 80 dorp", "dorp"),
    "wrong value": ("add tcp-dport eighty drop", "eighty"),
    "chain in a rule without state": ("add tcp-dport 80 chain web", "web", "chain add"),
    "name of a target for a function": ("nf add drop count", "drop"),
    "two functions with nothing between": ("chain add web a b", "b", "|"),
    "arm without an output": ("chain add web a [b]", "b", "output"),
    "chain that breaks off": ("chain add web a |", "missing"),
    "chain of nothing": ("chain add web nowhere", "nowhere"),
    "unknown instance": ("nf set nowhere x", "nowhere"),
    "wrong address": ("add ip-saddr 10.0.0.256 drop", "10.0.0.256"),
    "address of the other family": ("add ip-saddr 2001:db8::1 drop", "2001:db8::1"),
    "value out of range": ("add tcp-dport 65536 drop", "65536", "65535"),
    "value out of range of a narrow field": ("add ip-dscp 64 drop", "64", "63"),
    "edit out of range": ("add all mod ip-ttl 256", "256", "255"),
    "prefix on a field that has none": ("add tcp-dport 80/8 drop", "80/8"),
    "prefix too long": ("add ip-saddr 10.0.0.0/33 drop", "/33"),
    "prefix as a value to write": ("add all mod ip-saddr 10.0.0.0/8", "10.0.0.0/8"),
    "protocol contradiction": ("add udp-dport 53 ip-proto tcp drop", "ip-proto tcp", "udp-dport"),
    "two protocols": ("add udp-dport 53 tcp-dport 53 drop", "tcp-dport"),
    "two versions of IP": ("add ip-saddr 10.0.0.1 ip6-daddr ::1 drop", "ip6-daddr"),
    "edit of a protocol the rule excludes": ("add ip-proto tcp mod udp-dport 1", "udp-dport"),
    "two values of one field": ("add tcp-dport 80 tcp-dport 81 drop", "tcp-dport"),
    "empty rule": ("add", "add"),
    "no target": ("add tcp-dport 80", "target"),
    "no match": ("add drop", "match"),
    "accept and drop": ("add all accept drop", "drop"),
    "percentage above 100": ("add all drop 101", "101"),
    "percentage of nothing": ("add all drop 0.001", "0.001"),
    "unknown interface in a rule": ("add in nowhere drop", "nowhere"),
    "unknown interface in an edit": ("add all mod out nowhere", "nowhere"),
    "field that cannot be written": ("add all mod ip-checksum 1", "ip-checksum"),
    "unknown command": ("ad tcp-dport 80 drop", "ad"),
    "unknown thing to show": ("show nothing", "nothing"),
    "index that does not exist": ("del 77", "77"),
    "index that is no number": ("del first", "first"),
    "no index": ("del", "index"),
    "interface added twice": ("interface add left null", "left"),
    "interface that does not exist": ("interface del nowhere", "nowhere"),
    "unknown kind of interface": ("interface add x token-ring tr0", "token-ring"),
    "device that does not exist": ("interface add x af-packet nowhere0", "nowhere0"),
    "XDP device that does not exist": ("interface add x af-xdp nowhere0", "nowhere0"),
    "PCI device that does not exist": ("interface add x pci 0000:ff:1f.7", "0000:ff:1f.7"),
    "PCI address that is none": ("interface add x pci banana", "banana"),
    "capture that does not exist": ("interface add x pcap /nonexistent/in.pcap /tmp/out.pcap", "/nonexistent/in.pcap"),
    "memif socket in no directory": ("interface add x memif /nonexistent/dir/sock", "/nonexistent/dir"),
    "wire to nothing": ("wire left nowhere", "nowhere"),
    "wire to itself": ("wire left left", "left"),
    "enable nothing": ("enable nowhere", "nowhere"),
    "disable with one unknown": ("disable left nowhere", "nowhere"),
}


@pytest.mark.parametrize("name", BAD_COMMANDS)
def test_bad_command(daemon, name):
    line, *expected = BAD_COMMANDS[name]
    before = daemon.state()
    assert_refused(daemon.line(line, check=False), *expected)
    assert daemon.state() == before


# Where the error is about a word that is there, and not about one that is missing.
OFFENDING = [name for name, (line, word, *_) in BAD_COMMANDS.items() if line.startswith("add ") and word in line]


@pytest.mark.parametrize("name", OFFENDING)
def test_error_marks_the_offending_word(daemon, name):
    line, word = BAD_COMMANDS[name][:2]
    message = daemon.line(line, check=False).stderr
    shown, caret = _source_and_caret(message)
    assert (
        shown[caret.index("^") :].startswith(word) or word in shown[caret.index("^") : caret.rindex("^") + 1]
    ), message


def _source_and_caret(message):
    lines = message.splitlines()
    for above, line in itertools.pairwise(lines):
        if "^" in line and not line.strip(" ^|~-"):
            return above, line
    raise AssertionError(f"no caret in:\n{message}")


# What the grammar knows and this release cannot run: never accepted and ignored.
IMPOSSIBLE = [
    "add ip-proto tcp lb 10.0.0.1 10.0.0.2",
    "add-stateful ip-proto tcp tcp-dport 80 chain web",
    "add tcp-dport 80 map ip-saddr 1.2.3.4",
    "add-stateful ip-proto tcp nat nowhere",
]


@pytest.mark.parametrize("line", IMPOSSIBLE)
def test_what_cannot_be_done_is_refused(daemon, line):
    before = daemon.state()
    assert_refused(daemon.line(line, check=False))
    assert daemon.state() == before


def test_a_line_of_ten_megabytes(daemon, tmp_path):
    before = daemon.state()
    path = tmp_path / "long"
    path.write_text("add " + "tcp-dport 80 " * 800_000 + "drop\n", encoding="ascii")
    assert_refused(mmb("check", path, check=False), "1")
    assert_refused(daemon.command("apply", path, check=False))
    status, body = daemon.request("POST", "/v1/rules", b'{"rule": "add ' + b"x" * (10 << 20) + b'"}')
    assert 400 <= status < 500 and len(body) < 5000
    assert daemon.state() == before


GARBAGE = {
    "random": os.urandom(100_000),
    "zeros": bytes(10_000),
    "elf": b"\x7fELF\x02\x01\x01" + bytes(range(256)) * 20,
    "utf8": b"add \xff\xfe drop\n",
}


@pytest.mark.parametrize("name", GARBAGE)
def test_binary_garbage(daemon, tmp_path, name):
    before = daemon.state()
    path = tmp_path / "garbage"
    path.write_bytes(GARBAGE[name])
    refused = mmb("check", path, check=False)
    assert refused.returncode == 1 and "panicked" not in refused.stderr
    assert re.search(r"\b1\b", refused.stderr)
    assert daemon.command("apply", path, check=False).returncode != 0
    assert daemon.state() == before


def test_one_bad_line_among_a_hundred_thousand(daemon, tmp_path):
    before = daemon.state()
    lines = [
        f"add ip-saddr 10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255} drop\n" for number in range(100_000)
    ]
    lines[77_776] = "add ip-saddr 10.1.2.3.4 drop\n"
    path = tmp_path / "policy"
    path.write_text("".join(lines), encoding="ascii")
    for done in (mmb("check", path, check=False), daemon.command("apply", path, check=False)):
        assert_refused(done, "77777", "10.1.2.3.4", "^")
    assert daemon.state() == before


def test_check_says_line_and_column(tmp_path):
    path = tmp_path / "policy"
    path.write_text("# fine\nadd tcp-dport 80 drop\n  add tcp-dprot 443 drop\n", encoding="ascii")
    refused = mmb("check", path, check=False)
    assert refused.returncode == 1
    assert f"{path}:3:7" in refused.stderr and "tcp-dport" in refused.stderr
    _source_and_caret(refused.stderr)


def test_check_of_a_good_file(tmp_path):
    path = tmp_path / "policy"
    path.write_text(wire_config("af-packet") + "add tcp-dport 80 drop\n", encoding="ascii")
    assert mmb("check", path).returncode == 0


def test_file_that_does_not_exist(daemon):
    for refused in (
        mmb("check", "/nonexistent/policy", check=False),
        daemon.command("apply", "/nonexistent/policy", check=False),
        daemon.command("diff", "/nonexistent/policy", check=False),
    ):
        assert_refused(refused, "/nonexistent/policy")


def test_command_without_a_daemon(tmp_path):
    path = tmp_path / "nobody.sock"
    assert_refused(mmb("list", "--socket", path, check=False), str(path))


def test_daemon_with_a_bad_file_does_not_start(make_daemon):
    daemon = make_daemon(config="add tcp-dprot 80 drop\n", start=False)
    daemon.launch()
    assert wait.for_end(daemon.process, "mmb") != 0
    assert "tcp-dprot" in daemon.log() and "^" in daemon.log()
    assert not daemon.socket.exists()


def test_daemon_without_its_file_does_not_start(make_daemon):
    daemon = make_daemon(config=None, start=False, arguments=["-c", "/nonexistent/mmb.conf"])
    daemon.launch()
    assert wait.for_end(daemon.process, "mmb") != 0
    assert "/nonexistent/mmb.conf" in daemon.log()


@pytest.mark.parametrize("workers", ["0", "999", "many"])
def test_impossible_number_of_workers(make_daemon, workers):
    daemon = make_daemon(config=None, start=False, workers=workers)
    daemon.launch()
    assert wait.for_end(daemon.process, "mmb") != 0
    assert "workers" in daemon.log() and "panicked" not in daemon.log()


@pytest.mark.parametrize(
    "method, path, body",
    [
        ("POST", "/v1/rules", b"not json"),
        ("POST", "/v1/rules", b'{"rule": "flush"}'),
        ("POST", "/v1/rules", b'{"rule": "add tcp-dprot 1 drop"}'),
        ("POST", "/v1/command", b"{}"),
        ("POST", "/v1/apply", b"\xff\xff\xff"),
        ("DELETE", "/v1/rules/77", None),
        ("DELETE", "/v1/rules/banana", None),
        ("GET", "/v1/nothing", None),
        ("PUT", "/v1/rules", b"{}"),
    ],
)
def test_bad_requests(daemon, method, path, body):
    before = daemon.state()
    status, answer = daemon.request(method, path, body)
    assert 400 <= status < 500
    assert b'"error"' in answer
    assert daemon.state() == before


def test_garbage_on_the_control_socket(daemon):
    before = daemon.state()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection, contextlib.suppress(ConnectionError):
        connection.settimeout(wait.PATIENCE)
        connection.connect(str(daemon.socket))
        connection.sendall(GARBAGE["random"])
        while connection.recv(65536):
            pass
    assert daemon.state() == before
