"""Open vSwitch on DPDK with network functions over vhost-user (MiddleNet, Figure 7): the paper's peer.

    client ─ b0 (net_af_xdp) ─┐                              ┌─ b1 (net_af_xdp) ─ server
                              └─► datapath, polling thread ◄─┘
                                   │  ▲            │  ▲
                                 vhost-user      vhost-user
                                   ▼  │            ▼  │
                               testpmd, io     testpmd, io

Each function is a testpmd on two virtio-user devices, which passes packets from one to the other, as a virtual machine or a
container would have it. The switch writes the addresses of the next hop.
"""

import contextlib
import subprocess

from ..peers import ovs
from ..results import NotInstalled
from ..wire import CLIENT, SERVER

from lab import wait  # isort: skip - `wire` finds the laboratory

# MiB of a function's memory, and its buffers of 2 KiB.
MEMORY, BUFFERS = 256, 8192
ENDS = {"b0": ("10.1.0.1", "client", "c0"), "b1": ("10.2.0.1", "server", "s0")}


@contextlib.contextmanager
def switched(wire, count):
    """All packets between the ends of the wire pass so many functions, in both directions. Yields their processes."""
    if not ovs.PROGRAM.exists():
        raise NotInstalled
    macs = {name: _mac(wire.box, name) for name in ENDS}
    spaces = {"client": wire.client, "server": wire.server}
    with contextlib.ExitStack() as stack:
        switch = stack.enter_context(ovs.Switch(wire.box))
        for name, (gateway, role, device) in ENDS.items():
            # The switch answers no ARP.
            words = ("neigh", "replace", gateway, "lladdr", macs[name], "dev", device, "nud", "permanent")
            spaces[role].run("ip", *words)
            switch.port(f"p-{name}", f"net_af_xdp_{name},iface={name}")
        functions = []
        for number in range(count):
            functions.append(stack.enter_context(_function(switch, number)))
            for side in "ab":
                switch.vhost(f"f{number}{side}", switch.directory / f"f{number}{side}.sock")
        hops = {"b0": _mac(wire.client, "c0"), "b1": _mac(wire.server, "s0")}
        switch.flows(_flows(count, macs, hops))
        wait.until(lambda: wire.client.run("ping", "-c1", "-W1", SERVER, check=False).returncode == 0, "a way through the switch")
        yield functions


def _mac(space, name):
    return space.run("cat", f"/sys/class/net/{name}/address").stdout.strip()


def _flows(count, macs, hops):
    """From one end through all functions to the other."""
    def way(arrival, entries, leaving, destination):
        steps, place = [], f"p-{arrival}"
        for entry, outcome in entries:
            steps.append(f"priority=1,in_port={place},ip,actions=output:{entry}\n")
            place = outcome
        rewritten = f"dec_ttl,mod_dl_src:{macs[leaving]},mod_dl_dst:{hops[leaving]}"
        steps.append(f"priority=1,in_port={place},ip,nw_dst={destination},actions={rewritten},output:p-{leaving}\n")
        return steps

    forth = [(f"f{n}a", f"f{n}b") for n in range(count)]
    back = [(b, a) for a, b in reversed(forth)]
    return "".join(way("b0", forth, "b1", SERVER) + way("b1", back, "b0", CLIENT))


@contextlib.contextmanager
def _function(switch, number):
    """A testpmd, which makes the sockets that the switch connects to."""
    sockets = [switch.directory / f"f{number}{side}.sock" for side in "ab"]
    devices = [f"--vdev=net_virtio_user{n},path={path},server=1,queues=1" for n, path in enumerate(sockets)]
    # Its threads run on any processor: only that of the switch is fixed to one.
    eal = ["--lcores", "0@(0-1),1@(0-1)", "--no-huge", "--no-shconf", "-m", str(MEMORY), "--no-pci", *devices]
    own = ["--forward-mode=io", "--auto-start", f"--total-num-mbufs={BUFFERS}"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(["dpdk-testpmd", *eal, "--", *own], **pipes) as process:
        try:
            yield process
        finally:
            process.kill()
