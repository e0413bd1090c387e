"""Routed mode: neighbours, routes, errors and MTU, with real hosts on both sides."""

import re

import pytest

from lab import frames, traffic, wait
from lab.natbench import Speaker
from lab.raw import RawPort
from lab.routebench import BOX, BOX6, CLIENT, CLIENT6, FAR, SERVER, SERVER6, answered, mirror, of_way, ping, speaker

BOTH = [pytest.param(SERVER, id="ip4"), pytest.param(SERVER6, id="ip6")]


@pytest.mark.parametrize("server", BOTH)
def test_traceroute_shows_the_box(make_router, driver, server):
    bench = make_router(driver=driver)
    version, box = ("-6", BOX6) if ":" in server else ("-4", BOX)
    for kind in ([], ["-T", "-p", "80"]):
        shown = bench.client.run("traceroute", version, "-n", "-q", "1", "-m", "4", *kind, server).stdout
        hops = [line.split()[1] for line in shown.splitlines()[1:]]
        assert hops == [box, server], shown


def test_path_mtu(make_router, driver):
    """A link with an MTU of 1400: packets with DF and IPv6 packets cause an error, others are fragmented; TCP
    adapts.
    """
    bench = make_router(driver=driver)
    bench.ip("link set m1 mtu 1400")
    bench.servers.run("ip", "link", "set", "s0", "mtu", 1400)
    wait.until(lambda: "mtu = 1400" in ping(bench.client, SERVER, "-M", "do", "-s", "1472"), "fragmentation needed")
    bench.client.run("ip", "route", "flush", "cache")
    shown = bench.client.run("tracepath", "-n", SERVER).stdout
    assert re.search(r"Resume: pmtu 1400 ", shown), shown
    bench.client.run("ip", "route", "flush", "cache")
    assert answered(bench.client, SERVER, "-M", "dont", "-s", "1472") == [63]
    # Far more than a frame: fragments of the client's own are cut once more.
    assert answered(bench.client, SERVER, "-M", "dont", "-s", "9000") == [63]
    wait.until(lambda: "mtu=1400" in ping(bench.client, SERVER6, "-M", "do", "-s", "1452"), "packet too big")
    bench.client.run("ip", "-6", "route", "flush", "cache")
    assert "pmtu 1400" in bench.client.run("tracepath", "-6", "-n", SERVER6).stdout
    for server in (SERVER, SERVER6):
        bench.client.run("ip", "-6" if ":" in server else "-4", "route", "flush", "cache")
        sent, received = traffic.bulk_transfer(bench.client, bench.servers, server, size=4 << 20)
        assert sent == received


def test_first_packet_waits_for_its_neighbour(make_router, driver):
    """An unknown neighbour: the kernel resolves it, and the first packet is not lost."""
    bench = make_router(driver=driver)
    bench.add(bench.servers, "s0", "10.2.0.77/24", "fd02::77/64")
    for address in ("10.2.0.77", "fd02::77"):
        assert bench.daemon.json("show", "neighbors", address)["neighbors"] == []
        assert answered(bench.client, address) == [63]
        (found,) = bench.daemon.json("show", "neighbors", address)["neighbors"]
        assert found["mac"] == "02:00:00:00:00:02"


def test_neighbour_that_does_not_answer(make_router, driver):
    """An absent neighbour: the sender gets an ICMP error from the box's address on its side."""
    bench = make_router(driver=driver)
    for address, box, words in (
        ("10.2.0.99", BOX, "Destination Host Unreachable"),
        ("fd02::99", BOX6, "Destination unreachable: Address unreachable"),
    ):
        shown = ping(bench.client, address)
        assert re.search(rf"From {box} icmp_seq=1 {words}", shown), shown
    assert bench.daemon.drops()["neighbor-failed"] >= 2


def test_neighbour_gets_another_address(make_router, driver):
    """The server's Ethernet address changes under traffic: packets use the new address once the kernel has
    learned it.
    """
    bench = make_router(driver=driver)
    assert answered(bench.client, SERVER) == [63]
    bench.servers.run("ip", "link", "set", "s0", "address", "02:00:00:00:00:55")
    bench.servers.run("ip", "route", "replace", "default", "via", FAR)
    bench.ip(f"neigh replace {SERVER} lladdr 02:00:00:00:00:55 dev {bench.face(1)} nud reachable")
    wait.until(lambda: " 0% packet loss" in ping(bench.client, SERVER), "an answer by the new address")


def test_kinds_of_routes(make_router, driver):
    """The kernel's special routes and missing routes cause the ICMP errors that Linux sends."""
    bench = make_router(driver=driver)
    for number, kind in enumerate(("unreachable", "prohibit", "blackhole")):
        bench.ip(f"route add {kind} 10.20.{number}.0/24")
        bench.ip(f"-6 route add {kind} fd20:{number}::/32")
        bench.until_routed(f"10.20.{number}.1", kind)
        bench.until_routed(f"fd20:{number}::1", kind)
    said = {
        "10.20.0.1": "Destination Host Unreachable",
        "10.20.1.1": "Packet filtered",
        "10.66.0.1": "Destination Net Unreachable",
        "fd20:0::1": "Destination unreachable: No route",
        "fd20:1::1": "Destination unreachable: Administratively prohibited",
        "fd66::1": "Destination unreachable: No route",
    }
    for address, words in said.items():
        shown = ping(bench.client, address)
        assert f"From {BOX6 if ':' in address else BOX} icmp_seq=1 {words}" in shown, shown
    shown = ping(bench.client, "10.20.2.1", "-W", "1")
    assert "100% packet loss" in shown and "From" not in shown
    drops = bench.daemon.drops()
    for reason, least in (("blackhole", 1), ("no-route", 2), ("unreachable-route", 2), ("prohibited-route", 2)):
        assert drops[reason] >= least, drops


def test_routes_change_under_traffic(make_router, driver):
    """The route changes several times under traffic: no datagram is lost."""
    bench = make_router(driver=driver, ways=2)
    gateways = [of_way(way)[0][1] for way in (1, 2)]
    bench.ip(f"route add 10.9.0.0/16 via {gateways[0]}")
    bench.until_routed("10.9.0.1")
    for gateway in gateways:
        # Few packets wait for a neighbour that is not known yet.
        assert answered(bench.client, gateway)
    flow = traffic.Datagrams(bench.client, bench.servers, "10.9.0.1")
    try:
        flow.send(200)
        flow.settle()
        for turn in range(20):
            bench.ip(f"route replace 10.9.0.0/16 via {gateways[(turn + 1) % 2]}")
            flow.send(100)
        flow.settle()
    finally:
        flow.close()
    assert min(bench.received("s1"), bench.received("s2")) > 300


@pytest.mark.parametrize("version", [4, 6])
def test_ecmp_spreads_flows(make_router, driver, version):
    """Three next hops share the flows; each flow stays with one of them."""
    bench = make_router(driver=driver, ways=3)
    at = 0 if version == 4 else 1
    network, address = ("10.9.0.0/16", "10.9.1.1") if version == 4 else ("fd09::/64", "fd09::11")
    hops = " ".join(f"nexthop via {of_way(way)[at][1]}" for way in (1, 2, 3))
    bench.ip(f"-{version} route add {network} {hops}")
    bench.until_routed(address)
    assert len(bench.route_of(address)["next_hops"]) == 3
    for way in (1, 2, 3):
        assert answered(bench.client, of_way(way)[at][1])
    mirror(bench, address, 7000)
    source = CLIENT if version == 4 else CLIENT6

    def counted():
        return [bench.received(f"s{way}") for way in (1, 2, 3)]

    before = counted()
    for _ in range(240):
        made = Speaker(bench.client, source)
        made.ask(address, 7000)
        made.close()
    spread = [after - first for after, first in zip(counted(), before)]
    # Of 240 throws among three: 80, with a deviation of 7.3; five of them to either side.
    assert all(44 <= packets <= 140 for packets in spread) and sum(spread) >= 240, spread
    one = speaker(bench, source)
    before = counted()
    for _ in range(60):
        one.ask(address, 7000)
    assert sum(after - first >= 60 for after, first in zip(counted(), before)) == 1


def test_link_goes_down_and_comes_back(make_router, driver):
    """With one of two links down, the other carries all traffic; a route by a link that is down is not used.
    """
    bench = make_router(driver=driver, ways=2)
    hops = " ".join(f"nexthop via {of_way(way)[0][1]}" for way in (1, 2))
    bench.ip(f"route add 10.9.0.0/16 {hops}")
    bench.ip(f"route add 10.8.0.0/16 via {of_way(2)[0][1]}")
    bench.until_routed("10.8.0.1")
    mirror(bench, "10.9.1.1", 7000)
    assert Speaker(bench.client, CLIENT).ask("10.9.1.1", 7000)

    def living(address):
        return [hop for hop in bench.route_of(address)["next_hops"] if hop["state"] != "dead"]

    bench.ip(f"link set {bench.face(3)} down")
    wait.until(lambda: len(living("10.9.0.1")) == 1, "one next hop to be left")
    wait.until(lambda: bench.route_of("10.8.0.1") is None, "the route by the downed link to go")
    for _ in range(40):
        made = Speaker(bench.client, CLIENT)
        assert made.ask("10.9.1.1", 7000)
        made.close()
    bench.ip(f"link set {bench.face(3)} up")
    bench.ip(f"route replace 10.9.0.0/16 {hops}")
    wait.until(lambda: len(living("10.9.0.1")) == 2, "both next hops")
    wait.until(lambda: " 0% packet loss" in ping(bench.client, of_way(2)[0][1]), "the way to work again")


def test_what_a_router_does_not_forward(make_router, driver):
    """Frames to other hosts, link broadcasts, bad headers and martians are dropped (RFC 1812, 4.2.2, 5.3.4,
    5.3.7).
    """
    bench = make_router(driver=driver)
    assert answered(bench.client, SERVER)
    left, right = RawPort(bench.client, "c0"), RawPort(bench.servers, "s0")
    bench.on_close(left.close)
    bench.on_close(right.close)
    box_mac = "02:00:00:00:02:00"

    def packet(mac=box_mac, source=CLIENT, destination=SERVER, **fields):
        ip = frames.IP(src=source, dst=destination, **fields)
        return frames.Ether(src="02:00:00:00:00:01", dst=mac) / ip / frames.UDP(sport=1, dport=9) / frames.payload()

    bad = [
        packet(mac="02:00:00:00:09:09"),
        packet(mac="ff:ff:ff:ff:ff:ff"),
        packet(mac="01:00:5e:00:00:01"),
        packet(source="127.0.0.1"),
        packet(source="0.1.2.3"),
        packet(source="224.0.0.1"),
        packet(source="255.255.255.255"),
        packet(destination="127.0.0.1"),
        packet(destination="10.2.0.255"),
        packet(chksum=0x1234),
        packet(version=5),
        packet(ihl=4),
    ]
    good = [packet(), packet(options=frames.IPOption(b"\x94\x04\x00\x00"))]
    right.drain()
    for sent in (*bad, *good):
        left.send(sent)
    came = []
    # Two, one after the other: what shares a vector with the first has come when the second has.
    for last in (packet(), packet()):
        number = frames.serial(bytes(last))
        left.send(last)
        came += right.receive_until(lambda frame: frames.is_ours(frame) and frames.serial(frame) == number)
    serials = {frames.serial(frame) for frame in came if frames.is_ours(frame)}
    assert serials == {frames.serial(bytes(sent)) for sent in good}
