"""One figure (SVG) for each experiment, in the layout of the papers: x, y, a line for each series."""

import functools

MARKS = "osv^Dxp*"


@functools.cache
def plotter():
    """matplotlib's pyplot, which writes SVG. Imported here, so that only what draws needs python3-matplotlib."""
    import matplotlib

    matplotlib.use("svg")
    # The same results give the same file.
    matplotlib.rcParams["svg.hashsalt"] = "mmb"
    matplotlib.rcParams["font.size"] = 9
    from matplotlib import pyplot

    return pyplot


def draw(experiment, path):
    """Writes the figure of an experiment: medians, with bars from the lowest to the highest round.

    An experiment without results has no figure; an old one is removed.
    """
    if not experiment.points:
        path.unlink(missing_ok=True)
        return
    pyplot = plotter()
    figure, axes = pyplot.subplots(figsize=(5.4, 3.2), layout="constrained")
    names = list(dict.fromkeys(point.series for point in experiment.points))
    for number, name in enumerate(names):
        points = [point for point in experiment.points if point.series == name]
        medians = [point.median for point in points]
        spread = [
            [median - min(point.values) for median, point in zip(medians, points)],
            [max(point.values) - median for median, point in zip(medians, points)],
        ]
        places = [point.x for point in points]
        if experiment.labels:
            width = 0.8 / len(names)
            places = [x + (number - (len(names) - 1) / 2) * width for x in places]
            axes.bar(places, medians, width, yerr=spread, label=name, capsize=2)
        else:
            mark = MARKS[number % len(MARKS)]
            axes.errorbar(
                places, medians, yerr=spread, label=name, marker=mark, markersize=4, linewidth=1.2, capsize=2
            )
    scales(experiment, axes)
    axes.set_xlabel(experiment.x)
    axes.set_ylabel(experiment.unit)
    axes.set_title(f"{experiment.title} ({experiment.kind})", fontsize=9)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def scales(experiment, axes):
    """Logarithmic where values span more than a decade."""
    places = sorted({point.x for point in experiment.points})
    if experiment.labels:
        axes.set_xticks(range(len(experiment.labels)), experiment.labels)
    elif len(places) > 1 and places[0] > 0 and places[-1] / places[0] > 10:
        axes.set_xscale("log")
    medians = [point.median for point in experiment.points]
    if min(medians) > 0 and max(medians) / min(medians) > 20:
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=min(0, *medians))
