"""TCP options as bytes, and segments that carry them exactly as they are given."""

import struct

from lab import frames
from lab.frames import TCP, Raw

NOP = b"\x01"
EOL = b"\x00"
SACKP = b"\x04\x02"


def option(kind, data=b""):
    return bytes([kind, len(data) + 2]) + data


def mss(value):
    return option(2, struct.pack("!H", value))


def wscale(shift):
    return option(3, bytes([shift]))


def timestamp(value, echo):
    return option(8, struct.pack("!II", value, echo))


def sack(*edges):
    return option(5, struct.pack(f"!{len(edges)}I", *edges))


def padded(options):
    return options + bytes(-len(options) % 4)


# What a Linux client sends first.
SYN_OPTIONS = mss(1460) + SACKP + timestamp(0x01020304, 0) + NOP + wscale(7)


def segment(options=b"", ip=None, payload=None, **tcp):
    """A frame with a TCP segment whose option area is `options`, padded with zeros; scapy computes lengths and
    checksums. Without `payload`, it carries bytes that no other frame has."""
    area = padded(options)
    header = TCP(**{"sport": 40000, "dport": 80, "flags": "S", "seq": 1, **tcp}, dataofs=5 + len(area) // 4)
    body = payload if payload is not None else frames.payload()
    return frames.ether() / (ip if ip is not None else frames.ip4()) / header / Raw(area + bytes(body))


def pair(before, after, **fields):
    """The same segment with two option areas, as bytes; other fields of the second can be given as `after_…`."""
    payload = bytes(frames.payload())
    later = {name.removeprefix("after_"): value for name, value in fields.items() if name.startswith("after_")}
    fields = {name: value for name, value in fields.items() if not name.startswith("after_")}
    ip = fields.pop("ip", frames.ip4)
    after_ip = later.pop("ip", ip)
    return (
        bytes(segment(before, ip=ip(), payload=payload, **fields)),
        bytes(segment(after, ip=after_ip(), payload=payload, **{**fields, **later})),
    )
