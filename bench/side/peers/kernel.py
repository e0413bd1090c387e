"""The kernel in memory: XDP programs, and the network stack behind them.

```
cost ─► i0 ─► XDP program ─► (routing, netfilter) ─► o0 ─► o1, where an XDP program drops
```

Frames are made by the test-run facility of BPF and given to `i0` as if its driver had received them. Everything runs on
the core that asked, so the time of the whole is the cost of a packet. What the run itself costs (its frames are dropped by
the first program) is measured as well and taken off.
"""

import functools
import subprocess

from .. import lab  # noqa: F401 - finds the laboratory of the end-to-end tests
from .mmb import ticks_per_nanosecond
from ..results import ROOT

from lab.netns import Namespace, run  # noqa: E402 isort: skip

PROGRAMS = ROOT / "bench" / "kernel" / "target"
NEXT_HOP = "02:00:00:00:00:77"


@functools.cache
def build():
    subprocess.run(["make", "-s", "-C", ROOT / "bench" / "kernel"], check=True)


class Netfilter:
    """What the kernel of the namespace `box` filters with."""

    def nft(self, rules):
        """Replaces everything that nftables has there."""
        run(*self.box.command("nft", "-f", "-"), input="flush ruleset\n" + rules, timeout=600)

    def iptables(self, table):
        """Replaces a table of iptables."""
        run(*self.box.command("iptables-restore"), input=table, timeout=600)


class Kernel(Netfilter):
    """A namespace with a way through it; gone with the `with` block."""

    def __enter__(self):
        build()
        self.box = Namespace("kernel")
        try:
            for a, b in (("i0", "i1"), ("o0", "o1")):
                self.box.run("ip", "link", "add", a, "type", "veth", "peer", "name", b)
                for end in (a, b):
                    self.box.run("ip", "link", "set", end, "up")
            self.box.run("ip", "address", "add", "10.1.0.1/16", "dev", "i0")
            self.box.run("ip", "address", "add", "10.2.0.1/24", "dev", "o0")
            self.box.run("ip", "neigh", "add", "10.2.0.2", "lladdr", NEXT_HOP, "dev", "o0", "nud", "permanent")
            self.box.sysctl("net/ipv4/ip_forward", 1)
            # A veth device has receive queues of its own, which test runs need, with this on only.
            self.box.run("ethtool", "-K", "i0", "gro", "on")
            self.box.run("ip", "link", "set", "o1", "xdpdrv", "obj", PROGRAMS / "sink.o", "sec", "xdp")
            self.mac = self.box.run("cat", "/sys/class/net/i0/address").stdout.strip()
        except BaseException:
            self.box.delete()
            raise
        return self

    def __exit__(self, *_):
        self.box.delete()

    def _cost(self, program, **options):
        """Nanoseconds a packet."""
        words = [f"{name}={value}" for name, value in options.items()]
        return float(self.box.run(PROGRAMS / "cost", PROGRAMS / f"{program}.o", *words, timeout=600).stdout)

    def program(self, program, **options):
        """Ticks of an XDP program alone, without what varies the frames."""
        cost = self._cost(program, **options) - self._cost("drop", flows=options.get("flows", 1024))
        return cost * ticks_per_nanosecond()

    def _way(self, flows):
        """How frames come in at `i0`, to be sent on by the stack."""
        return {"live": 1, "interface": "i0", "mac": self.mac, "flows": flows}

    def stack(self, flows=1024):
        """Ticks of a packet from `i0` out of `o0`, through the stack."""
        way = self._way(flows)
        cost = self._cost("pass", **way) - self._cost("drop", **way)
        return cost * ticks_per_nanosecond()

    def added(self, install, flows=1024):
        """Ticks that what `install` sets up adds to a packet through the stack. Nothing is left of it."""
        try:
            install()
            loaded = self._cost("pass", **self._way(flows))
        finally:
            self.nft("")
        return (loaded - self._cost("pass", **self._way(flows))) * ticks_per_nanosecond()
