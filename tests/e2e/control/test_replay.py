"""`mmb replay`: a capture through the same graph, without privileges and devices."""

import functools
import json
import os
import pathlib
import re
import shutil
import subprocess
import tarfile

import pytest

from lab import captures, frames
from lab.captures import START
from lab.daemon import ROOT, binary, mmb
from lab.frames import ICMP, IP, TCP, UDP, Dot1Q, Raw

PCAPS = ROOT.parent / "shared" / "data" / "pcaps"
POLICY = "add udp-dport 2 drop\nadd tcp-dport 80 mod tcp-dport 8080 mod ip-ttl 9\n"
MICROSECOND = 1000


@functools.cache
def mixed(count=600):
    """Packets of several kinds with increasing timestamps, and the expected result of POLICY."""
    sent, expected = [], []
    stamp = START
    for number in range(count):
        stamp += (number * 7919 % 1000 + 1) * MICROSECOND
        kind = number % 4
        if kind == 0:
            packet = frames.ether() / frames.ip4() / UDP(sport=number, dport=2) / frames.payload()
        elif kind == 1:
            packet = (
                frames.ether() / Dot1Q(vlan=9) / frames.ip4(ttl=64) / TCP(sport=number, dport=80) / frames.payload()
            )
        elif kind == 2:
            packet = frames.ether() / frames.ip6() / UDP(sport=number, dport=3) / frames.payload(200)
        else:
            packet = frames.ether() / frames.ARP()
        sent.append((stamp, bytes(packet)))
        if kind == 1:
            packet[IP].ttl, packet[TCP].dport = 9, 8080
        if kind != 0:
            expected.append((stamp, frames.rebuilt(packet)))
    return sent, expected


@pytest.fixture
def replay(tmp_path):
    """replay(capture bytes, policy) -> (the finished process, its JSON summary, the records written)."""

    def run(capture, policy=POLICY, check=True):
        (tmp_path / "policy").write_text(policy, encoding="utf-8")
        (tmp_path / "in").write_bytes(capture)
        out = tmp_path / "out.pcap"
        out.unlink(missing_ok=True)
        done = mmb("replay", "-c", tmp_path / "policy", tmp_path / "in", "-w", out, "--json", check=check)
        summary = json.loads(done.stdout) if done.stdout.strip() else None
        return done, summary, captures.read(out) if out.exists() else None

    return run


DIALECTS = {
    "pcap": lambda records: captures.pcap(records),
    "pcap-big-endian": lambda records: captures.pcap(records, order=">"),
    "pcap-nanoseconds": lambda records: captures.pcap(records, nanoseconds=True),
    "pcapng": lambda records: captures.pcapng(records),
    "pcapng-big-endian": lambda records: captures.pcapng(records, order=">"),
    "pcapng-microseconds": lambda records: captures.pcapng(records, resolution=6),
}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_order_timestamps_and_bytes(replay, dialect):
    sent, expected = mixed()
    _, summary, written = replay(DIALECTS[dialect](sent))
    assert written == expected
    assert all(frames.wrong_checksums(frame) == [] for _, frame in written)
    assert summary["packets"] == 600 and summary["forwarded"] == 450
    assert {reason: count for reason, count in summary["dropped"].items() if count} == {"rule": 150}
    assert [rule["packets"] for rule in summary["rules"]] == [150, 150]


def test_nanoseconds_are_kept(replay):
    sent = [
        (START + 1 + number * 999_999_937, bytes(frames.ether() / frames.ip4() / ICMP() / frames.payload()))
        for number in range(5)
    ]
    for dialect in (captures.pcap(sent, nanoseconds=True), captures.pcapng(sent)):
        assert replay(dialect)[2] == sent


def test_timestamps_that_go_back_are_kept(replay):
    frame = bytes(frames.ether() / frames.ip4() / ICMP() / frames.payload())
    sent = [(START + offset * 10**9, frame) for offset in (5, 3, 4, 4, 0)]
    assert replay(captures.pcap(sent))[2] == sent


def test_summary_for_people(tmp_path):
    (tmp_path / "policy").write_text(POLICY, encoding="utf-8")
    (tmp_path / "in.pcap").write_bytes(captures.pcap(mixed()[0]))
    shown = mmb("replay", "-c", tmp_path / "policy", tmp_path / "in.pcap").stdout
    for expected in ("600", "450", "150", "rule", "add udp-dport 2 drop"):
        assert expected in shown


def test_empty_capture(replay):
    _, summary, written = replay(captures.pcap([]))
    assert summary["packets"] == 0 and written == []


def test_jumbo_and_runt_frames(replay):
    sent = [
        (START, bytes(frames.ether() / frames.ip4() / UDP(dport=3) / frames.payload(size)))
        for size in (1473, 9000, 20_000, 65_000)
    ] + [(START, b"\x02" * length) for length in (1, 13, 14, 15, 59)]
    _, summary, written = replay(captures.pcap(sent))
    assert written == sent
    assert summary["forwarded"] == len(sent)


@pytest.mark.parametrize("dialect", ["pcap", "pcapng"])
@pytest.mark.parametrize("keep", [0.999, 0.5, 0.1])
def test_truncated_capture(replay, dialect, keep):
    """Readable records are processed; then one error is printed."""
    sent, expected = mixed(100)
    whole = DIALECTS[dialect](sent)
    done, summary, written = replay(whole[: int(len(whole) * keep)], check=False)
    assert done.returncode != 0
    assert "truncated" in done.stderr.lower() or "ends" in done.stderr.lower(), done.stderr
    assert written == expected[: len(written)]
    assert summary["packets"] > 0 and abs(summary["packets"] - 100 * keep) < 20


def test_corrupt_record(replay):
    """A record with an impossible length: the records before it are processed."""
    sent, expected = mixed(10)
    capture = bytearray(captures.pcap(sent))
    offset = 24 + sum(16 + len(frame) for _, frame in sent[:8])
    capture[offset + 8 : offset + 12] = b"\xff\xff\xff\x7f"
    done, summary, written = replay(bytes(capture), check=False)
    assert done.returncode != 0 and done.stderr.strip()
    assert summary["packets"] == 8 and written == expected[:6]


@pytest.mark.parametrize(
    "name, content", [("empty file", b""), ("text", b"this is no capture\n" * 10), ("zeros", bytes(1000))]
)
def test_what_is_no_capture(replay, name, content):
    done, _, _ = replay(content, check=False)
    assert done.returncode != 0 and "capture" in done.stderr and "panicked" not in done.stderr


def test_frames_that_are_not_ethernet_are_passed_over_and_counted(replay):
    _, summary, written = replay(captures.pcap([(START, bytes(100))] * 3, linktype=105))
    assert (summary["packets"], summary["foreign"], written) == (0, 3, [])


def test_missing_files(tmp_path):
    (tmp_path / "policy").write_text(POLICY, encoding="utf-8")
    (tmp_path / "in.pcap").write_bytes(captures.pcap([]))
    for policy, capture, missing in (
        (tmp_path / "policy", "/nonexistent/in.pcap", "/nonexistent/in.pcap"),
        ("/nonexistent/policy", tmp_path / "in.pcap", "/nonexistent/policy"),
    ):
        refused = mmb("replay", "-c", policy, capture, check=False)
        assert refused.returncode != 0 and missing in refused.stderr


def test_output_that_cannot_be_written(tmp_path):
    (tmp_path / "policy").write_text(POLICY, encoding="utf-8")
    (tmp_path / "in.pcap").write_bytes(captures.pcap(mixed(4)[0]))
    refused = mmb("replay", "-c", tmp_path / "policy", tmp_path / "in.pcap", "-w", "/nonexistent/out.pcap", check=False)
    assert refused.returncode != 0 and "/nonexistent/out.pcap" in refused.stderr


def test_bad_policy(replay):
    done, summary, _ = replay(captures.pcap([]), policy="add tcp-dprot 80 drop\n", check=False)
    assert done.returncode != 0 and "tcp-dprot" in done.stderr and summary is None


def test_without_any_privilege(tmp_path):
    """As the user nobody, in an empty environment."""
    program = tmp_path / "mmb"
    shutil.copy(binary(), program)
    (tmp_path / "policy").write_text(POLICY, encoding="utf-8")
    sent, expected = mixed(40)
    (tmp_path / "in.pcap").write_bytes(captures.pcap(sent))
    for path in (tmp_path, *tmp_path.parents):
        if path.stat().st_uid == os.geteuid() and path != pathlib.Path("/"):
            path.chmod(path.stat().st_mode | 0o711)
    tmp_path.chmod(0o777)
    options = {"user": 65534, "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {}
    done = subprocess.run(
        [program, "replay", "-c", "policy", "in.pcap", "-w", "out.pcap"],
        cwd=tmp_path,
        env={"PATH": "/usr/bin"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        **options,
    )
    assert done.returncode == 0, done.stderr
    assert captures.read(tmp_path / "out.pcap") == expected


def test_policy_with_interfaces_opens_no_device(replay):
    """A daemon's configuration file can be replayed."""
    policy = "interface add left af-xdp nowhere0\ninterface add right af-xdp nowhere1\nwire left right\n" + POLICY
    sent, expected = mixed(40)
    assert replay(captures.pcap(sent), policy=policy)[2] == expected


def corpus():
    """The captures of the tcpdump project's tests, if they are present beside the repository."""
    archive = PCAPS / "tcpdump-tests.tar.gz"
    if not archive.exists():
        return []
    with tarfile.open(archive) as tar:
        return sorted(member.name for member in tar if member.name.endswith(("pcap", "pcapng")))


@pytest.fixture(scope="module")
def corpus_directory(tmp_path_factory):
    archive = PCAPS / "tcpdump-tests.tar.gz"
    if not archive.exists():
        pytest.skip(f"{archive} is not there")
    directory = tmp_path_factory.mktemp("corpus")
    with tarfile.open(archive) as tar:
        tar.extractall(directory)
    return directory


def test_captures_of_the_wild(corpus_directory, tmp_path):
    """Captures that once broke dissectors: each is processed or refused with a sentence, none brings mmb down, and what
    no rule touches comes out as it went in. Every eighth of some 800 files; all of them take minutes."""
    policy = tmp_path / "policy"
    policy.write_text("add tcp-dport 1 mod tcp-dport 2\nadd udp-dport 0 drop\n", encoding="utf-8")
    out = tmp_path / "out.pcap"
    processed = 0
    for name in corpus()[::8]:
        out.unlink(missing_ok=True)
        done = mmb("replay", "-c", policy, corpus_directory / name, "-w", out, "--json", check=False)
        assert "panicked" not in done.stderr and done.returncode in (0, 1), f"{name}: {done.returncode} {done.stderr}"
        if done.returncode == 0:
            processed += 1
            summary = json.loads(done.stdout)
            assert summary["packets"] == summary["forwarded"] + sum(summary["dropped"].values()), name
            assert len(captures.read(out)) == summary["forwarded"], name
        else:
            assert done.stderr.strip(), name
    assert processed > 20


STREAMS = """interface add a null
interface add b null
wire a b
nf add files digest sha256
nf add volume payload-count
chain add c files then volume
add-stateful all chain c
"""


@pytest.mark.parametrize("ip", ["ip4", "ip6"])
def test_streams_are_put_in_order(replay, ip):
    """Early segments wait; a retransmission with other bytes leaves with those that went on first (RFC 9293, 3.4)."""

    def segment(seq, flags, payload=b""):
        tcp = TCP(sport=4000, dport=80, seq=(0xFFFFFFF0 + seq) % 2**32, flags=flags, window=60_000)
        return frames.ether() / (frames.ip4() if ip == "ip4" else frames.ip6()) / tcp / Raw(payload)

    syn, first, last = segment(0, "S"), segment(1, "A", b"x" * 20), segment(41, "FA", b"z" * 20)
    middle, other = segment(21, "A", b"y" * 20), segment(11, "A", b"?" * 20)
    agreed = segment(11, "A", b"x" * 10 + b"y" * 10)
    sent = [syn, last, first, last, middle, other]
    expected = [syn, first, middle, last, agreed]
    _, summary, written = replay(captures.pcap([(START + n, frame) for n, frame in enumerate(sent)]), STREAMS)
    assert [frame for _, frame in written] == [bytes(frame) for frame in expected]
    assert all(frames.wrong_checksums(frame) == [] for _, frame in written)
    assert {reason: count for reason, count in summary["dropped"].items() if count} == {"stream-duplicate": 1}


def test_streams_of_real_captures(corpus_directory, tmp_path):
    """What is not written has a reason, and is a copy, or came too early for all that the capture has."""
    policy, out = tmp_path / "policy", tmp_path / "out.pcap"
    policy.write_text(STREAMS, encoding="utf-8")
    processed = 0
    for name in [name for name in corpus() if re.search("(tcp|bgp-o|dns).*pcap$", name)]:
        out.unlink(missing_ok=True)
        done = mmb("replay", "-c", policy, corpus_directory / name, "-w", out, "--json", check=False)
        assert "panicked" not in done.stderr and done.returncode in (0, 1), f"{name}: {done.stderr}"
        if done.returncode == 0:
            processed += 1
            summary = json.loads(done.stdout)
            dropped = sum(summary["dropped"].values())
            assert summary["packets"] == summary["forwarded"] + dropped, (name, summary)
    assert processed > 5
