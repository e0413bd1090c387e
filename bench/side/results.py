"""Measurements, and the files that they are kept in."""

import csv
import json
import os
import pathlib
import statistics
import sys
import time
import traceback
from dataclasses import asdict, dataclass, field

ROOT = pathlib.Path(__file__).resolve().parents[2]
# BENCH_RESULTS is another directory for results of which nobody shall hear.
RESULTS = pathlib.Path(os.environ.get("BENCH_RESULTS", ROOT / "bench" / "results"))


# The kind of figures that are measured in memory, and their unit.
MEMORY, TICKS = "memory", "ticks a packet"
# mmb's series, and those of what it does at best where settled flows may stay in the kernel.
MMB, FAST, FAST_TC = "mmb", "mmb, XDP fast path", "mmb, tc fast path"
# What it does by itself over the other kind of port.
AF_PACKET = "mmb, af-packet"
# What takes mmb's place where the library for searching is not installed.
OWN_SEARCH = "mmb, without the library"
# A place on which so many seconds were spent is not measured again: a million rules take some peers a minute
# to fill in.
ENOUGH = 50


class Absent(Exception):
    """A peer cannot do what is asked at this place; says why."""


class NotInstalled(Absent):
    """A peer is not there at all."""

    def __init__(self):
        super().__init__("not installed")


@dataclass
class Point:
    """One series at one place of the x axis; one value a round. All of them together took so many seconds, what had to be set
    up for them included."""

    series: str
    x: float
    values: list = field(default_factory=list)
    seconds: float = 0.0

    @property
    def median(self):
        return statistics.median(self.values)


@dataclass
class Series:
    """What is measured under one name. `at(x)` returns one value, or None, or raises Absent; `places` are those of the
    experiment's x axis where this series is measured. Whatever else it raises costs this place only."""

    name: str
    at: object
    places: list


def selected(rows, full):
    """Series of rows (series, value at x, places of x, how many of them in a short run)."""
    return [Series(name, at, places if full else places[:quick]) for name, at, places, quick in rows]


@dataclass
class Experiment:
    """A figure. `kind` is `memory` or `end to end`; `setup` says how the peers were configured, by series."""

    name: str
    title: str
    kind: str
    x: str
    unit: str
    paper: str
    setup: dict
    notes: list
    # Names of the places 0, 1, …, where they are not numbers.
    labels: list = field(default_factory=list)
    points: list = field(default_factory=list)
    # Why there are no values: by series, and by series and place.
    absent: dict = field(default_factory=dict)
    # Places where measuring failed, each of which says why in `absent`.
    failed: list = field(default_factory=list)
    # Ticks of mmb's plain path when this was measured, for the guard (check.py); 0: not measured.
    plain: float = 0.0
    # The revision of mmb and the processor that this was measured with.
    mmb: str = ""
    processor: str = ""
    # How many rounds were asked for, and the seconds that all of it took.
    rounds: int = 0
    seconds: float = 0.0

    def place(self, x):
        """A place of the x axis in words."""
        return self.labels[int(x)] if self.labels else f"{x:,.15g}"

    def measure(self, series, rounds):
        """Measures all series in turn, `rounds` times; of what takes long, fewer."""
        points = {(one.name, x): Point(one.name, x) for one in series for x in one.places}
        start = time.monotonic()
        for number in range(rounds):
            for one in series:
                for x in one.places:
                    self._point(one, points[one.name, x], f"{self.name} {number + 1}/{rounds}")
            self.seconds = round(time.monotonic() - start, 1)
            left = sum(remaining(point, rounds - number - 1) for point in points.values())
            if left >= 1:
                say(f"{self.name} {number + 1}/{rounds}: {clock(self.seconds)} so far, about {clock(left)} left")
        self.rounds = rounds
        self.points = [point for point in points.values() if point.values]
        return self

    def _point(self, one, point, told):
        """Adds a value to a point, unless enough time was spent on it."""
        if point.seconds >= ENOUGH:
            return
        start = time.monotonic()
        value = self._value(one, point.x)
        spent = time.monotonic() - start
        point.seconds = round(point.seconds + spent, 3)
        if value is not None:
            point.values.append(round(value, 3))
            # What another figure's runs have measured takes no time.
            took = f" ({spent:.1f} s)" if spent >= 0.1 else ""
            say(f"{told}: {one.name} at {self.place(point.x)}: {value:.1f} {self.unit}{took}")

    def named(self, series, x):
        """What a place of a series is called in `absent`."""
        return f"{series} at {self.x} {self.place(x)}"

    def fewer(self):
        """(place, how many rounds it has) of those that have fewer than the others because they take long."""
        return [
            (self.named(point.series, point.x), len(point.values))
            for point in self.points
            if len(point.values) < self.rounds and self.named(point.series, point.x) not in self.absent
        ]

    def has_lost_places(self):
        """Whether the results of the last run have places with values that this one has left out."""
        path = RESULTS / f"{self.name}.json"
        before = load(path).points if path.exists() else []
        now = {self.named(point.series, point.x) for point in self.points}
        return any(
            (place := self.named(point.series, point.x)) not in now and not {point.series, place} & self.absent.keys()
            for point in before
        )

    def _value(self, one, x):
        """One value, or None: then `absent` says why, and the place is not tried again."""
        place = self.named(one.name, x)
        if one.name in self.absent or place in self.absent:
            return None
        try:
            return one.at(x)
        except NotInstalled as why:
            self.absent[one.name] = str(why)
        except Absent as why:
            self.absent[place] = str(why)
        except Exception as error:
            traceback.print_exc()
            self.failed.append(place)
            self.absent[place] = f"failed: {next(iter(str(error).splitlines()), type(error).__name__)}"
        return None

    def save(self):
        """Writes NAME.json and NAME.csv."""
        RESULTS.mkdir(parents=True, exist_ok=True)
        (RESULTS / f"{self.name}.json").write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")
        with (RESULTS / f"{self.name}.csv").open("w", newline="", encoding="utf-8") as file:
            table = csv.writer(file)
            table.writerow(["series", self.x, f"median {self.unit}", "lowest", "highest", "rounds"])
            for point in self.points:
                table.writerow(
                    [point.series, self.place(point.x), point.median, min(point.values), max(point.values), len(point.values)]
                )


def say(text):
    print(text, file=sys.stderr, flush=True)


def remaining(point, rounds):
    """Seconds that a point takes in so many more rounds, if each is like those that were."""
    if not point.values:
        return 0
    each = point.seconds / len(point.values)
    return min(rounds * each, max(0, ENOUGH - point.seconds) + each) if point.seconds < ENOUGH else 0


def clock(seconds):
    """Seconds in words."""
    minutes, seconds = divmod(round(seconds), 60)
    return f"{minutes} min {seconds} s" if minutes else f"{seconds} s"


def load(path):
    """An experiment that was saved."""
    read = json.loads(path.read_text(encoding="utf-8"))
    points = [Point(**point) for point in read.pop("points")]
    return Experiment(**read, points=points)
