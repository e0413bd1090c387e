"""A load balancer for HTTP: mmb's function `lb` beside HAProxy and nginx (MiddleClick, Figure 14)."""

import contextlib
import pathlib
import re
import subprocess
import tempfile

from . import lab  # noqa: F401 - finds the laboratory of the end-to-end tests
from .ends import END_TO_END, SHARED
from .results import Experiment, Series
from .wire import Wire

from lab import wait  # noqa: E402 isort: skip
from lab.traffic import WebServer  # noqa: E402 isort: skip

# What clients ask, for proxies an address of the box; and the servers' addresses, all on one interface.
VIRTUAL = "10.1.0.1"
BACKENDS = [f"10.2.0.{number}" for number in range(2, 6)]

SETUP = {
    "mmb": "`lb` of four servers by round robin in a chain, af-xdp ports; connections pass through it",
    "HAProxy": "mode tcp, round robin, one thread, splice-auto, no logs; ends connections",
    "nginx": "stream module would be the like of it, Debian's nginx-light has none: reverse proxy by HTTP, one worker; ends connections",
    "nothing": "ip_forward only: clients ask one server",
}


def haproxy():
    servers = "".join(f"  server s{n} {address}:80\n" for n, address in enumerate(BACKENDS))
    return (
        "global\n  nbthread 1\n  maxconn 4000\ndefaults\n  mode tcp\n  timeout connect 5s\n  timeout client 30s\n"
        "  timeout server 30s\n  option splice-auto\n"
        f"listen web\n  bind {VIRTUAL}:80\n  balance roundrobin\n{servers}"
    )


def nginx(directory):
    servers = "".join(f" server {address}:80;" for address in BACKENDS)
    return (
        f"daemon off; worker_processes 1; pid {directory}/pid; error_log stderr;\n"
        "events { worker_connections 8192; }\nhttp {\n access_log off; "
        f"client_body_temp_path {directory}/tmp; proxy_temp_path {directory}/tmp; fastcgi_temp_path {directory}/tmp; "
        f"uwsgi_temp_path {directory}/tmp; scgi_temp_path {directory}/tmp;\n"
        f" upstream back {{{servers} }}\n"
        f" server {{ listen {VIRTUAL}:80; location / {{ proxy_pass http://back; proxy_buffering on; }} }}\n}}\n"
    )


@contextlib.contextmanager
def proxy(wire, name):
    """HAProxy or nginx in the box."""
    with tempfile.TemporaryDirectory(prefix="mmb-bench-") as directory:
        directory = pathlib.Path(directory)
        directory.chmod(0o755)
        config = directory / "config"
        config.write_text(haproxy() if name == "HAProxy" else nginx(directory), encoding="utf-8")
        command = ["haproxy", "-db", "-f", config] if name == "HAProxy" else ["nginx", "-c", config]
        process = wire.box.popen(*command, stderr=subprocess.DEVNULL)
        try:
            wait.until(lambda: listens(wire, process, name), f"{name} to listen")
            yield VIRTUAL
        finally:
            process.terminate()
            process.wait()


def listens(wire, process, name):
    if process.poll() is not None:
        raise RuntimeError(f"{name} ended with {process.returncode}")
    return ":80 " in wire.box.run("ss", "-tln").stdout


@contextlib.contextmanager
def balancer(wire):
    lines = (
        f"nf add balancer lb {' '.join(BACKENDS)} by round-robin\nchain add web balancer\n"
        "add-stateful ip-daddr 10.3.0.1 tcp-dport 80 chain web\n"
    )
    with wire.mmb(lines):
        yield "10.3.0.1"


def requests(wire, address, seconds):
    """(requests a second, Gbit/s) of wrk without keep-alive: a connection each, as in the paper."""
    shown = wire.client.run(
        "wrk", "-t1", "-c32", f"-d{seconds}s", "-H", "Connection: close", f"http://{address}/file", timeout=120
    ).stdout
    rate = float(re.search(r"Requests/sec:\s+([0-9.]+)", shown)[1])
    number, unit = re.search(r"Transfer/sec:\s+([0-9.]+)([KMG]?)B", shown).groups()
    return rate, float(number) * {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}[unit] * 8 / 1e9


def http(rounds, full):
    """Figure 14: goodput by the size of the objects."""
    experiment = Experiment(
        "load-balancer", "A load balancer for HTTP, a connection for each object", END_TO_END, "object, KiB", "Gbit/s",
        "MiddleClick, Figure 14", SETUP, [SHARED, "wrk, 32 connections at a time; nginx serves on all four addresses."],
    )
    places = [1, 8, 64, 1024, 16384] if full else [1, 8, 64, 1024]
    with Wire() as wire:
        for address in BACKENDS[1:]:
            wire.server.run("ip", "address", "add", f"{address}/24", "dev", "s0")
        # The virtual address of mmb is nobody's; the route makes clients' packets pass the box.
        wire.box.run("ip", "route", "add", "10.3.0.0/24", "via", BACKENDS[0])
        stands = {
            "mmb": lambda: balancer(wire),
            "HAProxy": lambda: proxy(wire, "HAProxy"),
            "nginx": lambda: proxy(wire, "nginx"),
            "nothing": lambda: contextlib.nullcontext(BACKENDS[0]),
        }

        def goodput(name):
            def measure(size):
                server = WebServer(wire.server, 80, int(size) << 10)
                try:
                    with stands[name]() as address:
                        return requests(wire, address, 2)[1]
                finally:
                    server.close()

            return measure

        return experiment.measure([Series(name, goodput(name), places) for name in SETUP], rounds)


ALL = {"load-balancer": http}
