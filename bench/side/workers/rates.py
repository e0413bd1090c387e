"""The largest rate of datagrams that two functions in processes lose nothing of, by the size of frames (MiddleNet, Figure 7)."""

import time

from . import processes
from ..ends import END_TO_END, SHARED, together
from ..results import Experiment, Series
from ..stress.loss import HOW, PINGS, attempt, largest
from ..wire import Wire, busy, percentile

FUNCTIONS = 2
SERIES = [processes.LOCAL, *processes.MODES, processes.SWITCH]


def setup():
    return {name: text for name, text in processes.setup().items() if name in SERIES}


def figure(rounds, full):
    """The rate, the processors that it takes, and round trips beside it, by the size of frames."""
    beside = "Processors and round trips (a ping each 2 ms) are those at this rate."
    sizes = "Sizes of frames are without the FCS of 4 bytes, which veth has not. The paper has a sender, a network card and 40 cores for each of three machines."
    figures = [
        Experiment(
            name, f"Two functions in processes without loss: {what}", END_TO_END, "bytes of a frame", unit, "MiddleNet, Figure 7", setup(),
            [SHARED, HOW, beside, sizes],
        )
        for name, what, unit in (
            ("loss-free-rate", "largest rate", "frames a second"),
            ("loss-free-cpu", "processors that all programs use at it", "processors"),
            ("loss-free-latency", "round trips at it, median", "µs"),
        )
    ]
    places = [60, 124, 252, 508, 1020, 1514] if full else [60, 508, 1514]

    def measured(name):
        def measure(size):
            with Wire() as wire, processes.standing(wire, name, FUNCTIONS):
                wire.round_trips(20)
                rate = largest(wire, int(size))
                if not rate:
                    return None, None, None
                found = []

                def beside():
                    before, start = busy(), time.monotonic()
                    times = wire.round_trips(PINGS)
                    used = (busy() - before) / (time.monotonic() - start)
                    found.extend((used, percentile(times, 0.5) if times else None))

                attempt(wire, int(size), rate, beside)
                return rate, *found

        return measure

    return together(figures, [Series(name, measured(name), places) for name in SERIES], rounds)


ALL = {"loss-free": figure}
