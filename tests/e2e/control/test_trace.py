"""The path of packets, live: `trace`, `capture`, and their limits."""

import itertools
import json
import subprocess

import pytest

from lab import frames, wait
from lab.daemon import binary, mmb
from lab.frames import TCP, UDP
from lab.netns import CLIENT4, SERVER4, SERVER_MAC, run


def udp(port, sport=7):
    return frames.ether() / frames.ip4() / UDP(sport=sport, dport=port) / frames.payload()


def tcp(port):
    return frames.ether() / frames.ip4() / TCP(sport=7, dport=port) / frames.payload()


def start(wire, *words):
    """Starts a command that waits for packets."""
    command = [str(word) for word in (binary(), *words, "--socket", wire.daemon.socket)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def send_until_end(wire, process, make):
    """Sends frames again and again until the command has seen enough of them; returns its output. make: the frames of
    a round.
    """
    rounds = itertools.count(1)

    def has_ended():
        wire.cross(*make(next(rounds)))
        return process.poll() is not None

    wait.until(has_ended, "the end of the command")
    out, err = process.communicate(timeout=wait.PATIENCE)
    assert (process.returncode, err) == (0, b""), err
    return out


def test_a_trace_shows_nodes_rules_and_edits(wire):
    accept = wire.daemon.add("udp-dport 9 mod ip-ttl 7")
    drop = wire.daemon.add("udp-dport 10 drop")
    process = start(wire, "trace", "udp-dport", "{9,10}", "count", "8", "--json")
    packets = json.loads(send_until_end(wire, process, lambda _: [udp(8), udp(9), udp(10)]))["packets"]
    assert len(packets) == 8
    for packet in packets:
        nodes = [node["node"] for node in packet["nodes"]]
        (matched,) = packet["rules"]["matched"]
        if packet["summary"].endswith(":9"):
            assert (packet["result"], packet["out"], matched["index"]) == ("sent", "right", accept)
            assert nodes[-2:] == ["rewrite", "port-tx"]
            (ttl,) = [c for c in packet["nodes"][-2]["changes"] if c["field"] == "ip-ttl"]
            assert ttl["after"] == "7"
        else:
            assert packet["summary"].endswith(":10")
            assert (packet["result"], packet["reason"], packet["rules"]["decider"]) == ("dropped", "rule", drop)
            assert nodes[-1] == "drop"
    assert {packet["summary"].rsplit(":", 1)[1] for packet in packets} == {"9", "10"}


def test_a_trace_shows_the_session(wire):
    wire.daemon.line("add-stateful in left ip-proto udp accept")
    process = start(wire, "trace", "udp-dport", "9", "count", "8")
    # Each session has two packets, in rounds of their own.
    text = send_until_end(wire, process, lambda number: [udp(9, sport=(number + 1) // 2)]).decode()
    assert text.count("sent to right") == 8
    opened, found = (text.count(f"session {what}: forward, udp") for what in ("opened", "found"))
    assert (opened, found) == (4, 4), text


def test_a_trace_tells_why_a_rule_does_not_match(wire):
    rule = wire.daemon.add("udp-dport 10 udp-sport 7 drop name ten")
    for name in (rule, "ten"):
        tells_why(wire, rule, name)


def tells_why(wire, rule, name):
    process = start(wire, "trace", "udp-dport", "9", "why", name, "count", "2", "--json")
    for packet in json.loads(send_until_end(wire, process, lambda _: [udp(9)]))["packets"]:
        assert (packet["why"]["index"], packet["why"]["matches"]) == (rule, False)
        assert {check["match"]: check["holds"] for check in packet["why"]["checks"]} == {"udp-dport 10": False, "udp-sport 7": True}


def test_one_trace_at_a_time_and_none_is_left_behind(wire):
    first = start(wire, "trace", "udp-dport", "9")

    def probe():
        return wire.daemon.line("capture udp-dport 1 seconds 1", check=False)

    def probe_beside_the_first():
        nonlocal first
        if first.poll() is not None:
            # It came while a probe ran, and was refused.
            first = start(wire, "trace", "udp-dport", "9")
        answer = probe()
        return answer.returncode and answer

    refused = wait.until(probe_beside_the_first, "the first trace")
    assert "another trace or capture runs" in refused.stderr
    first.terminate()
    first.communicate(timeout=wait.PATIENCE)
    # The daemon notices that the reader has gone.
    wait.until(lambda: probe().returncode == 0, "the end of the first trace")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("trace why 77", ["no rule 77"]),
        ("trace why web", ["no rule web"]),
        ("trace out right", ["`out` is not known"]),
        ("trace udp-dport 9 drop", ["`drop` is a target"]),
        ("trace count 0", ["number of packets"]),
        ("trace in nowhere", ["nowhere"]),
        ("capture rule 77", ["no rule 77"]),
        ("capture rule web", ["no rule web"]),
        ("capture session 0.1.77777", ["there is no session 0.1.77777", "`show connections verbose` lists them"]),
        ("capture session 9.1.7", ["there is no session 9.1.7"]),
        ("capture session 12", ["invalid session `12`"]),
        ("capture seconds 0", ["time in seconds"]),
    ],
)
def test_what_cannot_be_traced_is_refused(wire, line, words):
    refused = wire.daemon.line(line, check=False)
    assert refused.returncode == 1
    assert all(word in refused.stderr for word in words), refused.stderr


def test_a_capture_has_packets_in_out_and_dropped(wire, tmp_path):
    drop = wire.daemon.add("udp-dport 10 drop")
    wire.daemon.add("udp-dport 9 mod ip-ttl 7")
    process = start(wire, "capture", "udp-dport", "{9,10}", "count", "6", "-w", "-")
    content = send_until_end(wire, process, lambda _: [udp(8), udp(9), udp(10)])
    path = tmp_path / "out.pcapng"
    path.write_bytes(content)
    shown = run("tcpdump", "-n", "-v", "-r", path).stdout
    assert ".9:" in shown and ".10:" in shown and "ttl 7" in shown and ".8:" not in shown
    assert f"dropped by rule {drop} (add udp-dport 10 drop)".encode() in content
    # A file that the client writes.
    process = start(wire, "capture", "drops", "rule", drop, "count", "2", "-w", path)
    assert send_until_end(wire, process, lambda _: [udp(9), udp(10)]) == b""
    shown = run("tcpdump", "-n", "-r", path).stdout
    assert shown.count(".10:") == 2 and ".9:" not in shown
    process = start(wire, "capture", "tcp-dport", "80", "count", "1")
    assert send_until_end(wire, process, lambda _: [tcp(80)]).startswith(b"left > right  ")


def test_a_capture_is_explained_where_its_packets_came_in(wire, tmp_path):
    """The file has each packet twice, as it came in and as it left; it is explained once."""
    capture, rules = tmp_path / "both.pcapng", tmp_path / "rules"
    process = start(wire, "capture", "ip-proto", "udp", "count", "4", "-w", capture)
    back = frames.ether(src=SERVER_MAC) / frames.ip4(src=SERVER4, dst=CLIENT4) / UDP(sport=9, dport=7) / frames.payload()

    def has_ended():
        wire.cross(udp(9))
        wire.cross(back, backwards=True)
        return process.poll() is not None

    wait.until(has_ended, "the end of the capture")
    process.communicate()
    names = ("left", "right")
    rules.write_text("".join(f"interface add {name} null\n" for name in names) + "wire left right\n", encoding="utf-8")

    def explain(*options):
        return json.loads(mmb("explain", "-c", rules, capture, "--json", *options).stdout)["packets"]

    shown = explain()
    assert {(one["in"], one["summary"]) for one in shown} == {
        ("left", f"udp {CLIENT4}:7 > {SERVER4}:9"), ("right", f"udp {SERVER4}:9 > {CLIENT4}:7")
    }  # fmt: skip
    assert len(shown) == 4
    # Numbers are places in the file.
    everything = explain("--in", "left")
    assert len(everything) == 8 and {one["in"] for one in everything} == {"left"}
    for one in shown:
        assert everything[one["packet"] - 1]["summary"] == one["summary"]
        (alone,) = explain("--packet", one["packet"])
        assert alone == one
    out = min({one["packet"] for one in everything} - {one["packet"] for one in shown})
    refused = mmb("explain", "-c", rules, capture, "--packet", out, check=False)
    assert refused.returncode != 0 and f"packet {out} " in refused.stderr and "left by an interface" in refused.stderr


def test_a_capture_ends_after_its_time(wire):
    assert wire.daemon.line("capture udp-dport 1 seconds 1").stdout == ""
    assert json.loads(wire.daemon.line("capture drops seconds 1 --json").stdout) == {"packets": [], "missed": 0}


TRANSLATED = "198.51.100.9"


def answer(port=9):
    """The server's answer to the session of `udp(port)`, whose client is translated."""
    ends = frames.ip4(src=SERVER4, dst=TRANSLATED)
    return frames.ether(src=SERVER_MAC) / ends / UDP(sport=port, dport=7) / frames.payload()


def session_id(wire, port=9):
    (connection,) = wire.daemon.json("show", "connections", "udp-dport", port, "udp-sport", 7)["connections"]
    return connection["id"]


def exchange(wire):
    """Packets of the session in both directions, and one of another session."""
    wire.cross(udp(9), udp(9, sport=8))
    wire.cross(answer(), backwards=True)


@pytest.fixture
def translated(wire):
    """A wire with a translated session."""
    wire.daemon.line(f"add-stateful in left ip-proto udp map ip-saddr {TRANSLATED} accept")
    exchange(wire)
    return wire


def test_a_capture_of_a_session_has_both_directions_translated(translated):
    wire = translated
    name = session_id(wire)
    assert name in wire.daemon.command("show", "connections", "verbose").stdout
    process = start(wire, "capture", "session", name, "count", "8", "--json")

    def has_ended():
        exchange(wire)
        return process.poll() is not None

    wait.until(has_ended, "the end of the command")
    packets = json.loads(process.communicate()[0])["packets"]
    ways = {(packet["in"], packet["summary"], packet["summary_out"]) for packet in packets}
    assert ways == {
        ("left", f"udp {CLIENT4}:7 > {SERVER4}:9", f"udp {TRANSLATED}:7 > {SERVER4}:9"),
        ("right", f"udp {SERVER4}:9 > {TRANSLATED}:7", f"udp {SERVER4}:9 > {CLIENT4}:7"),
    }


@pytest.mark.parametrize("file", [False, True])
def test_a_capture_of_a_session_ends_with_it(translated, tmp_path, file):
    wire, path = translated, tmp_path / "session.pcapng"
    name = session_id(wire)
    process = start(wire, "capture", "session", name, *(["-w", path] if file else []))

    def has_begun():
        exchange(wire)
        assert process.poll() is None
        return path.exists() and path.stat().st_size > 2000 if file else wait.readable([process.stdout], 0)

    wait.until(has_begun, "the first packet")
    wire.daemon.line("clear connections udp-sport 7")
    out, err = process.communicate(timeout=wait.PATIENCE)
    assert (process.returncode, err) == (0, b"")
    last = out.decode().splitlines()[-1]
    assert last.startswith(f"session {name} has ended: replied, ") and " packets forward and " in last
    if file:
        assert out.decode().count("\n") == 1 and last.encode() in path.read_bytes()
        shown = run("tcpdump", "-n", "-r", path).stdout
        for way in (f"{CLIENT4}.7 > {SERVER4}.9:", f"{TRANSLATED}.7 > {SERVER4}.9:", f"{SERVER4}.9 > {CLIENT4}.7:"):
            assert way in shown
        assert f"{CLIENT4}.8 >" not in shown
