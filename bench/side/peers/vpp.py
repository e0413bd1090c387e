"""VPP in memory, where it is installed: its packet generator in front of the nodes, clocks as `show runtime` counts them.

```
captures of the flows ─► pg0, pg1 (packet generator) ─► ethernet-input ─► ip4-input ─► … ─► ip4-rewrite ─► pg1, pg0
```

One process without workers for each measurement. What the packet generator takes and the interfaces' output nodes is left out, as
mmb's ports are.
"""

import contextlib
import pathlib
import shutil
import subprocess
import tempfile
import time

from . import frames
from ..results import NotInstalled

from .. import lab  # noqa: F401 isort: skip - finds the laboratory of the end-to-end tests
from lab.netns import end  # noqa: E402 isort: skip

PLUGINS = ("acl_plugin.so", "nat_plugin.so")
CONFIGURED = "one thread, packet generator, clocks of `show runtime` from ethernet-input to ip4-rewrite"
SECONDS = 0.5
START = """unix {{ nodaemon cli-listen {directory}/cli.sock runtime-dir {directory} }}
api-segment {{ prefix {prefix} }}
statseg {{ socket-name {directory}/stats.sock }}
memory {{ main-heap-size 4G main-heap-page-size 4k }}
buffers {{ page-size 4k }}
plugins {{ plugin default {{ disable }} {plugins} }}
"""
PORTS = """create packet-generator interface pg0
create packet-generator interface pg1
set interface ip address pg0 10.1.0.1/16
set interface ip address pg1 10.2.0.1/24
set interface state pg0 up
set interface state pg1 up
set ip neighbor pg1 10.2.0.2 02:00:00:00:00:77
"""
NAT = f"""nat44 plugin enable sessions 65536
nat44 add address {frames.OUTSIDE}
set interface nat44 in pg0 out pg1
"""
FIRST_NODE, LAST_NODES = "pg-input", ("-output", "-tx")


def rule(source, destination, proto, sport, dport):
    """A rule of a list of the acl plugin."""
    prefixes = [address if "/" in address else f"{address}/32" for address in (source, destination)]
    ports = [f"{name} {port}" for name, port in (("sport", sport), ("dport", dport)) if port is not None]
    return " ".join(["deny src", prefixes[0], "dst", prefixes[1], "proto", {"tcp": "6", "udp": "17"}[proto], *ports])


def access_list(rules, reflect=False):
    """Commands that deny what the rules match on `pg0`. With `reflect`, everything else opens a session, by which the answers
    pass that `pg0` does not let out otherwise."""
    last = "permit+reflect src 0.0.0.0/0 dst 0.0.0.0/0" if reflect else "permit src 0.0.0.0/0 dst 0.0.0.0/0"
    lines = [f"set acl-plugin acl {', '.join([*(rule(*one) for one in rules), last])}", "set acl-plugin interface pg0 input acl 0"]
    if reflect:
        lines += ["set acl-plugin acl deny src 0.0.0.0/0 dst 0.0.0.0/0", "set acl-plugin interface pg0 output acl 1"]
    return "".join(f"{line}\n" for line in lines)


def neighbours(flows):
    """The clients, whom answers are sent to."""
    hosts = sorted({frames.flow(number)[0] for number in range(flows)})
    return "".join(f"set ip neighbor pg0 {'.'.join(map(str, host))} 02:00:00:00:00:09\n" for host in hosts)


def streams(directory):
    """Commands that have the two captures sent, without end."""

    def stream(port):
        source = f"interface {port} node ethernet-input pcap {directory}/{port}.pcap"
        return f"packet-generator new {{ name {port} limit 1000000000000 {source} }}\n"

    return stream("pg0") + stream("pg1")


def clocks(shown):
    """Clocks a packet in what `show runtime` prints: of all nodes between the generator and the interfaces."""
    total, packets = 0.0, 0
    for line in shown.splitlines():
        words = line.split()
        # The state of a node may be several words: columns count from the right.
        if len(words) < 7 or not words[-5].isdigit() or not words[-4].isdigit():
            continue
        name, vectors, each = words[0], int(words[-4]), float(words[-2])
        if name == FIRST_NODE:
            packets += vectors
        elif not name.endswith(LAST_NODES):
            total += vectors * each
    if not packets:
        raise RuntimeError(f"VPP generated no packets:\n{shown}")
    return total / packets


def cost(setup="", flows=1024, hidden=None):
    """Clocks of a packet with these commands behind those of the ports; half of the packets are answers."""
    if not (shutil.which("vpp") and shutil.which("vppctl")):
        raise NotInstalled
    with tempfile.TemporaryDirectory(prefix="mmb-bench-vpp-") as name:
        directory = pathlib.Path(name)
        frames.capture(directory / "pg0.pcap", frames.requests(flows))
        frames.capture(directory / "pg1.pcap", frames.answers(flows, hidden))
        plugins = " ".join(f"plugin {plugin} {{ enable }}" for plugin in PLUGINS)
        text = START.format(directory=directory, prefix=directory.name, plugins=plugins)
        (directory / "startup.conf").write_text(text, encoding="utf-8")
        (directory / "setup").write_text(PORTS + neighbours(flows) + setup + streams(directory), encoding="utf-8")
        with running(directory) as command:
            command("exec", directory / "setup")
            command("packet-generator", "enable-stream")
            time.sleep(SECONDS)
            command("clear", "runtime")
            time.sleep(SECONDS)
            return clocks(command("show", "runtime"))


def added(setup, flows=1024, hidden=None):
    """Clocks that these commands take more than plain forwarding."""
    return cost(setup, flows, hidden) - cost("", flows)


@contextlib.contextmanager
def running(directory):
    """A process; a function that has it carry out a command."""

    def command(*words):
        line = ["vppctl", "-s", str(directory / "cli.sock"), *map(str, words)]
        return subprocess.run(line, capture_output=True, text=True, timeout=600, check=True).stdout

    with (directory / "log").open("w") as log:
        process = subprocess.Popen(["vpp", "-c", directory / "startup.conf"], stdout=log, stderr=log)
    try:
        limit = time.monotonic() + 30
        while not (directory / "cli.sock").exists():
            if process.poll() is not None or time.monotonic() > limit:
                raise RuntimeError(f"VPP does not start: {(directory / 'log').read_text(encoding='utf-8')}")
            time.sleep(0.1)
        yield command
    finally:
        end(process)
