"""Rules that log packets: lines in the log of the daemon, and their limit."""

import contextlib
import datetime
import json
import os
import re
import socket
import subprocess

import pytest

from lab import frames, wait
from lab.frames import TCP, UDP
from lab.netns import CLIENT4, CLIENT_MAC, SERVER4, end


def tcp(sport, dport, flags="S"):
    return frames.ether() / frames.ip4() / TCP(sport=sport, dport=dport, flags=flags) / frames.payload()


def udp(sport, dport):
    return frames.ether() / frames.ip4() / UDP(sport=sport, dport=dport) / frames.payload()


def lines(wire, pattern):
    """The lines of the log that match a pattern."""
    return [line for line in wire.daemon.log().splitlines() if re.search(pattern, line)]


def line_of(wire, pattern):
    return wait.until(lambda: lines(wire, pattern), f"a line with {pattern}")


def test_dropped_and_accepted_packets_are_logged(wire):
    wire.daemon.command("add", "tcp-dport", "23", "log", "prefix", 'say "telnet" \\o/', "drop", "name", "no-telnet")
    wire.daemon.line("add tcp-dport 22 log accept")
    assert not wire.passes(tcp(1000, 23))
    assert wire.passes(tcp(1001, 22))
    ends = f"{CLIENT4}:1000 -> {SERVER4}:23"
    (line,) = line_of(wire, re.escape(ends))
    assert re.fullmatch(
        r'\S+Z say "telnet" \\o/: rule 1 no-telnet: drop in left tcp ' + re.escape(ends) + r" flags SYN length \d+",
        line,
    )
    (line,) = line_of(wire, f"{CLIENT4}:1001 -> {SERVER4}:22")
    assert "rule 2: pass in left out right tcp " in line
    # The text loads back.
    text = wire.daemon.command("show", "config").stdout
    assert 'log prefix "say \\"telnet\\" \\\\o/" drop name no-telnet' in text
    wire.daemon.command("del", "no-telnet")
    wire.daemon.command("del", "2")
    assert wire.passes(tcp(1002, 23))
    assert not lines(wire, ":1002 ")


def test_a_flood_is_limited(wire):
    wire.daemon.line("add udp-dport 5000 log drop")
    assert wire.cross(*(udp(1000 + n, 5000) for n in range(500))) == []

    def packets():
        return lines(wire, "rule 1: drop in left udp ")

    def more():
        return sum(int(re.search(r"(\d+) packets? more", line)[1]) for line in lines(wire, r"rule 1: \d+ packets? more"))

    wait.until(lambda: len(packets()) + more() == 500, "lines about all packets")
    assert wire.daemon.hits(1) == 500
    # The burst, and ten a second for as long as the flood lasted.
    assert 20 <= len(packets()) <= 60


def test_control_characters_are_refused(wire):
    # Of a terminal, and of the direction of writing.
    for character in "\x1b\u202e":
        refused = wire.daemon.command("add", "all", "log", "prefix", f"a{character}b", "drop", check=False)
        assert refused.returncode != 0
        assert f"the control character U+{ord(character):04X}" in refused.stderr
    assert not wire.daemon.rules()


@pytest.fixture
def json_wire(wire):
    """The shared wire, whose lines are JSON for one test."""
    wire.daemon.line("set log-format json")
    yield wire
    wire.daemon.line("set log-format text")
    assert "log-format" not in wire.daemon.command("show", "config").stdout


def test_a_line_is_a_json_object(json_wire):
    wire = json_wire
    wire.daemon.command("add", "tcp-dport", "23", "log", "prefix", '{"a"\\}, é', "drop", "name", "no-telnet")
    wire.daemon.line("add udp-dport 5000 log")
    assert not wire.passes(tcp(1000, 23, "SA"))
    assert wire.passes(udp(1001, 5000))
    (line,) = line_of(wire, '"source_port":1000,')
    found = json.loads(line)
    written = datetime.datetime.fromisoformat(found.pop("time")).timestamp()
    assert abs(written - os.stat(wire.daemon.log_file).st_mtime) < 3600, "a time of UTC"
    assert found == {
        "rule": 1, "name": "no-telnet", "prefix": '{"a"\\}, é', "verdict": "drop", "reason": "rule", "in": "left",
        "source_mac": CLIENT_MAC, "destination_mac": "02:00:00:00:00:ff", "protocol": 6, "protocol_name": "tcp",
        "source": CLIENT4, "source_port": 1000, "destination": SERVER4, "destination_port": 23,
        "tcp_flags": ["SYN", "ACK"], "fragment": False, "length": len(tcp(1000, 23)),
    }  # fmt: skip
    (line,) = line_of(wire, '"source_port":1001,')
    found = json.loads(line)
    assert (found["verdict"], found["in"], found["out"], found["protocol"]) == ("pass", "left", "right", 17)
    assert not {"reason", "name", "prefix", "tcp_flags"} & set(found)
    # Packets beyond the limit are one object a second.
    wire.cross(*(udp(2000 + n, 5000) for n in range(200)))

    def counted():
        objects = [json.loads(line) for line in lines(wire, '"rule":2')]
        return sum(found.get("suppressed", 1) for found in objects)

    wait.until(lambda: counted() == 201, "objects about all packets")
    assert "set log-format json\n" in wire.daemon.command("show", "config").stdout


def datagrams(receiver, many):
    """That many datagrams, as text."""
    found = []
    while len(found) < many:
        assert wait.readable([receiver], wait.PATIENCE), f"only {found}"
        found.append(receiver.recv(65536).decode())
    return found


def lost_lines(daemon):
    """The lines that no output took."""
    _, text = daemon.request("GET", "/metrics")
    return int(re.search(r"^mmb_log_lost_lines_total (\d+)$", text.decode(), re.MULTILINE)[1])


def test_lines_go_to_the_log_of_the_system(make_wire, tmp_path):
    """A receiver that is there, one that is restarted, and one that does not read."""
    path = tmp_path / "log.sock"
    wire = make_wire("af-packet", "set log-to syslog\nset log-format json\nadd ip-proto udp log prefix \"x\"\n",
                     arguments=("--syslog-socket", path))
    daemon = wire.daemon
    begin = f"<30>mmb[{daemon.process.pid}]: "
    with contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as receiver:
        receiver.bind(str(path))
        path.chmod(0o777)
        assert wire.passes(udp(1000, 53))
        (text,) = datagrams(receiver, 1)
        assert text.startswith(begin)
        assert json.loads(text.removeprefix(begin))["source_port"] == 1000
        daemon.line("set log-format text")
        assert wire.passes(udp(1001, 53))
        (text,) = datagrams(receiver, 1)
        length = len(udp(1001, 53))
        assert text == f"{begin}x: rule 1: pass in left out right udp {CLIENT4}:1001 -> {SERVER4}:53 length {length}"
    path.unlink()
    lost = lost_lines(daemon)
    assert wire.passes(udp(1002, 53))
    wait.until(lambda: lost_lines(daemon) == lost + 1, "the lost line to be counted")
    with contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as receiver:
        receiver.bind(str(path))
        path.chmod(0o777)
        assert wire.passes(udp(1003, 53))
        told, text = datagrams(receiver, 2)
        assert told.startswith(f"<28>mmb[{daemon.process.pid}]: 1 lines of this output were lost")
        assert f"{CLIENT4}:1003 -> " in text
        # The kernel keeps some datagrams for a receiver that does not read. The daemon does not wait for it.
        for number in range(60):
            daemon.line(f"add udp-dport 54 log prefix {number}")
        sent = 2000
        while lost_lines(daemon) == lost + 1:
            assert wire.passes(udp(sent, 54))
            sent += 1
        assert daemon.command("show", "version").returncode == 0
    assert not lines(wire, "x: rule 1"), "nothing is on standard error"


def test_a_syslog_daemon_reads_the_lines(make_wire, tmp_path):
    """busybox syslogd, with a /dev of its own."""
    devices, messages = tmp_path / "dev", tmp_path / "messages"
    devices.mkdir()
    script = f"mount --bind {devices} /dev && exec busybox syslogd -n -O {messages}"
    receiver = subprocess.Popen(["unshare", "-m", "sh", "-c", script])
    try:
        wait.until((devices / "log").exists, "the socket of syslogd")
        wire = make_wire("af-packet", "set log-to syslog\nadd ip-proto udp log prefix \"x\"\n",
                         arguments=("--syslog-socket", devices / "log"))
        assert wire.passes(udp(1000, 53))
        found = lambda: messages.exists() and re.search(r".*x: rule 1.*", messages.read_text())  # noqa: E731
        written = wait.until(found, "a message")
        pid = wire.daemon.process.pid
        text = rf"\w+ +\d+ [\d:]+ \S+ daemon\.info mmb\[{pid}\]: x: rule 1: pass in left out right udp .*"
        assert re.fullmatch(text, written[0]), written[0]
    finally:
        end(receiver)
