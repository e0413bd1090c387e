"""Rules added under load, one by one: how many a second, and what traffic notices."""

import contextlib
import json
import subprocess
import threading
import time

from . import lab  # noqa: F401 - finds the laboratory of the end-to-end tests
from . import rules
from .ends import END_TO_END, SHARED
from .results import Experiment, Series
from .wire import SERVER, Wire

from lab import wait  # noqa: E402 isort: skip

SECONDS = 3
LOAD = "50M"
SETUP = {
    "mmb": "`add` of a rule, a transaction each, over one connection to the API; 10,000 rules are there before",
    "nftables, set": "`add element`, a transaction each, into `nft -i`; 10,000 elements are there before",
    "iptables": "`iptables -A`, a process each; 1,000 rules are there before",
}


def mmb(wire, tuples):
    stack = contextlib.ExitStack()
    lines = "".join(mmb_rule(rule) + "\n" for rule in tuples[:10_000])
    daemon = stack.enter_context(wire.mmb(lines))
    return stack, lambda rule: daemon.request("POST", "/v1/rules", json.dumps({"rule": mmb_rule(rule)}))


def mmb_rule(rule):
    source, destination, proto, sport, dport = rule
    return f"add ip-saddr {source} ip-daddr {destination} {proto}-sport {sport} {proto}-dport {dport} drop"


def nftables(wire, tuples):
    stack = contextlib.ExitStack()
    wire.nft(rules.nft_set(10_000))
    stack.callback(wire.nft, "")
    shell = wire.box.popen("nft", "-i", stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
    stack.callback(shell.communicate)

    def add(rule):
        shell.stdin.write(f"add element ip t s {{ {' . '.join(map(str, rule))} }}\n")
        # The answer says that it is done.
        shell.stdin.write("list tables\n")
        while "table" not in shell.stdout.readline():
            pass

    return stack, add


def iptables(wire, tuples):
    stack = contextlib.ExitStack()
    wire.iptables("filter", rules.iptables_rules(1000))
    stack.callback(wire.nft, "")

    def add(rule):
        source, destination, proto, sport, dport = rule
        words = f"-A FORWARD -s {source} -d {destination} -p {proto} --sport {sport} --dport {dport} -j DROP"
        wire.box.run("iptables", *words.split())

    return stack, add


PEERS = {"mmb": mmb, "nftables, set": nftables, "iptables": iptables}


def loss(wire, meanwhile):
    """Milliseconds of traffic that were lost while `meanwhile(stop)` ran: a constant rate of datagrams, from client to
    server."""
    server = wire.server.popen("iperf3", "-s", "-1", stdout=subprocess.DEVNULL)
    wait.until(lambda: ":5201 " in wire.server.run("ss", "-tln").stdout, "iperf3 to listen")
    stop = threading.Event()
    thread = threading.Thread(target=meanwhile, args=(stop,))
    thread.start()
    try:
        shown = wire.client.run(
            "iperf3", "-J", "-u", "-b", LOAD, "-l", "1200", "-t", SECONDS, "-c", SERVER, timeout=60
        ).stdout
    finally:
        stop.set()
        thread.join()
    server.wait(10)
    end = json.loads(shown)["end"]["sum"]
    return end["lost_packets"] / end["packets"] * SECONDS * 1000


def updates(rounds, full):
    """The paper's question about live reconfiguration, and the design's: a rule added costs no packet."""
    notes = [SHARED, f"The load is {LOAD}bit/s of datagrams of 1,200 bytes."]
    rate = Experiment(
        "updates", "Rules added one by one under load", END_TO_END, "for", "rules a second", "", SETUP, notes, ["3 s"]
    )
    blocked = Experiment(
        "updates-loss", "Effective blocked time while rules are added", END_TO_END, "for", "ms",
        "what was lost of the load, as time", SETUP, notes, ["3 s"],
    )
    tuples = rules.five_tuples(200_000, seed=2)
    lost = {name: [] for name in PEERS}
    with Wire() as wire:

        def added(name):
            def measure(_):
                stack, add = PEERS[name](wire, tuples)
                done, began = 0, time.monotonic()

                def keep_adding(stop):
                    nonlocal done
                    while not stop.is_set():
                        add(tuples[10_000 + done % 100_000])
                        done += 1

                with stack:
                    lost[name].append(loss(wire, keep_adding))
                    return done / (time.monotonic() - began)

            return measure

        rate.measure([Series(name, added(name), [0]) for name in PEERS], rounds)
        blocked.measure([Series(name, lambda _, name=name: lost[name].pop(0), [0]) for name in PEERS], rounds)
        return [rate, blocked]


ALL = {"updates": updates}
