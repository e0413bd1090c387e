#!/usr/bin/python3
"""Writes messages.txt: IPFIX messages as scapy builds them, in hexadecimal, one a line.

    /usr/bin/python3 crates/nf/src/functions/count/vectors/make.py > crates/nf/src/functions/count/vectors/messages.txt

Elements are named as scapy names them, which knows their numbers; records are laid out here, field by field.
"""

import ipaddress
import struct

import scapy
from scapy.layers import netflow
from scapy.layers.netflow import (
    NetflowFlowsetV9, NetflowHeader, NetflowHeaderV10, NetflowTemplateFieldV9, NetflowTemplateV9,
)

REVERSE = 29305
NAMES = {name: number for number, name in netflow.NetflowV910TemplateFieldTypes.items()}


def element(name, length, reverse=False):
    extra = {"enterpriseBit": 1, "enterpriseNumber": REVERSE} if reverse else {}
    return NetflowTemplateFieldV9(fieldType=NAMES[name], fieldLength=length, **extra)


def template(number, source, destination, length):
    counters = [("IN_PKTS", 8), ("IN_BYTES", 8), ("TCP_FLAGS", 2)]
    fields = [
        element("flowStartMilliseconds", 8), element("flowEndMilliseconds", 8), element(source, length),
        element(destination, length), element("L4_SRC_PORT", 2), element("L4_DST_PORT", 2), element("PROTOCOL", 1),
        element("flowEndReason", 1), element("biflowDirection", 1),
    ]
    fields += [element(*counter) for counter in counters] + [element(*counter, reverse=True) for counter in counters]
    return NetflowTemplateV9(templateID=number, fieldCount=len(fields), template_fields=fields)


def record(start, end, source, destination, ports, proto, reason, to, back):
    addresses = ipaddress.ip_address(source).packed + ipaddress.ip_address(destination).packed
    return (
        struct.pack("!QQ", start, end) + addresses + struct.pack("!HHBBB", *ports, proto, reason, 1)
        + struct.pack("!QQH", *to) + struct.pack("!QQH", *back)
    )


def data(number, *records):
    content = b"".join(records)
    padding = bytes(-len(content) % 4)
    return struct.pack("!HH", number, 4 + len(content) + len(padding)) + content + padding


def message(time, sequence, content):
    content = bytes(content)
    return bytes(NetflowHeader(version=10) / NetflowHeaderV10(
        length=16 + len(content), ExportTime=time, flowSequence=sequence, ObservationDomainID=0)) + content


NOW = 1767323045678
TEMPLATES = NetflowFlowsetV9(flowSetID=2, templates=[
    template(256, "IPV4_SRC_ADDR", "IPV4_DST_ADDR", 4), template(257, "IPV6_SRC_ADDR", "IPV6_DST_ADDR", 16)])
V6 = "2001:db8::1", "2001:db8:1:2:3:4:5:6"
V4 = "10.0.0.1", "192.0.2.200"
TCP = record(NOW - 5678, NOW - 1000, *V4, (40000, 443), 6, 3, (12, 1800, 0x1b), (10, 9000000000, 0x13))
DNS = record(NOW - 1000, NOW - 1000, *V6, (5000, 53), 17, 1, (1, 61, 0), (1, 250, 0))
ECHO = record(NOW - 60000, NOW - 1000, *V4, (0, 8 << 8), 1, 2, (2**32 - 1, 2**64 - 1, 0), (0, 0, 0))
TIME = 1767323046
MESSAGES = [
    message(TIME, 0, TEMPLATES),
    message(TIME, 0, data(256, TCP, ECHO) + data(257, DNS)),
    message(TIME, 3, data(257, DNS)),
    message(TIME + 60, 4, TEMPLATES),
]


def main():
    print(f"# Made by make.py with scapy {scapy.__version__}.")
    for m in MESSAGES:
        print(m.hex())


if __name__ == "__main__":
    main()
