"""Measurements, and the files that they are kept in."""

import csv
import json
import pathlib
import statistics
import sys
from dataclasses import asdict, dataclass, field

ROOT = pathlib.Path(__file__).resolve().parents[2]
RESULTS = ROOT / "bench" / "results"


@dataclass
class Point:
    """One series at one place of the x axis; one value a round."""

    series: str
    x: float
    values: list = field(default_factory=list)

    @property
    def median(self):
        return statistics.median(self.values)


@dataclass
class Series:
    """What is measured under one name. `at(x)` returns one value, or None where the peer cannot do it; `places` are those
    of the experiment's x axis where this series is measured."""

    name: str
    at: object
    places: list


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

    def place(self, x):
        """A place of the x axis in words."""
        return self.labels[int(x)] if self.labels else f"{x:,g}"

    def measure(self, series, rounds):
        """Measures all series in turn, `rounds` times."""
        points = {(one.name, x): Point(one.name, x) for one in series for x in one.places}
        for number in range(rounds):
            for one in series:
                for x in one.places:
                    value = one.at(x)
                    if value is not None:
                        points[one.name, x].values.append(round(value, 3))
                        print(f"{self.name} {number + 1}/{rounds}: {one.name} at {self.place(x)}: {value:.1f} {self.unit}", file=sys.stderr)
        self.points = [point for point in points.values() if point.values]
        return self

    def save(self):
        """Writes NAME.json and NAME.csv."""
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / f"{self.name}.json").write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")
        with (RESULTS / f"{self.name}.csv").open("w", newline="", encoding="utf-8") as file:
            table = csv.writer(file)
            table.writerow(["series", self.x, f"median {self.unit}", "lowest", "highest", "rounds"])
            for point in self.points:
                table.writerow(
                    [point.series, self.place(point.x), point.median, min(point.values), max(point.values), len(point.values)]
                )


def load(path):
    """An experiment that was saved."""
    read = json.loads(path.read_text(encoding="utf-8"))
    points = [Point(**point) for point in read.pop("points")]
    return Experiment(**read, points=points)
