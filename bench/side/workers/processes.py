"""Functions in processes (MiddleNet, Figure 7): what they cost beside the same functions in the daemon."""

from .. import boxes
from ..layer7 import proxies, web
from ..ends import END_TO_END, IPERF, SHARED, together
from ..results import MMB, Experiment, Series
from ..wire import Wire, percentile
from . import vhost

LOCAL, BOXES = "in the daemon", "a daemon each"
SWITCH = "Open vSwitch, vhost-user"
ZERO_COPY = "poll, zero-copy"
MODES = ["adaptive", "event", "poll", ZERO_COPY]


def setup():
    return {
        LOCAL: "`count` in a chain",
        "adaptive": "`count … process DOMAIN` in a chain, a process each, one domain; looks for packets for 200 µs, then sleeps",
        "event": "the same, asleep until packets come",
        "poll": "the same, never asleep; with more processes than processors, the slowest mode",
        ZERO_COPY: "the same as `poll`, in a `zero-copy` domain: the processes read packets where they are",
        BOXES: "a daemon for each function, af-xdp ports between them",
        SWITCH: "a testpmd (`io`) for each function on two virtio-user devices, one polling thread of Open vSwitch on DPDK "
        "with net_af_xdp ports and as many flows as hops; nothing sleeps",
    }


def chain(name, count):
    """The lines of a chain of so many functions."""
    mode, kind = ("poll", "zero-copy") if name == ZERO_COPY else (name, "private")
    where = f" process apart {mode}" if name in MODES else ""
    functions = "".join(f"nf add f{n} count{where}\n" for n in range(count))
    body = " | ".join(f"f{n}" for n in range(count))
    return f"domain add apart {kind}\n{functions}chain add c {body}\nadd-stateful net-proto ip chain c\n"


def standing(wire, name, count):
    """What stands in the box, as a context."""
    if name == BOXES:
        return boxes.in_a_row(wire, count)
    return vhost.switched(wire, count) if name == SWITCH else wire.mmb(chain(name, count))


def figure(rounds, full):
    """Goodput, CPU time and round trips by the number of functions."""
    cores = "With two processors and two functions, three threads poll in mmb (`poll`) and in the paper's peer, Open vSwitch."
    figures = [
        Experiment(
            name, f"Functions in processes of their own: {what}", END_TO_END, "functions", unit, "MiddleNet, Figure 7", setup(),
            [SHARED, IPERF, cores],
        )
        for name, what, unit in (
            ("processes-goodput", "goodput of TCP", "Gbit/s"),
            ("processes-cpu", "CPU time of the whole machine", "s per Gbit"),
            ("processes-latency", "round trips without other traffic", "µs"),
        )
    ]
    places = [1, 2, 3, 4] if full else [1, 2, 4]

    def measured(name):
        def measure(count):
            count = int(count)
            with Wire(count if name == BOXES else 1) as wire:
                with standing(wire, name, count):
                    wire.round_trips(20)
                    return *wire.goodput(), percentile(wire.round_trips(200), 0.5)

        return measure

    return together(figures, [Series(name, measured(name), places) for name in setup()], rounds)


def brokers(rounds, full):
    """Requests a second, their time, and the CPU time of each: a broker in the daemon, and in a process."""
    setup = {MMB: proxies.setup()[MMB], proxies.PROCESS: proxies.IN_A_PROCESS}
    how = f"wrk, connections that stay open, {proxies.SIZE} KiB for each request; one nginx is both servers. Every run checks an answer."
    why = "No request has a hop more: the process has the sockets. A connection to a server costs a message to the daemon, once."
    figures = [
        Experiment(name, f"A broker in a process of its own: {what}", END_TO_END, "connections", unit, "MiddleNet, Figure 10", setup, [SHARED, how, why])
        for name, what, unit in (
            ("broker-process-requests", "requests", "requests a second"),
            ("broker-process-latency", "mean time of a request", "µs"),
            ("broker-process-cpu", "CPU of all programs", "CPU µs a request"),
        )
    ]
    places = [1, 4, 16, 64, 256] if full else [1, 8, 64]
    with Wire() as wire, web.site(wire, [proxies.SIZE], b"a text "):
        proxies.add_servers(wire)

        def measured(name):
            def measure(connections):
                with proxies.stand(wire, [], name):
                    proxies.check(wire, name)
                    return proxies.measured(wire, connections)

            return measure

        return together(figures, [Series(name, measured(name), places) for name in setup], rounds)


ALL = {"processes": figure, "broker-process": brokers}
