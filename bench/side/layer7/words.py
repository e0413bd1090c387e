"""A word in web pages is replaced on the way: mmb's function `http-edit` beside nginx's `sub_filter`."""

import contextlib
import os
import pathlib

from .. import boxes
from ..peers.mmb import ticks_per_nanosecond
from . import web
from ..ends import END_TO_END, OFFLOAD, SHARED, together
from ..results import MMB, Experiment, Series
from ..wire import Wire, peak_memory

SERVER = "10.2.0.2"
SECONDS = 2
OLD, NEW = "attack", "a longer text"
COMPUTED = [
    "mmb: what the nodes of its graph take, ports not counted, which poll. Others: user time of their processes. What the "
    "kernel does is in neither: sockets, TCP, interfaces.",
]
# The word comes once in so many bytes.
TEXT = OLD.encode().ljust(1024, b".")
OURS = (MMB, boxes.AF_PACKET)
SUB_FILTER, PROXIED, HAPROXY = "nginx, sub_filter", "nginx, proxy", "HAProxy, proxy"
# Nodes of mmb's graph that ask the kernel for packets, and hand them over.
PORT_NODES = ("port-rx", "port-tx")


def setup():
    return {
        MMB: f"`http-edit type * body replace {OLD} '{NEW}'` in a chain, af-xdp ports; connections pass through it",
        boxes.AF_PACKET: "the same over af-packet ports",
        SUB_FILTER: f"`sub_filter {OLD} '{NEW}'` in a reverse proxy, one worker, connections to the server kept; ends connections",
        PROXIED: "the same proxy, which replaces nothing",
        HAPROXY: "mode http, one thread, no logs, connections to the server kept; it has no filter that replaces words of bodies",
        "nothing": "ip_forward only; nothing is replaced",
    }


def nginx(directory, name):
    edit = f" sub_filter {OLD} '{NEW}'; sub_filter_once off; sub_filter_types *;" if name == SUB_FILTER else ""
    kept = "proxy_http_version 1.1; proxy_set_header Connection '';"
    lines = (
        f" upstream back {{ server {SERVER}:{web.PORT}; keepalive 64; }}\n"
        f" server {{ {web.LISTEN} location / {{ proxy_pass http://back; {kept}{edit} }} }}"
    )
    return web.nginx_http(directory, lines)


def haproxy(_):
    listen = f"listen web\n  bind {web.PROXY}:{web.PORT} backlog 4096\n  http-reuse always\n"
    return web.haproxy("http", f"{listen}{web.haproxy_servers([SERVER])}")


@contextlib.contextmanager
def stand(wire, name):
    """Puts what replaces into the box: a context with the address to ask, and with what its program has computed so far."""
    if name in OURS:
        function = f'nf add words http-edit type * body replace {OLD} "{NEW}"\n'
        rule = f"add-stateful ip-daddr {SERVER} tcp-dport {web.PORT} chain web\n"
        lines = f"{function}chain add web words\n{rule}"
        with wire.mmb(lines) if name == MMB else wire.mmb_on_packet_sockets(lines) as daemon:
            yield SERVER, lambda: graph_time(daemon)
    elif name == "nothing":
        yield SERVER, lambda: 0
    else:
        command, config = (["haproxy", "-db", "-f"], haproxy) if name == HAPROXY else (["nginx", "-c"], lambda at: nginx(at, name))
        with web.configured(wire.box, command, name, config):
            yield web.PROXY, lambda: user_time(wire.box)


def graph_time(daemon):
    """Microseconds that the nodes of mmb's graph have taken, ports not counted: these poll."""
    workers = daemon.json("show", "runtime")["workers"]
    nodes = [node for worker in workers for node in worker["nodes"].items()]
    return sum(node["ticks"] for name, node in nodes if name not in PORT_NODES) / ticks_per_nanosecond() / 1e3


def user_time(space):
    """Microseconds that the programs of a namespace have computed, outside of the kernel."""
    fields = (pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split() for pid in space.pids())
    # `utime` (proc_pid_stat(5)) is the 14th field, and the second one is in front of these.
    return sum(int(field[11]) for field in fields) / os.sysconf("SC_CLK_TCK") * 1e6


def check(wire, name, address, size):
    """That each word was replaced, or none."""
    shown = wire.client.run("curl", "-sf", "--max-time", "20", f"http://{address}/{size}").stdout
    words = NEW if name in (*OURS, SUB_FILTER) else OLD
    if shown.count(words) != size or shown.count(OLD) + shown.count(NEW) != size:
        raise RuntimeError(f"{name} gave {shown.count(OLD)} old and {shown.count(NEW)} new words of {size}")


def http(rounds, full, offload=False):
    """Figure 15's question with real programs: how many pages, what CPU time each of them costs, and what memory all take."""
    how = f"wrk, {web.CONNECTIONS} connections at a time, a new one for each page; one word in each KiB. Every run checks a page."
    figures = [
        Experiment(
            name.replace("words", "words-offload" if offload else "words"),
            f"A word is replaced in web pages{', with offload' if offload else ''}: {what}", END_TO_END, "page, KiB", unit, "MiddleClick, Figure 15",
            setup(), [*(COMPUTED if name == "words-box" else [SHARED]), how, *([OFFLOAD] if offload else [])],
        )
        for name, what, unit in (
            ("words-requests", "requests", "requests a second"),
            ("words-cpu", "CPU of all programs", "CPU µs a request"),
            ("words-memory", "memory of the programs in the box", "MiB at most"),
            ("words-box", "what the box's program computes", "µs a request"),
        )
    ]
    places = [1, 8, 64, 1024] if full else [8, 64]
    with Wire(offloads=offload) as wire, web.site(wire, places, TEXT):

        def asked(name):
            def measure(size):
                with stand(wire, name) as (address, computed):
                    check(wire, name, address, size)
                    before = computed()
                    rate, cost = web.cost(wire, address, size, SECONDS)
                    own = (computed() - before) / (rate * SECONDS) if rate else 0
                    return rate, cost, peak_memory(wire.box) or None, own or None

            return measure

        return together(figures, [Series(name, asked(name), places) for name in setup()], rounds)


def http_with_offload(rounds, full):
    """The same between containers: their kernels leave segments and checksums to the interfaces."""
    return http(rounds, full, offload=True)


ALL = {"words": http, "words-offload": http_with_offload}
