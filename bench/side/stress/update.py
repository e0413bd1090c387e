"""Rules added under load, one by one: how many a second, and what traffic notices."""

import contextlib
import fcntl
import json
import re
import socket
import subprocess
import threading
import time

from .. import boxes
from ..peers import rules
from ..ends import END_TO_END, SHARED, together
from ..results import Experiment, Series
from ..wire import SERVER, Wire

from .. import lab  # noqa: F401 isort: skip - finds the laboratory of the end-to-end tests
from lab.netns import end  # noqa: E402 isort: skip

SECONDS = 3
# Well below what every box here forwards without loss, and enough that a pause of 50 µs is a packet: 20,833
# of them a second.
LOAD, SIZE = "200M", 1200
# How many rules are there before.
BEFORE, BEFORE_LINEAR = 10_000, 1000
# Requests to mmb that are not answered yet; the pipe of a page to `nft` holds more.
AHEAD = 32
# The head of an answer, up to its body.
ANSWER = re.compile(rb"HTTP/1\.1 (?P<status>\d)(?:.(?!\r\n\r\n))*?content-length: (?P<length>\d+).*?\r\n\r\n", re.DOTALL | re.I)
SETUP = {
    "mmb": f"`add` of a rule, a transaction each, over one connection to the API, with up to {AHEAD} requests under way; "
    f"{BEFORE:,} rules are there before",
    "nftables, set": f"`add element`, a transaction each, into one `nft -i`; {BEFORE:,} elements are there before",
    "nftables, rules": f"`add rule`, a transaction each, into one `nft -i`; {BEFORE_LINEAR:,} rules are there before",
    "iptables": f"`iptables -A`, a process each; {BEFORE_LINEAR:,} rules are there before",
    "iptables-restore": f"a transaction each into one `iptables-restore --noflush`; {BEFORE_LINEAR:,} rules are there before",
    "nothing": "ip_forward only; nothing is added",
}


def at_once():
    """Nothing has to be waited for: each rule is there when it has been added."""


class Requests:
    """HTTP requests over the daemon's socket, one behind the other: as rules wait in the pipe to `nft`, some are on their way
    before the first is answered."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(20)
        self.socket.connect(str(path))
        self.sent, self.answered, self.read = 0, 0, b""

    def post(self, path, document):
        body = json.dumps(document).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: mmb\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        self.socket.sendall(head.encode() + body)
        self.sent += 1
        self.wait(AHEAD)

    def wait(self, most=0):
        """Waits until no more than so many are without an answer."""
        while self.sent - self.answered > most:
            received = self.socket.recv(1 << 16)
            if not received:
                raise RuntimeError("mmb has closed the connection")
            self.read += received
            while answer := ANSWER.match(self.read):
                end = answer.end() + int(answer["length"])
                if len(self.read) < end:
                    break
                if answer["status"] != b"2":
                    raise RuntimeError(f"mmb answers {self.read[:end].decode()}")
                self.read = self.read[end:]
                self.answered += 1

    def close(self):
        self.socket.close()


@contextlib.contextmanager
def mmb(wire):
    with wire.mmb(boxes.five_tuples(BEFORE)) as daemon, contextlib.closing(Requests(daemon.socket)) as api:
        yield lambda rule: api.post("/v1/rules", {"rule": boxes.five_tuple(rule)}), api.wait


@contextlib.contextmanager
def reading(wire, before, command, text):
    """A program that takes one rule after the other from a pipe, as `text(rule)`, and says nothing. The pipe is short, so
    that few rules wait in it."""
    before()
    process = wire.box.popen(*command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, bufsize=1)
    fcntl.fcntl(process.stdin, fcntl.F_SETPIPE_SZ, 4096)
    try:
        yield lambda rule: process.stdin.write(text(rule)), lambda: process.communicate(timeout=60)
    finally:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        end(process)
        wire.nft("")


def element(rule):
    return f"add element ip t s {{ {' . '.join(map(str, rule))} }}"


def nft_rule(rule):
    return f"add rule ip t f {rules.nft_rule(*rule)}"


@contextlib.contextmanager
def iptables(wire):
    wire.iptables(rules.iptables_rules(BEFORE_LINEAR))
    try:
        yield lambda rule: wire.box.run("iptables", *rules.iptables_rule(*rule).split()), at_once
    finally:
        wire.nft("")


@contextlib.contextmanager
def nothing(wire):
    yield lambda rule: time.sleep(0.05), at_once


def nft(wire, rules_before, text):
    return reading(wire, lambda: wire.nft(rules_before), ("nft", "-i"), lambda rule: text(rule) + "\n")


def restore(wire):
    before = rules.iptables_rules(BEFORE_LINEAR)
    words = ("iptables-restore", "--noflush")
    return reading(wire, lambda: wire.iptables(before), words, lambda rule: f"*filter\n{rules.iptables_rule(*rule)}\nCOMMIT\n")


# Contexts with what adds a rule, and what waits until all are there.
PEERS = {
    "mmb": mmb,
    "nftables, set": lambda wire: nft(wire, rules.nft_set(BEFORE), element),
    "nftables, rules": lambda wire: nft(wire, rules.nft_rules(BEFORE_LINEAR), nft_rule),
    "iptables": iptables,
    "iptables-restore": restore,
    "nothing": nothing,
}


class Adding(threading.Thread):
    """Adds rules, one after the other, until it is stopped."""

    def __init__(self, add, finish, tuples):
        super().__init__()
        self.add, self.finish, self.tuples = add, finish, tuples
        self.done, self.seconds, self.failed = 0, 0.0, None
        self.ended = threading.Event()

    def run(self):
        began = time.monotonic()
        try:
            while not self.ended.is_set():
                self.add(self.tuples[self.done % len(self.tuples)])
                self.done += 1
            self.finish()
        except Exception as error:  # noqa: BLE001 - told to whoever stops it
            self.failed = error
        self.seconds = time.monotonic() - began

    def stop(self):
        """Rules a second."""
        self.ended.set()
        self.join()
        if self.failed:
            raise self.failed
        return self.done / self.seconds


def count(space, interface, way):
    return int(space.run("cat", f"/sys/class/net/{interface}/statistics/{way}_packets").stdout)


def under_load(wire, adding, seconds):
    """(rules a second, milliseconds of the load that were lost) with a constant rate of datagrams from client to server.
    What the client's interface has sent and the server's has not received was lost in the box."""
    server = wire.listening()
    before = count(wire.client, "c0", "tx"), count(wire.server, "s0", "rx")
    adding.start()
    command = ("iperf3", "-u", "-b", LOAD, "-l", SIZE, "-t", seconds, "-c", SERVER)
    try:
        wire.client.run(*command, timeout=60)
    finally:
        rate = adding.stop()
    server.wait(10)
    sent = count(wire.client, "c0", "tx") - before[0]
    received = count(wire.server, "s0", "rx") - before[1]
    return rate, max(0, sent - received) / sent * seconds * 1000


def updates(rounds, full):
    """The paper's question about live reconfiguration, and the design's: a rule added costs no packet."""
    load = f"The load is {LOAD}bit/s of datagrams of {SIZE:,} bytes. Lost is what the server's interface did not receive."
    notes = [SHARED, load]
    figures = [
        Experiment(name, title, END_TO_END, "for", unit, paper, SETUP, notes, [f"{SECONDS} s"])
        for name, title, unit, paper in (
            ("updates", "Rules added one by one under load", "rules a second", ""),
            ("updates-loss", "Effective blocked time while rules are added", "ms", "what was lost of the load, as time"),
        )
    ]
    tuples = rules.five_tuples(110_000, seed=2)
    with Wire() as wire:

        def added(name):
            def measure(_):
                with PEERS[name](wire) as (add, finish):
                    rate, lost = under_load(wire, Adding(add, finish, tuples), SECONDS)
                return (None if name == "nothing" else rate), lost

            return measure

        return together(figures, [Series(name, added(name), [0]) for name in PEERS], rounds)


ALL = {"updates": updates}
