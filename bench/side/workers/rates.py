"""The largest rate of datagrams that two functions in processes lose nothing of, by the size of frames (MiddleNet, Figure 7)."""

import subprocess
import time

from . import processes
from ..ends import END_TO_END, SHARED, together
from ..results import Experiment, Series
from ..update import count
from ..wire import PACE, SERVER, Wire, busy, percentile

from lab.netns import end  # noqa: E402 isort: skip

FUNCTIONS = 2
# Seconds of an attempt, and how many attempts narrow the rate down.
SECONDS, ATTEMPTS = 1, 6
# Round trips at the rate: fewer than an attempt has time for.
PINGS = 200
# What may be missing of the frames of an attempt: the machine's other programs keep the box waiting at times.
LOST = 0.001
# The headers of Ethernet, IPv4 and UDP in front of the datagram's bytes.
HEADERS = 42
SERIES = [processes.LOCAL, *processes.MODES, processes.SWITCH]


def setup():
    return {name: text for name, text in processes.setup().items() if name in SERIES}


def sender(size, rate, seconds):
    """A command that sends frames of so many bytes to the server; `rate`: a second. 0: as fast as it can."""
    bits = round(rate * (size - HEADERS) * 8)
    return ("iperf3", "-u", "-b", bits, "-l", size - HEADERS, "--pacing-timer", PACE, "-t", seconds, "-c", SERVER)


def attempt(wire, size, rate, run=None, seconds=SECONDS):
    """(frames a second that the server's interface has received, the share of those sent that it has not). `run` is called
    meanwhile."""
    server = wire.listening()
    ends = ((wire.client, "c0", "tx"), (wire.server, "s0", "rx"))
    before = [count(*one) for one in ends]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    client = wire.client.popen(*sender(size, rate, seconds), **quiet)
    try:
        if run:
            run()
        client.wait(60)
        server.wait(10)
    finally:
        end(client)
        end(server)
    sent, received = (count(*one) - then for one, then in zip(ends, before, strict=True))
    return received / seconds, max(0, sent - received) / sent


def largest(wire, size):
    """The largest rate of those tried of which nothing is lost: between none and what arrives of all that can be sent."""
    most, lost = attempt(wire, size, 0)
    if lost <= LOST:
        return most
    low, high = 0, most
    for _ in range(ATTEMPTS):
        rate = (low + high) / 2
        received, lost = attempt(wire, size, rate)
        # A sender that is too slow has sent what was received.
        low, high = (max(low, min(rate, received)), high) if lost <= LOST else (low, rate)
    return low


def figure(rounds, full):
    """The rate, the processors that it takes, and round trips beside it, by the size of frames."""
    how = (
        f"iperf3 sends datagrams of one flow at rates that a search chooses, for {SECONDS} s each. A rate counts if the server's interface "
        f"has received all but {LOST:.1%} of the frames that the client's has sent. The sender makes a system call for each frame, and shares the processors "
        "with the box: it is the limit where all that it sends arrives."
    )
    beside = "Processors and round trips (a ping each 2 ms) are those at this rate."
    sizes = "Sizes of frames are without the FCS of 4 bytes, which veth has not. The paper has a sender, a network card and 40 cores for each of three machines."
    figures = [
        Experiment(
            name, f"Two functions in processes without loss: {what}", END_TO_END, "bytes of a frame", unit, "MiddleNet, Figure 7", setup(),
            [SHARED, how, beside, sizes],
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
