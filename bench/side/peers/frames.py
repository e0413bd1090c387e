"""The frames that peers with a packet source of their own are given: a capture of flows, one frame each."""

import ipaddress
import random
import struct

# A source like those of the kernel's frames (kernel/frame.h), and where all flows go to.
FIRST = int(ipaddress.ip_address("10.1.1.0"))
SERVER, SERVER_PORT = ipaddress.ip_address("10.2.0.2").packed, 8192
ROUTER_MAC, HOST_MAC = bytes.fromhex("020000000001"), bytes.fromhex("020000000009")
# What source NAT puts in place of the sources.
OUTSIDE = "200.0.0.1"
SIZE = 64


def flow(number):
    """Source address and port of a flow."""
    return (FIRST + (number >> 4)).to_bytes(4, "big"), 1024 + (number * 40503 & 0x7FFF)


# Flags of TCP segments.
SYN, SYN_ACK, ACK = 0x02, 0x12, 0x10


def folded(words):
    """The complement of the ones' complement sum of 16-bit words."""
    total = sum(words)
    total = (total & 0xFFFF) + (total >> 16)
    return ~(total + (total >> 16)) & 0xFFFF


def frame(source, sport, destination, dport, flags=None):
    """A datagram in a frame, whose checksum, which is optional, is left out; with flags, a segment of TCP."""
    proto = 17 if flags is None else 6
    ip = struct.pack("!BBHHHBBH4s4s", 0x45, 0, SIZE - 14, 0, 0x4000, 64, proto, 0, source, destination)
    ip = ip[:10] + struct.pack("!H", folded(struct.unpack("!10H", ip))) + ip[12:]
    if flags is None:
        transport = struct.pack("!HHHH", sport, dport, SIZE - 34, 0)
    else:
        # Numbers begin at 0; a SYN has the first.
        transport = segment(source, sport, destination, dport, flags, int(flags == ACK), SIZE - 34)
    return (ROUTER_MAC + HOST_MAC + b"\x08\x00" + ip + transport).ljust(SIZE, b"\0")


def segment(source, sport, destination, dport, flags, sequence, length=20):
    """A segment of TCP of `length` bytes, the header included. It acknowledges the first number, if it is no SYN."""
    header = struct.pack("!HHIIBBHHH", sport, dport, sequence, int(flags != SYN), 0x50, flags, 0xFFFF, 0, 0)
    text = header.ljust(length, b"\0")
    pseudo = struct.pack("!4s4sHH", source, destination, 6, len(text))
    checksum = folded(struct.unpack(f"!{(len(pseudo) + len(text)) // 2}H", pseudo + text))
    return text[:16] + struct.pack("!H", checksum) + text[18:]


def shuffled(flows):
    """The numbers of the flows in the order of their frames, which no cache and no prefetcher can foresee: the same each time."""
    numbers = list(range(flows))
    random.Random(1).shuffle(numbers)
    return numbers


def requests(flows, flags=None):
    """A frame of each flow."""
    for number in shuffled(flows):
        source, port = flow(number)
        yield frame(source, port, SERVER, SERVER_PORT, flags)


def answers(flows, hidden=None, flags=None):
    """The server's answers to them, or to the address behind which the sources are hidden."""
    for number in shuffled(flows):
        source, port = flow(number)
        yield frame(SERVER, SERVER_PORT, ipaddress.ip_address(hidden).packed if hidden else source, port, flags)


def both(flows, hidden=None):
    """Each request with its answer behind it."""
    for pair in zip(requests(flows), answers(flows, hidden)):
        yield from pair


def capture(path, all_frames):
    """Writes a capture."""
    with path.open("wb") as file:
        file.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1))
        for one in all_frames:
            file.write(struct.pack("<IIII", 0, 0, len(one), len(one)) + one)
