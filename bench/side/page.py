"""`docs/performance.md`, from the results."""

MORE_IS_BETTER = ("Gbit/s", "rules a second")
HEAD = """# Performance, side by side

Written by `bench/run` from `bench/results/`: do not edit. Each figure is of one of two kinds, which cannot be compared with
each other. *memory*: clock ticks (TSC) a packet on one core, frames made in memory. *end to end*: real clients and servers in
network namespaces over veth. Figures show the median of the rounds, bars the lowest and the highest. How each peer was
configured stands below its figure; `bench/README.md` says how the kernel is measured in memory.

What the figures do not show: network cards (there are none here), more than one core for the box, and CPUs other than this.
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


def beaten(experiment):
    """Where a peer is ahead of mmb: that comes first. Less is better for ticks and times, more for rates."""
    less = experiment.unit not in MORE_IS_BETTER
    ours = {point.x: point.median for point in experiment.points if point.series.startswith("mmb")}
    lines = []
    for point in experiment.points:
        if point.series.startswith("mmb") or point.series == "nothing" or point.x not in ours:
            continue
        mine, theirs = ours[point.x], point.median
        if mine > 0 and theirs > 0 and ((theirs < mine) if less else (theirs > mine)):
            factor = mine / theirs if less else theirs / mine
            lines.append(
                f"* {point.series} is ahead at {experiment.x} {experiment.place(point.x)}: {number(theirs)} against {number(mine)} "
                f"{experiment.unit}, {factor:.2f} ×"
            )
    return "\n".join(lines)


def section(experiment):
    """Everything about one experiment; where peers are ahead stands first."""
    parts = [
        f"## {experiment.title}",
        "; ".join(filter(None, [f"{experiment.unit}, {experiment.kind}", experiment.paper])) + ".",
        beaten(experiment),
        f"![{experiment.title}](../bench/results/{experiment.name}.svg)",
        table(experiment),
        "\n".join(f"* {name}: {how}" for name, how in experiment.setup.items()),
        "\n".join(experiment.notes),
    ]
    return "\n\n".join(filter(None, parts))


def text(experiments, facts):
    """The page."""
    machine = "## Machine\n\n" + "\n".join(f"* {name}: {value}" for name, value in facts.items())
    return "\n\n".join([HEAD.strip(), machine, *map(section, experiments)]) + "\n"
