"""The largest rate of datagrams of which nothing is lost, and round trips at shares of it."""

import subprocess

from .update import count
from .. import boxes
from ..ends import END_TO_END, SHARED, SOME
from ..results import Experiment, Series
from ..wire import PACE, SERVER, Wire, percentile

from .. import lab  # noqa: F401 isort: skip - finds the laboratory of the end-to-end tests
from lab.netns import end  # noqa: E402 isort: skip

# Seconds of an attempt, and how many attempts narrow the rate down.
SECONDS, ATTEMPTS = 1, 6
# What may be missing of the frames of an attempt: the machine's other programs keep the box waiting at times.
LOST = 0.001
# The headers of Ethernet, IPv4 and UDP in front of the datagram's bytes.
HEADERS = 42
HOW = (
    f"iperf3 sends datagrams of one flow at rates that a search chooses, for {SECONDS} s each. A rate counts if the server's interface "
    f"has received all but {LOST:.1%} of the frames that the client's has sent, in one of two attempts. The sender makes a system call for each frame, and shares the processors "
    "with the box: it is the limit where all that it sends arrives."
)
# Round trips are measured with frames of this size, at these shares of the rate.
SIZE, SHARES = 508, [10, 50, 90]
# Fewer than an attempt has time for.
PINGS = 200


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


def best(wire, size, rate):
    """The better of two attempts, where the first one has lost frames: other programs of the machine may be the reason."""
    received, lost = attempt(wire, size, rate)
    if lost <= LOST:
        return received, lost
    return min((received, lost), attempt(wire, size, rate), key=lambda one: one[1])


def largest(wire, size):
    """The largest rate of those tried of which nothing is lost: between none and what arrives of all that can be sent."""
    most, lost = best(wire, size, 0)
    if lost <= LOST:
        return most
    low, high = 0, most
    for _ in range(ATTEMPTS):
        rate = (low + high) / 2
        received, lost = best(wire, size, rate)
        # A sender that is too slow has sent what was received.
        low, high = (max(low, min(rate, received)), high) if lost <= LOST else (low, rate)
    return low


def throughput(rounds, full):
    """RFC 2544's two questions to a firewall that tracks flows: throughput (26.1), and latency (26.2) as RFC 9411 asks for it."""
    setup = dict(boxes.TRACKING)
    rules = f"{SOME:,} rules. The box knows the flow: each frame belongs to a session."
    sizes = [60, 124, 252, SIZE, 1020, 1514] if full else [60, SIZE, 1514]
    rate = Experiment(
        "throughput", "Largest rate without loss through a firewall that tracks flows", END_TO_END, "bytes of a frame", "frames a second",
        "RFC 2544, 26.1", setup, [SHARED, rules, HOW, "Sizes of frames are without the FCS of 4 bytes, which veth has not."],
    )
    trips = Experiment(
        "throughput-latency", "Round trips at a share of the largest rate without loss, median", END_TO_END, "% of the rate", "µs",
        "RFC 2544, 26.2; RFC 9411, 7.3", setup,
        [SHARED, rules, f"A ping each 2 ms beside datagrams in frames of {SIZE} bytes, at these shares of the rate that each box has without loss."],
    )
    found = {}
    with Wire() as wire:

        def most(name):
            def measure(size):
                with boxes.tracking(wire, SOME)[name]():
                    wire.round_trips(20)
                    best = largest(wire, int(size))
                    if best and size == SIZE:
                        for share in SHARES:
                            found.setdefault((name, share), []).append(beside(wire, best * share / 100))
                    return best or None

            return measure

        rate.measure([Series(name, most(name), sizes) for name in setup], rounds)

    def known(name):
        turns = {share: iter(found.get((name, share), [])) for share in SHARES}
        return lambda share: next(turns[share], None)

    trips.measure([Series(name, known(name), SHARES) for name in setup], rounds)
    return [rate, trips]


def beside(wire, rate):
    """The median of round trips beside frames at a rate."""
    times = []
    attempt(wire, SIZE, rate, lambda: times.extend(wire.round_trips(PINGS)))
    return percentile(times, 0.5)


ALL = {"throughput": throughput}
