"""NAT of protocols that have no ports for mmb: GRE, SCTP, ESP. Only the addresses keep their sessions apart."""

import collections

import pytest
from scapy.layers.ipsec import ESP
from scapy.layers.l2 import GRE
from scapy.layers.sctp import SCTP, SCTPChunkInit

from lab import frames, wait
from lab.frames import ICMP, IP, Ether, Raw
from lab.natbench import INSIDE, OTHER, OUTSIDE, ROUTER_MAC, SERVER
from lab.netns import CLIENT_MAC
from lab.raw import RawPort

# Two associations that differ in ports, two tunnels that differ in keys: mmb looks at neither.
BODIES = {
    "gre": [GRE(key_present=1, key=key) / IP(src="192.0.2.1", dst="192.0.2.2") / frames.payload() for key in (1, 2)],
    "sctp": [SCTP(sport=port, dport=3868) / SCTPChunkInit(init_tag=port) for port in (4000, 4001)],
    "esp": [ESP(spi=spi, seq=1) / Raw(b"sealed" * 8) for spi in (256, 257)],
}
NUMBERS = {"gre": 47, "sctp": 132, "esp": 50}


class Ends:
    """Frames of hosts at the inside, and of servers at the outside."""

    def __init__(self, nat, kind):
        self.number = NUMBERS[kind]
        self.inside, self.outside = RawPort(nat.hosts, "c0"), RawPort(nat.router, "r0")
        for port in (self.inside, self.outside):
            nat.on_close(port.close)

    def _cross(self, sender, receiver, macs, addresses, body):
        """Sends a packet; returns the source and destination with which it arrives, with an unchanged body."""
        packet = IP(src=addresses[0], dst=addresses[1], proto=self.number) / body
        found = []

        def is_it(frame):
            seen = Ether(frame)
            if IP in seen and seen[IP].proto == self.number:
                found.append(seen)
            return bool(found)

        sender.send(Ether(src=macs[0], dst=macs[1]) / packet)
        receiver.receive_until(is_it)
        seen = found[0][IP]
        sent = IP(bytes(packet))
        assert bytes(seen.payload) == bytes(sent.payload), "GRE, SCTP and ESP have no checksum over addresses"
        assert frames.wrong_checksums(bytes(found[0])) == []
        return seen.src, seen.dst

    def send(self, host, server, body):
        return self._cross(self.inside, self.outside, (CLIENT_MAC, ROUTER_MAC), (host, server), body)

    def reply(self, server, address, body):
        return self._cross(self.outside, self.inside, (ROUTER_MAC, CLIENT_MAC), (server, address), body)

    def refuse(self, host, server, body):
        """Sends a packet that is refused; returns who gets the ICMP error *administratively prohibited*."""
        errors = []

        def is_error(frame):
            # The kernels of the servers have no such protocols, and say so with another code.
            seen = Ether(frame)
            if ICMP in seen and (seen[ICMP].type, seen[ICMP].code) == (3, 13):
                errors.append(seen[IP].dst)
            return bool(errors)

        packet = IP(src=host, dst=server, proto=self.number) / body
        self.inside.send(Ether(src=CLIENT_MAC, dst=ROUTER_MAC) / packet)
        self.inside.receive_until(is_error)
        return errors[0]


@pytest.mark.parametrize("kind", BODIES)
def test_a_second_host_through_one_address(make_nat, kind):
    """A second host is refused for the same server only, and the first one's session stays its own."""
    nat = make_nat(f"nat pool add wan {OUTSIDE[0]}\nadd-stateful ip-saddr 10.0.0.0/24 nat wan\n")
    ends, (body, other) = Ends(nat, kind), BODIES[kind]
    first, second = INSIDE[:2]
    assert ends.send(first, SERVER, body) == (OUTSIDE[0], SERVER)
    assert ends.refuse(second, SERVER, other) == second
    wait.until(lambda: nat.daemon.drops()["nat-exhausted"] == 1, "the drop")
    # Whatever the reply has for ports, key or SPI, it is the first host's.
    assert ends.reply(SERVER, OUTSIDE[0], other) == (SERVER, first)
    # Another server: no conflict. A third host that was refused nothing before is refused as well.
    assert ends.send(second, OTHER, other) == (OUTSIDE[0], OTHER)
    assert ends.reply(OTHER, OUTSIDE[0], body) == (OTHER, second)
    ends.refuse(INSIDE[2], SERVER, body)
    ends.refuse(first, OTHER, body)
    assert nat.daemon.drops()["nat-exhausted"] == 3
    assert ends.send(first, SERVER, other) == (OUTSIDE[0], SERVER)
    seen = [(one["forward"]["source"], one["forward"]["destination"]) for one in nat.connections()["connections"]]
    assert sorted(seen) == [(first, SERVER), (second, OTHER)]


def test_different_addresses_of_the_pool(make_nat):
    """Hosts with different addresses of the pool have tunnels to one server at the same time."""
    nat = make_nat(f"nat pool add wan {OUTSIDE[0]}-{OUTSIDE[1]}\nadd-stateful ip-saddr 10.0.0.0/24 nat wan\n")
    ends, (body, _) = Ends(nat, "gre"), BODIES["gre"]
    hosts = collections.defaultdict(list)
    for number, host in enumerate(INSIDE):
        source, _ = ends.send(host, f"198.51.100.{100 + number}", body)
        hosts[source].append(host)
    assert set(hosts) == {OUTSIDE[0], OUTSIDE[1]}
    pairs = [(address, members[0]) for address, members in hosts.items()]
    for address, host in pairs:
        assert ends.send(host, SERVER, body) == (address, SERVER)
    for address, host in pairs:
        assert ends.reply(SERVER, address, body) == (SERVER, host)
    assert nat.daemon.drops().get("nat-exhausted", 0) == 0
