"""mmb in memory: `mmb bench`."""

import functools
import json
import os
import pathlib
import subprocess

from ..results import ROOT

# Seconds of one measurement, and how long one may take with all that it loads before.
SECONDS, PATIENCE = 0.5, 600


def binary():
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    return pathlib.Path(os.environ.get("MMB_BIN", target / "release" / "mmb"))


def bench(*options, seconds=SECONDS):
    """The report of `mmb bench` with these options."""
    command = [binary(), "bench", "--json", "--seconds", seconds, *options]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False, timeout=PATIENCE)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, command))}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def whole(*options):
    """Ticks a packet from `l2-input` on, without the ends that make and take frames."""
    return bench(*options)["ticks_per_packet"]


def more(report):
    """Ticks that a packet costs beyond the plain path, in whatever node; of a report in routed mode."""
    return report["ratio"] * report["plain_path"]


def added(*options):
    """Ticks a packet that rules take: all that it costs beyond the plain path."""
    return more(bench("--mode", "routed", *options))


def worst(*options, seeds=(1, 2, 3)):
    """The most that rules of any of these seeds take."""
    return max(added(*options, "--seed", seed) for seed in seeds)


SESSIONS = ("flow-lookup", "flow-classify", "flow-track", "chain")


def chain(*options):
    """Ticks a packet of finding its session and of the chain."""
    nodes = bench(*options)["nodes"]
    return sum(nodes[name]["ticks_per_packet"] for name in SESSIONS if name in nodes)


@functools.cache
def ticks_per_nanosecond():
    return bench(seconds=0.1)["tsc_hz"] / 1e9
