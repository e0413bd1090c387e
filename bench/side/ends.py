"""The experiments end to end: real clients and servers over veth."""

import contextlib

from . import rules
from .results import Experiment, Series
from .wire import Wire, percentile

END_TO_END = "end to end"
SHARED = (
    "Client, box and server share this machine's cores: more of them for the box leaves less for the others. What is seen "
    "is the whole, not the box alone."
)


def mmb_rules(count):
    """The same five-tuples as rules of mmb."""
    return "".join(
        f"add ip-saddr {source} ip-daddr {destination} {proto}-sport {sport} {proto}-dport {dport} drop\n"
        for source, destination, proto, sport, dport in rules.five_tuples(count)
    )


def boxes(wire, count):
    """What can stand in the box, with `count` rules: contexts by name."""

    @contextlib.contextmanager
    def netfilter(install):
        install()
        try:
            yield
        finally:
            wire.nft("")

    return {
        "mmb": lambda: wire.mmb(mmb_rules(count)),
        "XDP": lambda: wire.xdp("firewall", rules=count),
        "nftables, set": lambda: netfilter(lambda: wire.nft(rules.nft_set(count))),
        "iptables": lambda: netfilter(lambda: wire.iptables("filter", rules.iptables_rules(count))),
    }


SETUP = {
    "mmb": "`route left right` over af-xdp ports; `add` of every rule",
    "XDP": "the paper's program on both interfaces, native mode, forwarding by bpf_fib_lookup and a redirect",
    "nftables, set": "ip_forward; one rule with a set of five-tuples",
    "iptables": "ip_forward; a rule each in FORWARD",
}


def firewall(rounds, full):
    """Figure 9a as the paper has it: bandwidth behind a firewall."""
    experiment = Experiment(
        "firewall-goodput", "Goodput of TCP through a firewall of random five-tuples", END_TO_END, "rules", "Gbit/s",
        "mmb, Figure 9a", SETUP, [SHARED, "iperf3, two streams."],
    )
    places = [10, 1000, 10_000] + ([100_000] if full else [])
    with Wire() as wire:

        def goodput(name):
            def measure(count):
                with boxes(wire, int(count))[name]():
                    return wire.goodput()[0]

            return measure

        few = [x for x in places if x <= 10_000]
        return experiment.measure(
            [Series(name, goodput(name), few if name == "iptables" else places) for name in SETUP], rounds
        )


def round_trips(rounds, full):
    """Figure 8: round trips with 10,000 rules."""
    experiment = Experiment(
        "round-trips", "Round trips with 10,000 firewall rules", END_TO_END, "percentile", "µs", "mmb, Figure 8",
        SETUP, [SHARED, "ping, one every 2 ms; an idle box otherwise: mmb sleeps and is woken."],
    )
    places = [50, 90, 99]
    with Wire() as wire:
        times = {}

        def trip(name):
            def measure(share):
                if share == places[0]:
                    with boxes(wire, 10_000)[name]():
                        wire.round_trips(20)
                        times[name] = wire.round_trips(1000 if full else 300)
                return percentile(times[name], share / 100)

            return measure

        return experiment.measure([Series(name, trip(name), places) for name in SETUP], rounds)


ALL = {"firewall-goodput": firewall, "round-trips": round_trips}
