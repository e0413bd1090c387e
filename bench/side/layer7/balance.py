"""Load balancers for HTTP beside HAProxy and nginx: mmb's functions `lb` (MiddleClick, Figure 14) and `http-lb`."""

import contextlib
import pathlib

from .. import boxes
from . import web
from ..ends import END_TO_END, OFFLOAD, SHARED, together
from ..results import FAST, FAST_TC, MMB, Experiment, Series
from ..wire import Wire

# The address that clients ask with mmb: no machine has it. The servers' addresses are all on one interface.
VIRTUAL = "10.3.0.1"
BACKENDS = [f"10.2.0.{number}" for number in range(2, 6)]
SECONDS = 2
# Larger objects do not come often enough in that time to say how long they take.
TIMED = 1024
STREAM = pathlib.Path("/usr/lib/nginx/modules/ngx_stream_module.so")


def setup():
    how = "its stream module, `proxy_pass` to an upstream" if STREAM.exists() else "a reverse proxy by HTTP (no stream module here)"
    return {
        MMB: "`lb` of four servers by round robin in a chain, af-xdp ports; connections pass through it",
        FAST: boxes.FASTER,
        "HAProxy": "mode tcp, round robin, one thread, splice-auto, no logs; ends connections",
        "nginx": f"{how}, round robin, one worker, reuseport, no logs; ends connections",
        "nothing": "ip_forward only: clients ask one server",
    }


def haproxy():
    listen = f"listen web\n  bind {web.PROXY}:{web.PORT}\n{web.haproxy_servers(BACKENDS)}"
    return web.haproxy("tcp", listen, "  option splice-auto\n")


def nginx(directory, stream):
    """With the stream module a proxy of TCP, as HAProxy's mode is; without it, of HTTP."""
    servers = "".join(f" server {address}:{web.PORT};" for address in BACKENDS)
    upstream = f" upstream back {{{servers} }}\n"
    if stream:
        block = f"stream {{\n{upstream} server {{ {web.LISTEN} proxy_pass back; }}\n}}\n"
        return f"load_module {STREAM};\n{web.nginx_head(directory)}{block}"
    return web.nginx_http(directory, f"{upstream} server {{ {web.LISTEN} location / {{ proxy_pass http://back; }} }}")


@contextlib.contextmanager
def proxy(wire, name):
    """HAProxy or nginx in the box."""
    if name == "HAProxy":
        command, config = ["haproxy", "-db", "-f"], lambda _: haproxy()
    else:
        command, config = ["nginx", "-c"], lambda at: nginx(at, STREAM.exists())
    with web.configured(wire.box, command, name, config):
        yield web.PROXY


@contextlib.contextmanager
def balancer(wire, name):
    """mmb in the box."""
    servers, rule = " ".join(BACKENDS), f"add-stateful ip-daddr {VIRTUAL} tcp-dport {web.PORT}"
    lines = f"nf add balancer lb {servers} by round-robin\nchain add web balancer\n{rule} chain web\n"
    lines = boxes.ON + lines if name == FAST else lines
    with wire.mmb(lines):
        yield VIRTUAL


def stand(wire, name):
    """Puts a load balancer into the box: a context with the address to ask."""
    if name in (MMB, FAST):
        return balancer(wire, name)
    if name == "nothing":
        return contextlib.nullcontext(BACKENDS[0])
    return proxy(wire, name)


def add_addresses(wire):
    """Gives the web server all its addresses."""
    for address in BACKENDS[1:]:
        wire.server.run("ip", "address", "add", f"{address}/24", "dev", "s0")
    route_to_virtual(wire)


def route_to_virtual(wire):
    """The virtual address of mmb is nobody's; the route makes clients' packets pass the box."""
    wire.box.run("ip", "route", "replace", f"{VIRTUAL}/32", "via", BACKENDS[0])


def http(rounds, full):
    """Figure 14: goodput by the size of the objects, and how long requests take."""
    how = f"wrk, {web.CONNECTIONS} connections at a time, a new one for each object; one nginx serves on all four addresses."
    notes = [SHARED, how]
    figures = [
        Experiment(
            name, f"A load balancer for HTTP, a connection for each object: {what}", END_TO_END, "object, KiB", unit,
            "MiddleClick, Figure 14", setup(), notes,
        )
        for name, what, unit in (
            ("load-balancer", "goodput", "Gbit/s"),
            ("load-balancer-requests", "requests", "requests a second"),
            ("load-balancer-latency", "mean time of a request", "µs"),
        )
    ]
    places = [0, 1, 8, 64, 256, 1024, 4096, 16384] if full else [0, 8, 64, 1024, 16384]
    with Wire() as wire, web.site(wire, places):
        add_addresses(wire)

        def asked(name):
            def measure(size):
                with stand(wire, name) as address:
                    found = web.ask(wire, address, size, SECONDS)
                return found.gbit, found.rate or None, found.mean if size <= TIMED else None

            return measure

        return together(figures, [Series(name, asked(name), places) for name in setup()], rounds)


def setup_by_request():
    return {
        MMB: "`http-lb path / to` four servers by round robin in a chain, af-xdp ports; connections pass through it",
        FAST: f"{boxes.FASTER}: the kernel forwards what is behind the request",
        boxes.AF_PACKET: "the same over af-packet ports",
        FAST_TC: "the same over af-packet ports with `set fast-path auto`",
        "HAProxy": "mode http, `use_backend` by `path_beg /`, round robin, one thread, no logs; ends connections",
        "nginx": "`location /` with `proxy_pass` to an upstream, one worker, reuseport, no logs; ends connections",
        "nothing": "ip_forward only: clients ask one server",
    }


def haproxy_by_request():
    return web.haproxy(
        "http",
        f"frontend web\n  bind {web.PROXY}:{web.PORT}\n  use_backend all if {{ path_beg / }}\n"
        f"backend all\n{web.haproxy_servers(BACKENDS)}",
    )


@contextlib.contextmanager
def stand_by_request(wire, name):
    """Puts a load balancer that reads requests into the box: a context with the address to ask."""
    servers = " ".join(BACKENDS)
    if name in (MMB, FAST, boxes.AF_PACKET, FAST_TC):
        function = f"nf add balancer http-lb path / to {servers} default to {BACKENDS[0]}"
        lines = f"{function}\nchain add web balancer\nadd-stateful ip-daddr {VIRTUAL} tcp-dport {web.PORT} chain web\n"
        lines = boxes.ON + lines if name in (FAST, FAST_TC) else lines
        with wire.mmb(lines) if name in (MMB, FAST) else wire.mmb_on_packet_sockets(lines):
            # The addresses of the box have moved to the twins of packet sockets, and back.
            route_to_virtual(wire)
            yield VIRTUAL
        route_to_virtual(wire)
    elif name == "nothing":
        yield BACKENDS[0]
    else:
        command = ["haproxy", "-db", "-f"] if name == "HAProxy" else ["nginx", "-c"]
        config = (lambda _: haproxy_by_request()) if name == "HAProxy" else (lambda at: nginx(at, stream=False))
        with web.configured(wire.box, command, name, config):
            yield web.PROXY


def by_request(rounds, full, offload=False):
    """The server is chosen by the request: how many objects, and what CPU time each of them costs."""
    how = f"wrk, {web.CONNECTIONS} connections at a time, a new one for each object; one nginx serves on all four addresses."
    figures = [
        Experiment(
            name.replace("balancer", "balancer-offload" if offload else "balancer"),
            f"A load balancer that reads requests{', with offload' if offload else ''}: {what}",
            END_TO_END, "object, KiB", unit, "MiddleClick, Figure 14", setup_by_request(), [SHARED, how, *([OFFLOAD] if offload else [])],
        )
        for name, what, unit in (
            ("request-balancer", "requests", "requests a second"),
            ("request-balancer-cpu", "CPU of all programs", "CPU µs a request"),
        )
    ]
    places = [1, 8, 64, 1024] if full else [8, 64, 1024]
    with Wire(offloads=offload) as wire, web.site(wire, places):
        add_addresses(wire)

        def asked(name):
            def measure(size):
                with stand_by_request(wire, name) as address:
                    return web.cost(wire, address, size, SECONDS)

            return measure

        return together(figures, [Series(name, asked(name), places) for name in setup_by_request()], rounds)


def by_request_with_offload(rounds, full):
    """The same between containers: their kernels leave segments and checksums to the interfaces."""
    return by_request(rounds, full, offload=True)


ALL = {"load-balancer": http, "request-balancer": by_request, "request-balancer-offload": by_request_with_offload}
