"""Chains of functions that need much processor time (MiddleNet, Figure 11)."""

import contextlib

from ..ends import END_TO_END, SHARED, together
from ..results import Experiment, Series
from ..wire import PORTS, SERVER, Wire, busy
from . import web

# What each function computes for a request or a packet: all primes up to this number.
PRIMES = 10_000
SECONDS = 2
# KiB of each answer.
SIZE = 1
BROKER, LOCAL = "requests, a broker", "packets, in the daemon"
PROCESSES = {f"packets, {mode}": mode for mode in ("poll", "event", "adaptive")}


def setup():
    process = "`sieve {} process DOMAIN {}` in a chain, a process each, `set worker-mode {}`, af-xdp ports"
    return {
        BROKER: f"`sieve {PRIMES} requests` functions and `proxy` in a broker, one thread for all; the primes of each request",
        LOCAL: f"`sieve {PRIMES}` functions in a chain, one worker for all, af-xdp ports; the primes of each packet",
        **{name: process.format(PRIMES, mode, mode) for name, mode in PROCESSES.items()},
    }


def functions(count, where=""):
    """The lines of so many functions, with further words."""
    return "".join(f"nf add s{n} sieve {PRIMES}{where}\n" for n in range(count))


def chain(count):
    return " then ".join(f"s{n}" for n in range(count))


def broker(count):
    proxy = f"nf add servers proxy {SERVER}:{web.PORT}\nchain add site {chain(count)} then servers\n"
    return f"{functions(count, ' requests')}{proxy}broker add web listen {web.PROXY}:{web.PORT} chain site\n"


def packets(name, count):
    mode = PROCESSES.get(name)
    domain, where = (f"set worker-mode {mode}\ndomain add apart private\n", f" process apart {mode}") if mode else ("", "")
    return f"{domain}{functions(count, where)}chain add heavy {chain(count)}\nadd-stateful ip-proto tcp chain heavy\n"


@contextlib.contextmanager
def stand(wire, name, count):
    """Puts a chain into the box: a context with the address to ask, and the daemon."""
    if name == BROKER:
        with wire.mmb(broker(count), ports="") as daemon:
            yield web.PROXY, daemon
    else:
        with wire.mmb(packets(name, count), ports=PORTS) as daemon:
            yield SERVER, daemon


def measured(wire, address):
    """Requests a second, microseconds of a request, and processors that all programs together used."""
    before = busy()
    asked = web.ask(wire, address, SIZE, SECONDS, kept=True)
    return asked.rate, asked.mean, (busy() - before) / SECONDS


def check(daemon, name, count):
    """That each function has computed something, for what it is told to do so."""
    reports = [one["report"] for one in daemon.json("show", "functions")["functions"] if one["type"] == "sieve"]
    if [int(report["computed"]) > 0 for report in reports] != [True] * count:
        raise RuntimeError(f"{name}: {count} functions report {reports}")


def chains(rounds, full):
    """Figure 11: requests a second, their time, and processors, by the number of functions."""
    how = f"wrk, {web.CONNECTIONS} connections that stay open, {SIZE} KiB for each request. A request has several packets, each with its primes."
    cores = "The paper has a core for each function. Here they share the cores of this machine with client and server."
    broker_note = "The functions of a broker run in its thread: the primes of a chain of n take n times as long, on one core."
    figures = [
        Experiment(
            name, f"Chains of functions that need much processor time: {what}", END_TO_END, "functions", unit,
            "MiddleNet, Figure 11", setup(), [SHARED, how, cores, broker_note],
        )
        for name, what, unit in (
            ("heavy-requests", "requests", "requests a second"),
            ("heavy-latency", "mean time of a request", "µs"),
            ("heavy-cpu", "CPU of all programs", "processors"),
        )
    ]
    places = [1, 2, 3, 4, 5, 6] if full else [1, 2, 4]
    with Wire() as wire, web.site(wire, [SIZE]):

        def asked(name):
            def measure(count):
                count = int(count)
                with stand(wire, name, count) as (address, daemon):
                    found = measured(wire, address)
                    check(daemon, name, count)
                    return found

            return measure

        return together(figures, [Series(name, asked(name), places) for name in setup()], rounds)


ALL = {"heavy": chains}
