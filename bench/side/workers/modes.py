"""What workers do without packets (MiddleNet, Figure 7: interrupts beside polling): what it costs, and what it saves."""

import time

from ..ends import END_TO_END, IPERF, SHARED, together
from ..machine import processor_time
from ..results import Experiment, Series
from ..wire import PORTS, SERVER, Wire, percentile

MODES = ["poll", "event", "adaptive"]
# The places of the x axis.
PLACES = ["af-xdp", "af-packet"]
# Seconds without a packet in which the daemon's processor time is measured.
IDLE = 2
# Seconds between two pings: longer than a worker of any mode but `poll` stays awake.
RARE = "0.05"


def setup():
    return {
        "poll": "`set worker-mode poll`: the worker never sleeps",
        "event": "`set worker-mode event`: it sleeps on the sockets of its ports when a look has found nothing",
        "adaptive": "the default: it looks for packets for 200 µs more, then sleeps; it sleeps at once while processors are short",
    }


def stand(wire, name, place):
    """A daemon that forwards between the two ports."""
    lines = f"set worker-mode {name}\n"
    return wire.mmb(lines, PORTS) if PLACES[int(place)] == "af-xdp" else wire.mmb_on_packet_sockets(lines)


def processor(daemon):
    """CPU nanoseconds of a daemon's worker."""
    return processor_time(daemon.process_directory() / "task" / str(daemon.thread("mmb-worker-0")))


def idle(daemon):
    """The share of a processor that a worker takes without packets, in percent."""
    before, start = processor(daemon), time.monotonic()
    time.sleep(IDLE)
    return 100 * (processor(daemon) - before) / 1e9 / (time.monotonic() - start)


def after_pauses(wire, count=40):
    """Round-trip times of pings with pauses between them, sorted, in microseconds."""
    shown = wire.client.run("ping", "-n", "-c", count, "-i", RARE, SERVER, timeout=60).stdout
    return sorted(float(word[5:]) * 1000 for word in shown.split() if word.startswith("time=") and word[5:6].isdigit())


def figure(rounds, full):
    """Goodput, processor time, and round trips, by the kind of port."""
    figures = [
        Experiment(
            name, f"Workers that poll, and workers that sleep: {what}", END_TO_END, "ports", unit, "MiddleNet, Figure 7", setup(),
            [SHARED, *notes], PLACES,
        )
        for name, what, unit, notes in (
            ("modes-goodput", "goodput of TCP", "Gbit/s", [IPERF]),
            ("modes-cpu", "CPU time of the whole machine for TCP", "s per Gbit", [IPERF]),
            ("modes-latency", "round trips after pauses, median", "µs", [f"A ping each {float(RARE) * 1000:g} ms."]),
            ("modes-idle", "CPU of the worker without packets", "% of a processor", [f"For {IDLE} s."]),
        )
    ]

    def measured(name):
        def measure(place):
            with Wire() as wire, stand(wire, name, place) as daemon:
                wire.round_trips(20)
                return *wire.goodput(), percentile(after_pauses(wire), 0.5), idle(daemon)

        return measure

    return together(figures, [Series(name, measured(name), list(range(len(PLACES)))) for name in setup()], rounds)


ALL = {"modes": figure}
