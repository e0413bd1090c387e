"""The experiments in memory: what each packet costs on one core."""

import contextlib
import os
import pathlib
import re
import sys
import traceback

from . import streams
from .peers import acl, fastclick, frames, mmb, ovs, rules, testpmd, vpp
from .peers.kernel import Kernel
from .results import MEMORY, ROOT, TICKS, Experiment, Series, selected

from . import lab  # noqa: F401 isort: skip - finds the laboratory of the end-to-end tests
from lab.netns import run  # noqa: E402 isort: skip

# Where the kernel's frames come from.
SOURCES = "10.1.0.0/16"
CLASSBENCH = pathlib.Path(os.environ.get("CLASSBENCH", ROOT.parent / "shared" / "data" / "classbench"))
CACHED = (
    "Open vSwitch remembers what it decided for a flow, and for all that its rules do not tell apart: with rules that match none "
    "of the flows, it is these caches that are measured."
)
ORDER = "Frames of Open vSwitch, VPP and FastClick come in random order, as mmb's do."
KERNEL_NOTE = (
    "The kernel's figures hold all it does between a frame in memory and the driver of the outgoing interface (a veth "
    "device), buffers included; mmb's begin and end with a frame in a buffer, without its ports."
)


class NotSetUp:
    """In the place of a peer that could not be set up: whatever is asked of it fails with the reason."""

    def __init__(self, why):
        self._why = why

    def __getattr__(self, _):
        raise RuntimeError(f"could not be set up: {self._why}")


@contextlib.contextmanager
def peer(stands):
    """A peer for the `with` block. If it cannot be set up, or not be taken down, others are measured all the same."""
    with contextlib.ExitStack() as stack:
        try:
            yielded = stands.__enter__()
            stack.push(lambda *_: taken_down(stands))
        except Exception as why:
            traceback.print_exc()
            yielded = NotSetUp(why)
        yield yielded


def taken_down(stands):
    try:
        stands.__exit__(None, None, None)
    except Exception:
        traceback.print_exc()


def ours(name, full):
    """mmb's series of an experiment."""
    return selected(OURS[name], full)


# The paper's four extreme cases: name, options of `mmb bench`, the paper's cycles over those of its IP path.
EXTREMES = [
    ("firewall", ("--case", "exact", "--rules", 100_000), 96 / 155),
    ("stateful", ("--case", "stateful", "--rules", 100_000), 135 / 155),
    ("NAT", ("--case", "nat"), None),
    ("TCP options", ("--case", "options", "--rules", 100), 836 / 155),
]

# Numbers of rules.
DECADES = [10, 100, 1000, 10_000, 100_000, 1_000_000]
# (series, ticks at x, places of x, how many of them in a short run)
OURS = {
    **streams.OURS,
    "forwarding": [
        ("mmb, wire", lambda x: mmb.whole("--flows", x), [1024, 65536], 1),
        ("mmb, routed", lambda x: mmb.whole("--mode", "routed", "--flows", x), [1024, 65536], 1),
        ("mmb, routed, IPv6", lambda x: mmb.whole("--mode", "routed", "--ip6", "--flows", x), [1024, 65536], 1),
    ],
    "firewall": [
        ("mmb", lambda x: mmb.added("--case", "exact", "--rules", x), DECADES, 5),
        ("mmb, IPv6", lambda x: mmb.added("--case", "exact", "--ip6", "--rules", x), DECADES, 5),
    ],
    "tracking": [
        ("mmb", lambda x: mmb.added("--case", "stateful", "--flows", x), [1024, 65536], 2),
        ("mmb, IPv6", lambda x: mmb.added("--case", "stateful", "--ip6", "--flows", x), [1024, 65536], 2),
    ],
    "nat": [("mmb", lambda x: mmb.added("--case", "nat", "--flows", x), [1024, 32768], 2)],
    "options": [
        ("mmb", lambda x: mmb.worst("--case", "options", "--rules", x), [1, *DECADES[:4]], 5),
        ("mmb, IPv6", lambda x: mmb.worst("--case", "options", "--ip6", "--rules", x), [1, *DECADES[:4]], 5),
    ],
    "ranges": [
        ("mmb", lambda x: mmb.worst("--case", "ranges", "--rules", x), [1, *DECADES[:4]], 4),
        ("mmb, IPv6", lambda x: mmb.worst("--case", "ranges", "--ip6", "--rules", x), [1, *DECADES[:4]], 4),
    ],
    "chains": [
        ("mmb, one lookup", lambda x: mmb.chain("--chain", x), [1, 2, 3, 4, 5], 5),
        ("mmb, a lookup each", lambda x: mmb.chain("--chain", x, "--independent"), [1, 2, 3, 4, 5], 5),
        ("mmb, one lookup, IPv6", lambda x: mmb.chain("--chain", x, "--ip6"), [1, 2, 3, 4, 5], 5),
    ],
    "masks": [
        ("mmb", lambda x: mmb.added("--case", "masks", "--rules", x), [1, 2, 5, 10, 26, 40, 100, 300, 1000], 9),
        ("mmb, any fields", lambda x: mmb.worst("--case", "field-masks", "--rules", x), [1, 10, 100, 1000], 4),
        ("mmb, any fields, IPv6", lambda x: mmb.worst("--case", "field-masks", "--ip6", "--rules", x), [1, 10, 100, 1000], 4),
    ],
}


def forwarding(rounds, full):
    """Figure 7's question, in memory: what does a packet cost that is just forwarded?"""
    experiment = Experiment(
        "forwarding", "Forwarding alone", MEMORY, "flows", TICKS, "mmb, Figure 7 (there: bandwidth)",
        {
            "mmb, wire": "no rules, one port to the other",
            "mmb, routed": "10 routes",
            "mmb, routed, IPv6": "the same over IPv6",
            "Linux": "ip_forward, no netfilter",
            "Open vSwitch, wire": f"a flow from one port to the other; {ovs.CONFIGURED}; less testpmd on the same ports",
            "Open vSwitch, routed": "10 flows of destinations, with dec_ttl and new addresses; the same otherwise",
            "VPP": f"2 routes; {vpp.CONFIGURED}",
            "FastClick": f"CheckIPHeader, StaticIPLookup, DecIPTTL, EtherRewrite; {fastclick.CONFIGURED}",
        },
        [KERNEL_NOTE],
    )
    places = [1024, 65536] if full else [1024]
    with peer(Kernel()) as kernel, peer(ovs.OpenVSwitch()) as switch:
        return experiment.measure(
            [
                *ours("forwarding", full),
                Series("Linux", lambda x: kernel.stack(flows=x), places),
                Series("Open vSwitch, wire", lambda x: switch.cost(flows=x) - testpmd.replayed(x), places),
                Series("Open vSwitch, routed", lambda x: switch.cost(ovs.ROUTES, x) - testpmd.replayed(x), places),
                Series("VPP", lambda x: vpp.cost(flows=x), places),
                Series("FastClick", fastclick.forwarding, places),
            ],
            rounds,
        )


def ports(rounds, full):
    """DPDK's testpmd does nothing but receive and send; mmb on the same ports, without rules."""
    experiment = Experiment(
        "ports", "Receiving and sending on DPDK's null ports", MEMORY, "for", TICKS, "testpmd's own benchmark",
        {
            "mmb": "`mmb bench --null-ports`: its graph between two ports, no rules",
            "testpmd": "io forwarding between two ports, bursts of 32, one core",
        },
        ["Frames are all zero, so that mmb does not see IP in them."], ["one core"],
    )

    def mmb_ticks(_):
        report = mmb.bench("--null-ports")
        return report["tsc_hz"] / report["pps"]

    return experiment.measure(
        [Series("mmb", mmb_ticks, [0]), Series("testpmd", lambda _: testpmd.ticks("net_null0", "net_null1"), [0])], rounds
    )


def firewall(rounds, full):
    """Figure 9a: a firewall of random five-tuples that match nothing."""
    experiment = Experiment(
        "firewall", "What a firewall of random five-tuples adds to each packet", MEMORY, "rules", TICKS,
        "mmb, Figures 9a and 9d (there: bandwidth)",
        {
            "mmb": "`add` of every rule, each a five-tuple with `drop`",
            "mmb, IPv6": "the same over IPv6",
            "nftables, set": "one rule with a set of five-tuples",
            "nftables, rules": "a rule each",
            "iptables": "a rule each, in FORWARD (nf_tables back end)",
            "XDP": "the paper's program: a hash map of five-tuples; its own cost",
            "Open vSwitch": f"a drop flow each, below them the flow that forwards; {ovs.CONFIGURED}",
            **acl.CONFIGURED,
            "VPP": f"the acl plugin: a deny each, then a permit; {vpp.CONFIGURED}",
            "FastClick": f"IPFilter; {fastclick.CONFIGURED}",
        },
        ["Each series is the cost with rules less the cost without, of the same round.", acl.WHAT, CACHED],
    )
    decades = [10, 100, 1000, 10_000, 100_000] + ([1_000_000] if full else [])
    few = [x for x in decades if x <= (10_000 if full else 1000)]
    with peer(Kernel()) as kernel, peer(ovs.OpenVSwitch()) as switch:
        made = rules.five_tuples
        return experiment.measure(
            [
                *ours("firewall", full),
                Series("XDP", lambda x: kernel.program("firewall", rules=x), decades),
                Series("nftables, set", lambda x: kernel.added(lambda: kernel.nft(rules.nft_set(x))), decades),
                Series("nftables, rules", lambda x: kernel.added(lambda: kernel.nft(rules.nft_rules(x))), few),
                Series("iptables", lambda x: kernel.added(lambda: kernel.iptables(rules.iptables_rules(x))), few),
                Series("Open vSwitch", lambda x: switch.added(rules.open_flows(made(x), ovs.PASS)), decades),
                *acl.series(made, decades),
                Series("VPP", lambda x: vpp.added(vpp.access_list(made(x))), decades),
                Series("FastClick", lambda x: fastclick.added(fastclick.filters(made(x))), few),
            ],
            rounds,
        )


def tracking(rounds, full):
    """Figure 9b: a firewall that tracks the flows it lets pass."""
    experiment = Experiment(
        "tracking", "What tracking flows adds to each packet", MEMORY, "flows", TICKS,
        "mmb, Figures 9b and 9e (there: bandwidth)",
        {
            "mmb": "1,000 stateful rules; every packet is of a session that is open",
            "mmb, IPv6": "the same over IPv6",
            "nftables": "`ct state established accept`, then an accept of the sources, then a set of 1,000 five-tuples",
            "iptables": "`-m conntrack --ctstate ESTABLISHED -j ACCEPT`, then an accept of the sources, then 1,000 rules",
            "XDP": "the paper's program: three hash maps (flows, three-tuples, five-tuples); its own cost, one direction",
            "Open vSwitch": "`ct(table=1)`; there +est passes, 1,000 five-tuples are dropped, sources inside are committed; "
            f"{ovs.CONFIGURED}",
            "VPP": f"the acl plugin: 1,000 denies, then permit+reflect; {vpp.CONFIGURED}",
            "VPP, sfdp": f"the stateful data plane: lookup and lifecycle, no rules; {vpp.CONFIGURED}",
            "VPP, sfdp, tcp-check": "the same with the service that follows TCP, on segments of open connections",
            "FastClick": f"as the paper has it: IPRewriter, past an IPFilter of 1,000 rules; {fastclick.CONFIGURED}",
            "FastClick, FlowIPManager": f"MiddleClick's flow manager and FlowCounter, no rules; {fastclick.CONFIGURED}",
            "FastClick, CTXManager": f"MiddleClick's classifier of contexts, and FlowCounter; no rules; {fastclick.CONFIGURED}",
        },
        ["Each series is the cost with tracking less the cost without, of the same round.",
         "The kernel's flows, and FastClick's, send in one direction only; the others' in both.", ORDER],
    )
    places = [1024, 65536]
    with peer(Kernel()) as kernel, peer(ovs.OpenVSwitch()) as switch:
        # Answers do not come, so that no flow is ever established.
        nft = rules.nft_set(1000, f"{rules.NFT_KNOWN}  ip saddr {SOURCES} accept\n")
        iptables = rules.iptables_rules(1000, f"{rules.IPTABLES_KNOWN}-A FORWARD -s {SOURCES} -j ACCEPT\n")
        made = rules.five_tuples(1000)
        passed, declared = fastclick.tracker(made)
        return experiment.measure(
            [
                *ours("tracking", full),
                Series("XDP", lambda x: kernel.program("tracker", rules=1000, tracked=1, flows=x), places),
                Series("nftables", lambda x: kernel.added(lambda: kernel.nft(nft), x), places),
                Series("iptables", lambda x: kernel.added(lambda: kernel.iptables(iptables), x), places),
                Series("Open vSwitch", lambda x: switch.added(rules.open_flows(made, ovs.TRACK, table=1), x), places),
                Series("VPP", lambda x: vpp.added(vpp.access_list(made, reflect=True), x), places),
                Series("VPP, sfdp", lambda x: vpp.added(vpp.sfdp(), x), places),
                Series("VPP, sfdp, tcp-check", lambda x: vpp.added(vpp.sfdp("sfdp-tcp-check"), x, tcp=True), places),
                Series("FastClick", lambda x: fastclick.added(passed, x, declared), places),
                Series("FastClick, FlowIPManager", lambda x: fastclick.added(fastclick.flows(), x), places),
                Series("FastClick, CTXManager", lambda x: fastclick.added(fastclick.CONTEXTS, x), places),
            ],
            rounds,
        )


def nat(rounds, full):
    """Figure 9c: source NAT."""
    experiment = Experiment(
        "nat", "What source NAT adds to each packet", MEMORY, "flows", TICKS, "mmb, Figure 9c (there: bandwidth)",
        {
            "mmb": "`nat POOL`; every packet is of a session that is open",
            "nftables": "`snat to` an address",
            "iptables": "`-j SNAT`",
            "Open vSwitch": f"`ct(nat,table=1)`; there +est passes, and new ones get `ct(commit,nat(src=…))`; {ovs.CONFIGURED}",
            "VPP": f"nat44-ed with one address; {vpp.CONFIGURED}",
            "VPP, sfdp": f"the stateful data plane with its NAT, one direction; {vpp.CONFIGURED}",
            "FastClick": f"IPRewriter with a pattern of one address; {fastclick.CONFIGURED}",
            "FastClick, FlowIPManager": f"MiddleClick's flow manager and FlowIPNAT; {fastclick.CONFIGURED}",
        },
        ["Each series is the cost with NAT less the cost without, of the same round.",
         "The kernel's flows, and FastClick's, send in one direction only; the others' in both.", ORDER,
         "XDP is not there: the paper has no such program."],
    )
    places = [1024, 32768]
    with peer(Kernel()) as kernel, peer(ovs.OpenVSwitch()) as switch:
        nft, iptables = (snat(SOURCES, frames.OUTSIDE) for snat in (rules.nft_snat, rules.iptables_snat))
        return experiment.measure(
            [
                *ours("nat", full),
                Series("nftables", lambda x: kernel.added(lambda: kernel.nft(nft), x), places),
                Series("iptables", lambda x: kernel.added(lambda: kernel.iptables(iptables), x), places),
                Series("Open vSwitch", lambda x: switch.added(ovs.NAT, x, frames.OUTSIDE), places),
                Series("VPP", lambda x: vpp.added(vpp.NAT, x, frames.OUTSIDE), places),
                Series("VPP, sfdp", lambda x: vpp.added(vpp.sfdp_nat(), x, answered=False), places),
                Series("FastClick", lambda x: fastclick.added(fastclick.NAT, x), places),
                Series("FastClick, FlowIPManager", lambda x: fastclick.added(fastclick.flows_nat(), x), places),
            ],
            rounds,
        )


def options(rounds, full):
    """Figure 9f: rules about TCP options."""
    experiment = Experiment(
        "options", "What rules about TCP options add to each packet", MEMORY, "rules", TICKS,
        "mmb, Figure 9f (there: bandwidth)",
        {
            "mmb": "rules that match random values of random options, each with `drop`; the worst of three seeds",
            "mmb, IPv6": "the same rules, packets of IPv6",
        },
        ["No peer of the paper matches options by value at this scale: XDP's verifier and FastClick's elements do not allow it."],
    )
    return experiment.measure(ours("options", full), rounds)


def ranges(rounds, full):
    """Rules that no mask expresses."""
    experiment = Experiment(
        "ranges", "What rules with ranges and inequalities add to each packet", MEMORY, "rules", TICKS, "not in the papers",
        {
            "mmb": "two to four comparisons of random fields of IP, TCP and UDP each: less, more, not equal, ranges; the worst of "
            "three seeds",
            "mmb, IPv6": "the same over IPv6",
        },
        ["No peer here compares all of these fields by range at this scale."],
    )
    return experiment.measure(ours("ranges", full), rounds)


def masks(rounds, full):
    """Figure 10: every rule with a mask of its own."""
    experiment = Experiment(
        "masks", "What rules with distinct masks add to each packet", MEMORY, "masks", TICKS,
        "mmb, Figure 10 (there: bandwidth; the rate falls from 26 masks on)",
        {
            "mmb": "as many rules as masks: prefix lengths, ports or none",
            "mmb, any fields": "the same with prefixes of all lengths and any fields; the worst of three seeds",
            "mmb, any fields, IPv6": "the same over IPv6",
            "Open vSwitch": f"the same as drop flows; {ovs.CONFIGURED}",
            **acl.CONFIGURED,
            "VPP": f"the acl plugin; {vpp.CONFIGURED}",
            "FastClick": f"IPFilter; {fastclick.CONFIGURED}",
        },
        [acl.WHAT, CACHED, "XDP is not there: the paper has no such program."],
    )
    places = [1, 10, 100, 1000]
    with peer(ovs.OpenVSwitch()) as switch:
        return experiment.measure(
            [
                *ours("masks", full),
                Series("Open vSwitch", lambda x: switch.added(rules.open_flows(rules.masked(x), ovs.PASS)), places),
                *acl.series(rules.masked, places),
                Series("VPP", lambda x: vpp.added(vpp.access_list(rules.masked(x))), places),
                Series("FastClick", lambda x: fastclick.added(fastclick.filters(rules.masked(x))), places),
            ],
            rounds,
        )


def chains(rounds, full):
    """Figures 1 and 16: functions that share one session lookup."""
    experiment = Experiment(
        "chains", "Functions of a chain that keep 24 bytes of each session", MEMORY, "functions", TICKS,
        "MiddleClick, Figures 1 and 16 (there: throughput and latency)",
        {
            "mmb, one lookup": "a chain of so many functions `monitor`",
            "mmb, a lookup each": "the same, with a flow manager of its own (`flow`) before each function but the first",
            "mmb, one lookup, IPv6": "the first over IPv6",
        },
        ["1,000 flows; see bench/chains for more."],
    )
    return experiment.measure(ours("chains", full), rounds)


def extremes(rounds, full):
    """Figure 11: cycles of the four extreme cases, as ratios to the plain IP path of the same run."""
    experiment = Experiment(
        "extremes", "Four extreme cases", MEMORY, "case", "times the plain IP path", "mmb, Figure 11",
        {
            "mmb": "100,000 exact five-tuples; 100,000 stateful rules and every packet of an open session; a NAT pool; "
            "100 rules about TCP options",
            "the paper": "its Figure 11: cycles over those of its IP path, 155",
        },
        ["The plain path is ip4-input, ip4-lookup and ip4-rewrite."],
        [name for name, *_ in EXTREMES],
    )

    def ratio(x):
        nodes = mmb.bench("--mode", "routed", *EXTREMES[int(x)][1])
        return nodes["ratio"]

    told = [at for at, (*_, share) in enumerate(EXTREMES) if share]
    return experiment.measure(
        [Series("mmb", ratio, [0, 1, 2, 3]), Series("the paper", lambda x: EXTREMES[int(x)][2], told)], rounds
    )


SETS = ("acl1_10000", "fw1_10000", "ipc1_10000")
# What the program of `bench/acl` says, by series; it runs for the first.
LINES = {
    "mmb, flows that come again": acl.MMB,
    "mmb, new source ports": r"new source ports: ([0-9.]+) ticks",
    "mmb, nothing known": r"nothing known of any flow: ([0-9.]+) ticks",
    "rte_acl": r"rte_acl \w+: ([0-9.]+) ticks",
}


def classbench(rounds, full):
    """ClassBench's filter sets, beside DPDK's rte_acl."""
    experiment = Experiment(
        "classbench", "Classifying by ClassBench's filter sets", MEMORY, "set", TICKS, "the classifier alone; see bench/acl",
        {
            "mmb, flows that come again": "the classifier; all rules that match",
            "mmb, new source ports": "the same, after a round of the same packets with other source ports",
            "mmb, nothing known": "the same, after a rule has come and gone: no flow is recalled",
            "rte_acl": "its fastest implementation here; the first rule that matches",
        },
        ["Classification alone: keys (rte_acl) and windows (mmb) are in the cache."],
        [name for name in SETS],
    )
    found = {}

    def line(pattern):
        def ticks(x):
            if pattern is acl.MMB:
                shown = run(ROOT / "bench" / "acl" / "run", CLASSBENCH, SETS[int(x)], timeout=600).stdout
                found.update({(x, other): min(map(float, re.findall(other, shown))) for other in LINES.values()})
            # Where the run failed, or was left out, there is nothing for the others either.
            return found.pop((x, pattern), None)

        return ticks

    if not CLASSBENCH.is_dir():
        print(f"classbench: there is no {CLASSBENCH}: left out", file=sys.stderr)
        return []
    places = list(range(len(SETS)))
    return experiment.measure([Series(name, line(pattern), places) for name, pattern in LINES.items()], rounds)


ALL = {
    "extremes": extremes,
    "classbench": classbench,
    "forwarding": forwarding,
    "ports": ports,
    "firewall": firewall,
    "tracking": tracking,
    "nat": nat,
    "options": options,
    "ranges": ranges,
    "masks": masks,
    "chains": chains,
    **streams.ALL,
}
