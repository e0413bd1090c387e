"""Rules that log packets: lines in the log of the daemon, and their limit."""

import re

from lab import frames, wait
from lab.frames import TCP, UDP
from lab.netns import CLIENT4, SERVER4


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
