"""A run of several experiments: what remains of it, how long that takes, and going on with one that was cut off.

What a finished experiment found is kept at once. Until the whole run is finished, `unfinished.json` beside the results says
what it consists of and what is done; `seconds.json` says how long each experiment took the last time, with few places and with
many, from which the next run tells what remains.
"""

import hashlib
import json
import time
import traceback
from dataclasses import asdict, dataclass, field

from . import results
from .peers import mmb
from .results import clock, say

SHORT, FULL = "short", "full"
# Rounds of a short run, and of a full one.
ROUNDS = {SHORT: 3, FULL: 5}


class CannotResume(Exception):
    """There is nothing to go on with, or it would not fit what was measured before."""


@dataclass
class Run:
    """Experiments in their order, and what became of them."""

    names: list
    rounds: int
    full: bool
    # Checksum of the mmb that is measured.
    binary: str
    done: list = field(default_factory=list)
    # Experiments and places that failed.
    failed: list = field(default_factory=list)
    # Results that were written.
    figures: list = field(default_factory=list)
    # Those that have fewer places than the results before them.
    reduced: list = field(default_factory=list)

    @property
    def left(self):
        return [name for name in self.names if name not in self.done]

    @property
    def kind(self):
        return FULL if self.full else SHORT

    def keep(self):
        write(unfinished(), asdict(self))

    def measure(self, experiment):
        """Measures what is left, by `experiment(name, rounds, full)`, which returns figures. What fails spares the others; what
        was finished is kept, whatever ends the run."""
        self.keep()
        for name in self.left:
            say(self.outlook(name))
            start = time.monotonic()
            try:
                found = experiment(name, self.rounds, self.full)
            except Exception:
                traceback.print_exc()
                self.failed.append(name)
                found = []
            for figure in found:
                if figure.has_lost_places():
                    self.reduced.append(figure.name)
                figure.save()
                self.figures.append(figure.name)
                self.failed += figure.failed
            if found:
                self._took(name, time.monotonic() - start)
            self.done.append(name)
            self.keep()
        unfinished().unlink()

    def _took(self, name, seconds):
        known = read(times())
        known.setdefault(self.kind, {})[name] = {"rounds": self.rounds, "seconds": round(seconds, 1)}
        write(times(), known)

    def expected(self, name):
        """Seconds that an experiment takes by what it took the last time; None: nobody knows. A run of the other kind is better
        than nothing."""
        known = read(times())
        for kind in (self.kind, FULL, SHORT):
            if name in known.get(kind, {}):
                last = known[kind][name]
                return last["seconds"] * self.rounds / last["rounds"]
        return None

    def outlook(self, name):
        """What comes now, and how long all that is left takes."""
        told = [seconds for other in self.left if (seconds := self.expected(other)) is not None]
        untold = len(self.left) - len(told)
        parts = [f"about {clock(sum(told))} left"] if told else []
        if untold:
            parts.append(f"{untold} that nobody has timed")
        return f"== {name}, {len(self.done) + 1} of {len(self.names)}: {', and '.join(parts)}"

    def spent(self):
        """Where the time went, in lines: all of it, then each experiment."""
        found = [results.load(results.RESULTS / f"{name}.json") for name in self.figures]
        head = f"measuring took {clock(sum(figure.seconds for figure in found))}"
        # Figures that share the runs of another one take no time.
        return [head, *(line(figure) for figure in found if figure.seconds >= 1)]


def line(figure):
    """How long a figure took, each of its series, and the place that took most."""
    series = {}
    for point in figure.points:
        series[point.series] = series.get(point.series, 0) + point.seconds
    taken = [f"{name} {clock(seconds)}" for name, seconds in sorted(series.items(), key=lambda one: -one[1]) if seconds >= 1]
    text = f"{figure.name}: {clock(figure.seconds)}, {', '.join(taken)}"
    if figure.points:
        most = max(figure.points, key=lambda point: point.seconds)
        text += f"; longest: {figure.named(most.series, most.x)}, {clock(most.seconds)}"
    return text


def start(names, rounds, full):
    """A new run."""
    return Run(list(names), rounds or ROUNDS[FULL if full else SHORT], full, checksum())


def resume():
    """The run that was cut off."""
    if not unfinished().exists():
        raise CannotResume("no run was cut off")
    run = Run(**read(unfinished()))
    if run.binary != checksum():
        raise CannotResume("mmb has changed since the run was cut off: its results would not fit; start a new one")
    return run


def checksum():
    return hashlib.sha256(mmb.binary().read_bytes()).hexdigest()


def unfinished():
    return results.RESULTS / "unfinished.json"


def times():
    return results.RESULTS / "seconds.json"


def read(path):
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def write(path, what):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(what, indent=1) + "\n", encoding="utf-8")
