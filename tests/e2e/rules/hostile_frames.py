"""Frames that lie: headers, lengths, fragments and options that receivers may read differently from a filter.

`cases(seed)` yields lists of frames, each a datagram that a real kernel may or may not accept. They are made of bytes by
hand: scapy is too slow for a million of them. A case has a serial number, which its datagram carries.
"""

import random
import socket
import struct

from lab.netns import CLIENT4, CLIENT6, CLIENT_MAC, SERVER4, SERVER6, SERVER_MAC

# What the rules of the test name, and what they do not.
BLOCKED_PORT, OPEN_PORT = 4444, 5555
BLOCKED4, BLOCKED6 = "10.77.0.66", "fd77::66"
BLOCKED_PROTO = 253

UDP, TCP, ICMP, ICMP6 = 17, 6, 1, 58
HOP, ROUTING, FRAGMENT, AUTHENTICATION, DESTINATION = 0, 43, 44, 51, 60
MARK = b"hostile:"
MACS = bytes.fromhex((SERVER_MAC + CLIENT_MAC).replace(":", ""))


def checksum(data):
    """RFC 1071."""
    if len(data) % 2:
        data += b"\0"
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    total = (total & 0xFFFF) + (total >> 16)
    total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def chance(rng, one_in):
    return rng.randrange(one_in) == 0


class Case:
    """The choices of one datagram."""

    def __init__(self, rng, serial):
        self.rng, self.serial = rng, serial
        self.six = chance(rng, 2)
        blocked_source, source = (BLOCKED6, CLIENT6) if self.six else (BLOCKED4, CLIENT4)
        self.kind = rng.choice((UDP, UDP, TCP, TCP, ICMP, BLOCKED_PROTO, "source"))
        family = socket.AF_INET6 if self.six else socket.AF_INET
        own = SERVER6 if self.six else SERVER4
        loopback = "::1" if self.six else "127.0.0.1"
        if self.kind == "source":
            source = blocked_source
        elif chance(rng, 30):
            source = rng.choice((own, loopback))
        self.source = socket.inet_pton(family, source)
        self.destination = socket.inet_pton(family, own)
        if self.six and self.kind == BLOCKED_PROTO:
            self.kind = ICMP
        kinds = {ICMP: ICMP6 if self.six else ICMP, "source": UDP}
        self.proto = kinds.get(self.kind, self.kind)
        self.port = OPEN_PORT if self.kind == "source" else BLOCKED_PORT

    def frames(self):
        rng = self.rng
        body = self.transport(self.port)
        if self.six:
            packets = self.ip6(body)
        else:
            packets = self.ip4(body)
        if chance(rng, 12):
            packets = [self.flipped(packet) for packet in packets]
        return [self.link(packet) for packet in packets]

    # Link layer

    def link(self, packet):
        rng = self.rng
        tags = b""
        if chance(rng, 8):
            depth = rng.choice((1, 1, 2, 3, 4, 5, 6))
            tag = rng.choice((0x8100, 0x8100, 0x88A8))
            tags = struct.pack("!HH", tag, rng.choice((0, 0, 0, 0xE000, 5))) * depth
        kind = b"\x86\xdd" if self.six else b"\x08\x00"
        if chance(rng, 60):
            kind = rng.choice((b"\x08\x00", b"\x86\xdd"))
        if chance(rng, 60):
            snap = b"\xaa\xaa\x03\0\0\0" + kind + packet
            return MACS + tags + struct.pack("!H", len(snap)) + snap
        padding = bytes(rng.choice((0, 0, 0, 6, 40)))
        return MACS + tags + kind + packet + padding

    def flipped(self, packet):
        """One or two bytes changed, mostly in the headers; sometimes the IPv4 checksum follows."""
        packet = bytearray(packet)
        for _ in range(self.rng.choice((1, 1, 2))):
            packet[self.rng.randrange(min(len(packet), 80))] = self.rng.randrange(256)
        if not self.six and len(packet) >= 20 and not chance(self.rng, 4):
            fix_ip4(packet)
        return bytes(packet)

    # Transport layer

    def pseudo(self, length):
        if self.six:
            return self.source + self.destination + struct.pack("!II", length, self.proto)
        return self.source + self.destination + struct.pack("!HH", self.proto, length)

    def transport(self, port):
        rng = self.rng
        data = MARK + struct.pack("!I", self.serial) * rng.choice((1, 1, 3, 10, 40))
        source_port = 1024 + self.serial % 60000
        if self.proto == UDP:
            length = 8 + len(data)
            if chance(rng, 4):
                length = rng.choice((0, 1, 7, 8, 9, length - 1, length + 1, length + 8, 0xFFFF))
            header = struct.pack("!HHHH", source_port, port, length, 0)
            if not self.six and chance(rng, 4):
                return header + data
            # Linux sums as many bytes as the length says.
            covered = (header + data)[: length or None]
            value = checksum(self.pseudo(length or len(header + data)) + covered) or 0xFFFF
            return header[:6] + struct.pack("!H", value) + data
        if self.proto == TCP:
            options = rng.choice((b"", b"\2\4\5\xb4", b"\1" * 20, b"\2\4\5\xb4" + b"\1" * 36))
            words = 5 + len(options) // 4
            if chance(rng, 5):
                words = rng.choice((0, 4, 5, min(words + 1, 15), 15))
            flags = rng.choice((2, 2, 2, 0x12, 0x10, 0xC2, 0, 0x29))
            header = struct.pack("!HHIIBBHHH", source_port, port, self.serial, 0, words << 4, flags, 1024, 0, 0) + options
            segment = header + (data if chance(rng, 2) else b"")
            value = checksum(self.pseudo(len(segment)) + segment)
            return segment[:16] + struct.pack("!H", value) + segment[18:]
        if self.proto in (ICMP, ICMP6):
            kind = 128 if self.six else 8
            message = struct.pack("!BBHHH", kind, 0, 0, self.serial & 0xFFFF, self.serial >> 16) + data
            if chance(rng, 8):
                message = message[: rng.randrange(1, 12)]
            value = checksum((self.pseudo(len(message)) if self.six else b"") + message)
            return message[:2] + struct.pack("!H", value) + message[4:]
        return data

    # IPv4

    def ip4(self, body):
        rng = self.rng
        if chance(rng, 3):
            packets = [self.packet4(part, offset, more) for part, offset, more in self.parts(body)]
        else:
            packets = [self.packet4(body, 0, False)]
        return packets

    def packet4(self, data, offset, more):
        rng = self.rng
        options = b""
        if chance(rng, 5):
            options = rng.choice(
                (b"\1\1\1\0", b"\x07\x0b\x04" + bytes(9), b"\x94\4\0\0", b"\x83\x07\x04" + self.destination + b"\0")
            )
        total = 20 + len(options) + len(data)
        if chance(rng, 12):
            total += rng.choice((-8, -1, 1, 8, 200))
        words = 5 + len(options) // 4
        if chance(rng, 30):
            words = rng.choice((0, 4, 5, 6, 15))
        control = offset | (0x2000 if more else 0) | rng.choice((0, 0, 0x4000, 0x8000))
        version = 6 if chance(rng, 60) else 4
        header = bytearray(
            struct.pack(
                "!BBHHHBBH4s4s",
                version << 4 | words,
                rng.choice((0, 0, 0xFF)),
                max(total, 0) & 0xFFFF,
                self.serial & 0xFFFF,
                control,
                rng.choice((64, 64, 1, 255)),
                self.proto,
                0,
                self.source,
                self.destination,
            )
            + options
        )
        fix_ip4(header)
        return bytes(header) + data

    # Fragments

    def parts(self, body):
        """Parts of a body as (bytes, offset in 8 bytes, more), in some order: with overlaps that rewrite the port, with
        duplicates, tiny."""
        rng = self.rng
        cuts = sorted({8 * rng.randrange(1, max(2, len(body) // 8 + 1)) for _ in range(rng.choice((1, 1, 2, 3)))})
        cuts = [0] + [cut for cut in cuts if cut < len(body)] + [len(body)]
        parts = [(body[a:b], a // 8, b < len(body)) for a, b in zip(cuts, cuts[1:], strict=False)]
        if chance(rng, 3):
            # The filter sees the open port, the receiver might see the other one, or the reverse.
            other = self.transport(OPEN_PORT if self.port == BLOCKED_PORT else BLOCKED_PORT)
            start = 8 * rng.randrange(0, 4)
            length = 8 * rng.randrange(1, 6)
            piece = other[start : start + length]
            parts.insert(rng.randrange(len(parts) + 1), (piece, start // 8, start + length < len(body)))
        if chance(rng, 4):
            parts.append(rng.choice(parts))
        if chance(rng, 3):
            rng.shuffle(parts)
        if chance(rng, 10):
            parts = [(part, offset, more if chance(rng, 2) else not more) for part, offset, more in parts]
        return parts

    # IPv6

    def ip6(self, body):
        rng = self.rng
        ahead = [self.extension() for _ in range(rng.choice((0, 0, 0, 1, 2, 3)))]
        if chance(rng, 3):
            behind = [self.extension() for _ in range(rng.choice((0, 0, 1)))]
            inner, first = chain(behind, self.proto, body)
            pieces = self.parts(inner)
            packets = []
            for part, offset, more in pieces:
                number = first if chance(rng, 10) is False else rng.choice((UDP, TCP, DESTINATION, 59))
                header = struct.pack("!BBHI", number, 0, offset << 3 | more, self.serial)
                packets.append(self.packet6(*chain(ahead, FRAGMENT, header + part)))
            return packets
        if chance(rng, 12):
            # One or two fragment headers of a whole datagram (RFC 6946).
            for _ in range(rng.choice((1, 2))):
                body = struct.pack("!BBHI", self.proto, 0, 0, self.serial) + body
                self.proto = FRAGMENT
        return [self.packet6(*chain(ahead, self.proto, body))]

    def extension(self):
        rng = self.rng
        kind = rng.choice((HOP, HOP, DESTINATION, DESTINATION, ROUTING, AUTHENTICATION))
        if kind == ROUTING:
            address = self.destination
            return kind, struct.pack("!BBBI", 2, rng.choice((0, 2, 3, 4)), rng.choice((0, 0, 1)), 0) + address
        if kind == AUTHENTICATION:
            return kind, struct.pack("!BHII", 1, 0, 1, 1)
        options = rng.choice((b"\1\4\0\0\0\0", b"\1\4\0\0\0\0", b"\1\x0c" + bytes(12), b"\xc2\4\0\1\0\0", b"\5\2\0\0\1\0"))
        length = len(options) // 8
        if chance(rng, 15):
            length += rng.choice((1, 4, 40))
        return kind, bytes([length]) + options

    def packet6(self, data, first):
        rng = self.rng
        length = len(data)
        if chance(rng, 12):
            length = rng.choice((0, length - 8, length - 1, length + 1, length + 40)) & 0xFFFF
        version = 4 if chance(rng, 60) else 6
        return (
            struct.pack("!IHBB", version << 28 | rng.choice((0, 0, 0xABCDE)), length, first, rng.choice((64, 64, 1, 255)))
            + self.source
            + self.destination
            + data
        )


def chain(extensions, proto, body):
    """Extension headers before a body: the bytes, and the number of the first header."""
    for kind, rest in reversed(extensions):
        body, proto = bytes([proto]) + rest + body, kind
    return body, proto


def fix_ip4(header):
    """Writes the checksum of an IPv4 header, as long as it says it is."""
    length = max(20, (header[0] & 15) * 4)
    header[10:12] = b"\0\0"
    header[10:12] = struct.pack("!H", checksum(bytes(header[:length])))


def cases(seed, count):
    """Pairs of serial number and frames; the same for the same seed."""
    for serial in range(count):
        yield serial, Case(random.Random(f"{seed}:{serial}"), serial).frames()
