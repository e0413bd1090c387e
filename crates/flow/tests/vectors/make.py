#!/usr/bin/python3
"""Writes two files beside itself, with checksums computed from scratch by scapy.

    /usr/bin/python3 crates/flow/tests/vectors/make.py

translations.txt: packets of sessions before and after translation. One vector a line: name | key of the session's first
packet | the same after translation | what else is replaced | direction | frame before | frame after. Keys are "source
port destination port"; frames are in hexadecimal.

No packet is edited here: a packet after translation is built from its own addresses, ports and numbers by the same
function that built it from the old ones, and scapy computes every length and checksum of both. Quotations of ICMP
errors are such packets, cut to what a router quotes.

answers.txt: packets, and the ICMP errors that say to their senders what is wrong. One a line: name | complaint, with an MTU
behind it | address that complains | packet | error, or nothing if there must be none.
"""

import sys
from collections import namedtuple
from contextlib import redirect_stdout
from pathlib import Path

import scapy
from scapy.layers.inet import ICMP, IP, TCP, UDP, IPOption_NOP, IPOption_RR, fragment, in4_chksum
from scapy.layers.inet6 import (
    ICMPv6DestUnreach, ICMPv6EchoReply, ICMPv6EchoRequest, ICMPv6PacketTooBig, ICMPv6ParamProblem, ICMPv6TimeExceeded,
    IPv6, IPv6ExtHdrDestOpt, IPv6ExtHdrFragment, IPv6ExtHdrHopByHop, IPv6ExtHdrRouting, PadN, fragment6, in6_chksum,
)
from scapy.layers.l2 import Dot1AD, Dot1Q, Ether
from scapy.packet import Raw

ETHER = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
VLAN = ETHER / Dot1Q(vlan=7)
QINQ = ETHER / Dot1AD(vlan=7) / Dot1Q(vlan=9)
ODD = b"The quick brown fox!?"
OPTIONS = [IPOption_RR(length=11, pointer=4, routers=["0.0.0.0", "1.2.3.4"]), IPOption_NOP()]

Tuple = namedtuple("Tuple", "src sport dst dport")
Numbers = namedtuple("Numbers", "seq ack sack id label")
Mangle = namedtuple("Mangle", "seq ack id fixed old new", defaults=(0, 0, 0, 0, 0, 0))
NOTHING = Mangle()
NUMBERS = Numbers(0x01020304, 0xFFFEFDFC, ((0xFFFFFF00, 0x00000100), (5, 6), (0x12345678, 0x9ABCDEF0)), 0x1234, 0x12345)
TIMES = {"ts_ori": 1, "ts_rx": 2, "ts_tx": 3}  # in timestamp messages; scapy would take the time of day
REQUESTS = {8: 0, 13: 14, 15: 16, 17: 18, 128: 129}


def back(key):
    return Tuple(key.dst, key.dport, key.src, key.sport)


def along(numbers, mangle, direction):
    """What a packet's numbers become: see Mangle in src/translate/mangle.rs for the meaning."""
    def moved(sequence, acknowledgment):
        add = lambda a, b: (a + b) % 2**32
        return numbers._replace(seq=add(numbers.seq, sequence), ack=add(numbers.ack, acknowledgment), sack=tuple(
            (add(left, acknowledgment), add(right, acknowledgment)) for left, right in numbers.sack))
    if direction == "forward":
        id = mangle.id if mangle.fixed else (numbers.id + mangle.id) % 2**16
        label = mangle.new if mangle.old != mangle.new else numbers.label
        return moved(mangle.seq, mangle.ack)._replace(id=id, label=label)
    label = mangle.old if numbers.label == mangle.new else numbers.label
    return moved(-mangle.ack, -mangle.seq)._replace(label=label)


# Builders of transport headers: (key, numbers, reply?) -> layers

def tcp(payload=ODD, flags="PA", layout="usual"):
    def build(key, numbers, reply):
        sack = [("SAck", tuple(edge for block in numbers.sack[:n] for edge in block)) for n in (1, 2, 3)]
        nop, stamp, mss = ("NOP", None), ("Timestamp", (1, 2)), ("MSS", 1460)
        options = {
            "none": [], "usual": [nop, nop, stamp], "sack": [nop, nop, sack[0]],
            "two": [nop, nop, stamp, nop, nop, sack[1]], "three": [nop, nop, stamp, sack[2]],
            "odd": [nop, sack[1], nop, nop, nop], "twice": [sack[0], nop, sack[0], mss],
            "last": [mss, ("WScale", 7), nop, nop, nop, sack[0]],
        }[layout]
        return TCP(sport=key.sport, dport=key.dport, seq=numbers.seq, ack=numbers.ack, flags=flags, window=501,
                   options=options) / Raw(payload)
    return build


def udp(payload=ODD, **fields):
    return lambda key, numbers, reply: UDP(sport=key.sport, dport=key.dport, **fields) / Raw(payload)


def echo(payload=ODD, seq=1):
    """A query of whichever type the key has, or its reply."""
    def build(key, numbers, reply):
        kind, id = (REQUESTS[key.sport], key.dport) if reply else (key.dport, key.sport)
        if kind in (128, 129):
            return (ICMPv6EchoReply if reply else ICMPv6EchoRequest)(id=id, seq=seq) / Raw(payload)
        return ICMP(type=kind, id=id, seq=seq, **TIMES) / Raw(payload)
    return build


def checksummed(number, header, zero_means_none):
    """A protocol of which scapy knows nothing: ports, then `header`, with a checksum over all in bytes 6 and 7."""
    def build(key, numbers, reply):
        data = header + ODD
        six = ":" in key.src
        network = IPv6(src=key.src, dst=key.dst) if six else IP(src=key.src, dst=key.dst)
        sum = (in6_chksum if six else in4_chksum)(number, network, data)
        sum = 0xFFFF if sum == 0 and zero_means_none else sum
        return Raw(data[:6] + sum.to_bytes(2, "big") + data[8:])
    return build


UDP_LITE = checksummed(136, bytes([0, 9, 0, 10, 0, 0, 0, 0]), True)
DCCP = checksummed(33, bytes([0, 9, 0, 10, 4, 0, 0, 0, 4, 0, 0, 1, 0, 0, 0, 0]), False)


def opaque(key, numbers, reply):
    return Raw(ODD)


# Builders of network headers: (key, numbers) -> layers

def ip4(**fields):
    return lambda key, numbers: IP(src=key.src, dst=key.dst, id=numbers.id, ttl=64, **fields)


def ip6(*extensions, **fields):
    def build(key, numbers):
        packet = IPv6(src=key.src, dst=key.dst, fl=numbers.label, hlim=64, **fields)
        for extension in extensions:
            packet = packet / extension.copy()
        return packet
    return build


def text(key):
    return " ".join(str(part) for part in key)


def vector(name, session, mangle, direction, before, after):
    replaced = " ".join(str(part) for part in mangle)
    print(" | ".join([name, text(session[0]), text(session[1]), replaced, direction, before.hex(), after.hex()]))


def case(name, session, network, transport, mangle=NOTHING, ether=ETHER, numbers=NUMBERS, split=None):
    """Packets of both directions. `split` turns one into fragments; they become those of the translated one."""
    original, translated = session
    for direction, old, new in [("forward", original, translated), ("reverse", back(translated), back(original))]:
        reply = direction == "reverse"
        shown = along(numbers, mangle, direction)
        if reply and mangle.old != mangle.new:
            numbers_in = numbers._replace(label=mangle.new)
            shown = along(numbers_in, mangle, direction)
        else:
            numbers_in = numbers
        before = bytes(ether / network(old, numbers_in) / transport(old, numbers_in, reply))
        after = bytes(ether / network(new, shown) / transport(new, shown, reply))
        pieces = zip(split(before), split(after), strict=True) if split else [(before, after)]
        for i, (one, other) in enumerate(pieces):
            vector(f"{name}-{i}" if split else name, session, mangle, direction, one, other)


def split4(frame):
    return [bytes(ETHER / piece) for piece in fragment(Ether(frame)[IP], fragsize=64)]


def split6(frame):
    return [bytes(ETHER / piece) for piece in fragment6(Ether(frame)[IPv6], 200)]


# Sessions: source NAT, destination NAT, both, and one that leaves the port alone.

A, B, N, S = "10.1.2.3", "198.51.100.7", "203.0.113.9", "10.9.8.7"
A6, B6, N6, S6 = "2001:db8::1", "2001:db8:ffff::2", "2001:db8:aaaa:bbbb:cccc:dddd:eeee:ffff", "fd00::9"
ROUTER, ROUTER6 = "192.0.2.1", "2001:db8:f::1"


def sessions(a, b, n, s):
    return [
        ("snat", (Tuple(a, 40000, b, 80), Tuple(n, 1024, b, 80))),
        ("dnat", (Tuple(a, 40000, n, 80), Tuple(a, 40000, s, 8080))),
        ("both", (Tuple(a, 40000, n, 80), Tuple(n, 65535, s, 0x0108))),
        ("address", (Tuple(a, 40000, b, 53), Tuple(n, 40000, b, 53))),
        ("port", (Tuple(a, 40000, b, 53), Tuple(a, 40001, b, 53))),
    ]


FOUR, SIX = sessions(A, B, N, S), sessions(A6, B6, N6, S6)


def queries(a, b, n, *kinds):
    return [(f"query{kind}", (Tuple(a, 0x0102, b, kind), Tuple(n, 0xFEDC, b, kind))) for kind in kinds]


QUERIES4, QUERIES6 = queries(A, B, N, 8, 13, 15, 17), queries(A6, B6, N6, 128)
PAIR4, PAIR6 = (Tuple(A, 0, B, 0), Tuple(N, 0, B, 0)), (Tuple(A6, 0, B6, 0), Tuple(N6, 0, S6, 0))


def packets():
    with_options = ip4(options=OPTIONS)
    for name, session in FOUR:
        for i, payload in enumerate([b"", b"even", ODD]):
            case(f"tcp-{name}-{i}", session, ip4(), tcp(payload))
            case(f"udp-{name}-{i}", session, ip4(), udp(payload))
        case(f"tcp-options-{name}", session, with_options, tcp(), ether=VLAN)
        case(f"udp-options-{name}", session, with_options, udp(), ether=QINQ)
    for name, session in QUERIES4:
        case(name, session, ip4(), echo())
        case(f"{name}-options", session, with_options, echo(b""), ether=VLAN)
        # The identifier stays, and looks like a type.
        case(f"{name}-ambiguous", (Tuple(A, 13, B, session[0].dport), Tuple(N, 13, B, session[0].dport)), ip4(), echo())
    for name, proto, build in [("sctp", 132, opaque), ("gre", 47, opaque), ("esp", 50, opaque), ("none", 59, opaque),
                               ("udplite", 136, UDP_LITE), ("dccp", 33, DCCP)]:
        case(name, PAIR4, ip4(proto=proto), build)
        case(f"{name}6", PAIR6, ip6(nh=proto), build)
    hop = IPv6ExtHdrHopByHop(options=[PadN(optdata=b"\0" * 4)])
    dest = IPv6ExtHdrDestOpt(options=[PadN(optdata=b"\1" * 12)])
    chains = [
        ("plain", []), ("hop", [hop]), ("hop-destination", [hop, dest]), ("atomic", [IPv6ExtHdrFragment(id=9)]),
        ("routed-done", [IPv6ExtHdrRouting(addresses=["2001:db8::77"], segleft=0)]),
        ("routed", [IPv6ExtHdrRouting(addresses=["2001:db8::77", "2001:db8::88"], segleft=2), dest]),
    ]
    for chain, extensions in chains:
        for name, session in SIX[:3]:
            case(f"tcp6-{chain}-{name}", session, ip6(*extensions), tcp())
            case(f"udp6-{chain}-{name}", session, ip6(*extensions), udp(b""), ether=VLAN)
        for name, session in QUERIES6:
            case(f"{name}-{chain}", session, ip6(*extensions), echo(), ether=QINQ)


def zero_checksums():
    session = FOUR[0][1]
    case("udp-no-checksum", session, ip4(), udp(chksum=0))
    case("udp6-no-checksum", SIX[0][1], ip6(), udp(chksum=0))
    for name, transport, layer, session, network in [
        ("udp", udp(), UDP, FOUR[0][1], ip4()), ("tcp", tcp(), TCP, FOUR[0][1], ip4()),
        ("udp6", udp(), UDP, SIX[0][1], ip6()),
    ]:
        original, translated = session

        def checksum(key):
            return Ether(bytes(ETHER / network(key, NUMBERS) / transport(key, NUMBERS, False)))[layer].chksum

        keys = (translated._replace(sport=port) for port in range(65536))
        key = next(key for key in keys if checksum(key) in (0, 0xFFFF))
        case(f"{name}-comes-to-zero", (original, key), network, transport)
        case(f"{name}-was-zero", (key, original), network, transport)
    # A reply of zeros: the only sum of zero that there is, and so the only checksum of 0xffff.
    zeros = Tuple(A, 5, B, 8), Tuple(N, 0, B, 8)
    case("echo-zeros", zeros, ip4(), echo(b"\0" * 8, seq=0))
    case("echo-zeros-back", (zeros[1]._replace(src=A), zeros[0]._replace(src=N)), ip4(), echo(b"\0" * 8, seq=0))


def fragments():
    payload = bytes(range(256))
    for name, session in FOUR[:3]:
        case(f"fragment-tcp-{name}", session, ip4(), tcp(payload), split=split4)
        case(f"fragment-udp-{name}", session, ip4(), udp(payload), split=split4)
    for name, session in QUERIES4:
        case(f"fragment-{name}", session, ip4(), echo(payload), split=split4)
    case("fragment-id", FOUR[0][1], ip4(), udp(payload), Mangle(id=0xFEDC), split=split4)
    for name, session in SIX[:3]:
        case(f"fragment-tcp6-{name}", session, ip6(IPv6ExtHdrFragment(id=0x55AA)), tcp(payload), split=split6)
        case(f"fragment-udp6-{name}", session, ip6(IPv6ExtHdrFragment(id=0x55AA)), udp(payload), split=split6)
    label = Mangle(old=NUMBERS.label, new=0xFEDCB)
    case("fragment-label", SIX[0][1], ip6(IPv6ExtHdrFragment(id=1)), udp(payload), label, split=split6)


MANGLES = [
    ("seq", Mangle(seq=0xDEADBEEF)), ("ack", Mangle(ack=0x7FFFFFFF)), ("numbers", Mangle(seq=1, ack=0xFFFFFFFF)),
    ("id", Mangle(id=0xFFF0)), ("fixed-id", Mangle(id=0x0102, fixed=1)),
    ("label", Mangle(old=NUMBERS.label, new=0xABCDE)),
    ("all", Mangle(0x01000001, 0x80000000, 77, 0, NUMBERS.label, 0)),
]
LAYOUTS = ["none", "usual", "sack", "two", "three", "odd", "twice", "last"]


def mangled():
    untranslated = Tuple(A, 40000, B, 80)
    for name, mangle in MANGLES:
        for layout in LAYOUTS:
            case(f"{name}-{layout}", FOUR[0][1], ip4(), tcp(layout=layout), mangle)
        case(f"{name}-6", SIX[2][1], ip6(), tcp(layout="twice"), mangle, ether=VLAN)
        case(f"{name}-alone", (untranslated, untranslated), ip4(), tcp(layout="two"), mangle)
        case(f"{name}-udp", FOUR[0][1], ip4(), udp(), mangle)
        case(f"{name}-udp6", SIX[0][1], ip6(), udp(), mangle)
        case(f"{name}-echo", QUERIES4[0][1], ip4(), echo(), mangle)
    # Without the ACK flag there is no acknowledgment number, whatever stands there.
    for name, mangle in [("seq", Mangle(seq=99)), ("ack", Mangle(ack=99))]:
        session = FOUR[0][1]
        for direction, old, new in [("forward", *session), ("reverse", back(session[1]), back(session[0]))]:
            build = tcp(flags="S", layout="sack")
            shown = along(NUMBERS, mangle, direction)._replace(ack=NUMBERS.ack, sack=NUMBERS.sack)
            before = bytes(ETHER / ip4()(old, NUMBERS) / build(old, NUMBERS, False))
            after = bytes(ETHER / ip4()(new, shown) / build(new, shown, False))
            vector(f"{name}-syn", session, mangle, direction, before, after)
    # An option that is no whole number of blocks is left as it is.
    session, mangle = FOUR[0][1], Mangle(ack=99)
    def odd(key, numbers, reply):
        return TCP(sport=key.sport, dport=key.dport, seq=numbers.seq, ack=numbers.ack, flags="A",
                   options=[(5, b"123456789"), ("NOP", None)])
    case("sack-odd-length", session, ip4(), odd, mangle)


def errors():
    """Errors about packets of both directions, from an end of the session and from a router on the way."""
    kinds4 = [ICMP(type=3, code=3), ICMP(type=3, code=4, nexthopmtu=1400), ICMP(type=4), ICMP(type=5, gw="192.0.2.77"),
              ICMP(type=11), ICMP(type=12, ptr=20)]
    for name, session in FOUR:
        for cut in (28, 41, 548):
            error4(f"error-tcp-{name}-{cut}", session, kinds4[cut % 6], ip4(), tcp(layout="two"), cut)
            error4(f"error-udp-{name}-{cut}", session, kinds4[cut % 5], ip4(), udp(), cut)
    for i, kind in enumerate(kinds4):
        error4(f"error-kind-{i}", FOUR[2][1], kind, ip4(), udp(), 548, ether=QINQ)
        error4(f"error-echo-{i}", QUERIES4[0][1], kind, ip4(), echo(), 28 + i)
        error4(f"error-outer-options-{i}", FOUR[0][1], kind, ip4(), tcp(), 60, options=OPTIONS)
    for name, session in QUERIES4:
        error4(f"error-{name}", session, kinds4[0], ip4(), echo(), 548)
    error4("error-options", FOUR[0][1], kinds4[0], ip4(options=OPTIONS), udp(), 548, ether=VLAN)
    error4("error-options-tcp", FOUR[2][1], kinds4[4], ip4(options=OPTIONS), tcp(), 60)
    error4("error-udp-no-checksum", FOUR[0][1], kinds4[0], ip4(), udp(chksum=0), 548)
    error4("error-pair", PAIR4, kinds4[4], ip4(proto=47), opaque, 28)
    error4("error-udplite", PAIR4, kinds4[4], ip4(proto=136), UDP_LITE, 548)
    error4("error-dccp", PAIR4, kinds4[4], ip4(proto=33), DCCP, 28)
    error4("error-first-fragment", FOUR[0][1], kinds4[4], ip4(flags="MF"), udp(bytes(64)), 548)
    for name, mangle in MANGLES:
        for layout in ["none", "sack", "three", "odd"]:
            build = tcp(layout=layout)
            error4(f"error-{name}-{layout}", FOUR[0][1], kinds4[4], ip4(), build, 548, mangle=mangle)
            error6(f"error6-{name}-{layout}", SIX[0][1], ICMPv6TimeExceeded(), ip6(), build, 1232, mangle=mangle)
        error4(f"error-{name}-short", FOUR[2][1], kinds4[4], ip4(), tcp(), 28, mangle=mangle)
    # RFC 4884: 128 bytes of quotation, then an MPLS label that is none of the packet's.
    extension = bytes.fromhex("20002b5a000801010006b101")
    multi = ICMP(type=11, length=32)
    error4("error-multi-part", FOUR[0][1], multi, ip4(), udp(bytes(range(200))), 128, behind=extension)
    error4("error-multi-part-padded", FOUR[0][1], multi, ip4(), tcp(), 128, behind=extension, pad=128)
    # A multi-part error whose transport header continues after the end of the quotation.
    skipped = IPv6ExtHdrDestOpt(options=[PadN(optdata=bytes(66))])
    error6("error6-multi-part", SIX[0][1], ICMPv6TimeExceeded(length=16), ip6(skipped), tcp(), 128, behind=extension)
    kinds6 = [ICMPv6DestUnreach(code=4), ICMPv6PacketTooBig(mtu=1280), ICMPv6TimeExceeded(), ICMPv6ParamProblem(ptr=6)]
    routed = IPv6ExtHdrRouting(addresses=["2001:db8::77"], segleft=1)
    for i, (name, session) in enumerate(SIX):
        kind = kinds6[i % 4]
        error6(f"error6-tcp-{name}", session, kind, ip6(), tcp(), 1232)
        error6(f"error6-udp-{name}", session, kind, ip6(), udp(), 48 + i, ether=VLAN)
        error6(f"error6-routed-{name}", session, kind, ip6(routed), tcp(), 1232)
    for i, kind in enumerate(kinds6):
        error6(f"error6-echo-{i}", QUERIES6[0][1], kind, ip6(IPv6ExtHdrFragment(id=1)), echo(), 1232)
        error6(f"error6-pair-{i}", PAIR6, kind, ip6(nh=132), opaque, 1232)
    error6("error6-udplite", PAIR6, kinds6[0], ip6(nh=136), UDP_LITE, 1232)


def quoted(build, key, numbers, cut, pad):
    network, transport, reply = build
    packet = bytes(network(key, numbers) / transport(key, numbers, reply))[:cut]
    return packet + bytes(max(0, pad - len(packet)))


def both_errors(name, session, mangle, build_outer, network, transport, cut, router, behind, pad):
    original, translated = session
    # The direction of the error, and the keys of the quoted packet before and after translation.
    for direction, old, new in [("reverse", translated, original), ("forward", back(original), back(translated))]:
        packet_direction = "forward" if direction == "reverse" else "reverse"
        numbers = NUMBERS
        if packet_direction == "reverse" and mangle.old != mangle.new:
            numbers = numbers._replace(label=mangle.new)
        seen = along(numbers, mangle, packet_direction)
        if packet_direction == "forward" and mangle.fixed:
            numbers = numbers._replace(id=mangle.id)  # lost
        build = network, transport, packet_direction == "reverse"
        before, after = quoted(build, old, seen, cut, pad), quoted(build, new, numbers, cut, pad)
        for who, complainer in [("router", router), ("end", old.dst)]:
            shown = complainer if old.dst == new.dst else new.dst
            error = bytes(build_outer(complainer, old.src) / Raw(before + behind))
            vector(f"{name}-{who}", session, mangle, direction, error,
                   bytes(build_outer(shown, new.src) / Raw(after + behind)))


def error4(name, session, kind, network, transport, cut, mangle=NOTHING, ether=ETHER, behind=b"", pad=0, options=()):
    def outer(source, destination):
        return ether / IP(src=source, dst=destination, ttl=60, tos=0xC0, options=list(options)) / kind.copy()
    both_errors(name, session, mangle, outer, network, transport, cut, ROUTER, behind, pad)


def error6(name, session, kind, network, transport, cut, mangle=NOTHING, ether=ETHER, behind=b""):
    def outer(source, destination):
        return ether / IPv6(src=source, dst=destination, hlim=60) / kind.copy()
    both_errors(name, session, mangle, outer, network, transport, cut, ROUTER6, behind, 0)


COMPLAINTS = {  # RFC 792, 1191, 1812; RFC 4443
    "prohibited": (ICMP(type=3, code=13), ICMPv6DestUnreach(code=1)),
    "no-route": (ICMP(type=3, code=0), ICMPv6DestUnreach(code=0)),
    "unreachable": (ICMP(type=3, code=1), ICMPv6DestUnreach(code=0)),
    "no-neighbor": (ICMP(type=3, code=1), ICMPv6DestUnreach(code=3)),
    "time-exceeded": (ICMP(type=11, code=0), ICMPv6TimeExceeded(code=0)),
    "too-big 1400": (ICMP(type=3, code=4, nexthopmtu=1400), ICMPv6PacketTooBig(mtu=1400)),
    "too-big 65535": (ICMP(type=3, code=4, nexthopmtu=65535), ICMPv6PacketTooBig(mtu=65535)),
}


def answer(name, source, packet, most=None, complaint="prohibited"):
    """`most`: bytes of the packet that are quoted; None if nothing is answered."""
    frame = bytes(packet)
    error = b""
    if most is not None:
        packet = Ether(frame)
        ether, network = packet.copy(), packet[IPv6] if IPv6 in packet else packet[IP]
        tags = ether
        while not isinstance(tags.payload, (IP, IPv6)):
            tags = tags.payload
        tags.remove_payload()
        ether.src, ether.dst = packet.dst, packet.src
        if IPv6 in packet:
            outer = IPv6(src=source, dst=network.src, tc=0xC0, hlim=64) / COMPLAINTS[complaint][1]
        else:
            outer = IP(src=source, dst=network.src, tos=0xC0, id=0, flags="DF", ttl=64) / COMPLAINTS[complaint][0]
        length = network.plen + 40 if IPv6 in packet else network.len
        error = bytes(ether / outer / Raw(bytes(network)[:min(most, length)]))
    print(" | ".join([name, complaint, source, frame.hex(), error.hex()]))


def answers():
    four, six, key4, key6 = 576 - 28, 1280 - 48, FOUR[0][1][0], SIX[0][1][0]
    transports = [
        ("tcp", tcp()), ("udp", udp()), ("long", udp(bytes(1400))), ("odd", udp(ODD * 40)), ("empty", udp(b"")),
    ]
    for tags, ether in [("", ETHER), ("vlan-", VLAN), ("qinq-", QINQ)]:
        for name, build in transports + [("echo", echo())]:
            query4, query6 = QUERIES4[0][1][0], QUERIES6[0][1][0]
            of4, of6 = (query4, query6) if name == "echo" else (key4, key6)
            with_options = ip4(options=OPTIONS)(of4, NUMBERS)
            answer(f"{tags}{name}", ROUTER, ether / ip4()(of4, NUMBERS) / build(of4, NUMBERS, False), four)
            answer(f"{tags}{name}-options", N, ether / with_options / build(of4, NUMBERS, False), four)
            answer(f"{tags}{name}6", ROUTER6, ether / ip6()(of6, NUMBERS) / build(of6, NUMBERS, False), six)
    for complaint in COMPLAINTS:
        build = tcp(bytes(1400))
        of4, of6 = (network(key, NUMBERS) / build(key, NUMBERS, False) for network, key in [(ip4(), key4), (ip6(), key6)])
        answer("tcp-long", ROUTER, ETHER / of4, four, complaint)
        answer("tcp-long6", ROUTER6, ETHER / of6, six, complaint)
    plain4, udp4, udp6 = ip4()(key4, NUMBERS), udp()(key4, NUMBERS, False), udp()(key6, NUMBERS, False)
    for padded in (ETHER / plain4 / udp(b"")(key4, NUMBERS, False), VLAN / plain4 / Raw(b"x")):
        answer("padded", ROUTER, Raw(bytes(padded) + bytes(64 - len(padded))), four)
    first, *later = split4(bytes(ETHER / ip4()(key4, NUMBERS) / udp(bytes(200))(key4, NUMBERS, False)))
    answer("first-fragment", ROUTER, Raw(first), four)
    answer("later-fragment", ROUTER, Raw(later[0]))
    whole = ETHER / ip6(IPv6ExtHdrFragment(id=1))(key6, NUMBERS) / udp(bytes(300))(key6, NUMBERS, False)
    first, *later = split6(bytes(whole))
    answer("first-fragment6", ROUTER6, Raw(first), six)
    answer("later-fragment6", ROUTER6, Raw(later[0]))
    for kind, asks in [(0, True), (3, False), (4, False), (5, False), (8, True), (11, False), (12, False), (13, True)]:
        answer(f"icmp-{kind}", ROUTER, ETHER / plain4 / ICMP(type=kind, **TIMES) / Raw(ODD), four if asks else None)
    for kind in (1, 2, 3, 4, 100, 127, 128, 135, 137):
        asks = kind in (128, 135)
        message = Raw(bytes([kind, 0, 0, 0, 0, 0, 0, 0]))
        answer(f"icmp6-{kind}", ROUTER6, ETHER / ip6(nh=58)(key6, NUMBERS) / message, six if asks else None)
    answer("icmp-cut-short", ROUTER, ETHER / ip4(proto=1)(key4, NUMBERS) / Raw(b"\3"))
    for address in ["0.0.0.0", "0.1.2.3", "127.0.0.1", "224.0.0.1", "255.255.255.255", "240.0.0.1"]:
        answer(f"from-{address}", ROUTER, ETHER / ip4()(key4._replace(src=address), NUMBERS) / udp4)
    for address in ["224.0.0.251", "239.255.255.255", "255.255.255.255"]:
        answer(f"to-{address}", ROUTER, ETHER / ip4()(key4._replace(dst=address), NUMBERS) / udp4)
    for address in ["::", "::1", "ff02::1"]:
        answer(f"from-{address}", ROUTER6, ETHER / ip6()(key6._replace(src=address), NUMBERS) / udp6)
    answer("to-group6", ROUTER6, ETHER / ip6()(key6._replace(dst="ff02::fb"), NUMBERS) / udp6)
    broadcast = Ether(src="02:00:00:00:00:01", dst="ff:ff:ff:ff:ff:ff")
    answer("to-all", ROUTER, broadcast / plain4 / udp4)


def translations():
    packets()
    zero_checksums()
    fragments()
    mangled()
    errors()


def main():
    for name, write in [("translations.txt", translations), ("answers.txt", answers)]:
        with open(Path(__file__).parent / name, "w") as file, redirect_stdout(file):
            print(f"# Made by make.py with scapy {scapy.VERSION}; see there.")
            write()


if __name__ == "__main__":
    sys.exit(main())
