"""The guard: mmb's costs in memory beside those that are committed, as ratios to the plain path of their own run."""

import json

from . import memory, mmb
from .results import RESULTS, Experiment, load

# In this file of the results stands what the plain path took when they were measured.
MACHINE, PLAIN = RESULTS / "machine.json", "plain path, ticks"
WORSE = 1.15
ROUNDS = 3


def plain_path():
    """Ticks of the plain path: the median of some runs."""
    return sorted(mmb.bench("--mode", "routed")["plain_path"] for _ in range(5))[2]


def compare():
    """Measures mmb's series of each experiment whose results are there, and prints what got worse. It only informs."""
    if not MACHINE.exists():
        return print("there are no results to compare with: run bench/run first")
    before, now = float(json.loads(MACHINE.read_text(encoding="utf-8"))[PLAIN]), plain_path()
    print(f"plain path: {now:.1f} ticks; {before:.1f} when the results were taken")
    worse = 0
    for name in memory.OURS:
        if not (RESULTS / f"{name}.json").exists():
            continue
        known = {(point.series, point.x): point.median for point in load(RESULTS / f"{name}.json").points}
        found = Experiment(name, "", "memory", "", "ticks a packet", "", {}, []).measure(memory.ours(name, False), ROUNDS)
        for point in found.points:
            ratio = (point.median / now) / (known.get((point.series, point.x), point.median) / before)
            if ratio > WORSE:
                worse += 1
                print(f"{name}: {point.series} at {point.x:g}: {ratio:.2f} times what it was")
    print(f"{worse} got worse by more than {WORSE - 1:.0%}" if worse else "nothing got worse")
