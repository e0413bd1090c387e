"""Frames made with scapy, and scapy's verification of checksums."""

import itertools
import logging
import struct

logging.getLogger("scapy").setLevel(logging.ERROR)

# The layers that tests are made of come from here, so that scapy is set up before they are.
from scapy.layers.inet import ICMP, IP, TCP, UDP, IPOption  # noqa: E402
from scapy.layers.inet6 import (  # noqa: E402
    ICMPv6EchoRequest,
    IPv6,
    IPv6ExtHdrDestOpt,
    IPv6ExtHdrFragment,
    IPv6ExtHdrHopByHop,
    IPv6ExtHdrRouting,
)
from scapy.layers.l2 import ARP, LLC, Dot1AD, Dot1Q, Dot3, Ether  # noqa: E402
from scapy.packet import Raw  # noqa: E402

from .netns import CLIENT4, CLIENT6, CLIENT_MAC, SERVER4, SERVER6  # noqa: E402

_serial = itertools.count(1)
MARK = b"mmb-e2e:"
# An ethertype reserved for experiments (IEEE 802): no rule matches it and no kernel answers it.
SENTINEL_TYPE = 0x88B5


def ether(**fields):
    """An Ethernet header from the client to an unused address: the kernels of the end points do not answer.
    """
    return Ether(**{"src": CLIENT_MAC, "dst": "02:00:00:00:00:ff", **fields})


def ip4(**fields):
    return IP(**{"src": CLIENT4, "dst": SERVER4, **fields})


def ip6(**fields):
    return IPv6(**{"src": CLIENT6, "dst": SERVER6, **fields})


def payload(size=32):
    """A payload that is unique in this run."""
    mark = MARK + struct.pack("!Q", next(_serial))
    return Raw((mark * (size // len(mark) + 1))[: max(size, len(mark))])


def sentinel():
    """A frame that passes any policy; when it has arrived, no earlier frame is in flight."""
    return bytes(ether() / b"")[:12] + struct.pack("!H", SENTINEL_TYPE) + bytes(payload(46))


def is_ours(frame):
    """Whether a frame comes from a test, not from a kernel."""
    return MARK in frame


def serial(frame):
    """The serial number in a frame's payload; -1 if it is truncated."""
    number = frame[frame.index(MARK) + len(MARK) :][:8]
    return struct.unpack("!Q", number)[0] if len(number) == 8 else -1


def rebuilt(packet):
    """The same packet with every length and checksum computed anew by scapy, as bytes."""
    packet = packet.copy()
    layer = packet
    while layer:
        for name in ("chksum", "cksum"):
            if name in layer.fields:
                layer.delfieldval(name)
        layer = layer.payload
    return bytes(packet)


def wrong_checksums(frame):
    """The checksums of a frame that scapy computes differently; empty if all are right."""
    packet = Ether(frame)
    fresh = Ether(rebuilt(packet))
    wrong = []
    layer, right = packet, fresh
    while layer:
        for name in ("chksum", "cksum"):
            seen, expected = layer.fields.get(name), right.fields.get(name)
            if seen != expected:
                wrong.append(f"{layer.name} checksum {seen:#06x}, right is {expected:#06x}")
        layer, right = layer.payload, right.payload
    return wrong


def changed(packet, layer, **fields):
    """The expected bytes of `packet` after an edit of `layer`: scapy computes lengths and checksums."""
    packet = packet.copy()
    for name, value in fields.items():
        setattr(packet[layer], name, value)
    return rebuilt(packet)
