"""`docs/performance.md`, from the results."""

import os
import textwrap
from dataclasses import dataclass

from .results import AF_PACKET, ENOUGH, FAST, FAST_TC, MMB, OWN_SEARCH, RESULTS, ROOT, clock

# Trial results (BENCH_RESULTS) have a page of their own beside them.
PAGE = (RESULTS if "BENCH_RESULTS" in os.environ else ROOT / "docs") / "performance.md"
FIGURES = os.path.relpath(RESULTS, PAGE.parent)

MORE_IS_BETTER = (
    "Gbit/s", "Mbit/s", "rules a second", "requests a second", "sessions a second", "frames a second", "of what is left",
)
HEAD = f"""# Performance, side by side

`bench/run` writes this page from `bench/results/`: do not edit it. There are two kinds of
figures, which cannot be compared with each other:

* *memory*: clock ticks (TSC) per packet on one core; frames are generated in memory.
* *end to end*: real clients and servers in network namespaces, joined by veth pairs.

Figures show the median of the rounds; bars show minimum and maximum. The configuration of each peer is listed
below its figure. [bench/README.md](../bench/README.md) describes how peers are measured in memory. A peer
that is missing or lacks the feature is named with the reason. A point that took {ENOUGH} s is not measured
again, and its number of rounds is listed; most of this time is spent on loading a million rules.

Each figure names the revision of mmb and the processor. Figures of different processors cannot be compared.
None covers network cards (these machines have none) or more than one core for the box.
"""


def number(value):
    return f"{value:,.2f}" if abs(value) < 10 else f"{value:,.0f}" if abs(value) >= 100 else f"{value:,.1f}"


def table(experiment):
    places = sorted({point.x for point in experiment.points})
    names = list(dict.fromkeys(point.series for point in experiment.points))
    found = {(point.series, point.x): point for point in experiment.points}
    lines = [
        "| " + " | ".join([experiment.x, *(experiment.place(place) for place in places)]) + " |",
        "|---|" + "---:|" * len(places),
    ]
    for name in names:
        cells = [number(found[name, x].median) if (name, x) in found else "" for x in places]
        lines.append("| " + " | ".join([name, *cells]) + " |")
    return "\n".join(lines)


@dataclass
class Ahead:
    """A place where a peer is ahead of mmb."""

    peer: str
    x: float
    theirs: float
    ours: float
    mine: str

    @property
    def factor(self):
        return max(self.theirs / self.ours, self.ours / self.theirs)


def best(ours, less):
    """mmb's points. Where several of its configurations were measured, only the fastest one."""
    either = {}
    for point in ours:
        if point.series in (MMB, FAST, FAST_TC, AF_PACKET, OWN_SEARCH):
            either.setdefault(point.x, []).append(point)
    choose = min if less else max
    slower = [point for points in either.values() for point in points if point is not choose(points, key=lambda one: one.median)]
    return [point for point in ours if not any(point is other for other in slower)]


# How series end whose packets are of IPv6, where others are not.
IP6 = ", IPv6"
# Series of mmb with rules that no peer was given, beside one with the rules of the peers.
OWN_RULES = ("mmb, any fields", "mmb, any fields, IPv6")


def as_done_by(peer):
    """The series of mmb that does the same as a peer's series, if there is one."""
    return "mmb, " + peer.partition(", ")[2]


def ahead(experiment):
    """Points at which a peer is ahead of mmb. Less is better for ticks and times, more for rates.

    `PEER, what` is compared with `mmb, what` if that series exists, and otherwise with all series of mmb, but packets of IPv4 with
    those of IPv4, and rules with the same rules. If there is `mmb` beside `mmb, what`, then the latter is compared with `PEER, what`
    only. Of mmb with and without its fast paths, on either kind of port, or the library for searching, the best counts.
    """
    less = experiment.unit not in MORE_IS_BETTER
    ours = best([point for point in experiment.points if point.series.startswith("mmb")], less)
    theirs = [point for point in experiment.points if not point.series.startswith("mmb") and point.series != "nothing"]
    names = {point.series for point in ours}
    # Series of mmb that do more than `mmb`, as some peers do.
    special = {as_done_by(point.series) for point in theirs} if MMB in names else set()
    found = []
    for point in theirs:
        same = as_done_by(point.series)
        for mine in ours:
            if mine.x != point.x or mine.series in OWN_RULES:
                continue
            if mine.series != same and (same in names or mine.series in special):
                continue
            if mine.series.endswith(IP6) and not point.series.endswith(IP6):
                continue
            a, b = point.median, mine.median
            if a > 0 and b > 0 and (a < b if less else a > b):
                found.append(Ahead(point.series, point.x, a, b, mine.series))
    return found


def beaten(experiment):
    """The list of peers that are ahead in one experiment."""
    return "\n".join(
        f"* {one.peer} is ahead at {experiment.x} {experiment.place(one.x)}: {number(one.theirs)} against {number(one.ours)} "
        f"{experiment.unit}{'' if one.mine == 'mmb' else f' ({one.mine})'}, {one.factor:.2f} ×"
        for one in ahead(experiment)
    )


def anchor(title):
    """The anchor of a heading on the page."""
    return "".join(letter for letter in title.lower().replace(" ", "-") if letter.isalnum() or letter in "-_")


def peers_ahead(experiment):
    """The rows of an experiment in the tables at the head of the page: one for each peer that is ahead."""
    found = ahead(experiment)
    rows = []
    for peer in dict.fromkeys(one.peer for one in found):
        theirs = [one for one in found if one.peer == peer]
        places = ", ".join(dict.fromkeys(experiment.place(one.x) for one in theirs))
        most = max(one.factor for one in theirs)
        title = "" if rows else f"[{experiment.title}](#{anchor(experiment.title)})"
        rows.append(f"| {title} | {peer} | {experiment.x} {places} | {most:.2f} × |")
    return rows


def everywhere(experiments):
    """The head of the page: a table of the peers that are ahead for each kind of figures."""
    parts = []
    for kind in dict.fromkeys(experiment.kind for experiment in experiments):
        rows = [row for experiment in experiments if experiment.kind == kind for row in peers_ahead(experiment)]
        if rows:
            parts.append("\n".join([f"| {kind} | peer | ahead at | up to |", "|---|---|---|---:|", *rows]))
    return "\n\n".join(["## Where a peer is ahead", *(parts or ["Nowhere."])])


def setup(experiment):
    """The configuration of each peer, and the reason for each peer that is absent."""
    lines = []
    for name, how in experiment.setup.items():
        why = experiment.absent.get(name)
        lines.append(f"* {name}: **{why}**. Configuration: {how}" if why else f"* {name}: {how}")
    lines += [f"* {name}: {why}" for name, why in experiment.absent.items() if name not in experiment.setup]
    lines += [f"* {name}: {found} of {experiment.rounds} rounds" for name, found in experiment.fewer()]
    return "\n".join(lines)


def plain_path(experiment):
    return experiment.plain and f"mmb's plain IP path: {experiment.plain:.1f} ticks"


def measured(experiment):
    """The number of rounds and their time, if it is known and not the time of another figure."""
    rounds = experiment.rounds and f"{experiment.rounds} round{'s' * (experiment.rounds > 1)}"
    return rounds and (f"{rounds} in {clock(experiment.seconds)}" if experiment.seconds >= 1 else rounds)


def measured_with(experiment):
    return experiment.mmb and f"mmb {experiment.mmb} on {experiment.processor}"


def section(experiment):
    """All about one experiment, beginning with the peers that are ahead."""
    parts = [
        f"## {experiment.title}",
        "; ".join(
            filter(
                None,
                [
                    f"{experiment.unit}, {experiment.kind}",
                    experiment.paper,
                    measured(experiment),
                    plain_path(experiment),
                    measured_with(experiment),
                ],
            )
        )
        + ".",
        beaten(experiment),
        f"![{experiment.title}]({FIGURES}/{experiment.name}.svg)\n\n{table(experiment)}" if experiment.points else "No values.",
        setup(experiment),
        "\n\n".join(experiment.notes),
    ]
    return "\n\n".join(filter(None, parts))


def wrapped(page):
    """The page with paragraphs and list items within 110 columns."""

    def fill(line):
        indent = "  " if line.startswith("* ") else ""
        return textwrap.fill(line, 110, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)

    return "\n".join(line if line.startswith(("|", "#", "!")) else fill(line) for line in page.split("\n"))


def text(experiments, facts):
    """The page."""
    machine = "## Machine\n\nOf the last run:\n\n" + "\n".join(f"* {name}: {value}" for name, value in facts.items())
    return wrapped("\n\n".join([HEAD.strip(), everywhere(experiments), machine, *map(section, experiments)]) + "\n")
