"""The configurations in `examples` do what their comments say: packets go through them with `mmb replay`.

`examples/routed.conf` needs a kernel with routes; tests/e2e/ports/test_routed.py has such routers.
"""

import re

import pytest

from lab import captures, frames
from lab.captures import START
from lab.daemon import ROOT, mmb
from lab.frames import ICMP, IP, TCP, UDP, Ether, IPv6, IPv6ExtHdrRouting, Raw

MILLISECOND = 1_000_000
WEB, HOST, STRANGER = "192.0.2.10", "192.0.2.20", "198.51.100.9"


@pytest.fixture
def replay(tmp_path):
    """replay(example, [(interface, packet), …]) -> what becomes of each packet: None, or the packet that left."""

    def run(example, packets):
        config = ROOT / "examples" / f"{example}.conf"
        names = re.findall(r"^interface add (\w+) ", config.read_text(encoding="utf-8"), re.MULTILINE)
        packets = [(name, frames.ether() / packet / frames.payload()) for name, packet in packets]
        records = [
            (START + number * MILLISECOND, frames.rebuilt(packet), name) for number, (name, packet) in enumerate(packets)
        ]
        (tmp_path / "in").write_bytes(captures.pcapng(records, names=names))
        mmb("replay", "-c", config, tmp_path / "in", "-w", tmp_path / "out.pcap")
        left = {frames.serial(frame): frame for _, frame in captures.read(tmp_path / "out.pcap") if frames.is_ours(frame)}
        assert not any(frames.wrong_checksums(frame) for frame in left.values())
        return [left.get(frames.serial(bytes(packet))) and Ether(left[frames.serial(bytes(packet))]) for _, packet in packets]

    return run


def passed(results):
    return [result is not None for result in results]


def tcp(flags, sport=40_000, dport=80, **fields):
    return TCP(sport=sport, dport=dport, flags=flags, **fields)


def test_wire(replay):
    there, back, *rest = replay("wire", [
        ("left", frames.ip4() / tcp("S", dport=80)),
        ("right", frames.ip4() / tcp("SA", sport=8080, dport=40_000)),
        ("left", frames.ip4() / UDP(sport=9, dport=53)),
        ("right", frames.ip4() / UDP(sport=53, dport=9)),
        ("left", frames.ip4() / UDP(sport=9, dport=123)),
        ("right", frames.ip4() / UDP(sport=9, dport=123)),
    ])  # fmt: skip
    assert (there[TCP].dport, back[TCP].sport) == (8080, 80)
    assert passed(rest) == [True, True, False, False]


def test_firewall(replay):
    def outside(layer, dst=HOST, src=STRANGER):
        return "outside", IP(src=src, dst=dst) / layer

    allowed = [
        outside(tcp("PA", dport=80) / Raw("GET / HTTP/1.1"), WEB),
        outside(tcp("S", dport=443), WEB),
        outside(tcp("A", sport=80, dport=40_000)),
        outside(UDP(sport=53, dport=5000)),
        outside(ICMP(type=0)),
        ("inside", IP(src=HOST, dst=STRANGER) / tcp("S", dport=25)),
    ]
    refused = [
        outside(tcp("PA", dport=80) / Raw("CONNECT example.org:443"), WEB),
        outside(tcp("S", dport=22), WEB),
        outside(tcp("S", dport=80)),
        outside(tcp("S", dport=40_000)),
        outside(UDP(sport=9, dport=5000)),
        outside(ICMP(type=8)),
        ("inside", IP(src="10.0.0.1", dst=STRANGER) / tcp("S")),
        ("inside", IP(src=HOST, dst=STRANGER, ttl=1) / tcp("S")),
        ("inside", frames.ip6() / IPv6ExtHdrRouting(addresses=["2001:db8::9"]) / tcp("S")),
    ]
    assert passed(replay("firewall", allowed + refused)) == [True] * len(allowed) + [False] * len(refused)


def test_stateful_firewall(replay):
    def there(layer, host=HOST):
        return "inside", IP(src=host, dst=STRANGER) / layer

    def back(layer, host=HOST):
        return "outside", IP(src=STRANGER, dst=host) / layer

    six = {"src": "2001:db8::20", "dst": "2001:db8:1::9"}
    cases = [
        (back(tcp("SA", sport=25, dport=40_000)), False),
        (there(tcp("S", dport=25)), True),
        (back(tcp("SA", sport=25, dport=40_000)), True),
        (back(tcp("SA", sport=26, dport=40_000)), False),
        (there(UDP(sport=5000, dport=123)), True),
        (back(UDP(sport=123, dport=5000)), True),
        (back(UDP(sport=124, dport=5000)), False),
        (back(tcp("S", sport=50_000, dport=443), WEB), True),
        (there(tcp("SA", sport=443, dport=50_000), WEB), True),
        (back(tcp("A", sport=50_001, dport=443), WEB), False),
        (back(tcp("S", sport=50_000, dport=22), WEB), False),
        (back(UDP(sport=5000, dport=53), "192.0.2.53"), True),
        (("inside", IPv6(**six) / tcp("S")), True),
        (("inside", IPv6(**six) / IPv6ExtHdrRouting(addresses=["2001:db8::9"]) / tcp("A")), False),
        (("outside", IPv6(src=six["dst"], dst="2001:db8::99") / tcp("S")), False),
    ]
    assert passed(replay("stateful-firewall", [packet for packet, _ in cases])) == [expected for _, expected in cases]


def test_tcp_options(replay):
    def of(packet):
        """The options without padding."""
        return {name: value for name, value in packet[TCP].options if name not in ("NOP", "EOL")}

    def options(flags, *options):
        return "left", frames.ip4() / tcp(flags, options=list(options))

    timestamp = ("Timestamp", (1, 0))
    large, small, later, experiment, multipath = replay("tcp-options", [
        options("S", ("MSS", 1460), timestamp, ("WScale", 7)),
        options("S", ("MSS", 1300)),
        options("A", timestamp),
        options("S", (253, b"\x12\x34")),
        options("S", (30, bytes(10)), ("MSS", 1200)),
    ])  # fmt: skip
    assert of(large) == {"MSS": 1400, "WScale": 7}
    assert of(small) == {"MSS": 1300}
    assert of(later) == {"Timestamp": (1, 0)}
    assert experiment is None
    assert of(multipath) == {"MSS": 1200}


def test_nat(replay):
    request = ("inside", IP(src="10.0.0.5", dst=STRANGER) / tcp("S", options=[("MSS", 1460)]))
    (sent,) = replay("nat", [request])
    assert sent[IP].src in [f"198.51.100.{last}" for last in range(4)] and sent[TCP].sport >= 1024
    assert dict(sent[TCP].options)["MSS"] == 1400

    def world(layer, dst):
        return "outside", IP(src=STRANGER, dst=dst) / layer

    _, answer, web, secure, direct, unknown = replay("nat", [
        request,
        world(tcp("SA", sport=80, dport=sent[TCP].sport), sent[IP].src),
        world(tcp("S", sport=50_000, dport=80), "198.51.100.0"),
        world(tcp("S", sport=50_000, dport=443), "198.51.100.0"),
        world(tcp("S", sport=50_000, dport=80), "10.0.0.80"),
        world(tcp("S", sport=50_000, dport=81), "198.51.100.0"),
    ])  # fmt: skip
    assert (answer[IP].dst, answer[TCP].dport) == ("10.0.0.5", 40_000)
    assert (web[IP].dst, web[TCP].dport) == ("10.0.0.80", 8080)
    assert (secure[IP].dst, secure[TCP].dport) == ("10.0.0.80", 8443)
    assert direct is None and unknown is None


def test_chain(replay):
    def client(layer, src="192.0.2.1", dst="10.0.0.27"):
        return "clients", IP(src=src, dst=dst) / layer

    first, again, second, rtp, forbidden, other, elsewhere = replay("chain", [
        client(tcp("S", sport=1)),
        client(tcp("S", sport=1)),
        client(tcp("S", sport=2)),
        client(UDP(sport=3, dport=6970)),
        client(tcp("S", sport=4), src="192.0.2.66"),
        client(tcp("S", sport=5, dport=22)),
        client(tcp("S", sport=6), dst="10.0.0.28"),
    ])  # fmt: skip
    servers = {"10.0.0.2", "10.0.0.3"}
    assert {first[IP].dst, second[IP].dst} == servers
    assert again[IP].dst == first[IP].dst
    assert rtp[IP].dst in servers
    assert forbidden is None and other is None
    assert elsewhere[IP].dst == "10.0.0.28"
