"""A broker beside routed traffic in one box (MiddleNet, Figure 13)."""

import contextlib
import json
import os
import subprocess
import time

from . import web
from .. import boxes
from .proxies import BROKER, OLD, SECONDS, SERVERS, SIZE, add_servers, check, measured, one_nginx
from ..ends import END_TO_END, SHARED, together
from ..machine import processor_time_of
from ..results import FAST, FAST_TC, MMB, Experiment, Series
from ..wire import PACE, SERVER, Wire

from lab.netns import end  # noqa: E402 isort: skip

# The places of the figures about both planes.
ALONE, BOTH = 0, 1
KERNEL = "nginx, forwarding by the kernel"
CONNECTIONS = 32
# Programs that take part in requests; of mmb it is a thread.
PROGRAMS = ("wrk", "nginx", "broker-web")
# Datagrams that are forwarded at an even rate, for so many seconds; when requests begin, and for how long.
RATE, LENGTH, LONG = "200M", 1200, 9
FIRST, REQUESTS = 3, 3


def setup():
    return {
        MMB: "one daemon: `route left right` over af-xdp ports, and a broker with `url-rewrite` and `proxy` (round robin)",
        FAST: boxes.FASTER,
        FAST_TC: boxes.FASTER_TC + ", and `set punt-limit local off`: the kernel gives the broker its packets",
        KERNEL: "ip_forward, and one nginx with `rewrite` and `proxy_pass`",
    }


def both_planes(wire, name):
    """What forwards and answers requests, as a context."""
    # The limit protects the box from packets for itself, which come from af-packet ports only.
    stands = boxes.ours(wire, "set punt-limit local off\n" + BROKER)
    return stands[name]() if name in stands else one_nginx(wire.box, SERVERS, True)


def of_requests(wire):
    """CPU nanoseconds of what takes part in requests, at both ends and in the box."""
    return sum(processor_time_of(space.pids(), PROGRAMS) for space in (wire.client, wire.box, wire.server))


@contextlib.contextmanager
def requesting(wire, seconds):
    """wrk, for so many seconds. Its output is in the list that it yields afterwards."""
    asking = web.asking(web.PROXY + OLD.rstrip("/"), SIZE, seconds, CONNECTIONS, kept=True)
    clients, shown = wire.client.popen(*asking, stdout=subprocess.PIPE, text=True), []
    try:
        yield shown
        shown.append(clients.communicate(timeout=60)[0])
    finally:
        end(clients)


def beside(wire, place):
    """Gbit/s that are forwarded meanwhile, requests a second, and the share of the processors that requests take: alone, or
    together."""
    if place == ALONE:
        forwarded, _ = wire.goodput(SECONDS)
        return forwarded, measured(wire, CONNECTIONS)[0], 0
    # Requests begin before the streams, and end behind them.
    with requesting(wire, 2 * SECONDS) as shown:
        before, start = of_requests(wire), time.monotonic()
        forwarded, _ = wire.goodput(SECONDS)
        used = (of_requests(wire) - before) / 1e9 / (time.monotonic() - start)
    return forwarded, web.read(shown[0]).rate, used / os.cpu_count()


def interference(rounds, full):
    """Figure 13a: what forwarded packets and requests take from each other."""
    how = f"iperf3, two streams through the box; wrk, {CONNECTIONS} connections to the proxy of the box. Together, both run at once."
    left = (
        "What forwarding keeps is its goodput beside requests to that alone, in relation to the share of the processors that wrk, the web servers and "
        "the proxy leave: 1 if forwarding loses as much as they take."
    )
    figures = [
        Experiment(
            name, f"Packets and requests in one box: {what}", END_TO_END, "load", unit, "MiddleNet, Figure 13", setup(), [SHARED, how, *notes],
            ["alone", "together"],
        )
        for name, what, unit, notes in (
            ("planes-goodput", "goodput of forwarded TCP", "Gbit/s", []),
            ("planes-requests", "requests", "requests a second", []),
            ("planes-kept", "what forwarding keeps", "of what is left", [left]),
        )
    ]
    with Wire() as wire, web.site(wire, [SIZE], b"a text "):
        add_servers(wire)

        def at(name):
            alone = []

            def measure(place):
                with both_planes(wire, name):
                    check(wire, name)
                    forwarded, asked, share = beside(wire, place)
                if place == ALONE:
                    alone.append(forwarded)
                    return forwarded, asked, None
                return forwarded, asked, forwarded / alone[-1] / (1 - share)

            return measure

        return together(figures, [Series(name, at(name), [ALONE, BOTH]) for name in setup()], rounds)


def through(wire):
    """Mbit/s of datagrams that arrive in each second, while requests come and go in between."""
    server = wire.server.popen("iperf3", "-s", "-1", "-J", "-i", 1, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    command = ("iperf3", "-u", "-b", RATE, "-l", LENGTH, "--pacing-timer", PACE, "-t", LONG, "-c", SERVER)
    try:
        wire.until_listening()
        client = wire.client.popen(*command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(FIRST)
        with requesting(wire, REQUESTS) as shown:
            pass
        web.read(shown[0])
        client.wait(60)
        intervals = json.loads(server.communicate(timeout=10)[0])["intervals"]
    finally:
        end(server)
    return [round(interval["sum"]["bits_per_second"] / 1e6) for interval in intervals][:LONG]


def series(rounds, full):
    """Figure 13b: forwarded packets while requests begin and end."""
    how = (
        f"iperf3 sends {RATE}bit/s in datagrams of {LENGTH:,} bytes through the box for {LONG} s. After {FIRST} s, wrk asks the proxy of the box for {REQUESTS} s, by "
        f"{CONNECTIONS} connections. The paper's load is that of its network card; here, one that both forward without loss leaves processors to requests."
    )
    figure = Experiment(
        "planes-series", "Packets and requests in one box: forwarded packets by time", END_TO_END, "second", "Mbit/s", "MiddleNet, Figure 13",
        setup(), [SHARED, how],
    )
    with Wire() as wire, web.site(wire, [SIZE], b"a text "):
        add_servers(wire)

        def at(name):
            run = []

            def measure(second):
                if second == 1:
                    with both_planes(wire, name):
                        check(wire, name)
                        run[:] = through(wire)
                return run[int(second) - 1]

            return measure

        return figure.measure([Series(name, at(name), list(range(1, LONG + 1))) for name in setup()], rounds)


ALL = {"planes": interference, "planes-series": series}
