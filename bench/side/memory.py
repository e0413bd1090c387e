"""The experiments in memory: what each packet costs on one core."""

import contextlib
import os
import pathlib
import re
import sys
import traceback

from .peers import acl, fastclick, frames, mmb, ovs, rules, search, testpmd, vpp
from .peers.kernel import Kernel
from .results import ROOT, Experiment, Series

from . import lab  # noqa: F401 isort: skip - finds the laboratory of the end-to-end tests
from lab.netns import run  # noqa: E402 isort: skip

MEMORY = "memory"
# Where the kernel's frames come from.
SOURCES = "10.1.0.0/16"
CLASSBENCH = pathlib.Path(os.environ.get("CLASSBENCH", ROOT.parent / "shared" / "data" / "classbench"))
TICKS = "ticks a packet"
CACHED = (
    "Open vSwitch remembers what it decided for a flow, and for all that its rules do not tell apart: with rules that match none "
    "of the flows, it is these caches that are measured."
)
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
    return [Series(series, at, places if full else places[:quick]) for series, at, places, quick in OURS[name]]


# The paper's four extreme cases: name, options of `mmb bench`, the paper's cycles over those of its IP path.
EXTREMES = [
    ("firewall", ("--case", "exact", "--rules", 100_000), 96 / 155),
    ("stateful", ("--case", "stateful", "--rules", 100_000), 135 / 155),
    ("NAT", ("--case", "nat"), None),
    ("TCP options", ("--case", "options", "--rules", 100), 836 / 155),
]

# MiddleClick's Figure 15: what is done with a stream, and the function that does it here.
WORD = "attack"
STREAMS = [
    ("state", "monitor"), ("stream", "payload-count"), ("alert", f"match:{WORD} alert"), ("mask", f"match:{WORD} mask"),
    ("remove", f"match:{WORD} remove"), ("replace", f'match:{WORD} replace "a longer text"'),
]


def streams(at, payload):
    """Ticks of a packet of connections whose data segments begin with a text and are acknowledged."""
    words = ("--proto", "tcp", "--size", 1500, "--answered", "--payload", payload, "--chain", STREAMS[int(at)][1])
    return mmb.whole(*words)


# MiddleClick's Figure 16: functions that read the same streams.
TCP_FUNCTIONS = ["payload-count", "digest:crc32c", f"match:{WORD} alert", "payload-count"]
# Its Figure 17: what a middlebox does more and more of. Functions that translate come first.
MIDDLEBOX = [
    ("NAT", ["nat"]), ("+ statistics", ["count"]), ("+ reconstruction", ["payload-count"]),
    ("+ load balancer", ["lb:10.9.0.1 10.9.0.2"]), ("+ checksum", ["digest:crc32c"]), ("+ DPI", [f"match:{WORD} alert"]),
]


def tcp_chain(functions, *options):
    """Ticks of a packet of connections in a chain of these functions."""
    words = ("--proto", "tcp", "--size", 1500, "--answered", "--chain", "+".join(functions))
    return mmb.whole(*words, *options)


def middlebox(at):
    """Ticks of a packet in a middlebox with the functions up to a place."""
    functions = [one for _, more in MIDDLEBOX[: int(at) + 1] for one in more]
    return tcp_chain(sorted(functions, key=lambda one: not one.startswith(("nat", "count", "lb"))))


# (series, ticks at x, places of x, how many of them in a short run)
OURS = {
    "forwarding": [
        ("mmb, wire", lambda x: mmb.whole("--flows", x), [1024, 65536], 1),
        ("mmb, routed", lambda x: mmb.whole("--mode", "routed", "--flows", x), [1024, 65536], 1),
    ],
    "firewall": [
        ("mmb", lambda x: mmb.added("--case", "exact", "--rules", x), [10, 100, 1000, 10_000, 100_000, 1_000_000], 5),
    ],
    "tracking": [("mmb", lambda x: mmb.added("--case", "stateful", "--flows", x), [1024, 65536], 2)],
    "nat": [("mmb", lambda x: mmb.added("--case", "nat", "--flows", x), [1024, 32768], 2)],
    "options": [
        ("mmb", lambda x: mmb.added("--case", "options", "--rules", x), [1, 10, 100, 1000, 10_000], 5),
    ],
    "chains": [
        ("mmb, one lookup", lambda x: mmb.chain("--chain", x), [1, 2, 3, 4, 5], 5),
        ("mmb, a lookup each", lambda x: mmb.chain("--chain", x, "--independent"), [1, 2, 3, 4, 5], 5),
    ],
    "streams": [
        ("mmb, nothing found", lambda x: streams(x, ""), list(range(len(STREAMS))), len(STREAMS)),
        ("mmb, found in each segment", lambda x: streams(x, WORD), list(range(len(STREAMS))), len(STREAMS)),
    ],
    "stream-chains": [
        ("mmb, one stream", lambda x: tcp_chain(TCP_FUNCTIONS[: int(x)]), [1, 2, 3, 4], 4),
        ("mmb, a lookup and stream each", lambda x: tcp_chain(TCP_FUNCTIONS[: int(x)], "--independent"), [1, 2, 3, 4], 4),
    ],
    "middlebox": [("mmb", middlebox, list(range(len(MIDDLEBOX))), len(MIDDLEBOX))],
    "masks": [
        ("mmb", lambda x: mmb.added("--case", "masks", "--rules", x), [1, 2, 5, 10, 26, 40, 100, 300, 1000], 9),
    ],
}


def forwarding(rounds, full):
    """Figure 7's question, in memory: what does a packet cost that is just forwarded?"""
    experiment = Experiment(
        "forwarding", "Forwarding alone", MEMORY, "flows", TICKS, "mmb, Figure 7 (there: bandwidth)",
        {
            "mmb, wire": "no rules, one port to the other",
            "mmb, routed": "10 routes",
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
            "nftables": "`ct state established accept`, then an accept of the sources, then a set of 1,000 five-tuples",
            "iptables": "`-m conntrack --ctstate ESTABLISHED -j ACCEPT`, then an accept of the sources, then 1,000 rules",
            "XDP": "the paper's program: three hash maps (flows, three-tuples, five-tuples); its own cost, one direction",
            "Open vSwitch": "`ct(table=1)`; there +est passes, 1,000 five-tuples are dropped, sources inside are committed; "
            f"{ovs.CONFIGURED}",
            "VPP": f"the acl plugin: 1,000 denies, then permit+reflect; {vpp.CONFIGURED}",
            "FastClick": f"as the paper has it: IPRewriter, past an IPFilter of 1,000 rules; {fastclick.CONFIGURED}",
        },
        ["Each series is the cost with tracking less the cost without, of the same round.",
         "The kernel's flows, and FastClick's, send in one direction only; the others' in both."],
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
                Series("FastClick", lambda x: fastclick.added(passed, x, declared), places),
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
            "FastClick": f"IPRewriter with a pattern of one address; {fastclick.CONFIGURED}",
        },
        ["Each series is the cost with NAT less the cost without, of the same round.",
         "The kernel's flows, and FastClick's, send in one direction only; the others' in both.",
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
                Series("FastClick", lambda x: fastclick.added(fastclick.NAT, x), places),
            ],
            rounds,
        )


def options(rounds, full):
    """Figure 9f: rules about TCP options."""
    experiment = Experiment(
        "options", "What rules about TCP options add to each packet", MEMORY, "rules", TICKS,
        "mmb, Figure 9f (there: bandwidth)",
        {"mmb": "rules that match random values of random options, each with `drop`"},
        ["No peer of the paper matches options by value at this scale: XDP's verifier and FastClick's elements do not allow it."],
    )
    return experiment.measure(ours("options", full), rounds)


def masks(rounds, full):
    """Figure 10: every rule with a mask of its own."""
    experiment = Experiment(
        "masks", "What rules with distinct masks add to each packet", MEMORY, "masks", TICKS,
        "mmb, Figure 10 (there: bandwidth; the rate falls from 26 masks on)",
        {
            "mmb": "as many rules as masks: prefix lengths, ports or none",
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
        },
        ["1,000 flows; see bench/chains for more."],
    )
    return experiment.measure(ours("chains", full), rounds)


def streams_figure(rounds, full):
    """Figure 15: what is done with the streams of connections."""
    experiment = Experiment(
        "streams", "What is done with the streams of connections", MEMORY, "function", TICKS,
        "MiddleClick, Figure 15 (there: throughput)",
        {
            "mmb, nothing found": f"`monitor`, `payload-count`, and `match {WORD}` with each of its actions; random payload",
            "mmb, found in each segment": f"the same; each segment's payload begins with the word `{WORD}`",
        },
        [
            "1,000 connections, data segments of 1,500 bytes, and an acknowledgment for every second one; the ticks are those "
            "of a packet of either kind.",
        ],
        [name for name, _ in STREAMS],
    )
    return experiment.measure(ours("streams", full), rounds)


def search_figure(rounds, full):
    """What a search costs beside the library alone."""
    experiment = Experiment(
        "search", "Search for literals in the segments of a stream", MEMORY, "literals", "ns a segment",
        "MiddleClick, V-F (its matcher is Hyperscan in streaming mode)",
        search.CONFIGURED,
        [
            f"Chunks of {search.SEGMENT} bytes of one stream, letters alone; the same literals of 11 bytes, each of which "
            "ends with a byte that the text does not have. The least of ten rounds of 20,000 chunks.",
        ],
    )
    places = [1, 10, 100, 1000, 10_000]
    return experiment.measure(search.series(places if full else places[:4]), rounds)


def stream_chains(rounds, full):
    """Figure 16 with functions that read streams: in one chain, and each on its own."""
    experiment = Experiment(
        "stream-chains", "Functions that read the same streams", MEMORY, "functions", TICKS,
        "MiddleClick, Figure 16 (there: throughput and latency)",
        {
            "mmb, one stream": "a chain of so many of: `payload-count`, `digest crc32c`, `match … alert`, and another "
            "`payload-count`; packets are put in order once",
            "mmb, a lookup and stream each": "the same, with a flow manager of its own (`flow`) before each function but the first",
        },
        ["1,000 connections, data segments of 1,500 bytes, and an acknowledgment for every second one."],
    )
    return experiment.measure(ours("stream-chains", full), rounds)


def middlebox_figure(rounds, full):
    """Figure 17: a middlebox that does more and more."""
    experiment = Experiment(
        "middlebox", "A middlebox that does more and more", MEMORY, "functions", TICKS,
        "MiddleClick, Figure 17 (there: throughput)",
        {"mmb": f"`nat`, and with it `count`, `payload-count`, `lb` of two servers, `digest crc32c` and `match {WORD} alert`"},
        ["1,000 connections, data segments of 1,500 bytes, and an acknowledgment for every second one."],
        [name for name, _ in MIDDLEBOX],
    )
    return experiment.measure(ours("middlebox", full), rounds)


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
    "masks": masks,
    "chains": chains,
    "streams": streams_figure,
    "search": search_figure,
    "stream-chains": stream_chains,
    "middlebox": middlebox_figure,
}
