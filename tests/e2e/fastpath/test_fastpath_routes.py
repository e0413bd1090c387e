"""Routed and translated flows in the fast path."""

import socket
import struct
import time

import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether

from lab import traffic, wait
from lab.fastpath import FIREWALL, NAT, fast, hits, learnt, the_connection
from lab.natbench import INSIDE, SERVER, Mirror, Speaker
from lab.netns import CLIENT_MAC, SERVER_MAC
from lab.raw import RawPort
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


def forge(bench, packets):
    """Sends IP packets from the client. Returns a function that tells whether one of them has reached the servers."""
    left, right = RawPort(bench.client, "c0"), RawPort(bench.servers, "s0")
    bench.on_close(left.close)
    bench.on_close(right.close)
    mark = b"a forged packet"
    for packet in packets:
        left.send(Ether(src=CLIENT_MAC, dst="02:00:00:00:02:00") / packet / UDP(sport=5, dport=7000) / mark)
    return lambda: any(mark in frame for frame in iter(right.receive_one, None))


@pytest.mark.parametrize("mode", ["strict", "loose"])
@pytest.mark.parametrize("address", [FAR4, FAR6])
def test_a_reverse_path_filter_without_rules(fast_router, stream, mode, address):
    """RFC 3704: what a good source has taught the kernel forwards no packets of others."""
    bench = fast_router(f"set rpf {mode}\n")
    one = stream(bench.client, bench.servers, address)
    learnt(bench, one)
    sources = ("2001:db8::{:x}", IPv6) if ":" in address else ("203.0.113.{}", IP)
    forged = [sources[1](src=sources[0].format(number + 1), dst=address) for number in range(200)]
    arrived = forge(bench, forged)
    wait.until(lambda: bench.daemon.drops()["reverse-path"] >= 200, "all to be dropped")
    learnt(bench, one)
    assert not arrived()


def test_martian_sources_where_an_entry_is_a_destination(fast_router, stream):
    """RFC 1812, 5.3.7, and RFC 4291, 2.5.5.2."""
    bench = fast_router()
    streams = [stream(bench.client, bench.servers, address) for address in (FAR4, FAR6)]
    for one in streams:
        learnt(bench, one)
    assert fast(bench)["key"] == "destination"
    martians = [IP(src=FAR4, dst=FAR4), IPv6(src=FAR6, dst=FAR6), IPv6(src="::ffff:192.0.2.1", dst=FAR6)]
    arrived = forge(bench, martians * 20)
    wait.until(lambda: bench.daemon.drops()["martian"] >= 60, "all to be dropped")
    for one in streams:
        learnt(bench, one)
    assert not arrived()


@pytest.mark.parametrize("config", ["", FIREWALL], ids=["plain", "stateful"])
def test_packets_to_unused_addresses_take_no_flow_back(fast_router, stream, config):
    """The kernel adds a neighbour for each of them and gives it up, which changes the next hop of no flow."""
    bench = fast_router(config)
    face = bench.face(1)
    bench.mbox.sysctl(f"net/ipv4/neigh/{face}/retrans_time_ms", 100)
    bench.ip(f"neigh replace {FAR4} lladdr {SERVER_MAC} dev {face} nud permanent")
    one = stream(bench.client, bench.servers, FAR4)
    learnt(bench, one)
    before, installed, sent = hits(bench), fast(bench)["installed"], one.datagrams.sent
    with bench.client.socket(socket.AF_INET, socket.SOCK_DGRAM) as scanner:
        for number in range(50):
            scanner.sendto(b"anybody there?", (f"10.2.0.{10 + number}", 7))
            one.send(16)
    one.until(lambda: bench.ip(f"neigh show dev {face} nud failed").count("10.2.0.") >= 50, "all to be given up")
    sent = one.datagrams.sent - sent
    wait.until(lambda: hits(bench) > before + 0.9 * sent, "the kernel to have forwarded nearly all of them")
    # Some neighbour may have become stale meanwhile.
    assert fast(bench)["installed"] < installed + 5


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
