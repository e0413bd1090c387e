"""Objects that come and go: their memory ends with them.

MMB_SOAK=100000 is the long mode: so many objects of each kind, where the ordinary run has a few.
"""

import http.client
import json
import os
import pathlib
import socket
import struct

import pytest

from lab import wait
from lab.natbench import INSIDE, OUTSIDE, SERVER, Mirror, Speaker

LONG = int(os.environ.get("MMB_SOAK", "0"))
# Devices take a hundred times longer than other objects.
CYCLES = LONG or 60
DEVICES = LONG // 100 or 10
# MiB that are not the objects': allocators and tables that grow with the first objects.
SLACK = 24
# The same for functions of streams. Their workers use pools of fixed size from the front to the end, so that
# the memory grows with the first thousands of connections, and is flat behind them.
STREAM_SLACK = 160 if LONG else 24
# In the long mode, sessions would add up until they time out. Sessions of a function that edits stay until
# then, or until their next packet: their ends may count differently.
TIMEOUTS = "udp-unreplied udp-replied tcp-handshake tcp-established tcp-half-closed tcp-closed tcp-reset"
QUICK = "".join(f"set timeout {name} 1\n" for name in TIMEOUTS.split()) if LONG else ""

RULES = (["add tcp-dport 9 drop", "add udp-dport 9 mod udp-dport 10"], [])
STATEFUL = ([f"nat pool add wan {OUTSIDE[0]}", "add-stateful ip-saddr 10.0.0.0/24 nat wan"], ["nat pool del wan"])
FORWARD = (
    [f"nat pool add wan {OUTSIDE[0]}", f"nat forward add udp {OUTSIDE[0]} 9 to {INSIDE[0]} 9"],
    [f"nat forward del udp {OUTSIDE[0]} 9", "nat pool del wan"],
)

# Each change is an entry of the history, too.
NAMED = (
    ['add tcp-dport 9 drop name old comment "of a ticket"', "del old", "add udp-dport 9 reject name new"],
    [],
)
BROKER = (
    ["nf add page respond 200 hello", "chain add site page", "broker add web listen 0.0.0.0:8080 chain site"],
    ["broker del web", "chain del site", "nf del page"],
)
DOMAIN = (["domain add tenant private buffers 256"], ["domain del tenant"])
PROCESS = (
    [*DOMAIN[0], "nf add fw acl allow process tenant", "chain add c fw", "add-stateful all chain c"],
    ["chain del c", "nf del fw", *DOMAIN[1]],
)


def chain(function):
    """Lines that add a function in a chain of its own, and those that delete both."""
    name = function.split()[0]
    added = [f"nf add f {function}", "nf add stats count"]
    behind = {"flow": "f | stats", "split": "f [a: stats, rest: pass]"}.get(name, "f")
    return (
        [*added, f"chain add c {behind}", "add-stateful ip-saddr 10.0.0.0/24 chain c"],
        ["chain del c", "nf del f", "nf del stats"],
    )


FUNCTIONS = [
    "flow",
    "count",
    "police 500kbit burst 64000 per source",
    f"lb {SERVER} by hash",
    "acl deny tcp-dport 23 allow all",
    "mss-clamp 1400",
    "mark dscp 10",
    "monitor",
    "split a: udp-dport 9",
]
# Functions that read or edit streams, and those that accept TCP only.
STREAMS = [
    "digest crc32c",
    "payload-count",
    "match ATTACK mask",
    "match ATTACK replace A",
    "http-edit request header set A b type * body replace ok no",
    "http-filter block path /none",
    "http-log",
    "synproxy",
    f"http-lb default to {SERVER}",
]


class Console:
    """Commands over one connection to the daemon."""

    def __init__(self, daemon):
        self.daemon = daemon
        self.connection = http.client.HTTPConnection("localhost")
        self.connection.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.connection.sock.settimeout(wait.PATIENCE)
        self.connection.sock.connect(str(daemon.socket))

    def line(self, text):
        body = json.dumps({"line": text})
        self.connection.request("POST", "/v1/command", body, {"Content-Type": "application/json"})
        answer = self.connection.getresponse()
        text_of_answer = answer.read().decode()
        assert answer.status == 200, f"{text}: {text_of_answer}"

    def cycle(self, added, deleted, between=lambda: None):
        for text in added:
            self.line(text)
        between()
        if any(text.startswith("add") for text in added):
            self.line("flush")
        for text in deleted:
            self.line(text)

    def resident(self):
        """Resident memory of the daemon in MiB."""
        return self.daemon.memory() / 1024

    def settled(self):
        """Resident memory, as soon as it is the same for a tenth of a second: a thread allocates what sessions will need."""
        seen = []

        def is_settled():
            seen.append(self.resident())
            return len(seen) > 8 and max(seen[-8:]) - min(seen[-8:]) < 0.5

        wait.until(is_settled, "memory that does not change")
        return seen[-1]

    def soak(self, cycles, added, deleted, between=lambda: None):
        """Adds and deletes, and returns by how many MiB the memory has grown behind the first cycles."""
        for _ in range(5):
            self.cycle(added, deleted, between)
        before = self.settled()
        for _ in range(cycles):
            self.cycle(added, deleted, between)
        return self.settled() - before


@pytest.mark.parametrize("lines", [RULES, STATEFUL, FORWARD, NAMED], ids=["rules", "nat", "forward", "named"])
def test_rules_and_pools_end(make_chains, figure, lines):
    bench = make_chains(QUICK)
    growth = Console(bench.daemon).soak(CYCLES, *lines)
    figure(f"memory after {CYCLES} times `{lines[0][-1]}`", f"{growth:+.1f} MiB")
    assert growth < SLACK


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda text: text.split()[0])
def test_functions_end(make_chains, figure, function):
    """Each instance has sessions when it is deleted, and most of these get no packets any more."""
    bench = make_chains(QUICK)
    mirror = Mirror(bench.servers, SERVER, 7000)
    bench.on_close(mirror.close)
    lasting = Speaker(bench.hosts, INSIDE[0])
    bench.on_close(lasting.close)

    def talk():
        lasting.ask(SERVER, 7000)
        speaker = Speaker(bench.hosts, INSIDE[0])
        speaker.ask(SERVER, 7000)
        speaker.close()

    growth = Console(bench.daemon).soak(CYCLES, *chain(function), talk)
    figure(f"memory after {CYCLES} instances of `{function}`", f"{growth:+.1f} MiB")
    # Less than a table that each thread of the daemon may free.
    assert growth < 8
    runtime = bench.daemon.json("show", "functions")
    assert runtime["functions"] == []


class Site(Mirror):
    """Answers each request of a stream with a page."""

    def __init__(self, namespace):
        super().__init__(namespace, SERVER, 80, socket.SOCK_STREAM)

    @staticmethod
    def _name(peer):
        return b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def request(host):
    """A connection with a request and its answer. A reset will end it, so that its port can be used again."""
    client = Speaker(host, INSIDE[0], kind=socket.SOCK_STREAM).connect(SERVER, 80)
    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.socket.sendall(b"GET /ATTACK HTTP/1.1\r\nHost: a\r\n\r\n")
    assert client.socket.recv(4096).startswith(b"HTTP/1.1 200 OK")
    return client


@pytest.mark.parametrize("function", STREAMS, ids=lambda text: text.split(" A")[0])
def test_functions_of_streams_end(make_chains, figure, function):
    """Each instance is deleted while a connection is open; another one has ended."""
    bench = make_chains(QUICK)
    site = Site(bench.servers)
    bench.on_close(site.close)
    opened = []

    def talk():
        request(bench.hosts).close()
        opened.append(request(bench.hosts))
        if len(opened) > 1:
            opened.pop(0).close()

    growth = Console(bench.daemon).soak(CYCLES, *chain(function), talk)
    figure(f"memory after {CYCLES} instances of `{function}`", f"{growth:+.1f} MiB")
    assert growth < STREAM_SLACK
    assert bench.daemon.json("show", "functions")["functions"] == []


@pytest.mark.parametrize("device", ["tap", "af-packet g0"], ids=lambda text: text.split()[0])
def test_interfaces_end(make_chains, figure, device):
    bench = make_chains(QUICK)
    lines = ([f"interface add extra {device}"], ["interface del extra"])
    growth = Console(bench.daemon).soak(DEVICES, *lines)
    figure(f"memory after {DEVICES} times `{lines[0][0]}`", f"{growth:+.1f} MiB")
    assert growth < SLACK


def descriptors(daemon):
    return len(list(pathlib.Path(f"/proc/{daemon.process.pid}/fd").iterdir()))


@pytest.mark.parametrize("lines", [BROKER, DOMAIN, PROCESS], ids=["broker", "domain", "process"])
def test_threads_and_processes_end(make_chains, figure, lines):
    """Neither memory nor a descriptor is left of them."""
    bench = make_chains(QUICK)
    console, daemon = Console(bench.daemon), bench.daemon
    console.cycle(*lines)
    before = descriptors(daemon)
    growth = console.soak(DEVICES, *lines)
    figure(f"memory after {DEVICES} times `{lines[0][0]}`", f"{growth:+.1f} MiB")
    assert growth < SLACK

    def are_closed():
        # With the next change, the daemon forgets brokers that have ended.
        console.cycle(["nf add late count"], ["nf del late"])
        return descriptors(daemon) <= before

    wait.until(are_closed, "the descriptors to be closed")
