"""A receiver behind a kernel port that takes no frames: the kernel takes no more than the socket's send buffer holds."""

import contextlib

import pytest

from lab import frames
from lab.frames import UDP

BYTES = 1400
# Frames that fill the send buffer (net.core.wmem_default, 208 KiB) several times; the first number fits the
# ring of a port, the second one does not.
SOME, MANY = 1000, 12_000


def numbered(number):
    return bytes(frames.ether() / frames.ip4() / UDP(sport=1, dport=2) / (number.to_bytes(2, "big") * (BYTES // 2)))


@contextlib.contextmanager
def held(server):
    """What arrives at the server's interface is kept by a queue that sends 1,000 bytes a second."""
    server.run("ip", "link", "add", "slow0", "type", "veth", "peer", "name", "slow1")
    for interface in ("slow0", "slow1"):
        server.run("ip", "link", "set", interface, "up")
    server.run("tc", "qdisc", "add", "dev", "slow0", "root", "tbf", "rate", "8kbit", "burst", "1600", "limit", "10000000")
    server.run("tc", "qdisc", "add", "dev", "s0", "ingress")
    redirect = ("action", "mirred", "egress", "redirect", "dev", "slow0")
    server.run("tc", "filter", "add", "dev", "s0", "ingress", "protocol", "all", "u32", "match", "u32", "0", "0", *redirect)
    try:
        yield
    finally:
        server.run("ip", "link", "delete", "slow0")


def works_backwards(wire):
    return wire.passes(frames.ether() / frames.ip4() / UDP(sport=3, dport=4) / frames.payload(), backwards=True)


@pytest.mark.parametrize("count", [SOME, MANY])
def test_a_port_that_cannot_send_does_not_stop_the_others(make_wire, driver, count):
    wire = make_wire(driver)
    with held(wire.server):
        for number in range(count):
            wire.left.send(numbered(number))
        for _ in range(3):
            assert works_backwards(wire)


def test_the_rest_is_sent_when_there_is_room(make_wire, driver):
    """No further packet is needed for it, and the order is kept."""
    wire = make_wire(driver)
    sent = [numbered(number) for number in range(SOME)]
    with held(wire.server):
        for frame in sent:
            wire.left.send(frame)
        assert works_backwards(wire)
    arrived = wire.right.receive_until(sent[-1].__eq__)
    assert [frame for frame in arrived if len(frame) == len(sent[0])] == sent[:-1]
