"""Random rules for peers: five-tuples that match none of the packets that are sent."""

import random


def five_tuples(count, seed=1):
    """(source, destination, protocol, source port, destination port): sources in 11.0.0.0/8, where no packet comes from."""
    draw = random.Random(seed)
    found = set()
    while len(found) < count:
        source = f"11.{draw.randrange(256)}.{draw.randrange(256)}.{draw.randrange(256)}"
        destination = f"{draw.randrange(1, 224)}.{draw.randrange(256)}.{draw.randrange(256)}.{draw.randrange(256)}"
        found.add((source, destination, draw.choice(("tcp", "udp")), draw.randrange(1, 65536), draw.randrange(1, 65536)))
    return sorted(found)


def nft_set(count, more=""):
    """A set of five-tuples, which nftables recommends over a rule each. `more` are rules behind."""
    elements = ",\n".join(" . ".join(map(str, rule)) for rule in five_tuples(count))
    return (
        "table ip t {\n set s {\n  type ipv4_addr . ipv4_addr . inet_proto . inet_service . inet_service\n"
        f"  elements = {{ {elements} }}\n }}\n"
        " chain f {\n  type filter hook forward priority 0; policy accept;\n"
        f"  ip saddr . ip daddr . ip protocol . th sport . th dport @s drop\n{more} }}\n}}\n"
    )


def nft_rules(count):
    """A rule for each five-tuple."""
    rules = "".join(
        f"  ip saddr {source} ip daddr {destination} {proto} sport {sport} {proto} dport {dport} drop\n"
        for source, destination, proto, sport, dport in five_tuples(count)
    )
    return f"table ip t {{\n chain f {{\n  type filter hook forward priority 0; policy accept;\n{rules} }}\n}}\n"


def iptables_rules(count, more=""):
    """A rule for each five-tuple, for the chain FORWARD."""
    rules = "".join(
        f"-A FORWARD -s {source} -d {destination} -p {proto} --sport {sport} --dport {dport} -j DROP\n"
        for source, destination, proto, sport, dport in five_tuples(count)
    )
    return f":INPUT ACCEPT\n:FORWARD ACCEPT\n:OUTPUT ACCEPT\n{more}{rules}"
