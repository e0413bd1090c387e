"""DPDK's `rte_acl` on rules that were made up, and mmb's classifier beside it, by the program that compares both (`bench/acl`)."""

import functools
import ipaddress
import os
import pathlib
import re
import subprocess
import tempfile

from . import frames, rules
from ..results import ROOT, Absent, NotInstalled, Series

THEIRS, OURS = "rte_acl, classification alone", "mmb, classification alone"
CONFIGURED = {
    OURS: "its classifier as `bench/acl` runs it: windows in the cache, flows that came before",
    THEIRS: "one category, the key layout of its guide, its fastest implementation here; keys in the cache; it is done with a packet "
    "at the first byte that no rule has",
}
WHAT = (
    "Classification alone is a call with a vector of keys or windows that are there already; the others' figures hold all that rules "
    "cost a packet: reading its headers as well, and leading it through the nodes that there would not be without."
)
# Its tables may take so many MiB, and so many seconds until they are built.
MEMORY, PATIENCE = 6144, 90
# What `timeout` ends with then.
TIMED_OUT = 124
UDP = 17
# What the program says of mmb where flows come again.
MMB = r"flows that came before: ([0-9.]+) ticks"


@functools.cache
def program():
    """The program, built."""
    directory = ROOT / "bench" / "acl"
    subprocess.run(["cargo", "build", "--quiet", "--release"], cwd=directory, check=True)
    return pathlib.Path(os.environ.get("CARGO_TARGET_DIR", directory / "target")) / "release" / "bench-acl"


def trace(flows):
    """The packets of the flows in the format of ClassBench's traces."""
    server = int(ipaddress.ip_address(frames.SERVER))
    lines = (
        f"{int.from_bytes(source, 'big')}\t{server}\t{port}\t{frames.SERVER_PORT}\t{UDP}\t0\n"
        for source, port in map(frames.flow, range(flows))
    )
    return "".join(lines)


def classify(drop, flows=1024):
    """Ticks a packet of mmb's classifier and of rte_acl's fastest implementation, with these rules."""
    if subprocess.run(["pkg-config", "--exists", "libdpdk"], check=False).returncode:
        raise NotInstalled
    with tempfile.TemporaryDirectory(prefix="mmb-bench-acl-") as name:
        directory = pathlib.Path(name)
        (directory / "made.rules").write_text(rules.classbench(drop), encoding="ascii")
        (directory / "made.trace").write_text(trace(flows), encoding="ascii")
        command = ["timeout", str(PATIENCE), program(), directory / "made.rules", directory / "made.trace"]
        settings = {"ACL_MEMORY": str(MEMORY), "ACL_REPEAT": "9"}
        done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **settings})
    found = [float(value) for value in re.findall(r"^rte_acl \w+: ([0-9.]+) ticks", done.stdout, re.MULTILINE)]
    if found:
        return float(re.search(MMB, done.stdout)[1]), min(found)
    if done.returncode == TIMED_OUT:
        raise Absent(f"not built within {PATIENCE} s")
    if "rte_acl" in done.stderr:
        raise Absent(f"not built within {MEMORY} MiB: {done.stderr.strip()}")
    raise RuntimeError(done.stderr)


def series(made, places):
    """Both, with the rules `made(x)`, from the same runs."""
    ours = {}

    def theirs(x):
        ours[x], ticks = classify(made(x))
        return ticks

    return [Series(THEIRS, theirs, places), Series(OURS, lambda x: ours.pop(x, None), places)]
