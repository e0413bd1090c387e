"""Routed and translated flows in the fast path."""

import socket
import struct
import time

import pytest

from lab import traffic, wait
from lab.fastpath import NAT, hits, learnt, the_connection
from lab.natbench import INSIDE, SERVER, Mirror, Speaker
from lab.routebench import SERVER as FAR4
from lab.routebench import SERVER6 as FAR6
from lab.routebench import answered, ping


@pytest.mark.parametrize("address", [FAR4, FAR6])
def test_a_router_in_the_kernel(fast_router, address):
    """The TTL of pings is decremented in both directions, by the engine and by the kernel."""
    bench = fast_router("add all accept\n")
    # The addresses of twins are tentative for a while (RFC 4862, 5.4).
    wait.until(lambda: "ttl=" in ping(bench.client, address), "the first answer")
    ttls = answered(bench.client, address, "-i", "0.002", count=400)
    assert set(ttls) == {63}
    wait.until(lambda: hits(bench) > 300, "what the kernel sent on to be counted")


def test_routes_hold_at_once(fast_router, stream):
    bench = fast_router()
    one = stream(bench.client, bench.servers, FAR4)
    learnt(bench, one)
    bench.ip("route add blackhole 10.2.0.2/32")
    bench.until_routed(FAR4, "blackhole")
    # What was counted before is credited within a tenth of a second.
    time.sleep(0.2)
    before = hits(bench)
    for _ in range(200):
        one.datagrams.sender.send(bytes(48))
    wait.until(lambda: bench.daemon.drops()["blackhole"] >= 200, "all to be dropped")
    assert hits(bench) == before


def test_addresses_are_rewritten(fast_router):
    """The kernel applies `mod` of a destination: datagrams arrive at another address and port."""
    bench = fast_router("add udp-dport 4000 mod ip-daddr 10.9.0.7 mod udp-dport 4001\n")
    receiver = bench.servers.socket(socket.AF_INET, socket.SOCK_DGRAM)
    receiver.bind(("10.9.0.7", 4001))
    receiver.setblocking(False)
    sender = bench.client.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sender.connect((FAR4, 4000))
    bench.ip("route add 10.9.0.0/16 via 10.2.0.2")
    bench.until_routed("10.9.0.7")
    sent = 0
    with receiver, sender:
        while hits(bench) < 100 and sent < 20_000:
            for number in range(sent, sent + 8):
                sender.send(struct.pack("!Q", number))
            for number in range(sent, sent + 8):
                assert wait.readable([receiver], 5), f"datagram {number} is missing"
                data, (source, _) = receiver.recvfrom(64)
                assert struct.unpack("!Q", data) == (number,) and source == "10.1.0.2"
            sent += 8
    assert hits(bench) >= 100


@pytest.mark.parametrize("workers", [1, 2])
def test_translation_both_ways(fast_nat, workers):
    nat = fast_nat(NAT, workers=workers)
    mirror = Mirror(nat.servers, SERVER, 7)
    speaker = Speaker(nat.hosts, INSIDE[0]).connect(SERVER, 7)
    seen = speaker.ask()
    assert seen[0] == "200.0.0.1"
    asked = 1

    def more():
        nonlocal asked
        for _ in range(40):
            assert speaker.ask() == seen
        asked += 40
        return hits(nat) > 400

    wait.until(more, "the kernel to take over")
    time.sleep(0.2)
    one = the_connection(nat)
    assert one["translated"] and one["forward"]["packets"] == one["reverse"]["packets"] == asked
    # Where the workers hand a session to each other as it opens, both count the packet that opens it.
    assert nat.daemon.hits(1) - 2 * asked in range(workers)
    # Both directions are the kernel's: of a question and its answer, the engine sees neither.
    before, nodes = hits(nat), nat.daemon.nodes()["port-rx"]
    for _ in range(100):
        assert speaker.ask() == seen
    wait.until(lambda: hits(nat) >= before + 190, "both to be counted")
    assert nat.daemon.nodes()["port-rx"] < nodes + 50
    speaker.close()
    mirror.close()


def test_downloads_through_nat(fast_nat):
    nat = fast_nat(NAT)
    server = traffic.WebServer(nat.servers, 80, size=32 << 20)
    try:
        for _ in range(3):
            assert traffic.fetch(nat.hosts, f"http://{SERVER}/file") == server.content
    finally:
        server.close()
    wait.until(lambda: hits(nat) > 30_000, "what the kernel sent on to be counted")
    assert sum(nat.daemon.drops().values()) == 0


def test_pings_through_nat(fast_nat):
    nat = fast_nat(NAT)
    assert len(answered(nat.hosts, SERVER, "-i", "0.002", count=300)) == 300
    wait.until(lambda: hits(nat) > 400, "both ways to be counted")
