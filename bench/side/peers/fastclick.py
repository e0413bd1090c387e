"""FastClick in memory, where it is installed: packets that were loaded before are replayed through elements by one thread.

What a packet takes is the time over the packets that come to the end; what elements take is the difference to a run without
them. (Click's elements that count cycles stamp every packet of a batch as it passes, and so see the batch's time, not the
packet's.)
"""

import pathlib
import re
import shutil
import subprocess
import tempfile

from . import frames
from .mmb import ticks_per_nanosecond
from ..results import NotInstalled

CONFIGURED = "one thread, batches; `ReplayUnqueue` of frames that were loaded before, then the elements"
SECONDS = 0.5
# Rules that one IPFilter takes.
MOST = 1 << 15
ROUTE = (
    "StaticIPLookup(10.2.0.0/24 0, 10.1.0.0/16 0) -> DecIPTTL -> Unstrip(14)"
    " -> EtherRewrite(02:00:00:00:00:01, 02:00:00:00:00:77)"
)
NAT = f"IPRewriter(pattern {frames.OUTSIDE} 1024-65535# - - 0 0)"


def condition(source, destination, proto, sport, dport):
    """A rule as an expression of IPFilter."""

    def address(side, prefix):
        return f"{side} net {prefix}" if "/" in prefix else f"{side} host {prefix}"

    ports = [f"{side} port {port}" for side, port in (("src", sport), ("dst", dport)) if port is not None]
    return " && ".join([proto, address("src", source), address("dst", destination), *ports])


def filters(rules):
    """Elements that drop what the rules match."""
    pieces = [rules[at : at + MOST] for at in range(0, len(rules), MOST)] or [[]]
    return " -> ".join(
        f"IPFilter({', '.join([*(f'deny {condition(*rule)}' for rule in piece), 'allow all'])})" for piece in pieces
    )


def tracker(rules):
    """As the paper has it: packets of a flow that is known go past the filter. Elements, and what is declared before."""
    return "[0]rw[0]", f"rw :: IPRewriter(pass 1, keep 0 0);\nrw[1] -> {filters(rules)} -> [1]rw;\n"


def configuration(path, elements="", declared=""):
    """The text of a configuration: a capture again and again through the elements."""
    chain = f"Strip(14) -> CheckIPHeader(CHECKSUM true) -> {elements} -> " if elements else ""
    return (
        f"{declared}FromDump({path}, STOP false, TIMING false)\n"
        f" -> ReplayUnqueue(STOP -1, QUICK_CLONE false, ACTIVE true)\n -> {chain}c :: Counter -> Discard;\n"
        f'DriverManager(wait {SECONDS}s, write c.reset, wait {SECONDS}s, print "packets $(c.count)", stop)\n'
    )


def packets(shown):
    """What came to the end, in what was printed."""
    found = re.search(r"^packets ([0-9]+)$", shown, re.MULTILINE)
    if not found or not int(found[1]):
        raise RuntimeError(f"FastClick forwarded nothing: {shown}")
    return int(found[1])


def cost(elements="", flows=1024, declared=""):
    """Ticks of a packet, its replay included."""
    if not shutil.which("click"):
        raise NotInstalled
    with tempfile.TemporaryDirectory(prefix="mmb-bench-click-") as name:
        capture, file = pathlib.Path(name) / "flows.pcap", pathlib.Path(name) / "config.click"
        frames.capture(capture, frames.requests(flows))
        file.write_text(configuration(capture, elements, declared), encoding="utf-8")
        done = subprocess.run(["click", "-j", "1", file], capture_output=True, text=True, timeout=600, check=True)
    return SECONDS * 1e9 * ticks_per_nanosecond() / packets(done.stdout + done.stderr)


def forwarding(flows=1024):
    """Ticks of check, route and new addresses."""
    return cost(ROUTE, flows) - cost("", flows)


def added(elements, flows=1024, declared=""):
    """Ticks that elements between check and route take."""
    return cost(f"{elements} -> {ROUTE}", flows, declared) - cost(ROUTE, flows)
