"""The fast path: what it shows of itself, and traffic until it forwards."""

import pytest

from . import traffic, wait

ON = "set fast-path auto\n"
FIREWALL = "add-stateful in left accept\nadd all drop\n"
NAT = "nat pool add isp 200.0.0.1\nadd-stateful ip-saddr 10.0.0.0/24 nat isp\n"
XDP_ONLY = pytest.mark.parametrize("ports", ["af-xdp"])
TC_ONLY = pytest.mark.parametrize("ports", ["af-packet"])


def receives_by_napi(namespace, interface):
    """Enables GRO, which a veth needs to receive redirected frames."""
    namespace.run("ethtool", "-K", interface, "gro", "on")


def fast(bench):
    return bench.daemon.json("show", "fast-path")


def hits(bench):
    return fast(bench)["packets"]


class Stream:
    """Sends numbered datagrams, a few in flight at a time, until a condition holds."""

    def __init__(self, client, server, address, port=7000):
        self.datagrams = traffic.Datagrams(client, server, address, port=port)

    def until(self, condition, what):
        def more():
            for _ in range(16):
                self.datagrams.send(4)
                self.datagrams.settle()
            return condition()

        return wait.until(more, what)

    def send(self, count):
        self.datagrams.send(count)
        self.datagrams.settle()

    def close(self):
        self.datagrams.close()


def learnt(bench, one):
    """Sends datagrams until the kernel forwards them; returns how many it has forwarded."""
    before = hits(bench)
    return one.until(lambda: hits(bench) > before and hits(bench), "the kernel to take over")


def the_connection(bench, *matches):
    (one,) = bench.daemon.json("show", "connections", *matches)["connections"]
    return one
