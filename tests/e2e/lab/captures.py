"""Capture files written byte by byte, in all formats; scapy reads them."""

import contextlib
import struct

from scapy.utils import RawPcapReader

ETHERNET = 1
START = 1_700_000_000_000_000_000  # nanoseconds


def pcap(records, nanoseconds=False, order="<", linktype=ETHERNET, snaplen=262144):
    """A pcap file of (nanosecond timestamp, frame) records, as bytes."""
    unit = 1 if nanoseconds else 1000
    magic = 0xA1B23C4D if nanoseconds else 0xA1B2C3D4
    parts = [struct.pack(order + "IHHiIII", magic, 2, 4, 0, 0, snaplen, linktype)]
    for stamp, frame in records:
        frame = bytes(frame)
        parts.append(
            struct.pack(order + "IIII", stamp // 10**9, stamp % 10**9 // unit, min(len(frame), snaplen), len(frame))
        )
        parts.append(frame[:snaplen])
    return b"".join(parts)


def pcapng(records, order="<", resolution=9, linktype=ETHERNET, names=(None,)):
    """A pcapng file with one section; timestamps in units of 10^-resolution seconds. Records have the name of their
    interface behind the frame where interfaces have names.
    """

    def block(kind, body):
        body += bytes(-len(body) % 4)
        length = struct.pack(order + "I", len(body) + 12)
        return struct.pack(order + "I", kind) + length + body + length

    def option(code, value):
        return struct.pack(order + "HH", code, len(value)) + value + bytes(-len(value) % 4)

    parts = [block(0x0A0D0D0A, struct.pack(order + "IHHq", 0x1A2B3C4D, 1, 0, -1))]
    for name in names:
        # Option 2, if_name; option 9, if_tsresol; option 0 ends the list.
        options = (b"" if name is None else option(2, name.encode())) + option(9, bytes([resolution])) + option(0, b"")
        parts.append(block(1, struct.pack(order + "HHI", linktype, 0, 0) + options))
    for stamp, frame, *name in records:
        frame = bytes(frame)
        number = names.index(name[0]) if name else 0
        units = stamp // 10 ** (9 - resolution)
        words = struct.pack(order + "IIIII", number, units >> 32, units & 0xFFFFFFFF, len(frame), len(frame))
        parts.append(block(6, words + frame))
    return b"".join(parts)


def read(path):
    """The (nanosecond timestamp, frame) records of a pcap file, as scapy reads them."""
    with contextlib.closing(RawPcapReader(str(path))) as reader:
        unit = 1 if reader.nano else 1000
        return [(info.sec * 10**9 + info.usec * unit, frame) for frame, info in reader]
