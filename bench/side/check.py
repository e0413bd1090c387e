"""The guard: mmb's costs in memory beside those that are committed, as ratios to the plain path of their own run. The lowest
values are compared: other work on the machine makes all others higher."""

from . import machine, memory
from .peers import mmb
from .results import RESULTS, Experiment, load

WORSE = 1.15
ROUNDS = 3


def plain_path():
    """Ticks of the plain path: the least of some runs."""
    return min(mmb.bench("--mode", "routed", seconds=0.3)["plain_path"] for _ in range(5))


def compare():
    """Measures mmb's series of each experiment whose results are there, and prints what got worse. It only informs."""
    compared, worse = 0, 0
    processor = machine.processor()
    for name in memory.OURS:
        path = RESULTS / f"{name}.json"
        before = load(path) if path.exists() else None
        if before is None or not before.plain:
            print(f"{name}: there are no results to compare with: run bench/run {name} first")
            continue
        now = plain_path()
        print(f"{name}: the plain path takes {now:.1f} ticks; {before.plain:.1f} when the results were taken")
        if before.processor != processor:
            print(f"{name}: the results are of another processor, {before.processor or 'unknown'}; ratios may differ")
        known = {(point.series, point.x): min(point.values) for point in before.points}
        series = memory.ours(name, False)
        found = Experiment(name, "", "memory", before.x, "ticks a packet", "", {}, []).measure(series, ROUNDS)
        for point in found.points:
            was = known.get((point.series, point.x))
            if was is None:
                continue
            compared += 1
            least = min(point.values)
            ratio = (least / now) / (was / before.plain)
            if ratio > WORSE:
                worse += 1
                print(f"{name}: {point.series} at {point.x:g}: {least:.1f} ticks, {ratio:.2f} times what it was")
    print(f"{worse} of {compared} costs got worse by more than {WORSE - 1:.0%}")
