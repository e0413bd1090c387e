"""Reverse proxies beside mmb's broker (MiddleNet, Figure 10), and a broker beside routed traffic (Figure 13)."""

import contextlib
import subprocess

from . import web
from ..ends import END_TO_END, SHARED, together
from ..results import MMB, Experiment, Series
from ..wire import PORTS, SERVER, Wire, busy

from lab.netns import end  # noqa: E402 isort: skip

# Two web servers, on addresses of the same interface.
SERVERS = [SERVER, "10.2.0.3"]
SECONDS = 2
# KiB of each answer.
SIZE = 1
# What clients ask for, and what the servers have.
OLD, NEW = "/old/", "/"
NGINX, HAPROXY, APART = "nginx", "HAProxy", "nginx, three in a row"
# Proxies in namespaces of their own, on a bridge of the box: the last two of a chain of three.
REWRITE, BALANCE = "10.4.0.2", "10.4.0.3"
KEPT = "proxy_http_version 1.1; proxy_set_header Connection '';"
BROKER = (
    f"nf add servers proxy {' '.join(f'{server}:{web.PORT}' for server in SERVERS)}\n"
    f"nf add urls url-rewrite ^{OLD}(.*) {NEW}$1\nchain add site urls then servers\n"
    f"broker add web listen {web.PROXY}:{web.PORT} chain site\n"
)


# The same broker in a process of its own, and what is said of it where it is measured.
PROCESS = f"{MMB}, in a process"
IN_A_PROCESS = "the same, all functions with `process apart`: the event loop runs in a process without rights"
APART_BROKER = "domain add apart private\n" + "".join(
    f"{line} process apart\n" if line.startswith("nf add ") else f"{line}\n" for line in BROKER.splitlines()
)


def setup():
    return {
        MMB: "a broker with `url-rewrite` and `proxy` (round robin), one thread",
        NGINX: "`rewrite` and `proxy_pass` to an upstream, one worker, reuseport, no logs",
        HAPROXY: "mode http, `replace-path` and round robin, one thread, no logs",
        APART: "one for each step (clients, `rewrite`, servers) in a namespace of its own, over a Linux bridge; the paper's K-vSwitch",
    }


def servers_of_nginx(servers):
    listed = " ".join(f"server {server}:{web.PORT};" for server in servers)
    return f" upstream back {{ {listed} keepalive 512; }}\n"


def nginx(at, servers, rewrites):
    """A proxy to these servers that changes the path, or leaves it."""
    rewrite = f"rewrite ^{OLD}(.*) {NEW}$1 break; " if rewrites else ""
    listen = f"listen {web.PORT} reuseport backlog=4096;"
    server = f" keepalive_requests 1000000; server {{ {listen} location / {{ {rewrite}proxy_pass http://back; {KEPT} }} }}"
    return web.nginx_http(at, servers_of_nginx(servers) + server)


def haproxy():
    rewrite = f"  http-request replace-path {OLD}(.*) {NEW}\\1\n"
    listen = f"listen web\n  bind {web.PROXY}:{web.PORT}\n{rewrite}{web.haproxy_servers(SERVERS)}"
    return web.haproxy("http", listen, "  http-reuse always\n")


def one_nginx(space, servers, rewrites):
    return web.configured(space, ["nginx", "-c"], NGINX, lambda at: nginx(at, servers, rewrites))


def add_bridge(wire):
    """Two namespaces on a bridge of the box, for the proxies that stand apart; returns them."""
    wire.box.run("ip", "link", "add", "bridge", "type", "bridge")
    wire.box.run("ip", "address", "add", "10.4.0.1/24", "dev", "bridge")
    wire.box.run("ip", "link", "set", "bridge", "up")
    spaces = [wire.beside(name, f"{address}/24", "bridge") for name, address in (("rewrite", REWRITE), ("balance", BALANCE))]
    wire.server.run("ip", "route", "replace", "10.4.0.0/24", "via", "10.2.0.1")
    return spaces


@contextlib.contextmanager
def stand(wire, apart, name):
    """Puts a proxy into the box."""
    with contextlib.ExitStack() as stack:
        if name in (MMB, PROCESS):
            stack.enter_context(wire.mmb(BROKER if name == MMB else APART_BROKER, ports=""))
        elif name == HAPROXY:
            stack.enter_context(web.configured(wire.box, ["haproxy", "-db", "-f"], name, lambda _: haproxy()))
        elif name == NGINX:
            stack.enter_context(one_nginx(wire.box, SERVERS, True))
        else:
            rewrite, balance = apart
            stack.enter_context(one_nginx(balance, SERVERS, False))
            stack.enter_context(one_nginx(rewrite, [BALANCE], True))
            stack.enter_context(one_nginx(wire.box, [REWRITE], False))
        yield


def add_servers(wire):
    for address in SERVERS[1:]:
        wire.server.run("ip", "address", "replace", f"{address}/24", "dev", "s0")


def check(wire, name):
    """That the path is changed on the way, and an answer comes."""
    shown = wire.client.run("curl", "-sf", "--max-time", "20", f"http://{web.PROXY}{OLD}{SIZE}").stdout
    if len(shown) != SIZE << 10:
        raise RuntimeError(f"{name} answered with {len(shown)} bytes")


def measured(wire, connections):
    """Requests a second, microseconds of a request, and the CPU time of all programs for one."""
    before = busy()
    asked = web.ask(wire, web.PROXY + OLD.rstrip("/"), SIZE, SECONDS, connections, kept=True)
    spent = busy() - before
    return asked.rate, asked.mean, spent / (asked.rate * SECONDS) * 1e6


def concurrency(rounds, full):
    """Figure 10: requests a second, their time, and the CPU time of each, by the number of connections."""
    how = f"wrk, connections that stay open, {SIZE} KiB for each request; one nginx is both servers. Every run checks an answer."
    polls = "The broker has one mode: it sleeps until something happens. The paper's D-MiddleNet, which polls, is not there."
    mean = (
        "wrk corrects its mean for requests that a stall has kept from being sent. With 512 connections, frames are lost in veth's "
        "queues of 256 for every program; a SYN that is lost costs its connection a second."
    )
    figures = [
        Experiment(
            name, f"A reverse proxy that changes paths: {what}", END_TO_END, "connections", unit, "MiddleNet, Figure 10",
            setup(), [SHARED, how, polls, mean],
        )
        for name, what, unit in (
            ("proxies-requests", "requests", "requests a second"),
            ("proxies-latency", "mean time of a request", "µs"),
            ("proxies-cpu", "CPU of all programs", "CPU µs a request"),
        )
    ]
    places = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512] if full else [1, 8, 64, 512]
    with Wire() as wire, web.site(wire, [SIZE], b"a text "):
        add_servers(wire)
        apart = add_bridge(wire)

        def asked(name):
            def measure(connections):
                with stand(wire, apart, name):
                    check(wire, name)
                    return measured(wire, connections)

            return measure

        return together(figures, [Series(name, asked(name), places) for name in setup()], rounds)


# The places of the figures about both planes.
ALONE, BOTH = 0, 1
KERNEL = "nginx, forwarding by the kernel"
CONNECTIONS = 32


def planes():
    return {
        MMB: "one daemon: `route left right` over af-xdp ports, and the broker of the figures above",
        KERNEL: "ip_forward, and nginx as above",
    }


@contextlib.contextmanager
def both_planes(wire, name):
    with wire.mmb(BROKER, ports=PORTS) if name == MMB else one_nginx(wire.box, SERVERS, True):
        yield


def beside(wire, place):
    """Gbit/s that are forwarded meanwhile, and requests a second: alone, or together."""
    if place == ALONE:
        forwarded, _ = wire.goodput(SECONDS)
        return forwarded, measured(wire, CONNECTIONS)[0]
    # Requests begin before the streams, and end behind them.
    asking = web.asking(web.PROXY + OLD.rstrip("/"), SIZE, 2 * SECONDS, CONNECTIONS, kept=True)
    clients = wire.client.popen(*asking, stdout=subprocess.PIPE, text=True)
    try:
        forwarded, _ = wire.goodput(SECONDS)
        shown, _ = clients.communicate(timeout=60)
    finally:
        end(clients)
    return forwarded, web.read(shown).rate


def interference(rounds, full):
    """Figure 13: what forwarded packets and requests take from each other."""
    how = f"iperf3, two streams through the box; wrk, {CONNECTIONS} connections to the proxy of the box. Together, both run at once."
    figures = [
        Experiment(
            name, f"Packets and requests in one box: {what}", END_TO_END, "load", unit, "MiddleNet, Figure 13", planes(), [SHARED, how],
            ["alone", "together"],
        )
        for name, what, unit in (
            ("planes-goodput", "goodput of forwarded TCP", "Gbit/s"),
            ("planes-requests", "requests", "requests a second"),
        )
    ]
    with Wire() as wire, web.site(wire, [SIZE], b"a text "):
        add_servers(wire)

        def at(name):
            def measure(place):
                with both_planes(wire, name):
                    check(wire, name)
                    return beside(wire, place)

            return measure

        return together(figures, [Series(name, at(name), [ALONE, BOTH]) for name in planes()], rounds)


ALL = {"proxies": concurrency, "planes": interference}
