"""Captures of the tcpdump project's tests under 200 mixed rules: no crash, and correct checksums."""

import contextlib
import os
import random
import tarfile

import pytest

from lab import captures, frames
from lab.daemon import ROOT, mmb
from scapy.utils import RawPcapReader

ARCHIVE = ROOT.parent / "shared" / "data" / "pcaps" / "tcpdump-tests.tar.gz"
# All of them take a minute or two; every eighth is enough for a change.
STEP = 1 if os.environ.get("MMB_ALL_CAPTURES") else 8

MATCHES = [
    "all",
    "ip-ttl {b}",
    "ip-ttl > {b}",
    "ip-proto != {proto}",
    "ip-saddr {b}.0.0.0/{len4}",
    "ip-daddr != {b}.{b}.0.0-{b}.255.255.255",
    "! ip-df",
    "ip-len {w}-65535",
    "ip-frag-offset",
    "ip6-hop-limit < {b}",
    "ip6-saddr fe80::/10",
    "ip6-daddr != ff02::/16",
    "ip6-eh",
    "! ip6-eh-hopbyhop",
    "tcp-dport 0-{w}",
    "tcp-sport {{22,80,179,{w}}}",
    "tcp-flags != {b}",
    "tcp-syn",
    "tcp-opt",
    "tcp-opt-mss > 500",
    "! tcp-opt-timestamp",
    "tcp-opt-wscale",
    "tcp-opt {{2,3,{kind}}}",
    "tcp-payload contains 0x{b:02x}",
    "udp-dport > {w}",
    "udp-sport != 53",
    "udp-len < {w}",
    "udp-payload 0x00",
    "icmp-type {b}",
    "icmp6-type 128-143",
    "ip-payload contains 0x0000",
]
TARGETS = [
    "mod ip-ttl {b}",
    "mod ip-dscp {six}",
    "mod ip-ecn {two}",
    "mod ip-id {w}",
    "mod ip-saddr 192.0.2.{b}",
    "mod ip-daddr 198.51.100.{b}",
    "mod ip6-hop-limit {b}",
    "mod ip6-flow-label {w}",
    "mod ip6-saddr 2001:db8::{b:x}",
    "mod ip6-daddr 2001:db8::{b:x}",
    "mod tcp-sport {w}",
    "mod tcp-win {w}",
    "mod tcp-ack-num {w}",
    "mod tcp-opt-mss {w}",
    "mod tcp-opt-timestamp {w}",
    "mod udp-dport {w}",
    "mod icmp-code {b}",
    "mod icmp6-code {b}",
    "add tcp-opt-mss {w}",
    "add tcp-opt {kind} 0x{b:02x}",
    "strip tcp-opt-timestamp",
    "strip tcp-opt {kind}",
    "strip ! tcp-opt-mss strip ! tcp-opt-sackp",
    "strip all",
]


def mixed_rules(seed, count=200):
    """Random rules that mmb accepts; contradictory combinations (a TCP target for a UDP match) are drawn
    again.
    """
    dice = random.Random(seed)
    rules = []
    while len(rules) < count:
        numbers = {
            "b": dice.randrange(1, 256),
            "w": dice.randrange(1, 65536),
            "six": dice.randrange(64),
            "two": dice.randrange(4),
            "len4": dice.choice([4, 8, 1]),
            "proto": dice.choice(["tcp", "udp", "icmp"]),
            "kind": dice.randrange(4, 255),
        }
        matches = " ".join(dice.sample(MATCHES, dice.choice([1, 1, 2, 3])))
        target = dice.choices(["edit", "drop", "drop 0.5", "accept"], [20, 1, 1, 1])[0]
        if target == "edit":
            target = " ".join(dice.sample(TARGETS, dice.choice([1, 1, 2])))
        elif matches.count(" ") < 3:
            # Few packets are dropped, so that many are edited.
            matches += " ip-ttl {b} tcp-dport {w}"
        rules.append(f"add {matches} {target}".format(**numbers))
    return rules


@pytest.fixture(scope="module")
def policy(tmp_path_factory):
    """A file of 200 rules that `mmb check` accepts."""
    path = tmp_path_factory.mktemp("policy") / "rules"
    candidates, taken = mixed_rules(seed=8, count=400), []
    for rule in candidates:
        path.write_text(rule + "\n", encoding="utf-8")
        if mmb("check", path, check=False).returncode == 0:
            taken.append(rule)
    assert len(taken) >= 200, f"only {len(taken)} rules make sense"
    path.write_text("\n".join(taken[:200]) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    if not ARCHIVE.exists():
        pytest.skip(f"{ARCHIVE} is not there")
    directory = tmp_path_factory.mktemp("captures")
    with tarfile.open(ARCHIVE) as tar:
        tar.extractall(directory)
    return directory


def captured(directory):
    return sorted(path for path in directory.rglob("*") if path.suffix in (".pcap", ".pcapng"))


def test_each_capture(directory, policy, tmp_path):
    """The capture is processed, or refused with one sentence."""
    processed = 0
    for path in captured(directory)[::STEP]:
        done = mmb("replay", "-c", policy, path, "-w", tmp_path / "out.pcap", check=False)
        assert "panicked" not in done.stderr and done.returncode in (0, 1), f"{path}: {done.returncode} {done.stderr}"
        assert done.returncode == 0 or done.stderr.strip(), path
        processed += done.returncode == 0
    assert processed > 20


def ethernet_frames(directory):
    """All distinct Ethernet frames of all captures that scapy can read."""
    found = {}
    for path in captured(directory):
        try:
            with contextlib.closing(RawPcapReader(str(path))) as records:
                for frame, info in records:
                    linktype = getattr(info, "linktype", None) or records.linktype
                    if linktype == captures.ETHERNET and len(frame) == info.wirelen:
                        found[frame] = None
        # Files that are broken on purpose; scapy raises whatever comes up.
        except Exception:  # noqa: BLE001
            continue
    return list(found)


# Headers that mmb does not read, with a checksum over addresses: VRRP's (RFC 5798, 5.2.8) never leaves its
# link.
UNREAD = {"VRRPv3"}


def wrong(frame):
    """The layers whose checksum scapy computes differently; None if scapy cannot read the frame."""
    try:
        return {text.split(" checksum")[0] for text in frames.wrong_checksums(frame)} - UNREAD
    except Exception:  # noqa: BLE001
        return None


def test_checksums_stay_right(directory, policy, tmp_path):
    """Checksums that scapy finds correct before an edit are correct after it."""
    sent = ethernet_frames(directory)
    stamped = [(captures.START + number * 1000, frame) for number, frame in enumerate(sent)]
    (tmp_path / "in.pcap").write_bytes(captures.pcap(stamped))
    mmb("replay", "-c", policy, tmp_path / "in.pcap", "-w", tmp_path / "out.pcap")
    confirmed = edited = 0
    for stamp, frame in captures.read(tmp_path / "out.pcap"):
        before = sent[(stamp - captures.START) // 1000]
        if frame == before:
            continue
        edited += 1
        wrong_before, wrong_after = wrong(before), wrong(frame)
        if wrong_before is None or wrong_after is None:
            continue
        assert wrong_after <= wrong_before, f"{wrong_after} of {frame.hex()}\nbefore: {wrong_before} of {before.hex()}"
        confirmed += not wrong_before
    assert edited > 1000 and confirmed > edited // 2, (len(sent), edited, confirmed)
