"""One case per field: a packet that has the value asked for, the same packet with another one.

The values are set with scapy's own names for the fields, so scapy's reading of the RFCs, not mmb's, decides
where a field is and what a packet looks like after an edit.
"""

import dataclasses

from lab import frames
from lab.frames import ICMP, IP, TCP, UDP, ICMPv6EchoRequest, IPOption, IPv6


@dataclasses.dataclass(frozen=True)
class Case:
    field: str  # as mmb calls it
    value: str  # as a rule asks for it
    base: object  # () -> packet
    layer: type  # scapy's layer that has the field
    having: dict  # scapy's fields that give the value
    lacking: dict  # scapy's fields that give another value
    writable: bool = True

    def __str__(self):
        return self.field

    def packets(self):
        """(a packet with the value, the same packet with the other value)"""
        base = self.base()
        return frames.changed(base, self.layer, **self.having), frames.changed(base, self.layer, **self.lacking)


def udp4():
    return frames.ether() / frames.ip4(id=7) / UDP(sport=1000, dport=2000) / frames.payload()


def tcp4():
    return frames.ether() / frames.ip4(id=7) / TCP(sport=1000, dport=2000, seq=1, ack=2, flags="A") / frames.payload()


def icmp4():
    return frames.ether() / frames.ip4(id=7) / ICMP(type=0, id=9, seq=1) / frames.payload()


def udp6():
    return frames.ether() / frames.ip6() / UDP(sport=1000, dport=2000) / frames.payload()


def tcp6():
    return frames.ether() / frames.ip6() / TCP(sport=1000, dport=2000, seq=1, ack=2, flags="A") / frames.payload()


def icmp6():
    return frames.ether() / frames.ip6() / ICMPv6EchoRequest(id=9, seq=1) / frames.payload()


def readable(*arguments):
    return Case(*arguments, writable=False)


def tcp_flag(field, letter):
    others = "PA".replace(letter, "")
    return Case(field, "1", tcp4, TCP, {"flags": others + letter}, {"flags": others})


NOPS = [IPOption(b"\x01\x01\x01\x00")]

CASES = [
    Case("ip-dscp", "46", udp4, IP, {"tos": 46 << 2 | 1}, {"tos": 10 << 2 | 1}),
    Case("ip-ecn", "2", tcp4, IP, {"tos": 46 << 2 | 2}, {"tos": 46 << 2 | 1}),
    Case("ip-id", "0x1234", udp4, IP, {"id": 0x1234}, {"id": 0x1235}),
    Case("ip-res", "1", udp4, IP, {"flags": "evil"}, {"flags": 0}),
    Case("ip-df", "1", udp4, IP, {"flags": "DF"}, {"flags": 0}),
    Case("ip-ttl", "9", icmp4, IP, {"ttl": 9}, {"ttl": 64}),
    Case("ip-saddr", "10.77.9.9", tcp4, IP, {"src": "10.77.9.9"}, {"src": "10.77.0.1"}),
    Case("ip-daddr", "192.0.2.255", udp4, IP, {"dst": "192.0.2.255"}, {"dst": "10.77.0.2"}),
    readable("ip-ihl", "6", udp4, IP, {"options": NOPS}, {"options": []}),
    readable("ip-len", "60", udp4, IP, {"len": 60}, {"len": 59}),
    readable("ip-flags", "2", udp4, IP, {"flags": "DF"}, {"flags": "evil"}),
    readable("ip-mf", "1", udp4, IP, {"flags": "MF"}, {"flags": 0}),
    readable("ip-frag-offset", "3", udp4, IP, {"frag": 3}, {"frag": 4}),
    readable("ip-proto", "sctp", udp4, IP, {"proto": 132}, {"proto": 17}),
    Case("ip6-traffic-class", "0xb9", udp6, IPv6, {"tc": 0xB9}, {"tc": 0xB8}),
    Case("ip6-flow-label", "0xabcde", tcp6, IPv6, {"fl": 0xABCDE}, {"fl": 0xABCDF}),
    Case("ip6-hop-limit", "9", icmp6, IPv6, {"hlim": 9}, {"hlim": 64}),
    Case("ip6-saddr", "2001:db8::1", tcp6, IPv6, {"src": "2001:db8::1"}, {"src": "2001:db8::2"}),
    Case("ip6-daddr", "2001:db8:ffff::1", icmp6, IPv6, {"dst": "2001:db8:ffff::1"}, {"dst": "fd77::2"}),
    readable("ip6-len", "40", udp6, IPv6, {"plen": 40}, {"plen": 39}),
    readable("ip6-next", "132", udp6, IPv6, {"nh": 132}, {"nh": 17}),
    Case("icmp-type", "8", icmp4, ICMP, {"type": 8}, {"type": 0}),
    Case("icmp-code", "3", icmp4, ICMP, {"code": 3}, {"code": 0}),
    Case("icmp6-type", "129", icmp6, ICMPv6EchoRequest, {"type": 129}, {"type": 128}),
    Case("icmp6-code", "3", icmp6, ICMPv6EchoRequest, {"code": 3}, {"code": 0}),
    Case("udp-sport", "53", udp4, UDP, {"sport": 53}, {"sport": 54}),
    Case("udp-dport", "65535", udp6, UDP, {"dport": 65535}, {"dport": 65534}),
    readable("udp-len", "39", udp4, UDP, {"len": 39}, {"len": 40}),
    Case("tcp-sport", "8080", tcp4, TCP, {"sport": 8080}, {"sport": 80}),
    Case("tcp-dport", "443", tcp6, TCP, {"dport": 443}, {"dport": 80}),
    Case("tcp-seq-num", "0xfffffffe", tcp4, TCP, {"seq": 0xFFFFFFFE}, {"seq": 1}),
    Case("tcp-ack-num", "305419896", tcp4, TCP, {"ack": 0x12345678}, {"ack": 0}),
    Case("tcp-reserved", "2", tcp4, TCP, {"reserved": 1}, {"reserved": 0}),
    Case("tcp-urg-ptr", "77", tcp4, TCP, {"urgptr": 77}, {"urgptr": 78}),
    Case("tcp-win", "1024", tcp6, TCP, {"window": 1024}, {"window": 1025}),
    Case("tcp-flags", "0x12", tcp4, TCP, {"flags": "SA"}, {"flags": "S"}),
    readable("tcp-offset", "6", tcp4, TCP, {"options": [("NOP", None)] * 4}, {"options": []}),
    *(
        tcp_flag(f"tcp-{name}", letter)
        for name, letter in zip(("cwr", "ece", "urg", "ack", "push", "rst", "syn", "fin"), "CEUAPRSF", strict=True)
    ),
]

# Fields that say "this very bit" or "this code point" when they stand alone, with the case that has it.
BITS = {"ip-res", "ip-df", "ip-mf"} | {
    f"tcp-{name}" for name in ("cwr", "ece", "urg", "ack", "push", "rst", "syn", "fin")
}
CHECKSUMS = [
    ("ip-checksum", udp4, IP),
    ("icmp-checksum", icmp4, ICMP),
    ("udp-checksum", udp6, UDP),
    ("tcp-checksum", tcp4, TCP),
]
