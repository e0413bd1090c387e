"""The maps of the fast path take memory when the fast path is on, and ports work while their programs change."""

import re

from lab.fastpath import FIREWALL, fast, learnt, receives_by_napi
from lab.netns import SERVER4

MIB = 1 << 20


def map_memory(daemon):
    """Bytes of the kernel's maps that the daemon has mapped."""
    maps = (daemon.process_directory() / "smaps").read_text(encoding="ascii")
    return sum(int(size) << 10 for size in re.findall(r"bpf-map\nSize: +(\d+) kB", maps))


def test_the_maps_are_there_once_the_fast_path_is_on(make_wire, stream):
    wire = make_wire("af-xdp", FIREWALL)
    receives_by_napi(wire.client, "c0")
    receives_by_napi(wire.server, "s0")
    datagrams = stream(wire.client, wire.server, SERVER4)
    datagrams.send(64)
    assert map_memory(wire.daemon) < 1 * MIB
    both = [(True, True)] * 2
    assert [(one["ingress"], one["egress"]) for one in fast(wire)["interfaces"]] == both
    wire.daemon.line("set fast-path tc")
    assert map_memory(wire.daemon) < 1 * MIB, "no port has a program at tc"
    # No datagram is lost while the programs take over: the stream counts them.
    wire.daemon.line("set fast-path auto")
    datagrams.send(64)
    assert map_memory(wire.daemon) > 20 * MIB
    assert [(one["ingress"], one["egress"]) for one in fast(wire)["interfaces"]] == both
    learnt(wire, datagrams)
    wire.daemon.line("set fast-path off")
    before = fast(wire)["packets"]
    datagrams.send(64)
    assert fast(wire)["packets"] == before
    wire.daemon.line("set fast-path xdp")
    learnt(wire, datagrams)


def test_a_port_that_is_added_joins_the_fast_path(make_wire, stream):
    wire = make_wire("af-xdp", "set fast-path xdp\n")
    receives_by_napi(wire.client, "c0")
    receives_by_napi(wire.server, "s0")
    for command in ("wire del left", "interface del left", "interface add left af-xdp m0", "wire left right"):
        wire.daemon.line(command)
    learnt(wire, stream(wire.client, wire.server, SERVER4))
