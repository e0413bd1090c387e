"""Random rules for peers, which match none of the packets that are sent."""

import functools
import ipaddress
import random


def inside(draw):
    """An address near those that packets come from, as mmb's own cases have it, but not one of them: they are in 10.1.0.0/16
    and 10.2.0.0/24."""
    second = draw.choice([0, *range(3, 256)])
    return f"10.{second}.{draw.randrange(256)}.{draw.randrange(256)}"


def outside(draw):
    return f"{draw.randrange(11, 224)}.{draw.randrange(256)}.{draw.randrange(256)}.{draw.randrange(256)}"


# A million take seven seconds: as many sets are kept as one experiment has places.
@functools.lru_cache(maxsize=8)
def five_tuples(count, seed=1):
    """(source, destination, protocol, source port, destination port), all exact."""
    draw = random.Random(seed)
    found = set()
    while len(found) < count:
        ports = draw.randrange(1, 65536), draw.randrange(1, 65536)
        found.add((inside(draw), outside(draw), draw.choice(("tcp", "udp")), *ports))
    return sorted(found)


def five_tuples6(count, seed=1):
    """The same with addresses of IPv6, none of which sends a packet."""

    def wide(address):
        return str(ipaddress.ip_address("2001:db8:f::") + int(ipaddress.ip_address(address)))

    return [(wide(source), wide(destination), *rest) for source, destination, *rest in five_tuples(count, seed)]


def masked(count, seed=1):
    """Rules with a mask of its own each, as those of `mmb bench --case masks`: prefixes of 16 to 32 bits, ports or None."""
    draw = random.Random(seed)
    lengths = range(16, 33)
    masks = [(a, b, s, d) for a in lengths for b in lengths for s in (False, True) for d in (False, True)]
    draw.shuffle(masks)

    def prefix(address, length):
        return str(ipaddress.ip_network(f"{address}/{length}", strict=False))

    def port(compared):
        return draw.randrange(1, 65536) if compared else None

    return [
        (prefix(inside(draw), a), prefix(outside(draw), b), draw.choice(("tcp", "udp")), port(sport), port(dport))
        for a, b, sport, dport in masks[:count]
    ]


def nft_chain(rules):
    """A chain for what is forwarded."""
    return f" chain f {{\n  type filter hook forward priority 0; policy accept;\n{rules} }}\n"


def nft_set(count, before="", behind="", ip6=False, seed=1):
    """A set of five-tuples, which nftables recommends over a rule each, between other rules."""
    family, address, made = ("ip6", "ipv6_addr", five_tuples6) if ip6 else ("ip", "ipv4_addr", five_tuples)
    proto = "meta l4proto" if ip6 else "ip protocol"
    elements = ",\n".join(" . ".join(map(str, rule)) for rule in made(count, seed))
    rule = f"  {family} saddr . {family} daddr . {proto} . th sport . th dport @s drop\n"
    return (
        f"table {family} t {{\n set s {{\n  type {address} . {address} . inet_proto . inet_service . inet_service\n"
        f"  elements = {{ {elements} }}\n }}\n{nft_chain(before + rule + behind)}}}\n"
    )


def nft_rule(source, destination, proto, sport, dport):
    return f"ip saddr {source} ip daddr {destination} {proto} sport {sport} {proto} dport {dport} drop"


def nft_rules(count):
    """A rule for each five-tuple."""
    rules = "".join(f"  {nft_rule(*rule)}\n" for rule in five_tuples(count))
    return f"table ip t {{\n{nft_chain(rules)}}}\n"


def nft_snat(clients, address):
    """Source NAT of clients behind an address."""
    chain = f"  type nat hook postrouting priority 100;\n  ip saddr {clients} snat to {address}\n"
    return f"table ip t {{\n chain p {{\n{chain} }}\n}}\n"


def iptables_rule(source, destination, proto, sport, dport):
    return f"-A FORWARD -s {source} -d {destination} -p {proto} --sport {sport} --dport {dport} -j DROP"


def iptables_rules(count, before="", behind=""):
    """The table `filter` with a rule for each five-tuple in FORWARD, between other rules."""
    rules = "".join(iptables_rule(*rule) + "\n" for rule in five_tuples(count))
    return f"*filter\n:INPUT ACCEPT\n:FORWARD ACCEPT\n:OUTPUT ACCEPT\n{before}{rules}{behind}COMMIT\n"


def iptables_snat(clients, address):
    """The table `nat` with source NAT of clients behind an address."""
    chains = "".join(f":{name} ACCEPT\n" for name in ("PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"))
    return f"*nat\n{chains}-A POSTROUTING -s {clients} -j SNAT --to-source {address}\nCOMMIT\n"


# Packets of connections that are known pass.
NFT_KNOWN = "  ct state established accept\n"
IPTABLES_KNOWN = "-A FORWARD -m conntrack --ctstate ESTABLISHED -j ACCEPT\n"


def open_flows(rules, more="", table=0):
    """A drop flow of OpenFlow for each rule, and `more` lines."""

    def line(source, destination, proto, sport, dport):
        ports = [f"{name}={port}" for name, port in (("tp_src", sport), ("tp_dst", dport)) if port is not None]
        return ",".join([proto, f"nw_src={source}", f"nw_dst={destination}", *ports])

    return more + "".join(f"table={table},{line(*rule)},priority=20,actions=drop\n" for rule in rules)


def classbench(rules):
    """Rules in the format of ClassBench's filter sets."""

    def slashed(prefix):
        return prefix if "/" in prefix else f"{prefix}/32"

    def ports(port):
        return "0 : 65535" if port is None else f"{port} : {port}"

    return "".join(
        f"@{slashed(source)}\t{slashed(destination)}\t{ports(sport)}\t{ports(dport)}\t"
        f"{'0x06' if proto == 'tcp' else '0x11'}/0xFF\t0x0000/0x0000\n"
        for source, destination, proto, sport, dport in rules
    )
