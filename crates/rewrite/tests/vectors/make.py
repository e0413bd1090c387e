#!/usr/bin/python3
"""Writes vectors.txt: frames before and after edits, checksums computed from scratch by scapy.

    /usr/bin/python3 crates/rewrite/tests/vectors/make.py > crates/rewrite/tests/vectors/vectors.txt

One vector a line: name | edits in mmb's language | frame before | frame after, frames in hexadecimal. The frame
"after" is built by setting the fields of scapy's layers and having scapy compute every length and checksum anew;
fragments "after" are those of the edited datagram. TCP options "after" are written down here, and padded by scapy.
"""

import copy
import sys

import scapy
from scapy.layers.inet import ICMP, IP, TCP, UDP, IPOption_NOP, IPOption_RR, fragment
from scapy.layers.inet6 import (
    ICMPv6DestUnreach, ICMPv6EchoRequest, IPv6, IPv6ExtHdrDestOpt, IPv6ExtHdrFragment, IPv6ExtHdrHopByHop,
    IPv6ExtHdrRouting, IPv6ExtHdrSegmentRouting, PadN, fragment6,
)
from scapy.layers.l2 import ARP, Dot1AD, Dot1Q, Ether
from scapy.packet import Raw

ETHER = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
FLAGS = {"cwr": 0x80, "ece": 0x40, "urg": 0x20, "ack": 0x10, "push": 0x08, "rst": 0x04, "syn": 0x02, "fin": 0x01}


def bits(layer, attribute, shift, width, value):
    """Sets `width` bits, `shift` from the right, of a layer's number."""
    mask = ((1 << width) - 1) << shift
    old = int(getattr(layer, attribute))
    setattr(layer, attribute, old & ~mask | int(value, 0) << shift)


def number(layer, attribute):
    return layer, lambda found, value: setattr(found, attribute, int(value, 0))


def text(layer, attribute):
    return layer, lambda found, value: setattr(found, attribute, value)


def part(layer, attribute, shift, width):
    return layer, lambda found, value: bits(found, attribute, shift, width, value)


def reserved(found, value):
    """scapy counts the last of the four reserved bits among the flags, by its former name NS."""
    bits(found, "reserved", 0, 3, str(int(value, 0) >> 1))
    bits(found, "flags", 8, 1, str(int(value, 0) & 1))


FIELDS = {
    "ip-dscp": part(IP, "tos", 2, 6), "ip-ecn": part(IP, "tos", 0, 2), "ip-id": number(IP, "id"),
    "ip-ttl": number(IP, "ttl"), "ip-df": part(IP, "flags", 1, 1), "ip-res": part(IP, "flags", 2, 1),
    "ip-saddr": text(IP, "src"), "ip-daddr": text(IP, "dst"),
    "ip6-traffic-class": number(IPv6, "tc"), "ip6-flow-label": number(IPv6, "fl"),
    "ip6-hop-limit": number(IPv6, "hlim"), "ip6-saddr": text(IPv6, "src"), "ip6-daddr": text(IPv6, "dst"),
    "icmp-type": number(ICMP, "type"), "icmp-code": number(ICMP, "code"),
    "icmp6-type": number(ICMPv6EchoRequest, "type"), "icmp6-code": number(ICMPv6EchoRequest, "code"),
    "udp-sport": number(UDP, "sport"), "udp-dport": number(UDP, "dport"),
    "tcp-sport": number(TCP, "sport"), "tcp-dport": number(TCP, "dport"), "tcp-seq-num": number(TCP, "seq"),
    "tcp-ack-num": number(TCP, "ack"), "tcp-reserved": (TCP, reserved), "tcp-win": number(TCP, "window"),
    "tcp-urg-ptr": number(TCP, "urgptr"), "tcp-flags": part(TCP, "flags", 0, 8),
}
FIELDS |= {f"tcp-{name}": part(TCP, "flags", bit.bit_length() - 1, 1) for name, bit in FLAGS.items()}


def edited(packet, edits):
    """A copy of `packet` with the edits done and checksums left to scapy; edits of missing layers do nothing."""
    packet = packet.copy()
    for field, value in edits:
        layer, write = FIELDS[field]
        if layer in packet:
            write(packet[layer], value)
    return packet


def vector(name, edits, before, after):
    words = " ".join(f"mod {field} {value}" for field, value in edits)
    print(f"{name} | {words} | {bytes(before).hex()} | {bytes(after).hex()}")


def case(name, packet, *edits):
    """Whole packets: edit, let scapy compute."""
    vector(name, edits, packet, edited(packet, edits))


def case_fragments(name, packet, split, *edits):
    """Fragments of the packet become the fragments of the edited packet."""
    before, after = split(packet), split(edited(packet, edits))
    assert len(before) == len(after) > 1
    for i, (one, other) in enumerate(zip(before, after)):
        vector(f"{name}-{i}", edits, one, other)


def case_options(name, stack, targets, before, after):
    """TCP options before and after, over each of the stacks, with payloads of even, odd and no length."""
    for i, (below, payload) in enumerate(stack):
        packets = []
        for options in (before, after):
            tcp = TCP(sport=40000, dport=80, seq=0x01020304, flags="S", window=65535, options=options)
            packets.append(Ether(bytes(below / tcp / payload)))
        print(f"{name}-{i} | {targets} | {bytes(packets[0]).hex()} | {bytes(packets[1]).hex()}")


def split4(packet):
    """Ethernet frames of an IPv4 packet's fragments of 64 bytes of payload."""
    built = Ether(bytes(packet))  # checksums become part of the payload before it is cut
    return [ETHER / piece for piece in fragment(built[IP], fragsize=64)]


def split6(packet):
    """Ethernet frames of at most 200 bytes; `packet` has a fragment header where they shall have theirs."""
    built = Ether(bytes(packet))
    return [ETHER / piece for piece in fragment6(built[IPv6], 200)]


IP4 = IP(src="10.1.2.3", dst="198.18.0.7", id=0x1234, ttl=64)
IP6 = IPv6(src="2001:db8::1", dst="2001:db8:ffff::2", hlim=64, fl=0x12345, tc=0x28)
TCP_ = TCP(sport=40000, dport=80, seq=0x01020304, ack=0xFFFEFDFC, flags="PA", window=65535,
           options=[("MSS", 1460), ("NOP", None), ("WScale", 7), ("Timestamp", (1, 2)), ("NOP", None), ("NOP", None)])
UDP_ = UDP(sport=5353, dport=53)
DATA = Raw(b"The quick brown fox!?")  # an odd number of bytes
OPTIONS = [IPOption_RR(length=11, pointer=4, routers=["0.0.0.0", "1.2.3.4"]), IPOption_NOP()]
HOP = IPv6ExtHdrHopByHop(options=[PadN(optdata=b"\0" * 4)])
DEST = IPv6ExtHdrDestOpt(options=[PadN(optdata=b"\1" * 12)])

NAT4 = [("ip-saddr", "203.0.113.9"), ("ip-daddr", "255.255.255.255"), ("tcp-sport", "1024"), ("tcp-dport", "443"),
        ("udp-sport", "1024"), ("udp-dport", "443"), ("icmp-code", "7")]
NAT6 = [("ip6-saddr", "fe80::ffff"), ("ip6-daddr", "::"), ("tcp-sport", "1024"), ("tcp-dport", "443"),
        ("udp-sport", "1024"), ("udp-dport", "443"), ("icmp6-code", "7")]


def single_fields():
    """Every field that can be written, alone, to its extremes."""
    tcp, tcp6 = ETHER / IP4 / TCP_ / DATA, ETHER / IP6 / TCP_ / DATA
    for field, most in [("ip-dscp", 63), ("ip-ecn", 3), ("ip-id", 65535), ("ip-df", 1), ("ip-res", 1), ("ip-ttl", 255),
                        ("tcp-sport", 65535), ("tcp-dport", 65535), ("tcp-seq-num", 0xFFFFFFFF),
                        ("tcp-ack-num", 0xFFFFFFFF), ("tcp-reserved", 15), ("tcp-flags", 255), ("tcp-win", 65535),
                        ("tcp-urg-ptr", 65535)] + [(f"tcp-{name}", 1) for name in FLAGS]:
        case(field, tcp, (field, "0"))
        case(field, tcp, (field, str(most)))
        case(field, tcp6, (field, hex(most)))
    for address in ["0.0.0.0", "255.255.255.255", "10.1.2.3", "192.0.2.200"]:
        case("ip-saddr", tcp, ("ip-saddr", address))
        case("ip-daddr", ETHER / IP4 / UDP_ / DATA, ("ip-daddr", address))
    for field, most in [("ip6-traffic-class", 255), ("ip6-flow-label", 0xFFFFF), ("ip6-hop-limit", 255)]:
        case(field, tcp6, (field, "0"))
        case(field, tcp6, (field, str(most)))
    for address in ["::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "2001:db8::1", "fe80::1:2:3"]:
        case("ip6-saddr", tcp6, ("ip6-saddr", address))
        case("ip6-daddr", ETHER / IP6 / UDP_ / DATA, ("ip6-daddr", address))
    for field in ["udp-sport", "udp-dport"]:
        for value in ["0", "65535", "53"]:
            case(field, ETHER / IP4 / UDP_ / DATA, (field, value))
            case(field, ETHER / IP6 / UDP_ / DATA, (field, value))
    for field, values in [("type", ["0", "16"]), ("code", ["3", "255"])]:  # types whose layout in scapy is echo's
        for value in values:
            case(f"icmp-{field}", ETHER / IP4 / ICMP(type=8, id=7, seq=1) / DATA, (f"icmp-{field}", value))
            case(f"icmp6-{field}", ETHER / IP6 / ICMPv6EchoRequest(id=7, seq=1) / DATA, (f"icmp6-{field}", value))


def stacks():
    """Everything that may stand in front of, or between, the headers that are edited."""
    tagged = [
        ("vlan", ETHER / Dot1Q(vlan=7)), ("qinq", ETHER / Dot1AD(vlan=7) / Dot1Q(vlan=9)),
        ("four-tags", ETHER / Dot1AD(vlan=1) / Dot1Q(vlan=2) / Dot1Q(vlan=3) / Dot1Q(vlan=4)),
    ]
    icmp, icmp6 = ICMP(type=8, id=7, seq=1), ICMPv6EchoRequest(id=7, seq=1)
    for name, ether in tagged:
        for inner, transport in [("tcp", TCP_), ("udp", UDP_), ("icmp", icmp)]:
            case(f"{name}-{inner}", ether / IP4 / transport / DATA, *NAT4)
        for inner, transport in [("tcp6", TCP_), ("udp6", UDP_), ("icmp6", icmp6)]:
            case(f"{name}-{inner}", ether / IP6 / transport / DATA, *NAT6)
    with_options = copy.deepcopy(IP4)
    with_options.options = OPTIONS
    for inner, transport in [("tcp", TCP_), ("udp", UDP_), ("icmp", icmp)]:
        case(f"options-{inner}", ETHER / with_options / transport / DATA, *NAT4)
        case(f"vlan-options-{inner}", ETHER / Dot1Q(vlan=7) / with_options / transport / DATA, *NAT4)
    chains = [
        ("hop", IP6 / HOP), ("destination", IP6 / DEST), ("hop-destination", IP6 / HOP / DEST),
        ("atomic-fragment", IP6 / IPv6ExtHdrFragment(id=9)),
        ("routed-done", IP6 / IPv6ExtHdrRouting(addresses=["2001:db8::77"], segleft=0)),
        ("routed", IP6 / IPv6ExtHdrRouting(addresses=["2001:db8::77", "2001:db8::88"], segleft=2)),
        ("hop-routed-destination", IP6 / HOP / IPv6ExtHdrRouting(addresses=["2001:db8::77"], segleft=1) / DEST),
        ("segment-routed", IP6 / IPv6ExtHdrSegmentRouting(addresses=["2001:db8::77", "2001:db8::88"], segleft=1)),
    ]
    for name, chain in chains:
        for inner, transport in [("tcp", TCP_), ("udp", UDP_), ("icmp6", icmp6)]:
            case(f"{name}-{inner}", ETHER / chain / transport / DATA, *NAT6)


def zero_checksums():
    """UDP without a checksum, and checksums that come to zero."""
    case("udp-no-checksum", ETHER / IP4 / UDP(sport=1, dport=2, chksum=0) / DATA, *NAT4)
    case("udp6-no-checksum", ETHER / IP6 / UDP(sport=1, dport=2, chksum=0) / DATA, *NAT6)
    for name, transport, checksum in [("udp", UDP_, UDP), ("tcp", TCP_, TCP)]:
        packet = ETHER / IP4 / transport / DATA
        found = 0
        for port in range(65536):
            after = Ether(bytes(edited(packet, [(f"{name}-sport", str(port))])))
            if after[checksum].chksum in (0, 0xFFFF):
                case(f"{name}-comes-to-zero", packet, (f"{name}-sport", str(port)))
                case(f"{name}-was-zero", edited(packet, [(f"{name}-sport", str(port))]), (f"{name}-dport", "9"))
                found += 1
        assert found
    # An echo reply of zeros: the only sum of zero there is, and the only checksum of 0xffff.
    zeros = ETHER / IP4 / ICMP(type=8, code=0, id=0, seq=0) / Raw(b"\0" * 8)
    case("icmp-comes-to-zeros", zeros, ("icmp-type", "0"))
    case("icmp-was-zeros", edited(zeros, [("icmp-type", "0")]), ("icmp-type", "8"))


def fragments():
    payload = Raw(bytes(range(256)))
    for name, transport in [("tcp", TCP_), ("udp", UDP_), ("icmp", ICMP(type=8, id=7, seq=1))]:
        case_fragments(f"fragment-{name}", ETHER / IP4 / transport / payload, split4, *NAT4)
    for name, transport in [("tcp6", TCP_), ("udp6", UDP_)]:
        packet = ETHER / IP6 / IPv6ExtHdrFragment(id=0x55AA) / transport / payload
        case_fragments(f"fragment-{name}", packet, split6, *NAT6)


def options():
    """TCP options written, added, stripped."""
    with_options = copy.deepcopy(IP4)
    with_options.options = OPTIONS
    stack = [
        (ETHER / IP4, DATA), (ETHER / Dot1Q(vlan=7) / with_options, Raw(bytes(range(256)) * 5)), (ETHER / IP6, Raw()),
        (ETHER / IP6 / HOP / IPv6ExtHdrRouting(addresses=["2001:db8::77", "2001:db8::88"], segleft=2) / DEST, DATA),
    ]
    nop, mss, scale, sackp, stamp = ("NOP", None), ("MSS", 1460), ("WScale", 7), ("SAckOK", b""), ("Timestamp", (9, 7))
    linux = [mss, sackp, stamp, nop, scale]
    case_options("clamp", stack, "mod tcp-opt-mss 1400", linux, [("MSS", 1400), sackp, stamp, nop, scale])
    case_options("clamp-odd", stack, "mod tcp-opt-mss 536", [nop, mss, nop], [nop, ("MSS", 536), nop])
    case_options("scale-odd", stack, "mod tcp-opt-wscale 14", [scale, mss], [("WScale", 14), mss])
    case_options("stamp-odd", stack, "mod tcp-opt-timestamp 0x0102030405060708", [nop, stamp, nop],
                 [nop, ("Timestamp", (0x01020304, 0x05060708)), nop])
    case_options("absent", stack, "mod tcp-opt-mss 1400 strip tcp-opt-wscale", [nop, nop, stamp], [nop, nop, stamp])
    case_options("add", stack, "add tcp-opt-mss 1460", [], [mss])
    case_options("add-behind", stack, "add tcp-opt-wscale 7 add tcp-opt-sackp", [mss, nop, nop, stamp],
                 [mss, nop, nop, stamp, scale, sackp])
    case_options("add-present", stack, "add tcp-opt-mss 1400", linux, [("MSS", 1400), sackp, stamp, nop, scale])
    case_options("strip-all", stack, "strip all", linux, [])
    case_options("strip-one", stack, "strip tcp-opt-timestamp", linux, [mss, sackp, nop, scale])
    case_options("strip-padding", stack, "strip tcp-opt-wscale", linux, [mss, sackp, stamp])
    case_options("whitelist", stack, "strip ! tcp-opt-mss strip ! tcp-opt-wscale", linux, [mss, nop, scale])
    case_options("longer", stack, "mod tcp-opt-fast-open 0x0011223344556677", [mss, (34, b"")],
                 [mss, (34, bytes.fromhex("0011223344556677"))])
    case_options("shorter", stack, "mod tcp-opt 253 0x01", [mss, (253, b"abcdefghi"), nop, nop, stamp],
                 [mss, (253, b"\1"), nop, nop, stamp])
    case_options("forty", stack, "add tcp-opt 253 0x" + "5a" * 18, linux, linux + [(253, b"Z" * 18)])
    case_options("mixed", stack, "mod tcp-win 65535 strip tcp-opt-sackp mod tcp-opt-mss 1 add tcp-opt 254 0xab", linux,
                 [("MSS", 1), stamp, nop, scale, (254, b"\xab")])


def untouched():
    """Fields that the packet does not have."""
    case("absent-ip6", ETHER / IP4 / TCP_ / DATA, *NAT6[:2], ("udp-dport", "1"), ("icmp-type", "1"))
    case("absent-ip4", ETHER / IP6 / UDP_ / DATA, *NAT4[:2], ("tcp-dport", "1"), ("tcp-syn", "1"))
    case("no-transport", ETHER / IP(src="10.0.0.1", dst="10.0.0.2", proto=132) / DATA, *NAT4)
    case("not-ip", ETHER / ARP(psrc="10.0.0.1", pdst="10.0.0.2", hwsrc="02:00:00:00:00:01"), *NAT4)
    case("icmp6-error", ETHER / IP6 / ICMPv6DestUnreach() / DATA, ("ip6-saddr", "fe80::1"))


def main():
    print(f"# Made by make.py with scapy {scapy.VERSION}; see there.")
    single_fields()
    stacks()
    zero_checksums()
    fragments()
    options()
    untouched()


if __name__ == "__main__":
    sys.exit(main())
