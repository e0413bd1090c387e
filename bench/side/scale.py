"""What a packet costs, and an object takes of memory, as the number of objects grows; and what hostile packets cost."""

from .peers import fastclick, mmb, rules, vpp
from .results import MEMORY, TICKS, Experiment, Series, selected

ROUTED = ("--mode", "routed")


def sessions(case, *options):
    """Ticks that sessions of a case add, by their number."""
    return lambda x: mmb.added("--case", case, *options, "--flows", x, "--sessions", 2 * x)


def opened(case, *options):
    """Million sessions a second that packets open, by the number that is open."""
    return lambda x: mmb.bench("--case", case, *options, "--flows", x)["pps"] / 1e6


def session_bytes(*options):
    """Bytes of memory of a session, by their number."""
    return lambda x: mmb.bench(*options, "--flows", x, "--sessions", 2 * x)["sessions"]["bytes"]


def rate(*options):
    """Million packets a second, by the number of workers."""
    return lambda x: mmb.bench("--workers", x, *options)["pps"] / 1e6


def rule_bytes(case):
    """Bytes of memory of a rule of a case, by the number of rules."""
    def at(x):
        loaded = mmb.bench("--case", case, "--rules", x)["case"]
        return loaded["load_bytes"] / loaded["rules"]

    return at


MANY = [1_000, 10_000, 100_000, 1_000_000, 10_000_000]
# (series, value at x, places of x, how many of them in a short run)
OURS = {
    "scale-sessions": [
        ("mmb, stateful", sessions("stateful"), MANY, 4),
        ("mmb, stateful, IPv6", sessions("stateful", "--ip6"), MANY, 4),
        ("mmb, NAT", sessions("nat"), MANY, 4),
        ("mmb, stateful and NAT", sessions("stateful-nat"), MANY[:4], 4),
    ],
    "scale-new": [
        ("mmb, stateful", opened("new-sessions"), MANY[:4], 4),
        ("mmb, stateful, IPv6", opened("new-sessions", "--ip6"), MANY[:4], 4),
        ("mmb, NAT", opened("new-nat"), MANY[:4], 4),
    ],
    # Below 100,000, pages that are used in part count more than sessions.
    "scale-session-memory": [
        ("mmb, stateful", session_bytes("--case", "stateful"), MANY[2:], 2),
        ("mmb, NAT", session_bytes("--case", "nat"), MANY[2:], 2),
        ("mmb, a chain of one function", session_bytes("--chain", 1), MANY[2:], 2),
    ],
    "scale-rule-memory": [
        ("mmb, exact", rule_bytes("exact"), MANY[1:4], 2),
        ("mmb, prefixes and port ranges", rule_bytes("mixed"), MANY[1:4], 2),
    ],
    "scale-routes": [
        ("mmb, IPv4", lambda x: mmb.whole(*ROUTED, "--routes", x), [10, *MANY[:4]], 5),
        ("mmb, IPv6", lambda x: mmb.whole(*ROUTED, "--ip6", "--routes", x), [10, *MANY[:4]], 5),
    ],
    "scale-workers": [
        ("mmb, forwarding", rate(*ROUTED), [1, 2, 4], 3),
        ("mmb, forwarding, IPv6", rate(*ROUTED, "--ip6"), [1, 2, 4], 3),
        ("mmb, stateful", rate(*ROUTED, "--case", "stateful"), [1, 2, 4], 3),
        ("mmb, NAT", rate(*ROUTED, "--case", "nat"), [1, 2, 4], 3),
    ],
}
STATEFUL = "`add-stateful`; every packet is of an open session"
TRANSLATED = "`nat POOL`, with an address for each 32,768 flows; every packet is of an open session"


def experiment(name, title, x, unit, setup, notes=()):
    def measure(rounds, full):
        made = Experiment(name, title, MEMORY, x, unit, "", setup, list(notes))
        return made.measure(selected(OURS[name], full), rounds)

    return measure


# The packets of the figure below, the options that make them, and those of the plain packets beside them.
HOSTILE = [
    ("open sessions", ("--case", "stateful", "--flows", 65_536)),
    ("open sessions, IPv6", ("--case", "stateful", "--ip6", "--flows", 65_536)),
    ("each opens a session", ("--case", "new-sessions", "--flows", 262_144)),
    ("each opens a session with NAT", ("--case", "new-nat", "--flows", 262_144)),
    ("a million flows, 1,000 masks", ("--case", "field-masks", "--rules", 1000, "--flows", 1_000_000)),
    ("a million flows, 10,000 mixed rules", ("--case", "mixed", "--rules", 10_000, "--flows", 1_000_000)),
    ("a million flows, 1,000 rules of ranges", ("--case", "ranges", "--rules", 1000, "--flows", 1_000_000)),
]


def hostile(rounds, full):
    """What packets cost that are chosen so that no cache has seen their flow, beside packets of open sessions."""
    made = Experiment(
        "scale-hostile", "Packets of which nothing is known", MEMORY, "packets", TICKS, "",
        {"mmb": "`mmb bench` routed: all that a packet costs beyond the plain path"},
        ["A flood of SYNs is `each opens a session`: the whole way of a packet that opens a session, rules included.",
         "The classifier's tables by masks do not grow by packets, so no sequence of packets makes a lookup longer than "
         "the rules do: what these can cost is a flow that the match cache does not know."],
        [name for name, _ in HOSTILE],
    )
    return made.measure([Series("mmb", lambda x: mmb.added(*HOSTILE[int(x)][1]), list(range(len(HOSTILE))))], rounds)


# Flows that can keep their ports behind one address of NAT.
NEW = 32_768


def new(rounds, full):
    """What the first packet of a flow costs, beside programs that have a flow table of their own."""
    made = Experiment(
        "new", "A packet that opens a session", MEMORY, "for", TICKS, "",
        {
            "mmb": "`add-stateful`, and `nat POOL` with one address",
            "VPP": f"the acl plugin: permit+reflect; nat44-ed with one address; {vpp.CONFIGURED}",
            "VPP, sfdp": f"the stateful data plane: lookup and lifecycle; with its NAT; {vpp.CONFIGURED}",
            "FastClick": f"IPRewriter that keeps addresses, with one rule; with a pattern of one address; {fastclick.CONFIGURED}",
            "FastClick, FlowIPManager": f"MiddleClick's flow manager with FlowCounter; with FlowIPNAT; {fastclick.CONFIGURED}",
        },
        [f"{NEW:,} flows of one packet each, less what a packet costs that is only forwarded. The tables are empty before."],
        ["tracking", "NAT"],
    )
    # One rule, which matches none of the flows.
    rule = rules.five_tuples(1)
    passed, declared = fastclick.tracker(rule)
    return made.measure(
        [
            Series("mmb", lambda x: mmb.added("--case", ("new-sessions", "new-nat")[int(x)], "--flows", NEW), [0, 1]),
            Series("VPP", lambda x: vpp.added_by_new((vpp.access_list(rule, reflect=True), vpp.NAT)[int(x)], NEW), [0, 1]),
            Series("VPP, sfdp", lambda x: vpp.added_by_new((vpp.sfdp(), vpp.sfdp_nat())[int(x)], NEW), [0, 1]),
            Series(
                "FastClick",
                lambda x: fastclick.added_by_new(*((passed, NEW, declared), (fastclick.NAT, NEW))[int(x)]), [0, 1],
            ),
            Series(
                "FastClick, FlowIPManager",
                lambda x: fastclick.added_by_new((fastclick.flows, fastclick.flows_nat)[int(x)](), NEW), [0, 1],
            ),
        ],
        rounds,
    )


ALL = {
    "new": new,
    "scale-sessions": experiment(
        "scale-sessions", "What tracking costs by the number of sessions", "sessions", TICKS,
        {
            "mmb, stateful": STATEFUL, "mmb, stateful, IPv6": "the same over IPv6", "mmb, NAT": TRANSLATED,
            "mmb, stateful and NAT": "both",
        },
        ["Packets are uniformly random over all sessions: from 100,000 on, each of them misses the caches of the processor."],
    ),
    "scale-new": experiment(
        "scale-new", "New sessions by the number that is open", "sessions", "million a second",
        {
            "mmb, stateful": "`add-stateful`; every packet opens a session", "mmb, stateful, IPv6": "the same over IPv6",
            "mmb, NAT": "`nat POOL`; every packet opens a session",
        },
        ["One worker. When so many are open, all of them end, which is not measured."],
    ),
    "scale-session-memory": experiment(
        "scale-session-memory", "Memory of a session", "sessions", "bytes",
        {"mmb, stateful": STATEFUL, "mmb, NAT": TRANSLATED, "mmb, a chain of one function": "`monitor`, which keeps 24 bytes"},
        ["By how much the resident memory of the process grew when they were opened, divided by their number: with hash tables, "
         "timers and statistics. The table has room for twice as many, which takes next to no memory before."],
    ),
    "scale-rule-memory": experiment(
        "scale-rule-memory", "Memory of a rule", "rules", "bytes",
        {"mmb, exact": "five-tuples", "mmb, prefixes and port ranges": "random prefixes and ranges"},
        ["By how much the resident memory of the process grew when they were loaded, divided by their number: with their text, "
         "counters and the classifier."],
    ),
    "scale-routes": experiment(
        "scale-routes", "Forwarding by the number of routes", "routes", TICKS,
        {"mmb, IPv4": "random routes of all lengths", "mmb, IPv6": "the same over IPv6"},
        ["1,000 flows; all that a packet costs."],
    ),
    "scale-workers": experiment(
        "scale-workers", "Packets a second by the number of workers", "workers", "million packets a second",
        {
            "mmb, forwarding": "routed, no rules", "mmb, forwarding, IPv6": "the same over IPv6", "mmb, stateful": STATEFUL,
            "mmb, NAT": TRANSLATED,
        },
        ["1,000 flows of each worker; making and freeing the packets is included. This machine has two cores: four workers "
         "share them."],
    ),
    "scale-hostile": hostile,
}
