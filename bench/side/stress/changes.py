"""Changes under load: how long each takes, and what is lost of the load meanwhile, as time (the loss-derived method of RFC
6413)."""

import contextlib
import pathlib
import tempfile

from . import update
from .. import boxes
from ..ends import END_TO_END, SHARED, together
from ..peers import rules
from ..results import MMB, Experiment, Series
from ..wire import PORTS, Wire

# Rules that a change of one finds, and rules of a change of all.
BEFORE, ALL_RULES = 10_000, 100_000
SECONDS = 4
NFT = "nftables"
PLACES = ["a rule is added", f"{ALL_RULES:,} rules are replaced", "a chain is replaced"]
ADD, REPLACE, CHAIN = range(len(PLACES))
SETUP = {
    MMB: f"`mmb add` of a rule to {BEFORE:,}; `mmb apply` of a file with {ALL_RULES:,} other rules; `mmb chain set` to one function or "
    "two, which all packets of the load pass",
    NFT: f"`nft add element` to a set of {BEFORE:,} five-tuples; `nft -f` of a table with another set of {ALL_RULES:,}; `nft` with "
    "`flush chain` and `add rule`, one or two, which all packets of the load pass",
}
CHAINS = f"nf add a count\nnf add b count\nchain add c a\nadd-stateful ip-saddr {boxes.CLIENTS} chain c\n"
NFT_CHAINS = "table ip t {\n chain c {\n  counter\n }\n chain f {\n  type filter hook forward priority 0;\n  jump c\n }\n}\n"


@contextlib.contextmanager
def files(*texts):
    """Files with these texts, until the end of the `with` block."""
    with tempfile.TemporaryDirectory(prefix="mmb-bench-") as directory:
        paths = [pathlib.Path(directory) / str(number) for number, _ in enumerate(texts)]
        for path, text in zip(paths, texts):
            path.write_text(text, encoding="ascii")
        yield paths


def tuples(seed):
    return rules.five_tuples(ALL_RULES, seed)


@contextlib.contextmanager
def mmb(wire, place):
    """The daemon, and what changes it for the n-th time; a context."""
    if place == REPLACE:
        texts = [PORTS + boxes.five_tuples(ALL_RULES, seed=seed) for seed in (2, 1)]
        with files(*texts) as paths, wire.mmb(boxes.five_tuples(ALL_RULES)) as daemon:
            yield daemon, lambda n: daemon.command("apply", paths[n % 2])
    elif place == CHAIN:
        with wire.mmb(CHAINS) as daemon:
            yield daemon, lambda n: daemon.command("chain", "set", "c", ["a | b", "a"][n % 2])
    else:
        with wire.mmb(boxes.five_tuples(BEFORE)) as daemon:
            yield daemon, lambda n: daemon.line(boxes.five_tuple(tuples(2)[n]))


@contextlib.contextmanager
def nftables(wire, place):
    """The same with nftables."""
    if place == REPLACE:
        texts = [f"table ip t\ndelete table ip t\n{rules.nft_set(ALL_RULES, seed=seed)}" for seed in (2, 1)]
        with files(*texts) as paths, boxes.netfilter(wire, rules.nft_set(ALL_RULES)):
            yield wire.box, lambda n: wire.box.run("nft", "-f", paths[n % 2], timeout=60)
    elif place == CHAIN:
        lines = [f"flush chain ip t c; {'add rule ip t c counter; ' * count}" for count in (2, 1)]
        with boxes.netfilter(wire, NFT_CHAINS):
            yield wire.box, lambda n: wire.box.run("nft", lines[n % 2])
    else:
        with boxes.netfilter(wire, rules.nft_set(BEFORE)):
            yield wire.box, lambda n: wire.box.run("nft", update.element(tuples(2)[n]))


PEERS = {MMB: mmb, NFT: nftables}


def changes(rounds, full):
    """Figures: the time of a change, and the time for which it costs the load."""
    load = f"The load is {update.LOAD}bit/s of datagrams of {update.SIZE:,} bytes for {SECONDS} s. Meanwhile, changes come one behind the other, each by a program of its own."
    lost = "Lost is what the server's interface did not receive, divided by the number of changes, as time of the load."
    figures = [
        Experiment(name, title, END_TO_END, "change", "ms", paper, SETUP, [SHARED, load, lost], PLACES)
        for name, title, paper in (
            ("changes-time", "Time of a change under load", ""),
            ("changes-loss", "Effective blocked time of a change", "RFC 6413: what was lost of the load, as time"),
        )
    ]
    with Wire() as wire:

        def changed(name):
            def measure(place):
                with PEERS[name](wire, int(place)) as (_, change):
                    adding = update.Adding(change, update.at_once, range(ALL_RULES))
                    rate, blocked = update.under_load(wire, adding, SECONDS)
                return 1000 / rate, blocked / adding.done

            return measure

        return together(figures, [Series(name, changed(name), list(range(len(PLACES)))) for name in PEERS], rounds)


ALL = {"changes": changes}
