"""A box between a client and a server, on two subnets, over veth: what peers and mmb are measured on end to end.

    client                  box                    server
    [ c0 ]===============[ b0   b1 ]===============[ s0 ]
    10.1.0.2/16        10.1.0.1  10.2.0.1       10.2.0.2/24

Everything is routed by the kernel of the box, unless mmb or an XDP program takes the frames before. Segmentation and
checksum offloads are off at both ends: on veth, frames of 64 KiB and without checksums would pass through the kernel as
they never pass through a network card.
"""

import contextlib
import json
import pathlib
import re
import subprocess
import tempfile

from . import lab  # noqa: F401 - finds the laboratory of the end-to-end tests

from .kernel import PROGRAMS, Netfilter, build

from lab import wait  # noqa: E402 isort: skip
from lab.daemon import Daemon  # noqa: E402 isort: skip
from lab.netns import Network  # noqa: E402 isort: skip

CLIENT, SERVER = "10.1.0.2", "10.2.0.2"
PORTS = "interface add left af-xdp b0\ninterface add right af-xdp b1\nroute left right\n"


class Wire(Network, Netfilter):
    """The namespaces; a context."""

    def __init__(self):
        super().__init__()
        try:
            build()
            self.client, self.box, self.server = (self._namespace(role) for role in ("client", "box", "server"))
            self._veth((self.client, "c0", None), (self.box, "b0", None))
            self._veth((self.server, "s0", None), (self.box, "b1", None))
            for space, interface, address, gateway in (
                (self.client, "c0", f"{CLIENT}/16", "10.1.0.1"),
                (self.server, "s0", f"{SERVER}/24", "10.2.0.1"),
            ):
                space.run("ip", "address", "add", address, "dev", interface)
                space.run("ip", "route", "add", "default", "via", gateway)
                offloads = ("tx", "tso", "gso", "gro")
                space.run("ethtool", "-K", interface, *(word for offload in offloads for word in (offload, "off")))
            self.box.run("ip", "address", "add", "10.1.0.1/16", "dev", "b0")
            self.box.run("ip", "address", "add", "10.2.0.1/24", "dev", "b1")
            self.box.sysctl("net/ipv4/ip_forward", 1)
        except BaseException:
            self.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    @contextlib.contextmanager
    def mmb(self, config="", ports=PORTS):
        """A daemon in the box."""
        with tempfile.TemporaryDirectory(prefix="mmb-bench-") as directory:
            daemon = Daemon(self.box, ports + config, directory=pathlib.Path(directory)).start()
            try:
                yield daemon
            finally:
                daemon.close()

    @contextlib.contextmanager
    def xdp(self, program, **options):
        """An XDP program on both interfaces of the box. Frames that it sends out of a veth device need a program, or
        receive queues of its own, at the other end."""
        for space, interface in ((self.client, "c0"), (self.server, "s0")):
            space.run("ethtool", "-K", interface, "gro", "on")
        words = [f"{name}={value}" for name, value in options.items()]
        command = (PROGRAMS / "cost", PROGRAMS / f"{program}.wire.o", "attach=b0,b1", *words)
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        process = self.box.popen(*command, **pipes)
        try:
            if process.stdout.readline() != "ready\n":
                raise RuntimeError("the XDP program was not attached")
            yield
        finally:
            process.communicate()
            for space, interface in ((self.client, "c0"), (self.server, "s0")):
                space.run("ethtool", "-K", interface, "gro", "off")

    def goodput(self, seconds=2, streams=2):
        """(Gbit/s of TCP payload from client to server, CPU seconds of the machine per Gbit)."""
        server = self.server.popen("iperf3", "-s", "-1", stdout=subprocess.DEVNULL)
        wait.until(lambda: ":5201 " in self.server.run("ss", "-tln").stdout, "iperf3 to listen")
        before = busy()
        shown = self.client.run("iperf3", "-J", "-t", seconds, "-P", streams, "-c", SERVER, timeout=60)
        used = busy() - before
        server.wait(10)
        received = json.loads(shown.stdout)["end"]["sum_received"]
        return received["bits_per_second"] / 1e9, used / (received["bytes"] * 8 / 1e9)

    def round_trips(self, count=500):
        """Round-trip times of pings, sorted, in microseconds."""
        shown = self.client.run("ping", "-n", "-c", count, "-i", "0.002", SERVER, timeout=60).stdout
        return sorted(float(time) * 1000 for time in re.findall(r"time=([0-9.]+) ms", shown))


def busy():
    """CPU seconds that the whole machine has used."""
    words = pathlib.Path("/proc/stat").read_text(encoding="ascii").splitlines()[0].split()[1:]
    user, nice, system, _idle, _iowait, irq, softirq, *_ = map(int, words)
    return (user + nice + system + irq + softirq) / 100


def percentile(values, share):
    return values[min(len(values) - 1, int(len(values) * share))]


