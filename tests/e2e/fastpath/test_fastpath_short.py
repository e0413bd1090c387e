"""Short connections in the fast path: how many of their packets the engine sees."""

from lab import traffic, wait
from lab.fastpath import FIREWALL, NAT, fast, hits
from lab.natbench import SERVER
from lab.netns import SERVER4
from lab.routebench import SERVER as FAR4

# SYN and SYN-ACK, and one more.
ENGINE_PACKETS = 4


def shortly(bench, client, server, url, most):
    """Makes short connections with a real client, after some for learning, in rounds until the engine has processed
    less than `most` packets of each connection of a round: a busy machine learns late.
    """
    web = traffic.WebServer(server, 80, size=1024)
    try:

        def seen(count):
            before = bench.daemon.nodes()["port-rx"]
            for _ in range(count):
                assert traffic.fetch(client, url) == web.content
            return (bench.daemon.nodes()["port-rx"] - before) / count

        seen(50)
        before = hits(bench)
        rounds = [seen(50) for _ in range(3)]
        wait.until(lambda: hits(bench) > before + 3 * 150, "what the kernel sent on to be counted")
        while min(rounds) >= most and len(rounds) < 20:
            rounds.append(seen(50))
        assert min(rounds) < most, rounds
    finally:
        web.close()


def test_short_connections_through_a_router(fast_router):
    """Entries by destination: the engine sees no packet, not even the SYNs."""
    bench = fast_router()
    shortly(bench, bench.client, bench.servers, f"http://{FAR4}/file", 0.5)


def test_short_connections_through_a_firewall(fast_router):
    """Stateless rules: the engine sees the first packet of each direction."""
    bench = fast_router("add tcp-dport 9 drop\nadd all accept\n")
    shortly(bench, bench.client, bench.servers, f"http://{FAR4}/file", 4)


def test_short_connections_through_a_firewall_that_has_nothing_to_say_of_their_ports(fast_router):
    """Rules about other addresses: the engine sees no packet, and matching rules count all packets."""
    others = "".join(f"add ip-saddr 10.77.{n}.1 ip-daddr {FAR4} tcp-sport {n} tcp-dport 80 drop\n" for n in range(1, 201))
    bench = fast_router(others + f"add ip-daddr {FAR4} ip-proto tcp accept\n")
    assert fast(bench)["key"] == "pair"
    shortly(bench, bench.client, bench.servers, f"http://{FAR4}/file", 0.5)
    # A connection has five packets there, at least.
    wait.until(lambda: bench.daemon.hits(201) >= 5 * 200, "the rule to have all")
    assert fast(bench)["entries"] < 20


def test_short_connections_through_a_firewall_with_sessions(fast_wire):
    """The engine sees both SYNs; the kernel forwards the rest, and records FINs."""
    wire = fast_wire(FIREWALL)
    shortly(wire, wire.client, wire.server, f"http://{SERVER4}/file", ENGINE_PACKETS)

    def over():
        every = wire.daemon.json("show", "connections", "tcp-dport", 80)["connections"]
        return len(every) >= 200 and all(one["state"] == "closed" for one in every)

    wait.until(over, "all connections to be closed")
    wait.until(lambda: fast(wire)["entries"] < 20, "their places to be free")

    def packets():
        every = wire.daemon.json("show", "connections")["connections"]
        return sum(one[way]["packets"] for one in every for way in ("forward", "reverse"))

    # What the kernel has sent on is counted a moment later.
    wait.until(lambda: packets() == wire.daemon.hits(1), "sessions and rule to have counted the same packets")


def test_short_connections_through_nat(fast_nat):
    nat = fast_nat(NAT + "set timeout tcp-closed 1\n")
    shortly(nat, nat.hosts, nat.servers, f"http://{SERVER}/file", ENGINE_PACKETS)
    connections = lambda: nat.daemon.json("show", "connections")["connections"]  # noqa: E731
    wait.until(lambda: not [one for one in connections() if one["protocol"] == "tcp"], "sessions to end on time", 10)
    assert sum(nat.daemon.drops().values()) == 0
