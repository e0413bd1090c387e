"""A bad link between two interfaces: loss, damage, duplication, reordering, and other borders of segments, by a seed."""

import collections
import random
import struct
import threading

from .. import wait
from ..netns import CLIENT4, CLIENT6, CLIENT_MAC, SERVER4, SERVER6, SERVER_MAC, Network
from ..raw import LargePort, RawPort
from ..wire import wire_config

TCP = 6
ETHERTYPE_IP4, ETHERTYPE_IP6, VLAN = 0x0800, 0x86DD, 0x8100
FIN, SYN, PSH = 1, 2, 8


class Impairment:
    """How often a frame is lost, sent twice, sent late, cut in two, or damaged; of thousand.

    A damaged frame has another bit in its TCP segment.
    positions: bytes of each connection, counted from its first one. The first segment that contains one is lost, and a further one
    for each time that it is named: the same loss, whatever the borders of segments and the times are.
    """

    def __init__(self, loss=0, duplication=0, reordering=0, cuts=0, positions=(), damage=0):
        self.loss, self.duplication, self.reordering, self.cuts = loss, duplication, reordering, cuts
        self.positions, self.damage = positions, damage


class BadLink:
    """Forwards frames between two interfaces of a namespace, in a thread.

    vlan: number of a VLAN whose tag the frames have on the first interface (this kernel has no VLAN devices).
    offload: frames stay as segmentation offload leaves them, and are lost as they are. They are not cut.
    """

    def __init__(self, namespace, interfaces, impairment, seed, vlan=None, offload=False):
        self._tag = struct.pack("!HH", VLAN, vlan) if vlan else b""
        self._ports = [(LargePort if offload else RawPort)(namespace, interface) for interface in interfaces]
        self._impairment, self._random = impairment, random.Random(seed)
        # Frames that are late, by the port that sends them, each with the number of frames that overtake it.
        self._late = [[], []]
        # By sender: its initial number, and how often each position is still to be lost.
        self._senders = {}
        self.lost = self.damaged = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        while not self._stop.is_set():
            if not wait.readable(self._ports, 0.02):
                # Nothing overtakes them any more.
                for port, late in zip(self._ports, self._late):
                    while late:
                        port.send(late.pop(0)[1])
            for number, port in enumerate(self._ports):
                while (frame := port.receive_one()) is not None:
                    if number == 0 and self._tag:
                        assert frame[12:16] == self._tag, frame[:18].hex()
                        frame = frame[:12] + frame[16:]
                    self._forward(1 - number, frame)

    def _tagged(self, to, frame):
        return frame[:12] + self._tag + frame[12:] if to == 0 and self._tag else frame

    def _happens(self, thousandths):
        return self._random.randrange(1000) < thousandths

    def _has_lost_position(self, frame):
        if not self._impairment.positions or (found := segment(frame)) is None:
            return False
        (l3, l4), data, end = found
        key, seq = frame[l3 + 12 : l3 + 20] + frame[l4 : l4 + 4], struct.unpack_from("!I", frame, l4 + 4)[0]
        if frame[l4 + 13] & SYN:
            self._senders[key] = seq, collections.Counter(self._impairment.positions)
        initial, left = self._senders.get(key, (0, {}))
        first = (seq - initial - 1) & 0xFFFFFFFF
        hit = [position for position, times in left.items() if times and first <= position < first + end - data]
        for position in hit:
            left[position] -= 1
        return bool(hit)

    def _forward(self, to, frame):
        if self._has_lost_position(frame):
            self.lost += 1
            return
        pieces = [frame]
        if self._happens(self._impairment.cuts):
            pieces = cut(frame, self._random)
        if self._impairment.damage and self._happens(self._impairment.damage) and segment(frame):
            pieces = [damaged(frame, self._random)]
            self.damaged += 1
        for piece in [self._tagged(to, one) for one in pieces]:
            if self._happens(self._impairment.loss):
                self.lost += 1
                continue
            if self._happens(self._impairment.reordering):
                self._late[to].append([self._random.randrange(1, 6), piece])
                continue
            self._ports[to].send(piece)
            if self._happens(self._impairment.duplication):
                self._ports[to].send(piece)
            for late in self._late[to]:
                late[0] -= 1
            while self._late[to] and self._late[to][0][0] <= 0:
                self._ports[to].send(self._late[to].pop(0)[1])

    def close(self):
        self._stop.set()
        self._thread.join()
        for port in self._ports:
            port.close()


def segment(frame):
    """Offsets of a TCP segment: (of the headers of layers 3 and 4), of its data, and of its end. None for other frames."""
    at, ethertype = 14, struct.unpack_from("!H", frame, 12)[0]
    if ethertype == ETHERTYPE_IP4 and frame[at + 9] == TCP:
        l4, end = at + (frame[at] & 15) * 4, at + struct.unpack_from("!H", frame, at + 2)[0]
    elif ethertype == ETHERTYPE_IP6 and frame[at + 6] == TCP:
        l4, end = at + 40, at + 40 + struct.unpack_from("!H", frame, at + 4)[0]
    else:
        return None
    return (at, l4), l4 + (frame[l4 + 12] >> 4) * 4, end


def cut(frame, rng):
    """Cuts the payload of a TCP segment in two. Other frames stay whole."""
    found = segment(frame)
    if found is None or found[2] - found[1] < 2:
        return [frame]
    (at, l4), data, end = found
    border = rng.randrange(data + 1, end)
    seq = struct.unpack_from("!I", frame, l4 + 4)[0]
    flags = frame[l4 + 13]
    first = piece(frame[:data], frame[data:border], (at, l4), seq, flags & ~(FIN | PSH))
    return [first, piece(frame[:data], frame[border:end], (at, l4), seq + border - data, flags)]


def damaged(frame, rng):
    """A frame with another bit in its TCP segment."""
    (_, l4), _, end = segment(frame)
    frame = bytearray(frame)
    frame[rng.randrange(l4, end)] ^= 1 << rng.randrange(8)
    return bytes(frame)


def piece(headers, payload, offsets, seq, flags):
    """A segment with these headers, and with lengths and checksums that are right."""
    (l3, l4), frame = offsets, bytearray(headers + payload)
    struct.pack_into("!I", frame, l4 + 4, seq & 0xFFFFFFFF)
    frame[l4 + 13] = flags
    length = len(frame) - l4
    if frame[l3] >> 4 == 4:
        struct.pack_into("!H", frame, l3 + 2, len(frame) - l3)
        struct.pack_into("!H", frame, l3 + 10, 0)
        struct.pack_into("!H", frame, l3 + 10, checksum(frame[l3:l4]))
        pseudo = bytes(frame[l3 + 12 : l3 + 20]) + struct.pack("!HH", TCP, length)
    else:
        struct.pack_into("!H", frame, l3 + 4, length)
        pseudo = bytes(frame[l3 + 8 : l3 + 40]) + struct.pack("!II", length, TCP)
    struct.pack_into("!H", frame, l4 + 16, 0)
    struct.pack_into("!H", frame, l4 + 16, checksum(pseudo + frame[l4:]))
    return bytes(frame)


def checksum(data):
    """The Internet checksum (RFC 1071)."""
    if len(data) % 2:
        data = bytes(data) + b"\0"
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


class BadBench(Network):
    """Client, a bad link, mmb as a wire, another bad link, server; two real kernels at the ends.

    vlan: number of a VLAN whose tag the frames have at mmb.
    offload: on which sides of mmb the interfaces segment, as network cards do: "none", "near" or "both". On the other sides,
    frames are those of the MTU.
    """

    def __init__(self, make_daemon, config, seed, before=None, behind=None, vlan=None, offload="none", **options):
        super().__init__()
        try:
            roles = ("client", "near", "mbox", "far", "server")
            self.client, self.near, self.mbox, self.far, self.server = map(self._namespace, roles)
            for namespace in (self.near, self.mbox, self.far):
                namespace.sysctl("net/ipv6/conf/default/disable_ipv6", 1)
            self._veth((self.client, "c0", CLIENT_MAC), (self.near, "n0", None))
            self._veth((self.near, "n1", None), (self.mbox, "m0", None))
            self._veth((self.mbox, "m1", None), (self.far, "f0", None))
            self._veth((self.far, "f1", None), (self.server, "s0", SERVER_MAC))
            offloads = [word for name in ("tx", "tso", "gso", "gro", "txvlan") for word in (name, "off")]
            sides = {"none": (False, False), "near": (True, False), "both": (True, True)}[offload]
            for is_large, namespace, interface, mac, address4, address6, peer4, peer6 in (
                (sides[0], self.client, "c0", SERVER_MAC, CLIENT4, CLIENT6, SERVER4, SERVER6),
                (sides[1], self.server, "s0", CLIENT_MAC, SERVER4, SERVER6, CLIENT4, CLIENT6),
            ):
                if not is_large:
                    namespace.run("ethtool", "-K", interface, *offloads)
                namespace.run("ip", "address", "add", f"{address4}/24", "dev", interface)
                namespace.run("ip", "address", "add", f"{address6}/64", "dev", interface, "nodad")
                for peer in (peer4, peer6):
                    namespace.run("ip", "neigh", "replace", peer, "lladdr", mac, "dev", interface, "nud", "permanent")
            for interface, is_large in zip(("m0", "m1"), sides):
                if not is_large:
                    # The link forwards segments one by one.
                    self.mbox.run("ethtool", "-K", interface, "tx", "off", "tso", "off", "gso", "off")
            self.daemon = make_daemon(self.mbox, wire_config("af-packet") + config, **options)
            self.links = [
                BadLink(self.near, ("n1", "n0"), before or Impairment(), seed, vlan, sides[0]),
                BadLink(self.far, ("f0", "f1"), behind or Impairment(), seed + 1, vlan, sides[1]),
            ]
            for link in self.links:
                self.on_close(link.close)
        except BaseException:
            self.close()
            raise
