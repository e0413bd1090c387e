"""Reverse proxies beside mmb's broker (MiddleNet, Figure 10)."""

import contextlib

from . import web
from ..ends import END_TO_END, SHARED, together
from ..results import MMB, Experiment, Series
from ..wire import PORTS, SERVER, Wire, busy

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
# The same broker for connections that the dataplane has received, and sends to it by a rule.
TRANSPARENT = f"{MMB}, transparent"
BY_A_RULE = "the same, `transparent`: packets pass the dataplane (af-xdp ports, `route left right`, a rule with the target `broker`) before and behind it"
# HAProxy in this role, and what brings it the packets (tproxy.rst of the kernel's documentation).
HAPROXY_TRANSPARENT = f"{HAPROXY}, transparent"
BY_TPROXY = "the same with `bind … transparent`: clients' packets come by nftables' `tproxy` and `socket transparent`"
TPROXY = (
    "table ip side {\n chain p {\n  type filter hook prerouting priority mangle\n"
    "  meta l4proto tcp socket transparent 1 meta mark set 1 accept\n"
    f"  iifname b0 tcp dport {web.PORT} tproxy to :{web.PORT} meta mark set 1 accept\n }}\n}}\n"
)
RULED_BROKER = BROKER.replace(f"listen {web.PROXY}:{web.PORT}", "transparent") + f"add in left tcp-dport {web.PORT} broker web\n"


def placed(lines, name):
    """The lines of a broker that is called so: with all functions in a process, or as they are."""
    if name != PROCESS:
        return lines
    apart = (f"{line} process apart" if line.startswith("nf add ") else line for line in lines.splitlines())
    return "domain add apart private\n" + "".join(f"{line}\n" for line in apart)


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


def haproxy(bind=f"{web.PROXY}:{web.PORT}"):
    rewrite = f"  http-request replace-path {OLD}(.*) {NEW}\\1\n"
    listen = f"listen web\n  bind {bind}\n{rewrite}{web.haproxy_servers(SERVERS)}"
    return web.haproxy("http", listen, "  http-reuse always\n")


@contextlib.contextmanager
def transparent_haproxy(wire):
    """HAProxy that takes the clients' connections to the server."""
    marked = ("fwmark", "1", "lookup", "100")
    wire.box.run("ip", "rule", "add", *marked)
    wire.box.run("ip", "route", "replace", "local", "0.0.0.0/0", "dev", "lo", "table", "100")
    wire.nft(TPROXY)
    try:
        with web.configured(wire.box, ["haproxy", "-db", "-f"], HAPROXY_TRANSPARENT, lambda _: haproxy(f":{web.PORT} transparent")):
            yield
    finally:
        wire.nft("")
        wire.box.run("ip", "rule", "delete", *marked)


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
    """Puts a proxy into the box, as a context with the namespaces of its programs."""
    with contextlib.ExitStack() as stack:
        if name in (MMB, PROCESS):
            stack.enter_context(wire.mmb(placed(BROKER, name), ports=""))
        elif name == TRANSPARENT:
            stack.enter_context(wire.mmb(RULED_BROKER, ports=PORTS))
        elif name == HAPROXY_TRANSPARENT:
            stack.enter_context(transparent_haproxy(wire))
        elif name == HAPROXY:
            stack.enter_context(web.configured(wire.box, ["haproxy", "-db", "-f"], name, lambda _: haproxy()))
        elif name == NGINX:
            stack.enter_context(one_nginx(wire.box, SERVERS, True))
        else:
            rewrite, balance = apart
            stack.enter_context(one_nginx(balance, SERVERS, False))
            stack.enter_context(one_nginx(rewrite, [BALANCE], True))
            stack.enter_context(one_nginx(wire.box, [REWRITE], False))
        yield [wire.box, *(apart if name == APART else [])]


def add_servers(wire):
    for address in SERVERS[1:]:
        wire.server.run("ip", "address", "replace", f"{address}/24", "dev", "s0")


def address(name):
    """Whom clients ask."""
    return SERVER if name in (TRANSPARENT, HAPROXY_TRANSPARENT) else web.PROXY


def check(wire, name):
    """That the path is changed on the way, and an answer comes."""
    shown = wire.client.run("curl", "-sf", "--max-time", "20", f"http://{address(name)}{OLD}{SIZE}").stdout
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


def chained(count):
    """The broker with so many functions in its chain, of which all but two change nothing."""
    idle = [f"u{n}" for n in range(count - 2)]
    lines = "".join(f"nf add {one} url-rewrite ^/none/ /\n" for one in idle)
    return lines + BROKER.replace("add site urls", f"add site {' then '.join([*idle, 'urls'])}")


def lengths(rounds, full):
    """What each further function of a broker's chain costs."""
    how = f"wrk, {web.CONNECTIONS} connections that stay open, {SIZE} KiB for each request. Every run checks an answer."
    longer = "The further functions are `url-rewrite` whose expression matches no request."
    named = {MMB: "a broker with `url-rewrite` and `proxy`, and further functions between; one thread", PROCESS: IN_A_PROCESS}
    figure = Experiment(
        "proxies-chain", "A reverse proxy by the functions of its chain: requests", END_TO_END, "functions", "requests a second", "", named,
        [SHARED, how, longer],
    )
    with Wire() as wire, web.site(wire, [SIZE], b"a text "):
        add_servers(wire)

        def asked(name):
            def measure(count):
                with wire.mmb(placed(chained(int(count)), name), ports=""):
                    check(wire, name)
                    return measured(wire, web.CONNECTIONS)[0]

            return measure

        return figure.measure([Series(name, asked(name), [2, 3, 4, 6] if full else [2, 4, 6]) for name in named], rounds)


ALL = {"proxies": concurrency, "proxies-chain": lengths}
