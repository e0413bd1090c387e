"""Rules added under load, one by one: how many a second, and what traffic notices."""

import contextlib
import fcntl
import http.client
import json
import socket
import subprocess
import threading
import time

from . import boxes, rules
from .ends import END_TO_END, SHARED, together
from .results import Experiment, Series
from .wire import SERVER, Wire

SECONDS = 3
# Well below what every box here forwards without loss, and enough that a pause of 50 µs is a packet: 20,833 of them a second.
LOAD, SIZE = "200M", 1200
# How many rules are there before.
BEFORE, BEFORE_LINEAR = 10_000, 1000
SETUP = {
    "mmb": f"`add` of a rule, a transaction each, over one connection to the API; {BEFORE:,} rules are there before",
    "nftables, set": f"`add element`, a transaction each, into one `nft -i`; {BEFORE:,} elements are there before",
    "nftables, rules": f"`add rule`, a transaction each, into one `nft -i`; {BEFORE_LINEAR:,} rules are there before",
    "iptables": f"`iptables -A`, a process each; {BEFORE_LINEAR:,} rules are there before",
    "iptables-restore": f"a transaction each into one `iptables-restore --noflush`; {BEFORE_LINEAR:,} rules are there before",
    "nothing": "ip_forward only; nothing is added",
}


def at_once():
    """Nothing has to be waited for: each rule is there when it has been added."""


class Connection(http.client.HTTPConnection):
    """HTTP over the daemon's socket, kept open."""

    def __init__(self, path):
        super().__init__("localhost", timeout=20)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self.path))


@contextlib.contextmanager
def mmb(wire):
    with wire.mmb(boxes.five_tuples(BEFORE)) as daemon, contextlib.closing(Connection(daemon.socket)) as api:

        def add(rule):
            body = json.dumps({"rule": boxes.five_tuple(rule)})
            api.request("POST", "/v1/rules", body, {"Content-Type": "application/json"})
            answer = api.getresponse()
            said = answer.read()
            if answer.status // 100 != 2:
                raise RuntimeError(f"mmb answers {answer.status}: {said.decode()}")

        yield add, at_once


@contextlib.contextmanager
def reading(wire, before, command, text):
    """A program that takes one rule after the other from a pipe, as `text(rule)`, and says nothing. The pipe is short, so
    that few rules wait in it."""
    before()
    process = wire.box.popen(*command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, bufsize=1)
    fcntl.fcntl(process.stdin, fcntl.F_SETPIPE_SZ, 4096)
    try:
        yield lambda rule: process.stdin.write(text(rule)), lambda: process.communicate()
    finally:
        process.stdin.close()
        process.wait()
        wire.nft("")


def element(rule):
    return f"add element ip t s {{ {' . '.join(map(str, rule))} }}"


def nft_rule(rule):
    source, destination, proto, sport, dport = rule
    return f"add rule ip t f ip saddr {source} ip daddr {destination} {proto} sport {sport} {proto} dport {dport} drop"


def iptables_rule(rule):
    source, destination, proto, sport, dport = rule
    return f"-A FORWARD -s {source} -d {destination} -p {proto} --sport {sport} --dport {dport} -j DROP"


@contextlib.contextmanager
def iptables(wire):
    wire.iptables("filter", rules.iptables_rules(BEFORE_LINEAR))
    try:
        yield lambda rule: wire.box.run("iptables", *iptables_rule(rule).split()), at_once
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
    return reading(wire, lambda: wire.iptables("filter", before), words, lambda rule: f"*filter\n{iptables_rule(rule)}\nCOMMIT\n")


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
