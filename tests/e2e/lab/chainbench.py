"""A NAT bench whose middlebox can reach the servers by itself: health checks and exports have a way of their own.

    mbox                                  servers
    [ g0 ]==============================[ g1 ]
    192.0.2.1/24                        192.0.2.2/24

Nothing of mmb's goes over this link; hosts do not know of it. The hosts' servers are known to them as VIRTUAL only.
"""

import contextlib
import socket
import threading

from .natbench import OTHER, SERVER, NatBench

VIRTUAL, VIRTUAL6 = "203.0.113.10", "2001:db8:1::10"
COLLECTOR = "192.0.2.2"


class ChainBench(NatBench):
    """Namespaces and a running daemon; a third port of mmb, `side`, ends in the namespace `watcher`, if it is asked for."""

    def __init__(self, driver, make_daemon, config="", side=False, **options):
        self._side, self._driver = side, driver
        super().__init__(driver, make_daemon, config, **options)

    def _address(self):
        super()._address()
        self._veth((self.mbox, "g0", None), (self.servers, "g1", None))
        self.mbox.run("ip", "address", "add", "192.0.2.1/24", "dev", "g0")
        self.servers.run("ip", "address", "add", f"{COLLECTOR}/24", "dev", "g1")
        for address in (SERVER, OTHER):
            self.mbox.run("ip", "route", "add", address, "via", COLLECTOR)
        if self._side:
            self.watcher = self._namespace("watcher")
            self._veth((self.mbox, "m2", None), (self.watcher, "w0", None))
            self.watcher.sysctl("net/ipv6/conf/w0/disable_ipv6", 1)


class Echo:
    """A TCP server at one address that sends back what it gets; `close` takes it and its connections away."""

    def __init__(self, namespace, address, port):
        with namespace.entered():
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            self.listener = socket.create_server((address, port), family=family, backlog=256)
        self.address = address
        self.connections = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self.listener.accept()
                self.connections.append(connection)
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        with contextlib.suppress(OSError), connection:
            while data := connection.recv(4096):
                connection.sendall(self.address.encode() + b" " + data)

    def close(self):
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for connection in self.connections:
            connection.close()
