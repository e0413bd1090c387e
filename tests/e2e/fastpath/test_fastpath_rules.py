"""The fast path at XDP and at tc: offloaded flows, and their revocation."""

import concurrent.futures
import os
import signal
import struct
import time

import pytest

from lab import traffic, wait
from lab.daemon import FrozenThread
from lab.fastpath import FIREWALL, XDP_ONLY, fast, hits, learnt, receives_by_napi
from lab.netns import CLIENT4, SERVER4, SERVER6


def test_off_unless_it_is_switched_on(make_wire, stream):
    wire = make_wire("af-xdp")
    wire.right.close()
    wire.bench.know_neighbours()
    stream(wire.client, wire.server, SERVER4).send(2048)
    shown = fast(wire)
    assert (shown["enabled"], shown["active"], shown["entries"], shown["packets"]) == (False, False, 0, 0)
    assert "fast-path" not in wire.daemon.command("show", "config").stdout
    wire.daemon.line("set fast-path auto")
    assert "set fast-path auto\n" in wire.daemon.command("show", "config").stdout
    assert fast(wire)["active"]


@pytest.mark.parametrize("address", [SERVER4, SERVER6])
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(
    "matches, others, key",
    [("udp-dport 7000", "! tcp-dport 9", "flow"), ("udp-dport 7000", "all", "pair"), ("udp-dport", "all", "pair")],
)
def test_every_packet_is_counted_wherever_it_went(fast_wire, stream, address, workers, matches, others, key):
    wire = fast_wire(f"add {matches} accept\nadd {others} accept\n", workers=workers)
    one = stream(wire.client, wire.server, address)
    learnt(wire, one)
    one.send(20_000)
    wait.until(lambda: hits(wire) > 15_000, "what the kernel sent on to be counted")
    sent = one.datagrams.sent
    wait.until(lambda: wire.daemon.hits(1) >= sent, "the rule to have all")
    assert wire.daemon.hits(1) == sent
    assert fast(wire)["key"] == key
    shown = wire.daemon.interfaces()
    assert shown["left"]["rx_packets"] >= sent <= shown["right"]["tx_packets"]
    assert sum(wire.daemon.drops().values()) == 0


def test_a_rule_holds_from_its_command_on(fast_wire, stream):
    wire = fast_wire("add all accept\n")
    one = stream(wire.client, wire.server, SERVER4)
    for _ in range(3):
        learnt(wire, one)
        wire.daemon.command("flush")
        index = wire.daemon.add("udp-dport 7000 drop")
        before = len(one.datagrams.arrived)
        for _ in range(300):
            one.datagrams.sender.send(struct.pack("!Q", 1 << 40) + bytes(40))
        wait.until(lambda index=index: wire.daemon.hits(index) == 300, "all to be dropped")
        one.datagrams.collect()
        assert len(one.datagrams.arrived) == before
        wire.daemon.command("del", index)


def test_elements_of_a_set_hold_from_their_command_on(fast_wire, stream):
    """Flows that the kernel forwards return to the rules when an element comes; without it they are learnt again."""
    wire = fast_wire("set add blocked address\nadd all accept\nadd ip-saddr @blocked block\n")
    one = stream(wire.client, wire.server, SERVER4)
    for _ in range(2):
        learnt(wire, one)
        wire.daemon.line(f"set blocked add {CLIENT4}")
        before, dropped = len(one.datagrams.arrived), wire.daemon.drops()["rule"]
        for _ in range(300):
            one.datagrams.sender.send(struct.pack("!Q", 1 << 40) + bytes(40))
        wait.until(lambda dropped=dropped: wire.daemon.drops()["rule"] == dropped + 300, "all to be dropped")
        one.datagrams.collect()
        assert len(one.datagrams.arrived) == before
        wire.daemon.line(f"set blocked del {CLIENT4}")


def test_an_element_concerns_its_sessions_only(fast_wire, stream):
    """With stateful rules, flows with other addresses stay in the kernel when an element comes."""
    wire = fast_wire("set add blocked address\nadd-stateful all accept\nadd ip-saddr @blocked block\n")
    one = stream(wire.client, wire.server, SERVER4)
    learnt(wire, one)
    installed = fast(wire)["installed"]
    for number in range(20):
        wire.daemon.line(f"set blocked add 192.0.2.{number}")
        one.send(64)
    learnt(wire, one)
    assert fast(wire)["installed"] == installed
    wire.daemon.line(f"set blocked add {CLIENT4}")
    before, dropped = len(one.datagrams.arrived), wire.daemon.drops()["rule"]
    for _ in range(300):
        one.datagrams.sender.send(struct.pack("!Q", 1 << 40) + bytes(40))
    wait.until(lambda: wire.daemon.drops()["rule"] == dropped + 300, "all to be dropped")
    one.datagrams.collect()
    assert len(one.datagrams.arrived) == before


def test_ports_of_a_pair(fast_wire, stream):
    """If no rule reads ports, one entry covers a pair of addresses; a new rule that reads ports takes effect
    at once.
    """
    wire = fast_wire("add ip-daddr 192.0.2.1 udp-dport 7001 drop\n")
    assert fast(wire)["key"] == "pair"
    one, other = stream(wire.client, wire.server, SERVER4), stream(wire.client, wire.server, SERVER4, port=7001)
    learnt(wire, one)
    before = fast(wire)["installed"]
    for port in range(8000, 8200):
        stream(wire.client, wire.server, SERVER4, port=port).send(8)
    assert fast(wire)["installed"] < before + 20
    for _ in range(3):
        other.until(lambda before=hits(wire): hits(wire) > before, "the kernel to have it")
        index = wire.daemon.add(f"ip-daddr {SERVER4} udp-dport 7001 drop")
        for count in (300, 600):
            arrived = len(other.datagrams.arrived)
            for _ in range(300):
                other.datagrams.sender.send(struct.pack("!Q", 1 << 40) + bytes(40))
            wait.until(lambda index=index, count=count: wire.daemon.hits(index) == count, "all to be dropped")
            other.datagrams.collect()
            assert len(other.datagrams.arrived) == arrived
            learnt(wire, one)
        wire.daemon.command("del", index)
        other.send(64)


def test_rules_that_come_and_go_lose_nothing(fast_wire, stream):
    wire = fast_wire()
    one = stream(wire.client, wire.server, SERVER4)
    for _ in range(20):
        index = wire.daemon.add("udp-dport 9 drop")
        one.send(512)
        wire.daemon.command("del", index)
        one.send(512)
    learnt(wire, one)
    wire.daemon.line("set fast-path off")
    wait.until(lambda: fast(wire)["entries"] == 0, "all flows to be given up")
    before = hits(wire)
    one.send(2048)
    assert hits(wire) == before
    assert sum(wire.daemon.drops().values()) == 0


def test_other_rules_keep_it_off_and_say_so(fast_wire, stream):
    wire = fast_wire("add ip-ttl 1 drop\n")
    one = stream(wire.client, wire.server, SERVER4)
    one.send(2048)
    shown = fast(wire)
    assert (shown["enabled"], shown["active"], shown["packets"]) == (True, False, 0)
    assert "rule 1" in shown["obstacle"] and "ip-ttl" in shown["obstacle"]
    assert "ip-ttl" in wire.daemon.command("show", "fast-path").stdout
    wire.daemon.command("del", 1)
    learnt(wire, one)


@XDP_ONLY
def test_frames_are_not_sent_where_they_would_be_lost(fast_wire, stream):
    """A veth whose peer does not use NAPI accepts no redirected frames: the engine forwards, and no packet is
    lost.
    """
    wire = fast_wire()
    wire.server.run("ethtool", "-K", "s0", "gro", "off")
    wait.until(lambda: not fast(wire)["interfaces"][1]["egress"], "mmb to see it")
    time.sleep(0.2)
    one = stream(wire.client, wire.server, SERVER4)
    one.send(4096)
    shown = fast(wire)
    assert shown["packets"] == 0 and shown["refused"]["no-redirect"] > 0
    assert "gro on" in shown["interfaces"][1]["reason"]


@XDP_ONLY
def test_ports_are_checked_before_flows_are_learned(fast_wire, stream):
    """No flow is refused at the start because nobody has asked yet whether its egress port takes frames."""
    wire = fast_wire("add-stateful all accept\n")
    one = stream(wire.client, wire.server, SERVER4)
    for _ in range(5):
        wire.server.run("ethtool", "-K", "s0", "gro", "off")
        wait.until(lambda: not fast(wire)["interfaces"][1]["egress"], "mmb to see it")
        wire.daemon.line("set fast-path off")
        receives_by_napi(wire.server, "s0")
        refused, before = fast(wire)["refused"], hits(wire)
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            one.until(pool.submit(wire.daemon.line, "set fast-path auto").done, "the fast path to be on")
        one.until(lambda before=before: hits(wire) > before, "the kernel to take over")
        assert fast(wire)["refused"] == refused


def test_tcp_with_unfinished_checksums(fast_wire):
    """Both end points use checksum offload, the default of Linux on a veth."""
    wire = fast_wire("add all accept\n")
    sent, received = traffic.bulk_transfer(wire.client, wire.server, SERVER4)
    assert sent == received
    wait.until(lambda: hits(wire) > 10_000, "what the kernel sent on to be counted")


def test_nothing_about_the_interface_is_left_when_it_goes(fast_wire, stream, ports):
    wire = fast_wire()
    one = stream(wire.client, wire.server, SERVER4)
    learnt(wire, one)
    for line in ("wire del left", "interface del right", f"interface add right {ports} m1", "wire left right"):
        wire.daemon.line(line)
    learnt(wire, one)
    shown = wire.bench.mbox.run("ip", "-o", "link", "show").stdout
    assert shown.count(" m1@") == 1 and ("xdp" in shown) == (ports == "af-xdp")


def test_a_stopped_daemon_forwards_nothing(fast_wire, stream):
    """SIGSTOP: a second later, the kernel forwards nothing more. SIGCONT: it goes on."""
    wire = fast_wire(FIREWALL)
    one = stream(wire.client, wire.server, SERVER4)
    learnt(wire, one)
    ends = one.datagrams

    def crosses():
        arrived = len(ends.arrived)
        ends.sender.send(struct.pack("!Q", ends.sent) + bytes(40))
        ends.sent += 1
        wait.readable([ends.receiver], 0.3)
        ends.collect()
        return len(ends.arrived) > arrived

    assert crosses()
    os.kill(wire.daemon.process.pid, signal.SIGSTOP)
    try:
        wait.until(lambda: not crosses(), "the kernel to stop forwarding", 5)
        assert not any(crosses() for _ in range(4))
    finally:
        os.kill(wire.daemon.process.pid, signal.SIGCONT)
    # What waited in the socket comes now.
    ends.settle()
    before = hits(wire)
    one.until(lambda: hits(wire) > before, "the kernel to take over again")


@pytest.mark.parametrize("worker", [0, 1])
def test_a_policy_that_waits_for_a_worker_holds_in_the_kernel(fast_wire, stream, worker):
    """A worker hangs, so that a publication waits for it. A second later at most, the kernel forwards nothing that the
    new policy drops, whichever of the workers hangs and has the entries.
    """
    wire = fast_wire(FIREWALL, workers=2)
    ones = []
    # The kernel chooses the ports of the client: until each worker has a session.
    while not all(one["sessions"] for one in wire.daemon.json("show", "runtime")["workers"]):
        ones.append(stream(wire.client, wire.server, SERVER4, port=7000 + len(ones)))
        learnt(wire, ones[-1])
        assert len(ones) < 32

    def crosses():
        for one in ones:
            ends = one.datagrams
            arrived = len(ends.arrived)
            ends.sender.send(struct.pack("!Q", ends.sent) + bytes(40))
            ends.sent += 1
            wait.readable([ends.receiver], 0.1)
            ends.collect()
            if len(ends.arrived) > arrived:
                return True
        return False

    assert crosses()
    with concurrent.futures.ThreadPoolExecutor(1) as pool, FrozenThread(wire.daemon.thread(f"mmb-worker-{worker}")):
        change = pool.submit(wire.daemon.line, "del 1")
        begin = time.monotonic()
        wait.until(lambda: not crosses(), "the kernel to stop forwarding", 5)
        assert time.monotonic() - begin < 3
        assert not change.done() and not crosses()
    assert change.result().returncode == 0
    # What the worker had in its hands met the rules of before.
    while ready := wait.readable([one.datagrams.receiver for one in ones], 0.2):
        for receiver in ready:
            receiver.recv(2048)
    assert len(wire.daemon.rules()) == 1 and not crosses()
