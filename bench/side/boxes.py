"""What stands in the box: mmb, XDP programs and the kernel's netfilter in the same role, as contexts."""

import contextlib
import random

from .peers import rules
from .results import AF_PACKET, FAST, FAST_TC, MMB
from .layer7.web import PORT
from .wire import CLIENT, CLIENT6, IPERF, OUTSIDE

# Where the clients of all experiments are, and what source NAT makes of them.
CLIENTS = "10.1.0.0/16"
# XDP's tracker knows what to track by source address and destination port.
TRACKED = f"{CLIENT}:{IPERF},{CLIENT}:{PORT}"

# mmb's best configuration over af-xdp: what it has decided of a flow is done in the kernel.
ON = "set fast-path auto\n"
AF_XDP = "`route left right` over af-xdp ports"
FASTER = "the same with `set fast-path auto`"
FASTER_TC = "the same over af-packet ports with `set fast-path auto`"
XDP = "the paper's program on both interfaces, native mode, forwarding by bpf_fib_lookup and a redirect"


@contextlib.contextmanager
def netfilter(wire, rules_of_nft=None, iptables=None):
    """nftables' rules, or a table of iptables, until the end of the `with` block."""
    if iptables:
        wire.iptables(iptables)
    else:
        wire.nft(rules_of_nft)
    try:
        yield
    finally:
        wire.nft("")


def ours(wire, lines):
    """mmb with these lines, and with its fast paths."""
    return {
        MMB: lambda: wire.mmb(lines),
        FAST: lambda: wire.mmb(ON + lines),
        FAST_TC: lambda: wire.mmb_on_packet_sockets(ON + lines),
    }


def forwarding(wire):
    """Nothing but forwarding, by name."""
    return {**ours(wire, ""), "XDP": lambda: wire.xdp("pass"), "nothing": contextlib.nullcontext}


FORWARDING = {
    MMB: AF_XDP + ", no rules",
    FAST: FASTER,
    FAST_TC: FASTER_TC,
    "XDP": "forwarding by bpf_fib_lookup and a redirect",
    "nothing": "ip_forward only",
}


def five_tuple(rule, keyword="add"):
    """A five-tuple of `rules` as a rule of mmb."""
    source, destination, proto, sport, dport = rule
    ip = "ip6" if ":" in source else "ip"
    return f"{keyword} {ip}-saddr {source} {ip}-daddr {destination} {proto}-sport {sport} {proto}-dport {dport} drop"


def five_tuples(count, keyword="add", made=rules.five_tuples, seed=1):
    """The same five-tuples that peers get, as rules of mmb."""
    return "".join(five_tuple(rule, keyword) + "\n" for rule in made(count, seed))


def firewall(wire, count):
    """A firewall of `count` five-tuples."""
    return {
        **ours(wire, five_tuples(count)),
        "XDP": lambda: wire.xdp("firewall", rules=count),
        "nftables, set": lambda: netfilter(wire, rules.nft_set(count)),
        "iptables": lambda: netfilter(wire, iptables=rules.iptables_rules(count)),
        "nothing": contextlib.nullcontext,
    }


FIREWALL = {
    MMB: AF_XDP + "; `add` of every rule",
    FAST: FASTER,
    FAST_TC: FASTER_TC,
    "XDP": XDP,
    "nftables, set": "ip_forward; one rule with a set of five-tuples",
    "iptables": "ip_forward; a rule each in FORWARD (nf_tables back end)",
    "nothing": "ip_forward only",
}


def tracking(wire, count):
    """The same with flows tracked: every flow of the client is let pass, and known from then on."""
    nft = rules.nft_set(count, rules.NFT_KNOWN, f"  ip saddr {CLIENTS} ct state new accept\n")
    accepted = f"-A FORWARD -s {CLIENTS} -m conntrack --ctstate NEW -j ACCEPT\n"
    iptables = rules.iptables_rules(count, rules.IPTABLES_KNOWN, accepted)
    return {
        **ours(wire, five_tuples(count, "add-stateful") + f"add-stateful ip-saddr {CLIENTS} accept\n"),
        "XDP": lambda: wire.xdp("tracker", rules=count, track=TRACKED),
        "nftables, set": lambda: netfilter(wire, nft),
        "iptables": lambda: netfilter(wire, iptables=iptables),
    }


TRACKING = {
    MMB: AF_XDP + "; `add-stateful` of every rule, and one that lets the client's flows pass",
    FAST: FASTER,
    FAST_TC: FASTER_TC,
    "XDP": XDP + ": three hash maps (flows, three-tuples, five-tuples)",
    "nftables, set": "`ct state established accept`, then a set of five-tuples, then an accept of the client's new flows",
    "iptables": "`-m conntrack --ctstate ESTABLISHED -j ACCEPT`, then a rule each, then an accept of the client's new flows",
}


def over_ip6(wire, count):
    """By role: forwarding alone, a firewall of `count` five-tuples, and the same with flows tracked, for packets of IPv6."""
    known = f"add-stateful ip6-saddr {CLIENT6} accept\n"
    tracked = five_tuples(count, "add-stateful", rules.five_tuples6) + known
    nft = rules.nft_set(count, rules.NFT_KNOWN, f"  ip6 saddr {CLIENT6} ct state new accept\n", ip6=True)
    nothing = {"nothing": contextlib.nullcontext}
    return {
        "forwarding": ours(wire, "") | nothing,
        "firewall": ours(wire, five_tuples(count, made=rules.five_tuples6))
        | {"nftables, set": lambda: netfilter(wire, rules.nft_set(count, ip6=True))},
        "tracking": ours(wire, tracked) | {"nftables, set": lambda: netfilter(wire, nft)},
    }


OVER_IP6 = {
    MMB: AF_XDP + "; no rules; `add` of every rule; `add-stateful` of every rule, and one that lets the client's flows pass",
    FAST: FASTER,
    FAST_TC: FASTER_TC,
    "nftables, set": "a set of five-tuples; behind `ct state established accept`, before an accept of the client's new flows",
    "nothing": "forwarding only",
}


def nat(wire):
    """Source NAT of the client behind one address."""
    return {
        **ours(wire, f"nat pool add wan {OUTSIDE}\nadd-stateful in left ip-saddr {CLIENTS} nat wan\n"),
        "nftables": lambda: netfilter(wire, rules.nft_snat(CLIENTS, OUTSIDE)),
        "iptables": lambda: netfilter(wire, iptables=rules.iptables_snat(CLIENTS, OUTSIDE)),
        "nothing": contextlib.nullcontext,
    }


NAT = {
    MMB: AF_XDP + "; `nat POOL` of one address",
    FAST: FASTER,
    FAST_TC: FASTER_TC,
    "nftables": "`snat to` an address",
    "iptables": "`-j SNAT` (nf_tables back end)",
    "nothing": "ip_forward only",
}


STATEFUL = f"add-stateful ip-saddr {CLIENTS} accept\n"
SOURCE_NAT = f"nat pool add wan {OUTSIDE}\nadd-stateful in left ip-saddr {CLIENTS} nat wan\n"


def bulk(wire, is_nat):
    """mmb on all kinds of port, and the kernel: tracking all flows, or with source NAT."""
    lines = SOURCE_NAT if is_nat else STATEFUL
    known = f"table ip t {{\n chain f {{\n  type filter hook forward priority 0;\n{rules.NFT_KNOWN}"
    nft = rules.nft_snat(CLIENTS, OUTSIDE) if is_nat else f"{known}  ip saddr {CLIENTS} ct state new accept\n }}\n}}\n"
    return {
        **ours(wire, lines),
        AF_PACKET: lambda: wire.mmb_on_packet_sockets(lines),
        "nftables": lambda: netfilter(wire, nft),
        "nothing": contextlib.nullcontext,
    }


BULK = {
    MMB: AF_XDP + "; `add-stateful` or `nat`, without further rules",
    FAST: FASTER,
    FAST_TC: FASTER_TC,
    AF_PACKET: "the same over af-packet ports",
    "nftables": "`ct state established accept` and an accept of new flows; `snat to`",
    "nothing": "ip_forward only",
}


def options(wire, count):
    """Rules about TCP options."""
    return {"mmb": lambda: wire.mmb(option_rules(count)), "nothing": contextlib.nullcontext}


OPTIONS = {
    "mmb": AF_XDP + "; rules that match random values of random options, each with `drop`",
    "nothing": "ip_forward only",
}


def option_rules(count, seed=1):
    """Rules for random values of random options. None is about what the ends send: no MSS of theirs is below 500, no
    window scale above 14, and a time stamp has one value of four thousand million."""
    draw = random.Random(seed)

    def value(kind):
        octets = "".join(f"{draw.randrange(256):02x}" for _ in range(10))
        return {
            "mss": draw.randrange(500),
            "wscale": draw.randrange(15, 256),
            "timestamp": draw.randrange(1 << 32),
            "sack": f"0x{octets[:16]}",
            "fast-open": f"0x{octets[:16]}",
            "mptcp": f"0x{octets}",
        }[kind]

    kinds = [draw.choice(("mss", "wscale", "timestamp", "sack", "fast-open", "mptcp")) for _ in range(count)]
    return "".join(f"add tcp-opt-{kind} {value(kind)} drop\n" for kind in kinds)


def monitors(count, apart):
    """Rules of mmb that send all flows through a chain of so many functions that keep 24 bytes of each session; `apart`:
    each but the first behind a flow manager of its own."""
    lines = "".join(f"nf add m{n} monitor\n" for n in range(count))
    names = ["m0"]
    for n in range(1, count):
        if apart:
            lines += f"nf add f{n} flow\n"
            names.append(f"f{n}")
        names.append(f"m{n}")
    return f"{lines}chain add c {' | '.join(names)}\nadd-stateful net-proto ip chain c\n"


@contextlib.contextmanager
def in_a_row(wire, count):
    """A daemon each for so many monitors: the first one routes, the others stand behind it as bumps in the wire."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(wire.mmb(monitors(1, False)))
        for number in range(1, count):
            ports = f"interface add a af-xdp w{number}a\ninterface add b af-xdp w{number}b\nwire a b\n"
            stack.enter_context(wire.mmb(monitors(1, False), ports))
        yield
