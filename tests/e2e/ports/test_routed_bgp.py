"""FRR with mmb: BGP sessions with the box and through it; mmb mirrors the routes that they install."""

import ipaddress
import random

from lab import frr, wait
from lab.routebench import BOX, CLIENT, FAR, SERVER, answered

ROUTES = 10_000


def prefixes(base, count):
    """A list of consecutive /24 networks."""
    first = int(ipaddress.ip_address(base))
    return [f"{ipaddress.ip_address(first + 256 * number)}/24" for number in range(count)]


def speaker(asn, router, neighbours, networks):
    lines = ["log stdout errors", f"router bgp {asn}", f" bgp router-id {router}", " no bgp ebgp-requires-policy"]
    lines += [" no bgp network import-check", " timers bgp 3 9"]
    for address, their in neighbours:
        lines += [f" neighbor {address} remote-as {their}", f" neighbor {address} timers connect 1"]
        lines += [f" neighbor {address} ebgp-multihop 4"]
    lines += [" address-family ipv4 unicast", *(f"  network {network}" for network in networks)]
    return "\n".join([*lines, " exit-address-family", ""])


def learn(one, peer, count):
    wait.until(lambda: one.learned(peer) == count, f"{count} prefixes from {peer}", patience=60)


def test_ten_thousand_routes_into_the_box(make_router):
    """The servers announce 10,000 routes: mmb has them all and forwards by them. When the session ends, they
    are removed.
    """
    bench = make_router()
    networks = prefixes("20.0.0.0", ROUTES)
    bench.servers.run("ip", "route", "add", "local", "20.0.0.0/8", "dev", "lo")
    far = frr.Speaker(bench.servers, speaker(65002, SERVER, [(FAR, 65001)], networks), zebra=False)
    bench.on_close(far.close)
    box = frr.Speaker(bench.mbox, speaker(65001, FAR, [(SERVER, 65002)], ["10.1.0.0/24"]))
    bench.on_close(box.close)
    learn(box, SERVER, ROUTES)

    def mirrored():
        status, body = bench.daemon.request("GET", "/v1/fib?prefix=20.0.0.0/8")
        assert status == 200
        return body.count(b'"prefix"')

    wait.until(lambda: mirrored() == ROUTES, "10,000 routes in mmb's table", patience=60)
    chance = random.Random(1)
    for network in chance.sample(networks, 50):
        host = ipaddress.ip_network(network)[chance.randrange(1, 255)]
        assert answered(bench.client, str(host)) == [63]
    far.close()
    wait.until(lambda: mirrored() == 0, "the routes to go with their session", patience=60)


def test_a_session_through_the_box(make_router):
    """Client and server have a BGP session through the box: 10,000 routes cross it, none is installed on it.
    """
    bench = make_router()
    networks = prefixes("20.0.0.0", ROUTES)
    near = frr.Speaker(bench.client, speaker(65001, CLIENT, [(SERVER, 65002)], []), zebra=False)
    bench.on_close(near.close)
    far = frr.Speaker(bench.servers, speaker(65002, SERVER, [(CLIENT, 65001)], networks), zebra=False)
    bench.on_close(far.close)
    learn(near, SERVER, ROUTES)
    assert bench.route_of("20.0.0.1") is None
    assert answered(bench.client, BOX) == [64]
