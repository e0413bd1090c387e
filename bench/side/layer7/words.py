"""A word in web pages is replaced on the way: mmb's function `http-edit` beside nginx's `sub_filter`."""

import contextlib

from .. import boxes
from . import web
from ..ends import END_TO_END, OFFLOAD, SHARED, together
from ..results import MMB, Experiment, Series
from ..wire import Wire, peak_memory

SERVER = "10.2.0.2"
SECONDS = 2
OLD, NEW = "attack", "a longer text"
# The word comes once in so many bytes.
TEXT = OLD.encode().ljust(1024, b".")
OURS = (MMB, boxes.AF_PACKET)
SUB_FILTER, PROXIED = "nginx, sub_filter", "nginx, proxy"


def setup():
    return {
        MMB: f"`http-edit type * body replace {OLD} '{NEW}'` in a chain, af-xdp ports; connections pass through it",
        boxes.AF_PACKET: "the same over af-packet ports",
        SUB_FILTER: f"`sub_filter {OLD} '{NEW}'` in a reverse proxy, one worker, connections to the server kept; ends connections",
        PROXIED: "the same proxy, which replaces nothing",
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


@contextlib.contextmanager
def stand(wire, name):
    """Puts what replaces into the box: a context with the address to ask."""
    if name in OURS:
        function = f'nf add words http-edit type * body replace {OLD} "{NEW}"\n'
        rule = f"add-stateful ip-daddr {SERVER} tcp-dport {web.PORT} chain web\n"
        lines = f"{function}chain add web words\n{rule}"
        with wire.mmb(lines) if name == MMB else wire.mmb_on_packet_sockets(lines):
            yield SERVER
    elif name == "nothing":
        yield SERVER
    else:
        with web.configured(wire.box, ["nginx", "-c"], name, lambda at: nginx(at, name)):
            yield web.PROXY


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
            setup(), [SHARED, how, *([OFFLOAD] if offload else [])],
        )
        for name, what, unit in (
            ("words-requests", "requests", "requests a second"),
            ("words-cpu", "CPU of all programs", "CPU µs a request"),
            ("words-memory", "memory of the programs in the box", "MiB at most"),
        )
    ]
    places = [1, 8, 64, 1024] if full else [8, 64]
    with Wire(offloads=offload) as wire, web.site(wire, places, TEXT):

        def asked(name):
            def measure(size):
                with stand(wire, name) as address:
                    check(wire, name, address, size)
                    found = web.cost(wire, address, size, SECONDS)
                    return *found, peak_memory(wire.box) or None

            return measure

        return together(figures, [Series(name, asked(name), places) for name in setup()], rounds)


def http_with_offload(rounds, full):
    """The same between containers: their kernels leave segments and checksums to the interfaces."""
    return http(rounds, full, offload=True)


ALL = {"words": http, "words-offload": http_with_offload}
