"""FastClick in memory, where it is installed: packets that were loaded before are replayed through elements by one thread.

What a packet takes is the time over the packets that come to the end; what elements take is the difference to a run without
them. (Click's elements that count cycles stamp every packet of a batch as it passes, and so see the batch's time, not the
packet's.)
"""

import functools
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
# DPDK's memory, in MiB. Buffers take some two KiB each, and each frame that is replayed has one.
MEMORY = 1024
BUFFERS = 1 << 18
EAL = f"--dpdk -l 0 --no-huge --no-pci --no-shconf --no-telemetry -m {MEMORY} --"
ROUTE = (
    "StaticIPLookup(10.2.0.0/24 0, 10.1.0.0/16 0) -> DecIPTTL -> Unstrip(14)"
    " -> EtherRewrite(02:00:00:00:00:01, 02:00:00:00:00:77)"
)
NAT = f"IPRewriter(pattern {frames.OUTSIDE} 1024-65535# - - 0 0)"
# MiddleClick's flow managers keep a hash table of five-tuples. The first that starts is taken: which there
# are depends on the build.
MANAGERS = ("FlowIPManager", "FlowIPManagerHMP", "FlowIPManagerIMP")
# Contexts are a tree of classifiers, from Ethernet on.
CONTEXTS = (
    "Unstrip(14) -> CTXManager(AGGCACHE false) -> CTXDispatcher(12/0800) -> FlowStrip(14) -> CheckIPHeader(CHECKSUM false)"
    " -> IPIn -> UDPIn -> FlowCounter"
)


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


@functools.cache
def program():
    """The command. Flow managers come with DPDK, which is started first where FastClick has it."""
    if not shutil.which("click"):
        raise NotInstalled
    with_dpdk = ["click", *EAL.split()]
    # A build with DPDK cannot be asked for its options: it ends by a signal without DPDK's.
    return [*(with_dpdk if starts(*with_dpdk, "-e", "DriverManager(stop)") else ["click"]), "-j", "1"]


def run(*command):
    """What a command prints; its last words, if it fails."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=600, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"FastClick ended with {done.returncode}: {' '.join((done.stdout + done.stderr).splitlines()[-3:])}")
    return done.stdout + done.stderr


def starts(*words):
    """Whether a command starts a configuration that ends at once."""
    return subprocess.run(words, capture_output=True, timeout=60, check=False).returncode == 0


@functools.cache
def manager():
    """The flow manager in front of functions."""
    found = (name for name in MANAGERS if starts(*program(), "-e", f"Idle -> {name}(CAPACITY 1024) -> Discard; DriverManager(stop)"))
    return f"{next(found, MANAGERS[0])}(CAPACITY 131072)"


def flows():
    """Elements that know flows."""
    return f"{manager()} -> FlowCounter"


def flows_nat():
    """Elements that know flows, and give them ports."""
    return f"{manager()} -> FlowIPNAT(SIP {frames.OUTSIDE})"


def replay(path, elements, declared, times, driver):
    """The text of a configuration: a capture so many times (-1: without end) through the elements."""
    info = f"DPDKInfo(NB_MBUF {BUFFERS});\n" if "--dpdk" in program() else ""
    chain = f"Strip(14) -> CheckIPHeader(CHECKSUM true) -> {elements} -> " if elements else ""
    return (
        f"{info}{declared}FromDump({path}, STOP false, TIMING false)\n"
        f" -> ReplayUnqueue(STOP {times}, QUICK_CLONE false, ACTIVE true)\n -> {chain}c :: Counter -> Discard;\n"
        f"DriverManager({driver})\n"
    )


# What prints the time, and the packets that have come to the end.
TELL = 'print "at $(now) $(c.count)"'


def configuration(path, elements="", declared=""):
    """A capture again and again."""
    return replay(path, elements, declared, -1, f"wait {SECONDS}s, {TELL}, wait {SECONDS}s, {TELL}, stop")


def configuration_of_new(path, flows, elements="", declared=""):
    """A capture twice. It is told when its first packet has come to the end, and when its last has for the first time."""
    told = f"tell :: Script(TYPE PASSIVE, {TELL});\n{declared}"
    counted = f"{elements} -> Counter(COUNT_CALL 1 tell.run) -> Counter(COUNT_CALL {flows} tell.run)"
    return replay(path, counted, told, 2, "wait_stop")


def seconds_each(shown):
    """Seconds of a packet between the two times that were printed."""
    found = [(float(now), int(count)) for now, count in re.findall(r"^at ([0-9.]+) ([0-9]+)$", shown, re.MULTILINE)]
    if len(found) != 2 or found[1][1] <= found[0][1]:
        raise RuntimeError(f"FastClick did not forward the packets: {' '.join(shown.splitlines()[-3:])}")
    (began, before), (ended, after) = found
    return (ended - began) / (after - before)


def measured(configured, flows, elements, declared):
    """Ticks of a packet, with the configuration that is made of a capture of flows, elements and declarations."""
    command = program()
    with tempfile.TemporaryDirectory(prefix="mmb-bench-click-") as name:
        capture, file = pathlib.Path(name) / "flows.pcap", pathlib.Path(name) / "config.click"
        frames.capture(capture, frames.requests(flows))
        file.write_text(configured(capture, elements=elements, declared=declared), encoding="utf-8")
        return seconds_each(run(*command, file)) * 1e9 * ticks_per_nanosecond()


def cost(elements="", flows=1024, declared=""):
    """Ticks of a packet, its replay included."""
    return measured(configuration, flows, elements, declared)


def cost_of_new(elements, flows, declared=""):
    """Ticks of a packet that is the first of its flow, its replay included."""
    return measured(functools.partial(configuration_of_new, flows=flows), flows, elements, declared)


def forwarding(flows=1024):
    """Ticks of check, route and new addresses."""
    return cost(ROUTE, flows) - cost("", flows)


def added(elements, flows=1024, declared=""):
    """Ticks that elements between check and route take."""
    return cost(f"{elements} -> {ROUTE}", flows, declared) - cost(ROUTE, flows)


def added_by_new(elements, flows, declared=""):
    """Ticks that elements between check and route take for a packet that is the first of its flow."""
    return cost_of_new(f"{elements} -> {ROUTE}", flows, declared) - cost_of_new(ROUTE, flows)
