"""DPDK's testpmd: receives and sends, and does nothing else."""

import functools
import pathlib
import re
import shutil
import subprocess
import tempfile
import time

from . import frames
from .mmb import ticks_per_nanosecond
from ..machine import processor_time
from ..results import NotInstalled

SECONDS = 3
# Seconds that it may take to start, and then to get this CPU time.
LIMIT = 120
# What the thread that forwards is called.
WORKER = re.compile(r"(lcore|rte)-worker")


def ticks(*ports, buffers=8192):
    """Ticks a packet between two ports: CPU time of the thread that forwards, over all packets that it received."""
    if not shutil.which("dpdk-testpmd"):
        raise NotInstalled
    devices = [f"--vdev={port}" for port in ports]
    # MiB; a buffer takes two KiB and a bit.
    memory = 1024 + buffers * 4 // 1024
    eal = ["-l", "0,1", "--no-huge", "--no-shconf", "-m", str(memory), "--no-pci", *devices]
    own = ["--forward-mode=io", "--auto-start", f"--total-num-mbufs={buffers}"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with subprocess.Popen(["dpdk-testpmd", *eal, "--", *own], **pipes) as process:
        try:
            taken = forwarding(process)
            # Enter ends it.
            shown = process.communicate("\n", timeout=30)[0]
        finally:
            process.kill()
    return taken / received(shown) * ticks_per_nanosecond()


def forwarding(process):
    """CPU nanoseconds of the thread that forwards, once it has had so much of them."""
    end = time.monotonic() + LIMIT
    while time.monotonic() < end:
        if process.poll() is not None:
            shown = process.communicate()[0]
            raise RuntimeError(f"testpmd ended: {' '.join(re.findall('Cause: (.*)', shown)) or shown}")
        taken = worked(process.pid)
        if taken >= SECONDS * 1e9:
            return taken
        time.sleep(0.05)
    raise RuntimeError(f"testpmd did not forward for {SECONDS} s of CPU time within {LIMIT} s")


def worked(pid):
    """CPU nanoseconds of the thread that forwards, 0 before it is there."""
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        if WORKER.match((task / "comm").read_text(encoding="ascii")):
            return processor_time(task)
    return 0


def received(shown):
    """Packets in the last statistics, those of all ports."""
    counted = re.findall(r"RX-packets: ([0-9]+)", shown.rpartition("Accumulated forward statistics for all ports")[2])
    if not counted or not int(counted[0]):
        raise RuntimeError(f"testpmd received nothing: {shown}")
    return int(counted[0])


@functools.cache
def replayed(flows):
    """Ticks of what Open vSwitch is measured on as well: frames from a capture again and again, to a null port."""
    with tempfile.TemporaryDirectory(prefix="mmb-bench-testpmd-") as name:
        path = pathlib.Path(name) / "flows.pcap"
        frames.capture(path, frames.both(flows))
        return ticks(f"net_pcap0,rx_pcap={path},infinite_rx=1", "net_null0,no-rx=1", buffers=8192 + 4 * flows)
