"""The experiments about streams in memory: mmb's own figures, and Hyperscan's."""

from .peers import mmb, search
from .results import MEMORY, TICKS, Experiment, selected

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


# Edits that the other end has not acknowledged, one in each segment: as many segments fit a window.
EDITS = ("--proto", "tcp", "--size", 100, "--flows", 100, "--answered", "--payload", WORD)


def edits(action):
    """Ticks of a packet, by the edits in flight of each connection, of a function that does something with each word."""
    return lambda x: mmb.whole(*EDITS, "--in-flight", x, "--chain", action)


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
    "streams": [
        ("mmb, nothing found", lambda x: streams(x, ""), list(range(len(STREAMS))), len(STREAMS)),
        ("mmb, found in each segment", lambda x: streams(x, WORD), list(range(len(STREAMS))), len(STREAMS)),
    ],
    "edits": [
        (name, edits(action), [1, 10, 100, 1000], 4)
        for name, action in (
            ("mmb, read", "payload-count"), ("mmb, mask", f"match:{WORD} mask"), ("mmb, remove", f"match:{WORD} remove"),
            ("mmb, replace", f'match:{WORD} replace "a longer text"'),
        )
    ],
    "stream-chains": [
        ("mmb, one stream", lambda x: tcp_chain(TCP_FUNCTIONS[: int(x)]), [1, 2, 3, 4], 4),
        ("mmb, a lookup and stream each", lambda x: tcp_chain(TCP_FUNCTIONS[: int(x)], "--independent"), [1, 2, 3, 4], 4),
    ],
    "middlebox": [("mmb", middlebox, list(range(len(MIDDLEBOX))), len(MIDDLEBOX))],
}


def ours(name, full):
    """mmb's series of an experiment."""
    return selected(OURS[name], full)


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


def edits_figure(rounds, full):
    """What edits cost by how many of them the other end has not acknowledged."""
    experiment = Experiment(
        "edits", "Edits in flight", MEMORY, "edits in flight of each connection", TICKS,
        "MiddleClick, V-C (there: no figure)",
        {
            "mmb, read": "`payload-count`, which edits nothing",
            **{f"mmb, {action.split()[0]}": f"`match {WORD} {action}`" for action in ("mask", "remove", "replace 'a longer text'")},
        },
        [
            f"100 connections, data segments of 100 bytes that begin with the word `{WORD}`. Each is acknowledged, with the one "
            "before it, when so many further ones of each connection have left. All of them fit a window.",
        ],
    )
    return experiment.measure(ours("edits", full), rounds)


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


ALL = {
    "streams": streams_figure,
    "edits": edits_figure,
    "search": search_figure,
    "stream-chains": stream_chains,
    "middlebox": middlebox_figure,
}
