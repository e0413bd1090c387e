"""The test bench itself, with a kernel bridge instead of mmb: a failure here is not a failure of mmb."""

import pytest

from lab import frames, traffic
from lab.frames import Dot1AD, Dot1Q, TCP, UDP
from lab.links import vlan
from lab.netns import SERVER4, SERVER6
from lab.raw import RawPort


@pytest.fixture
def bridged(make_bench):
    bench = make_bench()
    bench.mbox.run("ip", "link", "add", "bridge", "type", "bridge", "mcast_snooping", "0")
    for interface in ("m0", "m1"):
        bench.mbox.run("ip", "link", "set", interface, "master", "bridge")
    bench.mbox.run("ip", "link", "set", "bridge", "up")
    return bench


def test_frames_cross_byte_for_byte(bridged):
    left, right = RawPort(bridged.client, "c0"), RawPort(bridged.server, "s0")
    sent = [
        bytes(frames.ether() / frames.ip4() / UDP() / frames.payload()),
        bytes(frames.ether() / Dot1Q(vlan=5, prio=3) / frames.ip4() / TCP() / frames.payload()),
        bytes(frames.ether() / Dot1AD(vlan=7) / Dot1Q(vlan=5) / frames.ip6() / UDP() / frames.payload()),
    ]
    for frame in sent:
        left.send(frame)
    last = frames.sentinel()
    left.send(last)
    assert [frame for frame in right.receive_until(last.__eq__) if frames.is_ours(frame)] == sent
    left.close()
    right.close()


def test_wrong_checksums_are_noticed():
    frame = bytes(frames.ether() / frames.ip4() / TCP() / frames.payload())
    assert frames.wrong_checksums(frame) == []
    assert len(frames.wrong_checksums(frame[:-1] + b"\0")) == 1


@pytest.mark.parametrize("qinq", [False, True], ids=["vlan", "qinq"])
def test_kernel_ends_in_a_vlan(bridged, qinq):
    vlan.tag(bridged.client, "c0", qinq)
    vlan.tag(bridged.server, "s0", qinq)
    seen = RawPort(bridged.mbox, "m0")
    sent, received = traffic.bulk_transfer(bridged.client, bridged.server, SERVER4, size=1 << 20)
    assert sent == received
    assert seen.receive_one()[12:14] == (b"\x88\xa8" if qinq else b"\x81\x00")
    seen.close()


def test_datagrams_are_counted(bridged):
    datagrams = traffic.Datagrams(bridged.client, bridged.server, SERVER6)
    datagrams.send(1000)
    datagrams.settle()
    assert datagrams.arrived == set(range(1000))
    datagrams.close()
