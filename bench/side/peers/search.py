"""Search for literals: mmb's scanners and Hyperscan alone on the same chunks, by the example `search_cost` of mmb's crate."""

import ctypes
import functools
import os
import pathlib
import re
import subprocess

from ..results import MMB, OWN_SEARCH, ROOT, NotInstalled, Series

RAW = "hs_scan_stream"
# What the program prints of each.
LINES = {MMB: "hyperscan", RAW: "hs_scan_stream", OWN_SEARCH: "aho-corasick"}
CONFIGURED = {
    MMB: "the scanner that `match` has for a worker, with the library",
    RAW: "the same library (Hyperscan, or Vectorscan), called as a program in C does: one stream, one scratch space",
    OWN_SEARCH: "mmb's automaton for literals, which needs no library",
}
# Bytes of a segment's payload in frames of 1,500 bytes.
SEGMENT = 1460


@functools.cache
def program():
    """The program, built."""
    command = ["cargo", "build", "--quiet", "--release", "--package", "mmb-search", "--example", "search_cost"]
    subprocess.run(command, cwd=ROOT, check=True)
    return pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release" / "examples" / "search_cost"


def is_installed():
    try:
        ctypes.CDLL("libhs.so.5")
    except OSError:
        return False
    return True


def measure(literals):
    """Nanoseconds of a segment by series, of one run with so many literals."""
    if not is_installed():
        raise NotInstalled
    command = [program(), str(int(literals)), str(SEGMENT)]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300).stdout
    return read(shown)


def read(shown):
    """Nanoseconds by series, of what the program prints."""
    return {name: float(re.search(rf"^{word}\b.* ([0-9.]+) ns$", shown, re.MULTILINE)[1]) for name, word in LINES.items()}


def series(places):
    """All of them, from the same runs."""
    found = {}

    def first(x):
        found[x] = measure(x)
        return found[x].pop(RAW)

    def other(name):
        return lambda x: found.get(x, {}).pop(name, None)

    return [Series(RAW, first, places), *(Series(name, other(name), places) for name in (MMB, OWN_SEARCH))]
