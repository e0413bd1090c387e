"""Functions of a chain: where they run, their processes, and what they report."""

import pytest

from .daemon import children

# Where a function runs: words behind the line that adds it.
PLACES = pytest.mark.parametrize("place", ["", " process tenant"], ids=["worker", "process"])


def chain(line, place="", port=8000):
    """A configuration with the function `f` in a chain for TCP connections to a port."""
    domain = "domain add tenant private\n" if place else ""
    return f"{domain}nf add f {line}{place}\nchain add c f\nadd-stateful tcp-dport {port} chain c\n"


def functions_of(daemon):
    """The processes of functions of a daemon."""
    supervisors = [pid for pid, word in children(daemon.process.pid).items() if word == "function-supervisor"]
    return [pid for parent in supervisors for pid, word in children(parent).items() if word == "function-process"]


def report(daemon, name="f"):
    """What `show functions` reports of a function."""
    return next(one for one in daemon.json("show", "functions")["functions"] if one["name"] == name)["report"]


def process_of(daemon, name):
    return int(report(daemon, name)["process"].split(",")[0])
