"""The frames that peers with a packet source of their own are given: a capture of UDP flows, one frame each."""

import ipaddress
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


def frame(source, sport, destination, dport):
    """A datagram in a frame; its checksum, which is optional, is left out."""
    ip = struct.pack("!BBHHHBBH4s4s", 0x45, 0, SIZE - 14, 0, 0x4000, 64, 17, 0, source, destination)
    total = sum(struct.unpack("!10H", ip))
    total = (total & 0xFFFF) + (total >> 16)
    ip = ip[:10] + struct.pack("!H", ~(total + (total >> 16)) & 0xFFFF) + ip[12:]
    udp = struct.pack("!HHHH", sport, dport, SIZE - 34, 0)
    return (ROUTER_MAC + HOST_MAC + b"\x08\x00" + ip + udp).ljust(SIZE, b"\0")


def requests(flows):
    """A frame of each flow."""
    for number in range(flows):
        source, port = flow(number)
        yield frame(source, port, SERVER, SERVER_PORT)


def answers(flows, hidden=None):
    """The server's answers to them, or to the address behind which the sources are hidden."""
    for number in range(flows):
        source, port = flow(number)
        yield frame(SERVER, SERVER_PORT, ipaddress.ip_address(hidden).packed if hidden else source, port)


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
