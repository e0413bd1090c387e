"""Network namespaces, veth pairs and the client - middlebox - server bench built from them.

    client                 mbox                  server
    [ c0 ]===============[ m0   m1 ]===============[ s0 ]
    10.77.0.1/24          (no address)         10.77.0.2/24
    fd77::1/64                                  fd77::2/64

Namespaces are named after the process that made them, so that several runs can share a machine. A namespace
that is deleted first loses the processes that still live in it, each by its id.
"""

import contextlib
import ctypes
import itertools
import os
import shutil
import signal
import socket
import subprocess
from functools import partial

from . import wait

CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)
_serial = itertools.count()

CLIENT_MAC, SERVER_MAC = "02:00:00:00:00:01", "02:00:00:00:00:02"
CLIENT4, SERVER4 = "10.77.0.1", "10.77.0.2"
CLIENT6, SERVER6 = "fd77::1", "fd77::2"


class CommandFailed(AssertionError):
    """A command that had to work did not. The text has what it printed."""


class NotInstalled(AssertionError):
    """A test needs a program that this machine does not have."""


def installed(program):
    """The program's name, if it is installed; a test that needs another one fails with its name."""
    if shutil.which(str(program)) is None:
        raise NotInstalled(f"`{program}` is not installed: run tools/install-deps")
    return str(program)


def run(*argv, check=True, timeout=60, **options):
    """Runs a command to its end and returns it with its output as text."""
    installed(argv[0])
    done = subprocess.run(
        [str(word) for word in argv],
        capture_output=True,
        text=True,
        timeout=timeout,
        **options,
    )
    if check and done.returncode != 0:
        command = " ".join(str(word) for word in argv)
        raise CommandFailed(f"`{command}` ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done


class Namespace:
    """One network namespace; `with namespace.entered():` makes sockets in it from this very process."""

    def __init__(self, role):
        self.name = f"mmb{os.getpid()}-{next(_serial)}-{role}"
        run("ip", "netns", "add", self.name)
        self._processes = []
        self.run("ip", "link", "set", "lo", "up")

    def command(self, *argv):
        """The argument vector that runs `argv` inside."""
        return ["ip", "netns", "exec", self.name, installed(argv[0]), *[str(word) for word in argv[1:]]]

    def run(self, *argv, **options):
        return run(*self.command(*argv), **options)

    def popen(self, *argv, **options):
        """Starts a process that is ended, at the latest, together with the namespace."""
        process = subprocess.Popen(self.command(*argv), **options)
        self._processes.append(process)
        return process

    def listens(self, port, address=""):
        """Whether a program listens on a TCP port."""
        return f"{address}:{port} " in self.run("ss", "-tln").stdout

    @contextlib.contextmanager
    def entered(self):
        """Moves the calling thread into the namespace; sockets made here stay here."""
        with open("/proc/thread-self/ns/net", "rb") as home, open(f"/run/netns/{self.name}", "rb") as there:
            _set_namespace(there)
            try:
                yield
            finally:
                _set_namespace(home)

    def socket(self, family, kind, protocol=0):
        with self.entered():
            return socket.socket(family, kind, protocol)

    def sysctl(self, setting, value):
        with self.entered(), open(f"/proc/sys/{setting}", "w", encoding="ascii") as file:
            file.write(str(value))

    def pids(self):
        return [int(pid) for pid in run("ip", "netns", "pids", self.name).stdout.split()]

    def delete(self):
        for process in self._processes:
            end(process)
        for pid in self.pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        run("ip", "netns", "delete", self.name, check=False)


def _set_namespace(handle):
    if _libc.setns(handle.fileno(), CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "setns failed")


def end(process, patience=10):
    """Asks a process to end, insists after `patience` seconds, and reaps it."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(patience)
        except subprocess.TimeoutExpired:
            process.kill()
    process.wait()


class Network:
    """Namespaces that belong together; what was made last goes first."""

    def __init__(self):
        self._closers = contextlib.ExitStack()

    def _namespace(self, role):
        namespace = Namespace(role)
        self._closers.callback(namespace.delete)
        return namespace

    def _veth(self, *ends, mtu=1500):
        """A link that is up, between two of (namespace, interface, Ethernet address; None: the kernel's choice)."""

        def described(namespace, interface, mac):
            return ["name", interface, "netns", namespace.name, "mtu", mtu, *(["address", mac] if mac else [])]

        one, other = (described(*end) for end in ends)
        run("ip", "link", "add", *one, "type", "veth", "peer", *other)
        for namespace, interface, _ in ends:
            self._bring_up(namespace, interface)
        for namespace, interface, _ in ends:
            wait.until(partial(carrier, namespace, interface), f"{interface} to come up")

    @staticmethod
    def _bring_up(namespace, interface):
        # Router solicitations and duplicate address detection are noise in a test that counts frames.
        for setting in ("accept_ra", "accept_dad", "router_solicitations"):
            namespace.sysctl(f"net/ipv6/conf/{interface}/{setting}", 0)
        namespace.run("ip", "link", "set", interface, "up")

    def on_close(self, callback, *arguments):
        """Registers something to undo; the last registered is undone first."""
        self._closers.callback(callback, *arguments)

    def close(self):
        self._closers.close()


class Bench(Network):
    """Client, middlebox and server, wired; addresses at the ends only.

    offloads: leave the checksum and segmentation offloads of the kernel's end points as they are by default
              (on), or turn them off.
    mtu:      of all four interfaces.
    """

    def __init__(self, offloads=True, mtu=1500):
        super().__init__()
        try:
            self.client, self.mbox, self.server = (self._namespace(role) for role in ("client", "mbox", "server"))
            # The middlebox's own kernel stays silent, so that every frame seen is one that mmb let through.
            self.mbox.sysctl("net/ipv6/conf/default/disable_ipv6", 1)
            self._veth((self.client, "c0", CLIENT_MAC), (self.mbox, "m0", None), mtu=mtu)
            self._veth((self.server, "s0", SERVER_MAC), (self.mbox, "m1", None), mtu=mtu)
            for interface in ("c0", "s0"):
                end_point = self._address(interface)
                if not offloads:
                    self.without_offloads(end_point, interface)
        except BaseException:
            self.close()
            raise

    def _address(self, interface):
        """Gives an end point's interface its addresses."""
        is_client = interface == "c0"
        end_point, address4, address6 = (
            (self.client, CLIENT4, CLIENT6) if is_client else (self.server, SERVER4, SERVER6)
        )
        end_point.run("ip", "address", "add", f"{address4}/24", "dev", interface)
        end_point.run("ip", "address", "add", f"{address6}/64", "dev", interface, "nodad")
        return end_point

    def move_taps(self, *interfaces):
        """Moves taps that the middlebox has made with the names of the end points' interfaces into their places."""
        for interface in interfaces:
            end_point, mac = (self.client, CLIENT_MAC) if interface == "c0" else (self.server, SERVER_MAC)
            end_point.run("ip", "link", "del", interface)
            self.mbox.run("ip", "link", "set", interface, "netns", end_point.name)
            end_point.run("ip", "link", "set", interface, "address", mac)
            self._bring_up(end_point, interface)
            self._address(interface)

    def without_offloads(self, end_point, interface):
        offloads = ("tx", "tso", "gso", "gro", "txvlan", "tx-vlan-stag-hw-insert")
        end_point.run("ethtool", "-K", interface, *(word for offload in offloads for word in (offload, "off")))

    def know_neighbours(self):
        """Permanent neighbour entries at both ends: no ARP or ND among the counted frames."""
        for end_point, interface, mac, address4, address6 in (
            (self.client, "c0", SERVER_MAC, SERVER4, SERVER6),
            (self.server, "s0", CLIENT_MAC, CLIENT4, CLIENT6),
        ):
            for address in (address4, address6):
                end_point.run("ip", "neigh", "replace", address, "lladdr", mac, "dev", interface, "nud", "permanent")


def carrier(namespace, interface):
    shown = run("ip", "-n", namespace.name, "-o", "link", "show", "dev", interface).stdout
    return "LOWER_UP" in shown
