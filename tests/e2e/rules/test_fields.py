"""All fields of the language on packets made by scapy: match, negation, presence, edit, checksums."""

import pytest

import field_cases as cases
from field_cases import CASES
from lab import frames
from lab.frames import (
    ICMP,
    IP,
    TCP,
    UDP,
    Dot1AD,
    Dot1Q,
    Ether,
    ICMPv6EchoRequest,
    IPOption,
    IPv6,
    IPv6ExtHdrDestOpt,
    IPv6ExtHdrFragment,
    IPv6ExtHdrHopByHop,
    IPv6ExtHdrRouting,
)

by_field = pytest.mark.parametrize("case", CASES, ids=str)


@by_field
def test_match(wire, case):
    having, lacking = case.packets()
    index = wire.daemon.add(f"{case.field} {case.value} drop")
    assert wire.cross(having, lacking) == [lacking]
    assert wire.daemon.hits(index) == 1


@by_field
def test_not_equal(wire, case):
    having, lacking = case.packets()
    wire.daemon.add(f"{case.field} != {case.value} drop")
    assert wire.cross(having, lacking) == [having]


@by_field
def test_negation_also_holds_without_the_header(wire, case):
    having, lacking = case.packets()
    other_protocol = bytes(cases.icmp6() if case.base in (cases.udp4, cases.tcp4, cases.icmp4) else cases.icmp4())
    wire.daemon.add(f"! {case.field} {case.value} drop")
    assert wire.cross(having, lacking, other_protocol) == [having]


@by_field
def test_field_alone(wire, case):
    having, lacking = case.packets()
    other_protocol = bytes(cases.icmp6() if case.base in (cases.udp4, cases.tcp4, cases.icmp4) else cases.icmp4())
    wire.daemon.add(f"{case.field} drop")
    assert wire.cross(having, lacking, other_protocol) == (
        [lacking, other_protocol] if case.field in cases.BITS else [other_protocol]
    )


@pytest.mark.parametrize("case", [case for case in CASES if case.writable], ids=str)
def test_mod(wire, case):
    having, lacking = case.packets()
    wire.daemon.add(f"all mod {case.field} {case.value}")
    arrived = wire.cross(lacking, having)
    assert arrived == [having, having]
    assert frames.wrong_checksums(arrived[0]) == []


@pytest.mark.parametrize("case", [case for case in CASES if not case.writable], ids=str)
def test_mod_refused(wire, case):
    refused = wire.daemon.line(f"add all mod {case.field} {case.value}", check=False)
    assert refused.returncode != 0 and case.field in refused.stderr
    assert wire.daemon.rules() == {}


@pytest.mark.parametrize(
    "field, base, layer", cases.CHECKSUMS, ids=lambda value: value if isinstance(value, str) else ""
)
def test_checksum_field(wire, field, base, layer):
    packet = Ether(bytes(base()))
    other = frames.changed(base(), IP if IP in packet else IPv6, src="192.0.2.7" if IP in packet else "2001:db8::7")
    value = packet[layer].fields.get("chksum", packet[layer].fields.get("cksum"))
    wire.daemon.add(f"{field} {value:#x} drop")
    assert wire.cross(packet, other) == [other]


def test_ecn_code_points(wire):
    packets = [frames.changed(cases.tcp4(), IP, tos=46 << 2 | code) for code in range(4)]
    for field, code in (("ip-non-ect", 0), ("ip-ect1", 1), ("ip-ect0", 2), ("ip-ce", 3)):
        wire.daemon.command("flush")
        wire.daemon.add(f"{field} drop")
        assert wire.cross(*packets) == [packet for number, packet in enumerate(packets) if number != code]


def test_net_proto(wire):
    four, six = bytes(cases.udp4()), bytes(cases.udp6())
    wire.daemon.add("net-proto ip6 drop")
    assert wire.cross(four, six) == [four]


def test_in_tells_the_directions_apart(wire):
    wire.daemon.add("in left ip-proto icmp drop")
    assert not wire.passes(cases.icmp4())
    assert wire.passes(cases.icmp4(), backwards=True)


def test_out_tells_the_directions_apart(wire):
    wire.daemon.add("out left ip-proto icmp drop")
    assert wire.passes(cases.icmp4())
    assert not wire.passes(cases.icmp4(), backwards=True)


@pytest.mark.parametrize(
    "prefix, inside, outside",
    [
        ("10.77.0.0/16", "10.77.255.255", "10.78.0.0"),
        ("10.77.0.128/25", "10.77.0.128", "10.77.0.127"),
        ("198.18.0.0/15", "198.19.1.1", "198.20.0.0"),
        ("2001:db8::/32", "2001:db8:ffff::1", "2001:db9::"),
        ("2001:db8:0:0:8000::/65", "2001:db8::8000:0:0:1", "2001:db8::7fff:0:0:1"),
    ],
)
@pytest.mark.parametrize("side", ["saddr", "daddr"])
def test_prefix(wire, prefix, inside, outside, side):
    six = ":" in prefix
    base, layer = (cases.udp6, IPv6) if six else (cases.udp4, IP)
    scapy_field = "src" if side == "saddr" else "dst"
    within, without = (frames.changed(base(), layer, **{scapy_field: address}) for address in (inside, outside))
    wire.daemon.add(f"{'ip6' if six else 'ip'}-{side} {prefix} drop")
    assert wire.cross(within, without) == [without]


PAYLOAD = frames.payload()
ENVELOPES = {
    "plain": frames.ether(),
    "vlan": frames.ether() / Dot1Q(vlan=100, prio=5),
    "qinq": frames.ether() / Dot1AD(vlan=7) / Dot1Q(vlan=100),
    "double-8100": frames.ether() / Dot1Q(vlan=7) / Dot1Q(vlan=100),
    "four-tags": frames.ether() / Dot1AD(vlan=1) / Dot1Q(vlan=2) / Dot1Q(vlan=3) / Dot1Q(vlan=4),
}
NETWORKS = {
    "ip4": frames.ip4(),
    "ip4-options": frames.ip4(options=[IPOption(b"\x94\x04\x00\x00"), IPOption(b"\x01\x01\x01\x00")]),
    "ip4-all-options": frames.ip4(options=[IPOption(b"\x01\x01\x01\x01")] * 10),
    "ip6": frames.ip6(),
    "ip6-hopbyhop": frames.ip6() / IPv6ExtHdrHopByHop(),
    "ip6-extensions": frames.ip6()
    / IPv6ExtHdrHopByHop()
    / IPv6ExtHdrDestOpt()
    / IPv6ExtHdrFragment(id=5, m=0, offset=0),
    "ip6-routing": frames.ip6() / IPv6ExtHdrRouting(addresses=["2001:db8::9"]),
}
TRANSPORTS = {
    "tcp": (
        TCP(sport=1000, dport=80),
        "tcp-dport 80",
        "mod tcp-dport 8080 mod tcp-sport 1",
        {"dport": 8080, "sport": 1},
    ),
    "udp": (
        UDP(sport=1000, dport=80),
        "udp-dport 80",
        "mod udp-dport 8080 mod udp-sport 1",
        {"dport": 8080, "sport": 1},
    ),
}


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("envelope", ENVELOPES)
def test_inner_headers_wherever_they_are(wire, envelope, network, transport):
    """VLAN tags, IPv4 options and IPv6 extension headers move later headers; rules match all the same."""
    layer, match, edits, fields = TRANSPORTS[transport]
    packet = ENVELOPES[envelope] / NETWORKS[network] / layer / PAYLOAD
    four = network.startswith("ip4")
    edits += " mod ip-ttl 3 mod ip-saddr 192.0.2.1" if four else " mod ip6-hop-limit 3 mod ip6-saddr 2001:db8::1"
    expected = packet.copy()
    for name, value in fields.items():
        setattr(expected[type(layer)], name, value)
    for name, value in ({"ttl": 3, "src": "192.0.2.1"} if four else {"hlim": 3, "src": "2001:db8::1"}).items():
        setattr(expected[IP if four else IPv6], name, value)
    index = wire.daemon.add(f"{match} {edits}")
    assert wire.cross(packet) == [frames.rebuilt(expected)]
    assert wire.daemon.hits(index) == 1
    assert frames.wrong_checksums(frames.rebuilt(expected)) == []


def test_icmp_error_with_its_quotation(wire):
    quoted = bytes(frames.ip4() / UDP(sport=1, dport=2) / frames.payload())
    packet = frames.ether() / frames.ip4() / ICMP(type=3, code=1) / frames.Raw(quoted)
    wire.daemon.add("icmp-type 3 mod icmp-code 13 mod ip-ttl 5")
    expected = frames.changed(frames.Ether(bytes(packet)), IP, ttl=5)
    (arrived,) = wire.cross(packet)
    assert Ether(arrived)[ICMP].code == 13
    assert arrived[42:] == quoted
    assert Ether(arrived)[IP].chksum == Ether(expected)[IP].chksum
    reference = frames.ether() / frames.ip4(ttl=5) / ICMP(type=3, code=13) / frames.Raw(quoted)
    assert arrived == bytes(reference)


def test_zero_udp_checksum_stays_zero(wire):
    packet = frames.ether() / frames.ip4() / UDP(sport=1, dport=2, chksum=0) / frames.payload()
    wire.daemon.add("udp-dport 2 mod udp-dport 3 mod ip-saddr 192.0.2.1")
    (arrived,) = wire.cross(packet)
    assert Ether(arrived)[UDP].chksum == 0 and Ether(arrived)[UDP].dport == 3
    assert Ether(arrived)[IP].chksum == Ether(frames.rebuilt(Ether(arrived)))[IP].chksum


@pytest.mark.parametrize("six", [False, True], ids=["ip4", "ip6"])
def test_udp_checksum_that_comes_out_as_zero_is_sent_as_ones(wire, six):
    """RFC 768: a computed checksum of zero is transmitted as all ones."""
    network = frames.ip6() if six else frames.ip4()
    packet = frames.ether() / network / UDP(sport=1, dport=2) / frames.payload()
    # The source port that makes the sum all ones once the destination port is 3.
    probe = Ether(frames.changed(packet, UDP, dport=3, sport=0))[UDP].chksum
    packet[UDP].sport = probe
    expected = frames.changed(packet, UDP, dport=3)
    assert Ether(expected)[UDP].chksum == 0xFFFF
    wire.daemon.add("udp-dport 2 mod udp-dport 3")
    assert wire.cross(frames.rebuilt(packet)) == [expected]


def test_wrong_checksums_stay_wrong(wire):
    """A wrong checksum stays wrong after an edit."""
    packet = frames.ether() / frames.ip4() / TCP(sport=1, dport=2) / frames.payload()
    damaged = bytearray(bytes(packet))
    damaged[-1] ^= 0xFF
    wire.daemon.add("tcp-dport 2 mod tcp-dport 3 mod ip-ttl 9")
    (arrived,) = wire.cross(damaged)
    assert [line.split()[0] for line in frames.wrong_checksums(arrived)] == ["TCP"]


def fragments(packet, layer, size=16):
    """An IPv4 packet in two frames, the second with the last `size` bytes."""
    whole = bytes(packet[layer])
    header, body = whole[:20], whole[20:]
    cut = (len(body) - size) // 8 * 8
    for offset, part, more in ((0, body[:cut], "MF"), (cut // 8, body[cut:], 0)):
        ip = IP(header)
        ip.remove_payload()
        for name in ("chksum", "len"):
            ip.delfieldval(name)
        ip.flags, ip.frag = more, offset
        yield bytes(frames.ether() / ip / frames.Raw(part))


def test_fragments(wire):
    """The first fragment has the ports and the checksum of the whole; the later ones have addresses only."""
    packet = frames.ether() / frames.ip4(id=99) / UDP(sport=1, dport=2) / frames.payload(64)
    sent = list(fragments(Ether(bytes(packet)), IP))
    edited = frames.ether() / frames.ip4(id=99, src="192.0.2.1") / UDP(sport=1, dport=3) / packet[frames.Raw]
    first, later = fragments(Ether(bytes(edited)), IP)
    wire.daemon.add("udp-dport 2 mod udp-dport 3")
    wire.daemon.add("all mod ip-saddr 192.0.2.1")
    wire.daemon.add("! udp-dport mod ip-ttl 7")
    assert wire.cross(*sent) == [first, frames.changed(Ether(later), IP, ttl=7)]


def test_edits_apply_in_rule_order(wire):
    for ttl in (5, 6, 7):
        wire.daemon.add(f"all mod ip-ttl {ttl}")
    wire.daemon.add("udp-dport 2000 mod ip-ttl 8")
    packet = cases.udp4()
    assert wire.cross(packet) == [frames.changed(packet, IP, ttl=8)]
    wire.daemon.command("del", "4")
    assert wire.cross(packet) == [frames.changed(packet, IP, ttl=7)]


def test_every_length_of_payload(wire):
    """Odd and even lengths, and frames shorter than Ethernet's minimum."""
    wire.daemon.add("udp-dport 2 mod udp-dport 3 mod ip-dscp 10")
    packets = [frames.ether() / frames.ip4() / UDP(sport=1, dport=2) / frames.payload(size) for size in range(16, 140)]
    expected = []
    for packet in packets:
        packet = packet.copy()
        packet[IP].tos, packet[UDP].dport = 10 << 2, 3
        expected.append(frames.rebuilt(packet))
    assert wire.cross(*packets) == expected


def test_icmp6_echo_is_rewritten_with_its_checksum(wire):
    packet = frames.ether() / frames.ip6() / ICMPv6EchoRequest(id=1, seq=2) / frames.payload()
    wire.daemon.add("icmp6-type 128 mod ip6-daddr 2001:db8::1")
    assert wire.cross(packet) == [frames.changed(packet, IPv6, dst="2001:db8::1")]


def test_destination_behind_a_routing_header_is_not_in_the_checksum(wire):
    """RFC 8200, 8.1: the pseudo header has the last address of the routing header as destination."""
    packet = (
        frames.ether() / frames.ip6() / IPv6ExtHdrRouting(addresses=["2001:db8::9"]) / TCP(dport=80) / frames.payload()
    )
    wire.daemon.add("tcp-dport 80 mod ip6-daddr 2001:db8::1")
    (arrived,) = wire.cross(packet)
    assert arrived == frames.changed(packet, IPv6, dst="2001:db8::1")
    assert Ether(arrived)[TCP].chksum == Ether(bytes(packet))[TCP].chksum
