"""DPDK's `rte_acl` on rules that were made up, by the program that runs it beside mmb's classifier (`bench/acl`)."""

import functools
import ipaddress
import os
import pathlib
import re
import subprocess
import tempfile

from . import frames, rules
from .results import ROOT, Absent, NotInstalled

CONFIGURED = (
    "one category, the key layout of its guide, its fastest implementation here; classification alone, keys in the cache; it is done "
    "with a packet at the first byte that no rule has"
)
# Its tables may take so many MiB, and so many seconds until they are built.
MEMORY, PATIENCE = 6144, 90
# What `timeout` ends with then.
TIMED_OUT = 124
UDP = 17


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


def ticks(drop, flows=1024):
    """Ticks a packet of its fastest implementation, with these rules."""
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
        return min(found)
    if done.returncode == TIMED_OUT:
        raise Absent(f"not built within {PATIENCE} s")
    if "rte_acl" in done.stderr:
        raise Absent(f"not built within {MEMORY} MiB: {done.stderr.strip()}")
    raise RuntimeError(done.stderr)
