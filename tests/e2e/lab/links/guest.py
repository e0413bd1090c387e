"""A virtual machine's end of a tap: it gives the kernel frames with virtio-net headers of its own choice."""

import fcntl
import os
import struct

# linux/if_tun.h.
TUNSETIFF, TUNSETOFFLOAD = 0x400454CA, 0x400454D0
IFF_TAP, IFF_NO_PI, IFF_VNET_HDR = 0x0002, 0x1000, 0x4000
# TUN_F_: checksums, TCP over IPv4 and IPv6, ECN, USO of both.
OFFLOADS = 0x01 | 0x02 | 0x04 | 0x08 | 0x20 | 0x40
# struct virtio_net_hdr: flags, kind, length of headers, bytes of a segment, start and offset of the checksum.
HEADER = struct.Struct("=BBHHHH")
NEEDS_CHECKSUM = 1
# Kinds of large frames: TCP over IPv4 and IPv6, UDP in fragments (UFO), UDP in datagrams (USO).
TCP4, UFO, TCP6, USO = 1, 3, 4, 5


class Guest:
    """The tap `interface` in a namespace, which is up."""

    def __init__(self, namespace, interface):
        with namespace.entered():
            self.fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
            request = struct.pack("16sH22x", interface.encode(), IFF_TAP | IFF_NO_PI | IFF_VNET_HDR)
            fcntl.ioctl(self.fd, TUNSETIFF, request)
            fcntl.ioctl(self.fd, TUNSETOFFLOAD, OFFLOADS)
        namespace.run("ip", "link", "set", interface, "up")

    def send(self, frame, flags=0, kind=0, headers=0, size=0, start=0, offset=0):
        """Sends a frame. False: the kernel refuses the header."""
        try:
            os.write(self.fd, HEADER.pack(flags, kind, headers, size, start, offset) + bytes(frame))
        except OSError:
            return False
        return True

    def close(self):
        os.close(self.fd)
