"""VPP in memory, where it is installed: its packet generator in front of the nodes, clocks as `show runtime` counts them.

```
captures ─► pg0, pg1 (packet generator) ─► ethernet-input ─► ip4-input ─► … ─► ip4-rewrite ─► output ─► pg1, pg0
```

One process without workers for each measurement. What the packet generator takes and the interfaces' transmission is left out, as
mmb's ports are. A measurement fails if packets are lost: what a node takes for a packet that it drops says nothing.
"""

import contextlib
import functools
import pathlib
import re
import shutil
import subprocess
import tempfile
import time

from . import frames
from ..results import NotInstalled

from .. import lab  # noqa: F401 isort: skip - finds the laboratory of the end-to-end tests
from lab.netns import end  # noqa: E402 isort: skip

PLUGINS = ("acl_plugin.so", "nat_plugin.so", "sfdp_services_plugin.so")
CONFIGURED = "one thread, packet generator, clocks of `show runtime` from ethernet-input to the interface's output"
SECONDS = 0.5
# Seconds until packets that are sent once have passed.
PATIENCE = 60
# The share of the generated packets that leaves at least: some are between two nodes when counters are read.
PASSED = 0.99
START = """unix {{ nodaemon cli-listen {directory}/cli.sock runtime-dir {directory} }}
api-segment {{ prefix {prefix} }}
statseg {{ socket-name {directory}/stats.sock }}
memory {{ main-heap-size 4G main-heap-page-size {page} }}
buffers {{ page-size {page} buffers-per-numa 32768 }}
plugins {{ plugin default {{ disable }} {plugins} }}
"""
# Without addresses of their own, and frames to these, the interfaces would drop every packet.
PORTS = f"""create packet-generator interface pg0 hw-addr {frames.ROUTER_MAC.hex(":")}
create packet-generator interface pg1 hw-addr {frames.ROUTER_MAC.hex(":")}
set interface ip address pg0 10.1.0.1/16
set interface ip address pg1 10.2.0.1/24
set interface state pg0 up
set interface state pg1 up
set ip neighbor pg1 10.2.0.2 02:00:00:00:00:77
"""
NAT = f"""nat44 plugin enable sessions 131072
nat44 add address {frames.OUTSIDE}
set interface nat44 in pg0 out pg1
"""
FIRST_NODE, LAST_NODES = "pg-input", "-tx"


def sfdp(*services):
    """Commands that have all packets pass the stateful data plane, with these services between lifecycle and lookup."""
    chain = " ".join(("sfdp-l4-lifecycle", *services, "ip4-lookup"))
    directions = "".join(f"set sfdp services tenant 1 {chain} {direction}\n" for direction in ("forward", "reverse"))
    inputs = "".join(f"set sfdp interface-input pg{port} tenant 1\n" for port in (0, 1))
    return f"sfdp tenant add 1 context 1\n{directions}{inputs}"


def sfdp_nat():
    """Commands for source NAT in the stateful data plane, of what goes out: its services have no order in which answers are
    translated before the routes are asked."""
    return f"""sfdp tenant add 1 context 1
sfdp tenant add 2 context 2
sfdp nat alloc-pool add 1 {frames.OUTSIDE}
set sfdp nat snat tenant 1 outside-tenant 2 table 0 alloc-pool 1
set sfdp services tenant 1 sfdp-l4-lifecycle sfdp-nat-output sfdp-nat-late-rewrite forward
set sfdp interface-input pg0 tenant 1
"""


def rule(source, destination, proto, sport, dport):
    """A rule of a list of the acl plugin."""
    prefixes = [address if "/" in address else f"{address}/32" for address in (source, destination)]
    ports = [f"{name} {port}" for name, port in (("sport", sport), ("dport", dport)) if port is not None]
    return " ".join(["deny src", prefixes[0], "dst", prefixes[1], "proto", {"tcp": "6", "udp": "17"}[proto], *ports])


def access_list(rules, reflect=False):
    """Commands that deny what the rules match on both interfaces. With `reflect`, everything else that comes to `pg0` opens a
    session, by which the answers pass that `pg0` does not let out otherwise."""
    last = "permit+reflect src 0.0.0.0/0 dst 0.0.0.0/0" if reflect else "permit src 0.0.0.0/0 dst 0.0.0.0/0"
    lines = [f"set acl-plugin acl {', '.join([*(rule(*one) for one in rules), last])}", "set acl-plugin interface pg0 input acl 0"]
    if reflect:
        lines += ["set acl-plugin acl deny src 0.0.0.0/0 dst 0.0.0.0/0", "set acl-plugin interface pg0 output acl 1"]
    else:
        lines.append("set acl-plugin interface pg1 input acl 0")
    return "".join(f"{line}\n" for line in lines)


def neighbours(directory, flows):
    """A file of commands with the clients, whom answers are sent to."""
    hosts = sorted({frames.flow(number)[0] for number in range(flows)})
    path = directory / "neighbours"
    lines = [f"set ip neighbor pg0 {'.'.join(map(str, host))} 02:00:00:00:00:09\n" for host in hosts]
    path.write_text("".join(lines), encoding="utf-8")
    return path


def sent(command, directory, port, all_frames, limit=None):
    """Has a port send frames: each of so many once, and waits for it; or without a limit, all of them again and again."""
    name = f"{port}-{len(list(directory.glob('*.pcap')))}"
    path = directory / f"{name}.pcap"
    frames.capture(path, all_frames)
    command("clear", "runtime")
    source = f"name {name} limit {limit or 1_000_000_000_000} interface {port} node ethernet-input pcap {path}"
    command("packet-generator", "new", "{", *source.split(), "}")
    command("packet-generator", "enable-stream", name)
    end_of_wait = time.monotonic() + PATIENCE
    while limit and sum(passed for node, passed, _ in nodes(command("show", "runtime")) if node == FIRST_NODE) < limit:
        if time.monotonic() > end_of_wait:
            raise RuntimeError(f"VPP did not generate {limit} packets within {PATIENCE} s")
        time.sleep(0.05)


def nodes(shown):
    """(name, packets, clocks of each) of the nodes in what `show runtime` prints."""
    for line in shown.splitlines():
        words = line.split()
        # The state of a node may be several words: columns count from the right.
        if len(words) >= 7 and words[-5].isdigit() and words[-4].isdigit():
            yield words[0], int(words[-4]), float(words[-2])


def clocks(shown):
    """Clocks a packet in what `show runtime` prints: of all nodes between the generator and the interfaces."""
    total, packets, left = 0.0, 0, 0
    for name, passed, each in nodes(shown):
        if name == FIRST_NODE:
            packets += passed
        elif name.endswith(LAST_NODES):
            left += passed
        else:
            total += passed * each
    if not packets:
        raise RuntimeError(f"VPP generated no packets:\n{shown}")
    if left < PASSED * packets:
        raise RuntimeError(f"of {packets} packets, VPP forwarded {left}")
    return total / packets


def huge_pages():
    """Whether there are huge pages of 2 MiB for heap and buffers."""
    free = re.search(r"^HugePages_Free: +([0-9]+)$", pathlib.Path("/proc/meminfo").read_text(encoding="ascii"), re.MULTILINE)
    return free is not None and int(free[1]) >= 2200


def cost(setup="", flows=1024, hidden=None, answered=True, tcp=False):
    """Clocks of a packet with these commands behind those of the ports. With `answered`, half of the packets are answers, to
    the address behind which the sources are hidden, if there is one. With `tcp`, they are segments of open connections."""
    with started(setup) as (command, directory):
        send = functools.partial(sent, command, directory)
        command("exec", neighbours(directory, flows))
        flags = frames.ACK if tcp else None
        # Sessions are open before the first answer comes.
        send("pg0", frames.requests(flows, frames.SYN if tcp else None), flows)
        if tcp:
            send("pg1", frames.answers(flows, hidden, frames.SYN_ACK), flows)
        sources = {"pg0": frames.requests(flows, flags), "pg1": frames.answers(flows, hidden, flags)}
        for port in list(sources)[: 1 + answered]:
            send(port, sources[port])
        time.sleep(SECONDS)
        command("clear", "runtime")
        time.sleep(SECONDS)
        return read(command)


def cost_of_new(setup="", flows=1024):
    """Clocks of a packet that is the first of its flow, with these commands behind those of the ports."""
    with started(setup) as (command, directory):
        sent(command, directory, "pg0", frames.requests(flows), flows)
        return read(command)


def read(command):
    """Clocks of a packet; where packets were lost, with VPP's own counters of reasons."""
    shown = command("show", "runtime")
    try:
        return clocks(shown)
    except RuntimeError as why:
        reasons = [" ".join(line.split()[:-1]) for line in command("show", "errors").splitlines() if line.strip().endswith("error")]
        raise RuntimeError(f"{why}: {'; '.join(reasons)}\n{shown}") from why


@contextlib.contextmanager
def started(setup):
    """A process that is set up, and its directory."""
    if not (shutil.which("vpp") and shutil.which("vppctl")):
        raise NotInstalled
    with tempfile.TemporaryDirectory(prefix="mmb-bench-vpp-") as name:
        directory = pathlib.Path(name)
        plugins = " ".join(f"plugin {plugin} {{ enable }}" for plugin in PLUGINS)
        page = "default-hugepage" if huge_pages() else "4k"
        text = START.format(directory=directory, prefix=directory.name, plugins=plugins, page=page)
        (directory / "startup.conf").write_text(text, encoding="utf-8")
        (directory / "setup").write_text(PORTS + setup, encoding="utf-8")
        with running(directory) as command:
            refused = command("exec", directory / "setup").strip()
            if refused:
                raise RuntimeError(f"VPP refuses what it is set up with: {refused}")
            yield command, directory


def added(setup, flows=1024, hidden=None, answered=True, tcp=False):
    """Clocks that these commands take more than plain forwarding."""
    return cost(setup, flows, hidden, answered, tcp) - cost("", flows, answered=answered)


def added_by_new(setup, flows=1024):
    """Clocks that a packet which opens a session takes more than one that is only forwarded."""
    return cost_of_new(setup, flows) - cost_of_new("", flows)


@contextlib.contextmanager
def running(directory):
    """A process; a function that has it carry out a command."""
    log = directory / "log"

    def last_words():
        return " ".join(log.read_text(encoding="utf-8", errors="replace").split("\n")[-5:]).strip()

    def command(*words):
        line = ["vppctl", "-s", str(directory / "cli.sock"), *map(str, words)]
        done = subprocess.run(line, capture_output=True, text=True, timeout=600, check=False)
        if done.returncode != 0 or process.poll() is not None:
            raise RuntimeError(f"VPP, asked for `{' '.join(map(str, words))}`: {done.stderr.strip()} {last_words()}")
        return done.stdout

    with log.open("w") as file:
        process = subprocess.Popen(["vpp", "-c", directory / "startup.conf"], stdout=file, stderr=file)
    try:
        limit = time.monotonic() + 30
        while not (directory / "cli.sock").exists():
            if process.poll() is not None or time.monotonic() > limit:
                raise RuntimeError(f"VPP does not start: {last_words()}")
            time.sleep(0.1)
        yield command
    finally:
        end(process)
