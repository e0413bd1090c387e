"""A box between a client and a server, on two subnets, over veth: what peers and mmb are measured on end to end.

    client                  box                    server
    [ c0 ]===============[ b0   b1 ]===============[ s0 ]
    10.1.0.2/16        10.1.0.1  10.2.0.1       10.2.0.2/24
    2001:db8:1::2/64          ::1  ::1          2001:db8:2::2/64

Everything is routed by the kernel of the box, unless mmb or an XDP program takes the frames before. Unless asked to, no interface
segments or fills in checksums: on veth, frames of 64 KiB and without checksums would pass through the kernel as they never
pass through a network card. What arrives at an end is put together again by GRO, as with any network card, in a thread of
its own (threaded NAPI): otherwise an end would receive in the time of whoever sends it a frame, packet by packet where a
box sends them one by one. GRO is off in the box, where it costs forwarding more than it saves while segments are not left
to a network card. With several boxes, further ones stand between `b1` and the server, in the same namespace:

    [ b0   b1 ]===[ w1a   w1b ]===[ w2a   w2b ]===[ s0 ]
"""

import contextlib
import ipaddress
import json
import pathlib
import re
import subprocess
import tempfile

from . import lab  # noqa: F401 - finds the laboratory of the end-to-end tests
from .peers.kernel import PROGRAMS, Netfilter, build

from lab import wait  # noqa: E402 isort: skip
from lab.daemon import Daemon  # noqa: E402 isort: skip
from lab.netns import Network, end  # noqa: E402 isort: skip

CLIENT, SERVER = "10.1.0.2", "10.2.0.2"
CLIENT6, SERVER6 = "2001:db8:1::2", "2001:db8:2::2"
BOX = {"b0": ("10.1.0.1/16", "2001:db8:1::1/64"), "b1": ("10.2.0.1/24", "2001:db8:2::1/64")}
# Where source NAT sends from: the server's way back leads to the box.
OUTSIDE = "200.0.0.1"
IPERF = 5201
PACKET_PORTS = "interface add left af-packet b0\ninterface add right af-packet b1\nroute left right\n"
PORTS = "interface add left af-xdp b0\ninterface add right af-xdp b1\nroute left right\n"
MIXED_PORTS = "interface add left af-xdp b0\ninterface add right af-packet b1\nroute left right\n"
# The ports of mmb by the interfaces of the box: af-packet ports have twins with these names.
PORT_NAMES = {"b0": "left", "b1": "right"}
# A load that is limited comes in pieces of so many bytes, for which iperf3 looks at the time as often as it
# is told (in microseconds): with the pieces that it sends otherwise there are pauses in which mmb sleeps.
PIECE, PACE = 2000, 50
# What the sending side of an interface would otherwise leave to it.
SENDING = ("tx", "tso", "gso")
# Congestion control is the kernel's own default, whatever this machine's is: one that paces by estimates
# depends on what else runs here. As an attribute of routes, which may always be set.
CUBIC = ("congctl", "cubic")
# Enough ports and connections for thousands of sessions a second.
SETTINGS = {
    "net/ipv4/ip_local_port_range": "1024 65000",
    "net/ipv4/tcp_tw_reuse": "1",
    "net/ipv4/tcp_max_tw_buckets": "262144",
}


class Wire(Network, Netfilter):
    """The namespaces; a context."""

    def __init__(self, boxes=1, threads=True, offloads=False):
        """`threads`: ends receive in threads of their own. Waking those takes longer than a round trip.
        `offloads`: interfaces take checksums and segmentation from senders, as those of containers do.
        """
        super().__init__()
        try:
            self.client, self.box, self.server = (self._namespace(role) for role in ("client", "box", "server"))
            for space in (self.client, self.box, self.server):
                for setting, value in SETTINGS.items():
                    space.sysctl(setting, value)
            links = [((self.client, "c0"), (self.box, "b0"))]
            before = "b1"
            for number in range(1, boxes):
                links.append(((self.box, before), (self.box, f"w{number}a")))
                before = f"w{number}b"
            links.append(((self.box, before), (self.server, "s0")))
            for a, b in links:
                self._veth((*a, None), (*b, None))
                for space, interface in (a, b):
                    state = "on" if offloads else "off"
                    space.run("ethtool", "-K", interface, *(word for name in SENDING for word in (name, state)))
            for space, interface, addresses, gateways in (
                (self.client, "c0", (f"{CLIENT}/16", f"{CLIENT6}/64"), ("10.1.0.1", "2001:db8:1::1")),
                (self.server, "s0", (f"{SERVER}/24", f"{SERVER6}/64"), ("10.2.0.1", "2001:db8:2::1")),
            ):
                for address, gateway in zip(addresses, gateways):
                    self._address(space, interface, address)
                    space.run("ip", "route", "add", "default", "via", gateway, *CUBIC)
                # With it, veth has receive queues of its own, which frames that an XDP program sends need as
                # well.
                space.run("ethtool", "-K", interface, "gro", "on")
                space.run("sh", "-c", f"echo {int(threads)} > /sys/class/net/{interface}/threaded")
            for interface in BOX:
                self._own(interface, interface)
            self.box.sysctl("net/ipv4/ip_forward", 1)
            self.box.sysctl("net/ipv6/conf/all/forwarding", 1)
        except BaseException:
            self.close()
            raise

    def _address(self, space, interface, address):
        """Gives an interface an address, and its subnet a route for the connections that are made in it."""
        space.run("ip", "address", "add", address, "dev", interface, *(("nodad",) if ":" in address else ()))
        given = ipaddress.ip_interface(address)
        space.run("ip", "route", "replace", given.network, "dev", interface, "src", given.ip, *CUBIC)

    def _own(self, interface, device):
        """Gives a device the addresses that the box has at an interface."""
        for address in BOX[interface]:
            self._address(self.box, device, address)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def beside(self, name, address, bridge):
        """A further namespace, on a bridge of the box, with an address and its subnet's first one as the way out."""
        space = self._namespace(name)
        self._veth((self.box, f"to-{name}", None), (space, "eth0", None))
        self.box.run("ip", "link", "set", f"to-{name}", "master", bridge)
        self._address(space, "eth0", address)
        gateway = next(ipaddress.ip_interface(address).network.hosts())
        space.run("ip", "route", "add", "default", "via", gateway, *CUBIC)
        return space

    @contextlib.contextmanager
    def mmb(self, config="", ports=PORTS):
        """A daemon in the box."""
        with tempfile.TemporaryDirectory(prefix="mmb-bench-") as directory:
            daemon = Daemon(self.box, ports + config, directory=pathlib.Path(directory))
            try:
                yield daemon.start()
            finally:
                daemon.close()

    @contextlib.contextmanager
    def mmb_on_packet_sockets(self, config="", ports=PACKET_PORTS):
        """A daemon in the box on these ports. Of those that are af-packet, the twins have the addresses of the box."""
        twins = {interface: name for interface, name in PORT_NAMES.items() if f"af-packet {interface}\n" in ports}
        try:
            with self.mmb(config, ports) as daemon:
                for interface, twin in twins.items():
                    self.box.run("ip", "address", "flush", "dev", interface)
                    self._own(interface, twin)
                self.box.run("ip", "neigh", "flush", "all")
                wait.until(lambda: self.client.run("ping", "-c1", "-W1", SERVER, check=False).returncode == 0, "a way")
                yield daemon
        finally:
            for interface in twins:
                self._own(interface, interface)

    @contextlib.contextmanager
    def xdp(self, program, **options):
        """An XDP program on both interfaces of the box."""
        build()
        words = [f"{name}={value}" for name, value in options.items()]
        command = (PROGRAMS / "cost", PROGRAMS / f"{program}.wire.o", "attach=b0,b1", *words)
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        process = self.box.popen(*command, **pipes)
        try:
            if process.stdout.readline() != "ready\n":
                raise RuntimeError("the XDP program was not attached")
            yield
        finally:
            process.communicate(timeout=30)

    def goodput(self, seconds=2, streams=2, server_address=SERVER):
        """(Gbit/s of TCP payload from client to server, CPU seconds of the machine per Gbit)."""
        server = self.listening()
        before = busy()
        shown = self.client.run("iperf3", "-J", "-t", seconds, "-P", streams, "-c", server_address, timeout=60)
        used = busy() - before
        server.wait(10)
        received = json.loads(shown.stdout)["end"]["sum_received"]
        return received["bits_per_second"] / 1e9, used / (received["bytes"] * 8 / 1e9)

    def listening(self):
        """An iperf3 at the server, for one test."""
        server = self.server.popen("iperf3", "-s", "-1", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.until_listening()
        return server

    def until_listening(self):
        wait.until(lambda: self.server.listens(IPERF), "iperf3 to listen")

    @contextlib.contextmanager
    def load(self, rate, seconds):
        """One TCP stream of this rate goes from client to server meanwhile, at most for so many seconds."""
        server = self.listening()
        pieces = ("-l", PIECE, "--pacing-timer", PACE)
        command = ("iperf3", "-t", seconds, "-b", rate, *pieces, "-c", SERVER)
        client = self.client.popen(*command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            yield
        finally:
            end(client)
            end(server)

    def round_trips(self, count=500):
        """Round-trip times of pings, sorted, in microseconds."""
        shown = self.client.run("ping", "-n", "-c", count, "-i", "0.002", SERVER, timeout=60).stdout
        return sorted(float(time) * 1000 for time in re.findall(r"time=([0-9.]+) ms", shown))


def busy():
    """CPU seconds that the whole machine has used."""
    words = pathlib.Path("/proc/stat").read_text(encoding="ascii").splitlines()[0].split()[1:]
    user, nice, system, _idle, _iowait, irq, softirq, *_ = map(int, words)
    return (user + nice + system + irq + softirq) / 100


def peak_memory(space):
    """MiB of memory that the programs of a namespace have had at most, each on its own (`VmHWM`)."""
    statuses = [pathlib.Path(f"/proc/{pid}/status").read_text(encoding="ascii") for pid in space.pids()]
    return sum(int(found[1]) for status in statuses if (found := re.search(r"^VmHWM:\s+(\d+) kB", status, re.MULTILINE))) / 1024


def percentile(values, share):
    return values[min(len(values) - 1, int(len(values) * share))]
