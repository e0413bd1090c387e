"""Nothing that a dropping rule names reaches a real kernel's sockets, whatever the headers of the frames claim.

Frames that lie are sent through mmb to a Linux kernel in a namespace: some thousands, or a million with E2E_LONG=1. Without
rules, many of them arrive: the kernel accepts them. With rules that name their ports, sources, protocols or types, none
may.
"""

import os
import socket
import struct

import hostile_frames as hostile
import pytest
from hostile_frames import BLOCKED4, BLOCKED6, BLOCKED_PORT, BLOCKED_PROTO, OPEN_PORT

from lab import wait
from lab.raw import RawPort

SEED = os.environ.get("E2E_SEED", "1")
COUNT = 1_000_000 if os.environ.get("E2E_LONG") else 6_000
BATCH = 64

STATELESS = [
    f"add udp-dport {BLOCKED_PORT} drop",
    f"add tcp-dport {BLOCKED_PORT} drop",
    "add icmp-type 8 drop",
    "add icmp6-type 128 drop",
    f"add ip-saddr {BLOCKED4} drop",
    f"add ip6-saddr {BLOCKED6} drop",
    f"add ip-proto {BLOCKED_PROTO} drop",
]
# Sessions on the open port, so that fragments belong to sessions.
STATEFUL = [*STATELESS, f"add-stateful udp-dport {OPEN_PORT} mod ip-dscp 1", "add-stateful tcp-dport 5555 mod ip-dscp 1"]


class Target:
    """A kernel that accepts as much as it can, and the sockets that show what it has accepted."""

    def __init__(self, wire):
        self.wire, server = wire, wire.server
        for setting, value in {
            "net/ipv4/tcp_syncookies": 2,
            "net/ipv4/ipfrag_time": 2,
            "net/ipv6/ip6frag_time": 2,
            "net/ipv4/conf/all/rp_filter": 0,
            "net/ipv4/conf/s0/rp_filter": 0,
            "net/ipv4/conf/s0/accept_local": 1,
            "net/ipv4/conf/s0/route_localnet": 1,
            "net/ipv4/conf/s0/accept_source_route": 1,
            "net/ipv4/conf/all/accept_source_route": 1,
            "net/ipv6/conf/s0/accept_source_route": 1,
            "net/ipv6/conf/all/accept_source_route": 1,
            "net/ipv4/icmp_ratemask": 0,
        }.items():
            server.sysctl(setting, value)
        self.blocked, self.sources, self.raw = [], [], []
        for family, any_address in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
            for sockets, port in ((self.blocked, BLOCKED_PORT), (self.sources, OPEN_PORT)):
                udp = server.socket(family, socket.SOCK_DGRAM)
                if family == socket.AF_INET6:
                    udp.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                udp.bind((any_address, port))
                sockets.append(udp)
            listener = server.socket(family, socket.SOCK_STREAM)
            if family == socket.AF_INET6:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listener.bind((any_address, BLOCKED_PORT))
            listener.listen(4096)
            self.raw.append(listener)
        protocol = server.socket(socket.AF_INET, socket.SOCK_RAW, BLOCKED_PROTO)
        self.blocked.append(protocol)
        for one in (*self.blocked, *self.sources):
            one.setblocking(False)
            one.setsockopt(socket.SOL_SOCKET, 33, 16 << 20)  # SO_RCVBUFFORCE
        self.client = RawPort(wire.client, "c0")

    def close(self):
        for one in (*self.blocked, *self.sources, *self.raw, self.client):
            one.close()

    def arrived(self):
        """What the kernel has accepted of what rules name, as texts."""
        found = []
        for one in self.blocked:
            found += [f"to a blocked port or protocol: {data.hex()}" for data, _ in received(one)]
        for one in self.sources:
            found += [f"from {source[0]}" for _, source in received(one) if source[0] in (BLOCKED4, BLOCKED6)]
        while (frame := self.client.receive_one()) is not None:
            found += reply(frame)
        return found


def received(one):
    while True:
        try:
            yield one.recvfrom(70_000)
        except BlockingIOError:
            return


def reply(frame):
    """What a frame from the kernel says about what it has accepted."""
    kind = frame[12:14]
    if kind == b"\x08\x00":
        proto, at = frame[23], 14 + (frame[14] & 15) * 4
    elif kind == b"\x86\xdd":
        proto, at = frame[20], 54
    else:
        return []
    if proto == hostile.TCP and struct.unpack("!H", frame[at : at + 2])[0] == BLOCKED_PORT:
        return [f"TCP answer, serial {struct.unpack('!I', frame[at + 8 : at + 12])[0] - 1}"]
    if (proto, frame[at]) in ((hostile.ICMP, 0), (hostile.ICMP6, 129)):
        return [f"echo reply {frame[at : at + 8].hex()}"]
    return []


@pytest.fixture
def target(make_wire):
    wire = make_wire("af-packet", offloads=False)
    wire.bench.know_neighbours()
    made = Target(wire)
    yield made
    made.close()


def attack(target, seed, count):
    """Sends cases, and returns what has arrived: the first and last serial number of a batch, and texts."""
    batch, found = [], []
    for serial, frames in hostile.cases(seed, count):
        for frame in frames:
            target.client.send(frame)
        batch.append(serial)
        if len(batch) == BATCH or serial == count - 1:
            target.wire.settle()
            texts = target.arrived()
            if texts:
                found.append((batch[0], batch[-1], texts))
            batch = []
    return found


def test_the_kernel_accepts_many_of_these(target, figure):
    """Without rules: the other test would mean nothing if the kernel dropped all frames itself."""
    found = [text for _, _, texts in attack(target, SEED, 2_000) for text in texts]
    for kind in ("to a blocked", "from", "TCP answer", "echo reply"):
        assert sum(text.startswith(kind) for text in found) > 50, kind
    figure("hostile frames that a kernel accepts without rules", f"{len(found)} of 2000 datagrams")


@pytest.mark.parametrize("rules", [STATELESS, STATEFUL], ids=["stateless", "stateful"])
def test_nothing_that_a_rule_names_arrives(target, rules):
    for line in rules:
        target.wire.daemon.line(line)
    wait.until(lambda: len(target.wire.daemon.rules()) == len(rules), "the rules")
    found = attack(target, SEED, COUNT // 2)
    assert found == []
    assert target.wire.daemon.running()
    drops = target.wire.daemon.drops()
    for reason in ("rule", "tiny-fragment", "l4-truncated", "l4-malformed", "vlan-depth", "martian"):
        assert drops[reason] > 0, reason
