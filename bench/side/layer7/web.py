"""A web server and what asks it: nginx with objects of several sizes, and wrk, a connection for each object."""

import contextlib
import pathlib
import re
import subprocess
import tempfile
from dataclasses import dataclass

from .. import lab  # noqa: F401 - finds the laboratory of the end-to-end tests
from ..wire import busy

from lab import wait  # noqa: E402 isort: skip
from lab.netns import end  # noqa: E402 isort: skip

PORT = 80
# Share of requests that may fail.
FAILED = 0.005
# Connections at a time.
CONNECTIONS = 32
# The address of the box at which reverse proxies listen.
PROXY = "10.1.0.1"
LISTEN = f"listen {PROXY}:{PORT} reuseport backlog=4096;"
UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
MICROSECONDS = {"us": 1, "ms": 1e3, "s": 1e6}


@dataclass
class Asked:
    """What became of requests: how many a second, Gbit/s of answers, the mean time of one in microseconds."""

    rate: float
    gbit: float
    mean: float


@contextlib.contextmanager
def program(space, command, what):
    """Runs a server in a namespace until the end of the `with` block; it listens within."""
    process = space.popen(*command, stderr=subprocess.DEVNULL)

    def listens():
        if process.poll() is not None:
            raise RuntimeError(f"{what} ended with {process.returncode}")
        return space.listens(PORT)

    try:
        wait.until(listens, f"{what} to listen")
        yield
    finally:
        end(process)


@contextlib.contextmanager
def directory():
    """A directory into which a server may look that gives its privileges away."""
    with tempfile.TemporaryDirectory(prefix="mmb-bench-") as made:
        path = pathlib.Path(made)
        path.chmod(0o755)
        yield path


def nginx_http(directory, lines):
    """A configuration of nginx for HTTP with one worker and without logs: these lines are in its `http` block."""
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    places = " ".join(f"{kind}_temp_path {directory}/tmp;" for kind in kinds)
    return f"{nginx_head(directory)}http {{\n access_log off; {places}\n{lines}\n}}\n"


def haproxy(mode, sections, defaults=""):
    """A configuration of HAProxy with one thread and without logs: these sections behind the common ones."""
    return (
        f"global\n  nbthread 1\n  maxconn 4000\ndefaults\n  mode {mode}\n  timeout connect 5s\n  timeout client 30s\n"
        f"  timeout server 30s\n{defaults}{sections}"
    )


def haproxy_servers(addresses):
    """The lines of a section of HAProxy that takes servers in turn."""
    servers = "".join(f"  server s{n} {address}:{PORT}\n" for n, address in enumerate(addresses))
    return f"  balance roundrobin\n{servers}"


def nginx_head(directory):
    """The lines in front of nginx's `http` or `stream` block."""
    return (
        f"daemon off; worker_processes 1; pid {directory}/pid; error_log stderr;\n"
        "events { worker_connections 8192; multi_accept on; }\n"
    )


@contextlib.contextmanager
def configured(space, command, what, config):
    """Runs a server with a configuration file, whose text `config` makes of the server's directory."""
    with directory() as at:
        path = at / "config"
        path.write_text(config(at), encoding="utf-8")
        with program(space, [*command, path], what):
            yield


@contextlib.contextmanager
def site(wire, sizes, text=b"\0"):
    """nginx at the server: an object of each size, in KiB, under its size. A text fills them."""

    def config(at):
        (at / "www").mkdir()
        for size in sizes:
            (at / "www" / str(size)).write_bytes((text * ((size << 10) // len(text) + 1))[: size << 10])
        options = "sendfile on; tcp_nopush on; open_file_cache max=16; default_type application/octet-stream;"
        return nginx_http(at, f" {options}\n server {{ listen {PORT} backlog=4096; root {at}/www; }}")

    with configured(wire.server, ["nginx", "-c"], "the web server", config):
        yield


def asking(address, size, seconds, connections=CONNECTIONS, kept=False):
    """The command that asks for an object again and again: a connection each, or connections that stay open."""
    close = [] if kept else ["-H", "Connection: close"]
    return ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--timeout", "30s", *close, f"http://{address}/{size}"]


def ask(wire, *what, **how):
    """Asks as `asking` says."""
    return read(wire.client.run(*asking(*what, **how), timeout=120).stdout)


def cost(wire, address, size, seconds):
    """Asks as `ask` does. Gives requests a second, and the CPU time of all programs for a request in microseconds."""
    before = busy()
    rate = ask(wire, address, size, seconds).rate
    spent = busy() - before
    return rate or None, spent / (rate * seconds) * 1e6 if rate else None


def read(shown):
    """What wrk printed. Where more than a few of a thousand requests fail, that is no result."""
    asked = int(re.search(r"(\d+) requests in", shown)[1])
    failures = re.findall(r"Socket errors:.*|Non-2xx.*", shown)
    failed = sum(map(int, re.findall(r"\d+", " ".join(failures).replace("2xx or 3xx", ""))))
    if failed > max(1, asked * FAILED):
        raise RuntimeError(f"{failed} of {asked} requests failed: {'; '.join(failures)}")
    number, unit = re.search(r"Transfer/sec:\s+([0-9.]+)([KMG]?)B", shown).groups()
    mean, scale = re.search(r"Latency\s+([0-9.]+)(us|ms|s)\s", shown).groups()
    rate = float(re.search(r"Requests/sec:\s+([0-9.]+)", shown)[1])
    return Asked(rate, float(number) * UNITS[unit] * 8 / 1e9, float(mean) * MICROSECONDS[scale])
