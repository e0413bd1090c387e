"""CPU of the box by the load: functions and proxies that are driven by events beside those that poll (MiddleNet, Figures 7 and 10)."""

import re
import time

from . import overheads, processes
from ..ends import END_TO_END, SHARED
from ..layer7 import proxies, web
from ..machine import processor_time_of
from ..results import Absent, Experiment, Series
from ..stress.loss import attempt
from ..wire import Wire

SECONDS = 2
# Functions of the chain of packets, and bytes of its frames.
FUNCTIONS, FRAME = 3, 508
# Clients of the proxies.
CLIENTS = 10
LINE = "What follows the load is a line through zero: twice the load, twice the time. At 0 it is what an idle box takes."
MODES = ["poll", "event", "adaptive"]


def spent(space):
    """CPU nanoseconds of all programs of a namespace, and of their processes elsewhere."""
    return processor_time_of(overheads.lineage(space.pids()))


def share(spaces, run):
    """The percentage of a processor that the programs of namespaces take while something runs, a `SECONDS` at least."""
    # What was started a moment ago is done.
    time.sleep(0.5)
    before, start = sum(map(spent, spaces)), time.monotonic()
    run()
    return 100 * (sum(map(spent, spaces)) - before) / 1e9 / (time.monotonic() - start)


def packets(rounds, full):
    """A chain of three functions in processes, by the packets that pass it."""
    setup = {
        "poll": f"{FUNCTIONS} `count` functions in processes of a domain, mode `poll`, `set worker-mode poll`, af-xdp ports",
        "event": "the same with `event`",
        "adaptive": "the same with `adaptive`, both defaults",
    }
    how = f"iperf3 sends datagrams in frames of {FRAME} bytes at an even rate. A rate of which the server gets less than 98 % is no result."
    figure = Experiment(
        "load-packets", "CPU of the box's programs by load: three functions in processes", END_TO_END, "packets a second", "% of a processor",
        "MiddleNet, Figure 7", setup, [SHARED, how, LINE],
    )

    def measured(name):
        def measure(rate):
            with Wire() as wire, wire.mmb(f"set worker-mode {name}\n" + processes.chain(name, FUNCTIONS)):
                wire.round_trips(20)
                if not rate:
                    return share([wire.box], lambda: time.sleep(SECONDS))
                found = []
                used = share([wire.box], lambda: found.extend(attempt(wire, FRAME, rate, seconds=SECONDS)))
                if found[0] < 0.98 * rate:
                    raise Absent(f"{found[0]:,.0f} packets a second arrive")
                return used

        return measure

    places = [0, 500, 2500, 5000, 12_500, 25_000] if full else [0, 500, 2500, 12_500, 25_000]
    return figure.measure([Series(name, measured(name), places) for name in setup], rounds)


def asked(wire, rate):
    """Asks for so many objects a second, by connections that stay open. Returns how many a second were answered."""
    command = ("h2load", "--h1", "-t", 1, "-c", CLIENTS, "-D", SECONDS, "--rps", rate / CLIENTS)
    shown = wire.client.run(*command, f"http://{web.PROXY}{proxies.OLD}{proxies.SIZE}", timeout=60).stdout
    succeeded, failed = map(int, re.search(r"(\d+) succeeded, (\d+) failed", shown).groups())
    if failed:
        raise RuntimeError(f"{failed} of {succeeded + failed} requests failed")
    return succeeded / SECONDS


def requests(rounds, full):
    """Reverse proxies that change paths, by the requests that pass them."""
    setup = {**proxies.setup(), proxies.PROCESS: proxies.IN_A_PROCESS}
    how = f"h2load asks with HTTP/1.1 at an even rate, by {CLIENTS} connections that stay open, for {proxies.SIZE} KiB each. A rate of which less than 95 % are answered is no result."
    figure = Experiment(
        "load-requests", "CPU of the box's programs by load: reverse proxies that change paths", END_TO_END, "requests a second",
        "% of a processor", "MiddleNet, Figure 10", setup, [SHARED, how, LINE],
    )
    with Wire() as wire, web.site(wire, [proxies.SIZE], b"a text "):
        proxies.add_servers(wire)
        apart = proxies.add_bridge(wire)

        def measured(name):
            def measure(rate):
                with proxies.stand(wire, apart, name) as spaces:
                    proxies.check(wire, name)
                    if not rate:
                        return share(spaces, lambda: time.sleep(SECONDS))
                    found = []
                    used = share(spaces, lambda: found.append(asked(wire, rate)))
                    if found[0] < 0.95 * rate:
                        raise Absent(f"{found[0]:,.0f} requests a second are answered")
                    return used

            return measure

        places = [0, 100, 1000, 2500, 5000, 10_000] if full else [0, 1000, 5000, 10_000]
        return figure.measure([Series(name, measured(name), places) for name in setup], rounds)


ALL = {"load-packets": packets, "load-requests": requests}
