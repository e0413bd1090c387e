"""The experiments end to end: real clients and servers over veth."""

import contextlib

from . import boxes
from .layer7 import web
from .results import FAST, FAST_TC, MMB, Experiment, Series
from .wire import MIXED_PORTS, SERVER, SERVER6, Wire, percentile

END_TO_END = "end to end"
SHARED = (
    "Client, box and server share this machine's cores: more of them for the box leaves less for the others. What is seen "
    "is the whole, not the box alone."
)
IPERF = "iperf3, two streams."
OFFLOAD = "With offload, all interfaces leave segmentation and checksums to the device, as those of containers do."
# Rules in each role that has any, where roles are compared.
SOME = 1000
# Most rules that iptables is given: it asks one after the other.
LINEAR = 10_000


def together(figures, series, rounds):
    """Measures several figures in the same runs: `at(x)` of each series returns a value for each of them, or None."""
    kept = {}

    def first(one):
        def at(x):
            value, *others = one.at(x)
            kept.setdefault((one.name, x), []).append(others)
            return value

        return Series(one.name, at, one.places)

    def other(one, number):
        turns = {x: iter(kept[one.name, x]) for x in one.places if (one.name, x) in kept}

        def at(x):
            # Where measuring failed at last there are fewer runs than rounds.
            values = next(turns[x], None)
            return values and values[number]

        return Series(one.name, at, list(turns))

    figures[0].measure([first(one) for one in series], rounds)
    for number, figure in enumerate(figures[1:]):
        figure.measure([other(one, number) for one in series], rounds)
        figure.absent.update(figures[0].absent)
    return figures


def pair(name, title, x, paper, setup, notes, labels=()):
    """The two figures of a run of iperf3."""
    return [
        Experiment(name + end, f"{what} {title}", END_TO_END, x, unit, paper, setup, [SHARED, IPERF, *notes], list(labels))
        for end, what, unit in (
            ("-goodput", "Goodput of TCP through", "Gbit/s"),
            ("-cpu", "CPU time of the whole machine for TCP through", "s per Gbit"),
        )
    ]


def goodput(wire, stands, name, server=SERVER):
    """Goodput and CPU time, with what `stands(wire, x)` calls `name` in the box."""

    def measure(x):
        with stands(wire, int(x))[name]():
            return wire.goodput(server_address=server)

    return measure


def firewall(rounds, full):
    """Figure 9a as the paper has it: bandwidth behind a firewall."""
    figures = pair("firewall", "a firewall of random five-tuples", "rules", "mmb, Figure 9a", boxes.FIREWALL, [])
    return by_rules(figures, boxes.firewall, boxes.FIREWALL, [10, 1000, 10_000] + [100_000] * full, rounds)


def tracking(rounds, full):
    """Figure 9b as the paper has it: bandwidth behind a firewall that tracks flows."""
    figures = pair("tracking", "a firewall that tracks flows", "rules", "mmb, Figure 9b", boxes.TRACKING, [])
    return by_rules(figures, boxes.tracking, boxes.TRACKING, [10, 10_000] + [100_000] * full, rounds)


def by_rules(figures, stands, setup, places, rounds):
    """Measures both figures for each number of rules; without any, one number is enough."""
    some = {"iptables": [x for x in places if x <= LINEAR], "nothing": places[:1]}
    with Wire() as wire:
        series = [Series(name, goodput(wire, stands, name), some.get(name, places)) for name in setup]
        return together(figures, series, rounds)


def nat(rounds, full):
    """Figure 9c as the paper has it: bandwidth behind source NAT."""
    notes = ["XDP is not there: the paper has no such program."]
    figures = pair("nat", "source NAT", "for", "mmb, Figure 9c", boxes.NAT, notes, ["iperf3"])
    with Wire() as wire:
        series = [Series(name, goodput(wire, lambda wire, _: boxes.nat(wire), name), [0]) for name in boxes.NAT]
        return together(figures, series, rounds)


def over_ip6(rounds, full):
    """The roles that IPv6 has, too."""
    roles = ["forwarding", "firewall", "tracking"]
    notes = [f"The firewall has {SOME:,} five-tuples. XDP is not there: the paper's programs know IPv4 only."]
    figures = pair("ip6", "the box over IPv6", "role", "not in the papers", boxes.OVER_IP6, notes, roles)
    with Wire() as wire:
        stands = boxes.over_ip6(wire, SOME)
        series = [
            Series(
                name, goodput(wire, lambda _, at: stands[roles[at]], name, SERVER6),
                [at for at, role in enumerate(roles) if name in stands[role]],
            )
            for name in boxes.OVER_IP6
        ]
        return together(figures, series, rounds)


def bulk(rounds, full):
    """Bulk TCP between ends that leave segmentation and checksums to their interfaces, as containers and virtual machines do,
    and between ends that do not."""
    figures = []
    for is_nat, name, title in ((False, "bulk-tracking", "tracking of flows"), (True, "bulk-nat", "source NAT")):
        both = pair(
            name, f"{title}, by the ends' segmentation offload", "offload", "not in the papers", boxes.BULK,
            ["Buffers of up to 64 KiB pass whole where offloads are on, unless XDP is in their way."], ["off", "on"],
        )
        with Wire() as without, Wire(offloads=True) as offloading:
            wires = [without, offloading]

            def measured(name, is_nat=is_nat, wires=wires):
                def measure(x):
                    wire = wires[int(x)]
                    with boxes.bulk(wire, is_nat)[name]():
                        return wire.goodput()

                return measure

            figures += together(both, [Series(name, measured(name), [0, 1]) for name in boxes.BULK], rounds)
    return figures


SINGLE = "mmb, no GRO"
MERGING = {
    MMB: "af-xdp port to the client, af-packet port to the server; segments leave merged to large frames (`set gro on`)",
    SINGLE: "the same with `set gro off`",
}


def merging(rounds, full):
    """Segments that come one by one and leave by a port that takes large frames: merged, and not."""
    notes = ["The ends have offload: the server receives frames of up to 64 KiB as they are."]
    figures = pair("merging", "a port that merges segments (GRO), by connections", "connections", "not in the papers", MERGING, notes)
    with Wire(offloads=True) as wire:

        def measured(name):
            def measure(streams):
                setting = "set gro off\n" if name == SINGLE else ""
                with wire.mmb_on_packet_sockets(setting + boxes.STATEFUL, MIXED_PORTS):
                    return wire.goodput(streams=int(streams))

            return measure

        return together(figures, [Series(name, measured(name), [1, 2, 8]) for name in MERGING], rounds)


def options(rounds, full):
    """Figure 9f as the paper has it: bandwidth behind rules about TCP options."""
    figures = pair(
        "options", "rules about TCP options", "rules", "mmb, Figure 9f", boxes.OPTIONS,
        ["No peer of the paper matches options by value at this scale."],
    )
    return by_rules(figures, boxes.options, boxes.OPTIONS, [10, 1000, 10_000] if not full else [1, 10, 100, 1000, 10_000], rounds)


ROLES = ["forwarding", "firewall", "tracking", "NAT"]


def sessions(rounds, full):
    """Figures 9d and 9e: short connections, each a session that is new to the box."""
    setup = {
        MMB: f"{boxes.FORWARDING[MMB]}; {SOME:,} rules with `add`; the same with `add-stateful`; `nat POOL`",
        FAST: boxes.FASTER,
        FAST_TC: boxes.FASTER_TC,
        "XDP": f"{boxes.FIREWALL['XDP']}; NAT is not there: the paper has no such program",
        "nftables": f"ip_forward; a set of {SOME:,} five-tuples; the same behind `ct state`; `snat to`",
        "iptables": f"ip_forward; {SOME:,} rules; the same behind `-m conntrack`; `-j SNAT`",
    }
    experiment = Experiment(
        "sessions", "Short connections through the box, one HTTP object of 1 KiB each", END_TO_END, "role", "requests a second",
        "mmb, Figures 9d and 9e (there: bandwidth for objects of 128 KiB)", setup,
        [SHARED, f"wrk, {web.CONNECTIONS} connections at a time, a new one for each object, and nginx."], ROLES,
    )
    with Wire() as wire, web.site(wire, [1]):
        stands = [boxes.forwarding(wire), boxes.firewall(wire, SOME), boxes.tracking(wire, SOME), boxes.nat(wire)]

        def box(series, role):
            """What stands for a series in a role; forwarding alone is the kernel's for all that live in it."""
            known = [name for name in (series, f"{series}, set") if name in stands[role]]
            return stands[role][known[0] if known else "nothing"]

        def rate(series):
            def measure(role):
                with box(series, int(role))():
                    return web.ask(wire, SERVER, 1, 2).rate

            return measure

        places = {"XDP": [0, 1, 2], "iptables": [1, 2, 3]}
        return experiment.measure([Series(name, rate(name), places.get(name, [0, 1, 2, 3])) for name in setup], rounds)


SHARES = [50, 90, 99]
# While round trips are measured under load. Less would let mmb sleep between two pieces of it.
LOAD = "500M"


def round_trips(rounds, full):
    """Figure 8: round trips with 10,000 rules, through an idle box and under load."""
    idle, loaded = (
        Experiment(
            name, f"Round trips with {LINEAR:,} firewall rules, {what}", END_TO_END, "percentile", "µs", "mmb, Figure 8",
            boxes.FIREWALL, [SHARED, f"ping, one every 2 ms; {more}"],
        )
        for name, what, more in (
            ("round-trips", "idle", "an idle box otherwise: mmb sleeps and is woken."),
            (
                "round-trips-loaded", "under load",
                f"one TCP stream of {LOAD}bit/s, or of what gets through, goes the same way: mmb seldom sleeps.",
            ),
        )
    )
    count = 500 if full else 300
    with Wire(threads=False) as wire:
        for experiment in (idle, loaded):
            load = contextlib.nullcontext if experiment is idle else lambda: wire.load(LOAD, 60)

            def times(name, load=load):
                with boxes.firewall(wire, LINEAR)[name](), load():
                    wire.round_trips(20)
                    return wire.round_trips(count)

            percentiles(experiment, list(boxes.FIREWALL), times, rounds)
    return [idle, loaded]


def percentiles(experiment, names, times, rounds, shares=SHARES):
    """Measures percentiles of what `times(name)` returns, one run for all of them."""
    known = {}

    def trip(name):
        def measure(share):
            if share == shares[0]:
                found = times(name)
                known.update({(name, other): found for other in shares})
            # Where the run failed, or was left out, there is nothing for the other percentiles either.
            found = known.pop((name, share), None)
            return found and percentile(found, share / 100)

        return measure

    return experiment.measure([Series(name, trip(name), shares) for name in names], rounds)


CHAINS = {
    "mmb, one lookup": "a chain of so many functions `monitor` in one daemon",
    "mmb, a lookup each": "the same, with a flow manager of its own (`flow`) before each function but the first",
    "mmb, a box each": "a daemon for each function, one behind the other over veth, af-xdp ports",
}


def chains(rounds, full):
    """Figures 1 and 16: functions together, with a lookup each, and in boxes of their own."""
    notes = [SHARED, IPERF, "Latency is the median of pings, one every 2 ms, to boxes that are idle otherwise."]
    figures = [
        Experiment(
            name, f"Functions that keep 24 bytes of each session: {what}", END_TO_END, "functions", unit,
            "MiddleClick, Figures 1 and 16", CHAINS, notes,
        )
        for name, what, unit in (("chains-goodput", "goodput of TCP", "Gbit/s"), ("chains-latency", "round trips", "µs"))
    ]
    places = [1, 2, 3, 4, 5] if full else [1, 3, 5]

    def measured(name):
        def measure(count):
            count = int(count)
            with Wire(count if name == "mmb, a box each" else 1) as wire, chain(wire, name, count):
                wire.round_trips(20)
                return wire.goodput()[0], percentile(wire.round_trips(200), 0.5)

        return measure

    # One function is the same chain however it is arranged.
    return together(
        figures, [Series(name, measured(name), places if name == "mmb, one lookup" else places[1:]) for name in CHAINS], rounds
    )


def chain(wire, name, count):
    if name == "mmb, a box each":
        return boxes.in_a_row(wire, count)
    return wire.mmb(boxes.monitors(count, name == "mmb, a lookup each"))


ALL = {
    "firewall-goodput": firewall,
    "tracking-goodput": tracking,
    "nat-goodput": nat,
    "ip6-goodput": over_ip6,
    "bulk-tracking-goodput": bulk,
    "merging-goodput": merging,
    "options-goodput": options,
    "sessions": sessions,
    "round-trips": round_trips,
    "chains-goodput": chains,
}
