"""Fixtures: a wire, a router and a NAT with the fast path on, at XDP and at tc."""

import pytest

from lab import wait
from lab.fastpath import ON, Stream, fast, receives_by_napi


@pytest.fixture(params=["af-xdp", "af-packet"])
def ports(request):
    """The kind of ports, each of which has a fast path of its own. The end points' segmentation offload is on."""
    return request.param


def take_redirects(ports, *ends):
    """Lets the ends take redirected frames of XDP. At tc they have no GRO: packets go past the interfaces of the box."""
    if ports == "af-xdp":
        for namespace, interface in ends:
            receives_by_napi(namespace, interface)


@pytest.fixture
def fast_wire(make_wire, ports):
    """fast_wire(config) -> a wire with the fast path on, whose end points accept redirected frames."""

    def make(config="", workers=1, **options):
        wire = make_wire(ports, ON + config, workers=workers, **options)
        wire.right.close()
        wire.left.close()
        wire.bench.know_neighbours()
        take_redirects(ports, (wire.client, "c0"), (wire.server, "s0"))
        wait.until(lambda: all(i["egress"] for i in fast(wire)["interfaces"]), "interfaces to take frames")
        return wire

    return make


@pytest.fixture
def stream():
    streams = []

    def make(*arguments, **options):
        streams.append(Stream(*arguments, **options))
        return streams[-1]

    yield make
    for one in streams:
        one.close()


@pytest.fixture
def fast_router(make_router, ports):
    def make(config=""):
        bench = make_router(ON + config, driver=ports)
        take_redirects(ports, (bench.client, "c0"), (bench.servers, "s0"))
        wait.until(lambda: all(i["egress"] for i in fast(bench)["interfaces"][:2]), "interfaces to take frames")
        return bench

    return make


@pytest.fixture
def fast_nat(make_nat, ports):
    def make(config, **options):
        nat = make_nat(ON + config, driver=ports, **options)
        take_redirects(ports, (nat.hosts, "c0"), (nat.router, "r0"))
        wait.until(lambda: all(i["egress"] for i in fast(nat)["interfaces"]), "interfaces to take frames")
        return nat

    return make
