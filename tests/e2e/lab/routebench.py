"""mmb as a router: Linux in the middle has the addresses and routes, mmb forwards.

    client                       mbox                            servers
    [ c0 ]=================[ m0        m1 ]=================[ s0 ]
    10.1.0.2/24        10.1.0.1/24   10.2.0.1/24         10.2.0.2/24
    fd01::2/64          fd01::1/64    fd02::1/64          fd02::2/64

With `ways`, that many more links lead from mbox to the servers: m2 with s1, 10.11.0.1 and 10.11.0.2, fd11::1 and
fd11::2, and so on. The servers answer for all of 10.9.0.0/16 and fd09::/64.

The kernel in the middle has its forwarding off: what crosses, mmb has forwarded. Its addresses stand on the interface
itself where that is af-xdp, and on the twin, which has mmb's name of the interface, where it is af-packet.
"""

import ipaddress
import re
import socket

from . import traffic, wait
from .natbench import Mirror, Speaker
from .netns import CLIENT_MAC, SERVER_MAC, Network

CLIENT, CLIENT6, BOX, BOX6 = "10.1.0.2", "fd01::2", "10.1.0.1", "fd01::1"
FAR, FAR6, SERVER, SERVER6 = "10.2.0.1", "fd02::1", "10.2.0.2", "fd02::2"
ANYCAST, ANYCAST6 = "10.9.0.0/16", "fd09::/64"


def of_way(way):
    """Addresses of link `n`: ((box, server) for IPv4, (box, server) for IPv6)."""
    return (f"10.1{way}.0.1", f"10.1{way}.0.2"), (f"fd1{way}::1", f"fd1{way}::2")


class RouteBench(Network):
    """Namespaces, addresses, and a running daemon with routed interfaces left (m0), right (m1), way1 (m2) …"""

    def __init__(self, driver, make_daemon, config="", workers=1, ways=0, arguments=()):
        super().__init__()
        self.driver, self.ways = driver, ways
        try:
            self.client, self.mbox, self.servers = (self._namespace(role) for role in ("client", "mbox", "servers"))
            self.names = ["left", "right"] + [f"way{way}" for way in range(1, ways + 1)]
            far = [(self.client, "c0", CLIENT_MAC), (self.servers, "s0", SERVER_MAC)]
            far += [(self.servers, f"s{way}", f"02:00:00:00:01:{way:02x}") for way in range(1, ways + 1)]
            for at, end in enumerate(far):
                self._veth((self.mbox, f"m{at}", f"02:00:00:00:02:{at:02x}"), end)
            ports = "".join(f"interface add {name} {driver} m{at}\n" for at, name in enumerate(self.names))
            config = f"{ports}route {' '.join(self.names)}\n{config}"
            self.daemon = make_daemon(self.mbox, config, workers=workers, arguments=arguments)
            self._address()
        except BaseException:
            self.close()
            raise

    def face(self, at):
        """The kernel's interface with the addresses: of 0, left; of 1, right; of 1 + n, the n-th way."""
        return f"m{at}" if self.driver == "af-xdp" else self.names[at]

    def _address(self):
        for namespace in (self.client, self.servers):
            # Many pings and errors in a short time are the tests' own.
            namespace.sysctl("net/ipv4/icmp_ratelimit", 0)
            namespace.sysctl("net/ipv6/icmp/ratelimit", 0)
        self.mbox.sysctl("net/ipv4/ip_forward", 0)
        self.mbox.sysctl("net/ipv6/conf/all/forwarding", 0)
        self.add(self.client, "c0", f"{CLIENT}/24", f"{CLIENT6}/64")
        self.add(self.servers, "s0", f"{SERVER}/24", f"{SERVER6}/64")
        self.add(self.mbox, self.face(0), f"{BOX}/24", f"{BOX6}/64")
        self.add(self.mbox, self.face(1), f"{FAR}/24", f"{FAR6}/64")
        for namespace, gateway, gateway6 in ((self.client, BOX, BOX6), (self.servers, FAR, FAR6)):
            namespace.run("ip", "route", "add", "default", "via", gateway)
            namespace.run("ip", "-6", "route", "add", "default", "via", gateway6)
        for way in range(1, self.ways + 1):
            (box, server), (box6, server6) = of_way(way)
            self.add(self.mbox, self.face(way + 1), f"{box}/24", f"{box6}/64")
            self.add(self.servers, f"s{way}", f"{server}/24", f"{server6}/64")
        self.servers.sysctl("net/ipv6/ip_nonlocal_bind", 1)
        for version, network in (("-4", ANYCAST), ("-6", ANYCAST6)):
            self.servers.run("ip", version, "route", "add", "local", network, "dev", "lo")
        for address in (FAR, FAR6):
            self.until_routed(address, "local")

    def add(self, namespace, interface, *addresses):
        for address in addresses:
            namespace.run("ip", "address", "add", address, "dev", interface, *(["nodad"] if ":" in address else []))

    def ip(self, line):
        """Runs an `ip` command in the box."""
        return self.mbox.run("ip", *line.split()).stdout

    def route_of(self, address):
        """The route that mmb has for an address, or None."""
        routes = self.daemon.json("show", "fib", address)["routes"]
        return routes[0] if routes else None

    def until_routed(self, address, kind="unicast"):
        """Waits until mmb has the kernel's route."""

        def there():
            route = self.route_of(address)
            return route and route["kind"] == kind

        wait.until(there, f"a route of kind {kind} to {address}")

    def received(self, interface, namespace=None):
        """Packets that an interface of the servers has received."""
        shown = (namespace or self.servers).run("cat", f"/sys/class/net/{interface}/statistics/rx_packets").stdout
        return int(shown)


def ping(namespace, address, *options, count=1):
    """The output of `ping`, with or without answers."""
    version = "-6" if ipaddress.ip_address(address).version == 6 else "-4"
    done = namespace.run(
        "ping", version, "-n", "-c", count, "-i", "0.05", "-W", "5", *options, address, check=False
    )
    return done.stdout + done.stderr


def answered(namespace, address, *options, count=1):
    """Whether every ping is answered; the TTLs or hop limits of the answers."""
    shown = ping(namespace, address, *options, count=count)
    ttls = [int(ttl) for ttl in re.findall(r"ttl=(\d+)", shown)]
    assert len(ttls) == count, shown
    return ttls


def speaker(bench, source, port=0, kind=socket.SOCK_DGRAM, namespace=None):
    """A socket of the client (or of `namespace`) that sends and receives, until the bench ends."""
    made = Speaker(namespace or bench.client, source, port, kind)
    bench.on_close(made.close)
    return made


def mirror(bench, address, port, kind=socket.SOCK_DGRAM, namespace=None):
    """A socket of the servers (or of `namespace`) that answers with what it sees, until the bench ends."""
    made = Mirror(namespace or bench.servers, address, port, kind)
    bench.on_close(made.close)
    return made


def web(bench, namespace, port=80, **options):
    """A web server, until the bench ends."""
    server = traffic.WebServer(namespace, port, **options)
    bench.on_close(server.close)
    return server


def url(address, port=80):
    """The file of such a server."""
    return f"http://[{address}]:{port}/file" if ":" in address else f"http://{address}:{port}/file"
