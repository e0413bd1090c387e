"""A network with an inside and an outside, mmb on the wire between a host and its router.

    hosts                mbox                 router                    servers
    [ c0 ]=============[ m0  m1 ]=============[ r0   r1 ]================[ s0 ]
    10.0.0.1 … .9/24   (no address)   10.0.0.254   198.51.100.1   198.51.100.2, .3
    fd00:a::1/64                      fd00:a::fe   2001:db8::1    2001:db8::2

The router sends everything for 200.0.0.0/24 to the inside, as a provider does with a customer's addresses. It knows
the way to the inside's own addresses as well, so that what is not translated arrives, too, and shows.
"""

import contextlib
import socket
import threading

from . import wait
from .netns import CLIENT_MAC, Network
from .wire import wire_config

ROUTER_MAC = "02:00:00:00:00:fe"
INSIDE = [f"10.0.0.{number}" for number in range(1, 10)]
OUTSIDE = [f"200.0.0.{number}" for number in range(1, 6)]
GATEWAY, ROUTER = "10.0.0.254", "198.51.100.1"
SERVER, OTHER = "198.51.100.2", "198.51.100.3"
INSIDE6, GATEWAY6, SERVER6 = "fd00:a::1", "fd00:a::fe", "2001:db8::2"


class NatBench(Network):
    """Namespaces and a running daemon, with the daemon's options. mtu: of the link behind the router."""

    def __init__(self, driver, make_daemon, config="", workers=1, mtu=1500, **options):
        super().__init__()
        try:
            self.hosts, self.mbox, self.router, self.servers = map(
                self._namespace, ("hosts", "mbox", "router", "servers")
            )
            self.mbox.sysctl("net/ipv6/conf/default/disable_ipv6", 1)
            self._veth((self.mbox, "m0", None), (self.hosts, "c0", CLIENT_MAC))
            self._veth((self.mbox, "m1", None), (self.router, "r0", ROUTER_MAC))
            self._veth((self.servers, "s0", None), (self.router, "r1", "02:00:00:00:00:fd"), mtu=mtu)
            self._address()
            self.daemon = make_daemon(self.mbox, wire_config(driver) + config, workers=workers, **options)
        except BaseException:
            self.close()
            raise

    def _address(self):
        def add(namespace, interface, *addresses):
            for address in addresses:
                namespace.run("ip", "address", "add", address, "dev", interface, *(["nodad"] if ":" in address else []))

        add(self.hosts, "c0", *(f"{address}/24" for address in INSIDE), f"{INSIDE6}/64")
        add(self.router, "r0", f"{GATEWAY}/24", f"{GATEWAY6}/64")
        add(self.router, "r1", f"{ROUTER}/24", "2001:db8::1/64")
        add(self.servers, "s0", f"{SERVER}/24", f"{OTHER}/24", f"{SERVER6}/64")
        self.router.sysctl("net/ipv4/ip_forward", 1)
        self.router.sysctl("net/ipv6/conf/all/forwarding", 1)
        self.router.run("ip", "route", "add", "200.0.0.0/24", "dev", "r0")
        for address in OUTSIDE:
            self.router.run(
                "ip", "neigh", "replace", address, "lladdr", CLIENT_MAC, "dev", "r0", "nud", "permanent"
            )
        for namespace, interface, gateway4, gateway6 in (
            (self.hosts, "c0", GATEWAY, GATEWAY6),
            (self.servers, "s0", ROUTER, "2001:db8::1"),
        ):
            namespace.run("ip", "route", "add", "default", "via", gateway4)
            namespace.run("ip", "-6", "route", "add", "default", "via", gateway6)
            # Many pings and errors in a short time are the tests' own.
            namespace.sysctl("net/ipv4/icmp_ratelimit", 0)
        self.router.sysctl("net/ipv4/icmp_ratelimit", 0)

    def connections(self, *words):
        """`show connections`, decoded."""
        return self.daemon.json("show", "connections", *words)


class Mirror:
    """A server that answers each datagram, and each line of a stream, with the sender's address and port."""

    def __init__(self, namespace, address, port, kind=socket.SOCK_DGRAM):
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self.socket = namespace.socket(family, kind)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind((address, port))
        serve = self._datagrams
        if kind == socket.SOCK_STREAM:
            self.socket.listen(64)
            serve = self._accept
        self._connections = []
        self._thread = threading.Thread(target=serve, daemon=True)
        self._thread.start()

    @staticmethod
    def _name(peer):
        return f"{peer[0]} {peer[1]}".encode()

    def _datagrams(self):
        with contextlib.suppress(OSError):
            while True:
                _, peer = self.socket.recvfrom(65_535)
                if peer is None:
                    return
                self.socket.sendto(self._name(peer), peer)

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                connection, peer = self.socket.accept()
                self._connections.append(connection)
                threading.Thread(target=self._lines, args=(connection, peer), daemon=True).start()

    def _lines(self, connection, peer):
        with contextlib.suppress(OSError), connection:
            while connection.recv(4096):
                connection.sendall(self._name(peer))

    def close(self):
        for handle in (self.socket, *self._connections):
            with contextlib.suppress(OSError):
                handle.shutdown(socket.SHUT_RDWR)
            handle.close()


class Speaker:
    """A client of a `Mirror`, which asks for its own address as the server sees it."""

    def __init__(self, namespace, source, source_port=0, kind=socket.SOCK_DGRAM):
        family = socket.AF_INET6 if ":" in source else socket.AF_INET
        self.kind = kind
        self.socket = namespace.socket(family, kind)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.settimeout(wait.PATIENCE)
        self.socket.bind((source, source_port))

    def port(self):
        """The local port."""
        return self.socket.getsockname()[1]

    def connect(self, address, port):
        self.socket.connect((address, port))
        return self

    def ask(self, address=None, port=None):
        """The (address, port) that the other end sees; a stream must be connected before."""
        if address is None:
            self.socket.send(b"?\n")
        else:
            self.socket.sendto(b"?\n", (address, port))
        seen, number = self.socket.recv(4096).decode().split()
        return seen, int(number)

    def close(self):
        self.socket.close()
