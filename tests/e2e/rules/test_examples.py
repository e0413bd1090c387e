"""All examples of the design and of the papers' user guide, on packets made by scapy."""

import pytest

from lab import frames
from lab.frames import ICMP, IP, TCP, UDP, ICMPv6EchoRequest
from lab.option_bytes import NOP, SACKP, SYN_OPTIONS, mss, option, pair, segment, timestamp, wscale


def changed(packet, layer, **fields):
    return frames.changed(packet, layer, **fields)


def check(wire, rule, *cases):
    """Adds the rule and sends the first frame of each case; the second one must arrive, or nothing if it is
    None.
    """
    wire.daemon.line(rule)
    arrived = wire.cross(*(bytes(sent) for sent, _ in cases))
    assert [frame.hex() for frame in arrived] == [bytes(after).hex() for _, after in cases if after is not None]
    for frame in arrived:
        assert frames.wrong_checksums(frame) == []


def same(packet):
    packet = bytes(packet)
    return packet, packet


def syn(options, **fields):
    return segment(options, **fields)


def test_a_port_is_rewritten(wire):
    packet, other = syn(b"", dport=80), syn(b"", dport=81)
    check(wire, "add tcp-dport 80 mod tcp-dport 443", (packet, changed(packet, TCP, dport=443)), same(other))


def test_neither_udp_nor_tcp(wire):
    ping = frames.ether() / frames.ip4() / ICMP() / frames.payload()
    six = frames.ether() / frames.ip6() / ICMPv6EchoRequest() / frames.payload()
    udp = frames.ether() / frames.ip4() / UDP() / frames.payload()
    check(wire, "add ip-proto != udp ip-proto != tcp drop", (ping, None), same(six), same(udp), same(syn(b"")))


def test_mss_clamping(wire):
    rest = SYN_OPTIONS[4:]
    long, clamped = pair(mss(1461) + rest, mss(1460) + rest)
    check(wire, "add tcp-opt-mss > 1460 mod tcp-opt-mss 1460", (long, clamped), same(syn(SYN_OPTIONS)), same(syn(rest)))


def test_all_options_but_two_go(wire):
    before, after = pair(SYN_OPTIONS, mss(1460) + NOP + wscale(7))
    other = same(syn(mss(1460) + SACKP))
    check(wire, "add tcp-opt-timestamp strip ! tcp-opt-mss strip ! tcp-opt-wscale", (before, after), other)


def test_ecn_is_cleared(wire):
    marked = frames.ether() / frames.ip4(tos=0b101010_11) / UDP() / frames.payload()
    cleared = changed(marked, IP, tos=0b101010_00)
    check(wire, "add all mod ip-ecn 0", (marked, cleared), same(syn(b"", ip=frames.ip6(tc=3))))


def test_tcp_is_dropped(wire):
    udp = frames.ether() / frames.ip4() / UDP() / frames.payload()
    check(wire, "add ip-proto tcp drop", (syn(b""), None), same(udp), same(syn(b"", ip=frames.ip6())))


def flow(source, destination, sport, dport, flags):
    return frames.ether() / IP(src=source, dst=destination) / TCP(sport=sport, dport=dport, flags=flags) / frames.payload()


def test_reflexive_acl_as_written(wire):
    wire.daemon.line("add-stateful ip-proto tcp ip-saddr 10.0.0.0/24 accept")
    wire.daemon.line("add ip-proto tcp drop")
    reply = flow("192.0.2.1", "10.0.0.5", 80, 4000, "SA")
    assert not wire.passes(reply, backwards=True)
    assert wire.passes(flow("10.0.0.5", "192.0.2.1", 4000, 80, "S"))
    assert wire.passes(reply, backwards=True)
    assert not wire.passes(flow("192.0.2.1", "10.0.0.5", 81, 4000, "SA"), backwards=True)
    assert not wire.passes(flow("10.0.1.5", "192.0.2.1", 4000, 80, "S"))


SOURCE_NAT = [
    "add-stateful ip-saddr 10.0.0.0/24 ip-proto tcp tcp-syn shuffle tcp-sport mod ip-saddr 200.0.0.1",
    "add-stateful ip-saddr 10.0.0.0/24 ip-proto tcp map ip-saddr 200.0.0.1 shuffle tcp-sport",
]


@pytest.mark.parametrize("rule", SOURCE_NAT)
def test_source_nat_as_written(wire, rule):
    """Both directions, checked by scapy; what the rule does not match stays as it is."""
    check(wire, rule, same(flow("10.0.1.5", "192.0.2.1", 4000, 80, "S")))
    ports = set()
    for host in range(1, 20):
        there = flow(f"10.0.0.{host}", "192.0.2.1", 4000, 80, "S")
        (seen,) = wire.cross(there)
        port = IP(seen[14:])[TCP].sport
        ports.add(port)
        there[IP].src, there[TCP].sport = "200.0.0.1", port
        assert seen == frames.rebuilt(there)
        back = flow("192.0.2.1", "200.0.0.1", 80, port, "SA")
        (seen,) = wire.cross(back, backwards=True)
        back[IP].dst, back[TCP].dport = f"10.0.0.{host}", 4000
        assert seen == frames.rebuilt(back)
    assert len(ports) == 19 and ports != {4000}


def test_one_option_goes(wire):
    before, after = pair(SYN_OPTIONS, SYN_OPTIONS[4:])
    check(wire, "add tcp-opt-mss strip tcp-opt-mss", (before, after), same(syn(SACKP)))


def test_all_options_but_one_go(wire):
    before, after = pair(SYN_OPTIONS, mss(1460))
    none, nothing = pair(SACKP + wscale(2), b"")
    check(wire, "add tcp-opt strip ! tcp-opt-mss", (before, after), (none, nothing), same(syn(b"")))


def test_two_options_go(wire):
    before, after = pair(SYN_OPTIONS, SACKP + timestamp(0x01020304, 0))
    check(wire, "add tcp-opt strip tcp-opt-mss strip tcp-opt-wscale", (before, after), same(syn(b"")))


def test_every_option_goes(wire):
    before, after = pair(SYN_OPTIONS, b"")
    check(wire, "add tcp-opt-timestamp strip all", (before, after), same(syn(mss(1460))))


def test_options_but_neither_of_two(wire):
    rule = "add tcp-opt ! tcp-opt-mss ! tcp-opt-wscale drop"
    check(wire, rule, (syn(SACKP), None), same(syn(SACKP + mss(1))), same(syn(wscale(1))), same(syn(b"")))


def test_neither_of_two_options(wire):
    ping = frames.ether() / frames.ip4() / ICMP() / frames.payload()
    rule = "add ! tcp-opt-mss ! tcp-opt-wscale drop"
    check(wire, rule, (syn(SACKP), None), (syn(b""), None), (ping, None), same(syn(mss(1))), same(syn(wscale(1))))


def test_an_option_by_number(wire):
    check(wire, "add tcp-opt 22 drop", (syn(option(22, b"ab")), None), same(syn(mss(22))))


def test_many_conditions_and_many_targets(wire):
    rule = (
        "add tcp-syn 1 tcp-dport 80 tcp-opt-mss <= 1480 ip-ect0 tcp-seq-num == x89abcdef "
        "mod tcp-ack 1 mod tcp-dport 321 strip tcp-opt-mss"
    )
    fields = {"ip": lambda: frames.ip4(tos=2), "seq": 0x89ABCDEF}
    before, after = pair(SYN_OPTIONS, SYN_OPTIONS[4:], after_flags="SA", after_dport=321, **fields)
    others = [
        same(syn(SYN_OPTIONS, ip=frames.ip4(tos=2), seq=0x89ABCDEE)),
        same(syn(SYN_OPTIONS, ip=frames.ip4(tos=1), seq=0x89ABCDEF)),
        same(syn(mss(1481), ip=frames.ip4(tos=2), seq=0x89ABCDEF)),
        same(syn(SYN_OPTIONS, ip=frames.ip4(tos=2), seq=0x89ABCDEF, flags="A")),
    ]
    check(wire, rule, (before, after), *others)


SHORT = [
    ("add tcp-dport 80 mod 443", "add tcp-dport 80 mod tcp-dport 443"),
    ("add tcp-opt-mss strip", "add tcp-opt-mss strip tcp-opt-mss"),
    ("add tcp-opt-mss gt 1460 mod 1460", "add tcp-opt-mss > 1460 mod tcp-opt-mss 1460"),
    ("add not tcp-opt-mss ip-proto ne tcp drop", "add ! tcp-opt-mss ip-proto != tcp drop"),
]


@pytest.mark.parametrize("short, whole", SHORT)
def test_what_may_be_left_out(wire, short, whole):
    wire.daemon.line(short)
    assert [rule["text"] for rule in wire.daemon.rules().values()] == [whole]


def test_payloads_and_extension_headers(wire):
    """Payload fields: literal bytes match at the start, or anywhere."""
    get = segment(payload=b"GET /index.html HTTP/1.1\r\n" + bytes(frames.payload()), flags="PA")
    post = segment(payload=b"POST / HTTP/1.1\r\n" + bytes(frames.payload()), flags="PA")
    query = frames.ether() / frames.ip4() / UDP(dport=53) / (b"\x12\x34\x01\x00" + bytes(frames.payload()))
    hop = frames.ether() / frames.ip6() / frames.IPv6ExtHdrHopByHop() / UDP() / frames.payload()
    packets = [bytes(packet) for packet in (get, post, query, hop)]
    for rule, dropped in (
        ('tcp-payload "GET "', {0}),
        ('tcp-payload contains "HTTP/1.1"', {0, 1}),
        ('tcp-payload != "GET "', {1}),
        ('! tcp-payload "GET "', {1, 2, 3}),
        ("udp-payload 0x1234", {2}),
        ('tcp-payload {"GET ","POST "}', {0, 1}),
        ("ip6-eh-hopbyhop", {3}),
        ("ip6-eh", {3}),
        ("net-proto ip6 ! ip6-eh-routing", {3}),
        ("ip-payload", {0, 1, 2}),
    ):
        wire.daemon.command("flush")
        wire.daemon.command(f"add {rule} drop")
        arrived = wire.cross(*packets)
        assert arrived == [packet for number, packet in enumerate(packets) if number not in dropped], rule


def test_ranges_and_sets(wire):
    ports = (79, 80, 443, 1023, 1024, 65535)
    packets = [bytes(frames.ether() / frames.ip4() / UDP(dport=port) / frames.payload()) for port in ports]
    for rule, dropped in (
        ("udp-dport 1024-65535", {4, 5}),
        ("udp-dport {80,443,60000-65535}", {1, 2, 5}),
        ("udp-dport != {80,443}", {0, 3, 4, 5}),
        ("udp-dport > 443 udp-dport <= 1024", {3, 4}),
        ("udp-dport < 80", {0}),
    ):
        wire.daemon.command("flush")
        wire.daemon.command(f"add {rule} drop")
        arrived = wire.cross(*packets)
        assert arrived == [packet for number, packet in enumerate(packets) if number not in dropped], rule


def test_of_ten_thousand_one(wire):
    """`drop 0.01` drops about one packet in ten thousand, `drop 50` about half."""
    packet = bytes(frames.ether() / frames.ip4() / UDP(dport=9) / frames.payload())
    wire.daemon.add("udp-dport 9 drop 50")
    arrived = sum(len(wire.cross(*[packet] * 100)) for _ in range(10))
    assert 400 < arrived < 600
    wire.daemon.command("flush")
    wire.daemon.add("udp-dport 9 drop 0.01")
    assert sum(len(wire.cross(*[packet] * 100)) for _ in range(10)) > 980
