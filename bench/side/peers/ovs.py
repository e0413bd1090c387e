"""Open vSwitch in memory: its userspace datapath on DPDK ports without a network card.

```
capture of the flows ─► p0 (net_pcap, again and again) ─► datapath, one polling thread ─► p1 (net_null)
```

Database, sockets and logs are in a directory of their own, bridges in a network namespace of their own: the machine's Open
vSwitch, should it run, knows nothing of this one. The polling thread never waits, so its CPU time over the packets that it
received is what a packet costs, ports included; what flows of OpenFlow cost is the difference to a run with a single one.
While nothing is measured, the process stands still, or its thread would take a core from whoever is measured next.
"""

import contextlib
import os
import pathlib
import re
import shutil
import signal
import statistics
import tempfile
import time

from . import frames
from .mmb import ticks_per_nanosecond
from ..machine import processor_time
from ..results import NotInstalled

from .. import lab  # noqa: F401 isort: skip - finds the laboratory of the end-to-end tests
from lab.netns import Namespace  # noqa: E402 isort: skip

PROGRAM = pathlib.Path("/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk")
SCHEMA = "/usr/share/openvswitch/vswitch.ovsschema"
# DPDK's memory is in ordinary pages, as in all that is measured here: huge ones would have to be reserved.
EAL = "--no-huge --legacy-mem -m 2048 --no-pci --no-telemetry --no-shconf"
CORE = 1
# More flows than the exact-match cache has entries: its guide says to turn the signature-match cache on.
MANY = 8192
# CPU nanoseconds before a measurement; its windows, and CPU nanoseconds of each.
WARM, WINDOWS, WINDOW = 250e6, 5, 50e6
# On a machine that does other work as well, a window takes longer.
TRIES = 100
# The counters of what came and what went are not read at once.
PASSED = 0.9
PASS = "priority=1,in_port=p0,actions=output:p1\n"
# What a router does; 8 of its 10 routes lead elsewhere.
ROUTES = "".join(
    f"priority=1,ip,nw_dst={to},actions=dec_ttl,mod_dl_src:02:00:00:00:00:01,mod_dl_dst:02:00:00:00:00:77,output:p1\n"
    for to in ("10.2.0.0/24", "10.1.0.0/16", *(f"10.{other}.0.0/16" for other in range(16, 24)))
)
# A session's packets pass by its state; sources inside may open sessions.
TRACK = (
    "table=0,priority=10,ip,actions=ct(table=1)\n"
    "table=1,priority=30,ct_state=+trk+est,ip,actions=output:p1\n"
    "table=1,priority=10,ct_state=+trk+new,ip,nw_src=10.1.0.0/16,actions=ct(commit),output:p1\n"
)
NAT = (
    "table=0,priority=10,ip,actions=ct(nat,table=1)\n"
    "table=1,priority=30,ct_state=+trk+est,ip,actions=output:p1\n"
    f"table=1,priority=10,ct_state=+trk+new,ip,nw_src=10.1.0.0/16,actions=ct(commit,nat(src={frames.OUTSIDE})),output:p1\n"
)
CONFIGURED = (
    "userspace datapath, one polling thread, exact-match cache as it comes (and the signature-match cache beyond 8,192 flows), "
    "ports net_pcap and net_null"
)


class Switch:
    """The daemons and a bridge `b`, in a namespace of their own or in one that is given; gone with the `with` block."""

    def __init__(self, space=None):
        self.given, self.daemons = space, []

    def __enter__(self):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="mmb-bench-ovs-"))
        self.box = self.given or Namespace("ovs")
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for pid in reversed(self.daemons):
            # It may have died: a million rules take memory.
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if not self.given:
            self.box.delete()
        shutil.rmtree(self.directory)

    def run(self, program, *words, **options):
        settings = {name: str(self.directory) for name in ("OVS_RUNDIR", "OVS_DBDIR", "OVS_LOGDIR")}
        return self.box.run(program, *words, env={**os.environ, **settings}, **options).stdout

    def control(self, *words):
        return self.run("ovs-appctl", "-t", self.directory / "switch.ctl", *words)

    def _daemon(self, program, name, *words):
        """Starts one that goes into the background when it is ready."""
        files = [f"--unixctl={self.directory}/{name}.ctl", f"--pidfile={self.directory}/{name}.pid"]
        log = f"--log-file={self.directory}/{name}.log"
        self.run(program, *words, *files, log, "--detach", "--no-chdir", "-vconsole:off", "-vfile:warn")
        self.daemons.append(int((self.directory / f"{name}.pid").read_text(encoding="ascii")))

    def _start(self):
        database = f"unix:{self.directory}/db.sock"
        self.run("ovsdb-tool", "create", self.directory / "conf.db", SCHEMA)
        self._daemon("ovsdb-server", "db", self.directory / "conf.db", f"--remote=p{database}")
        self.vsctl = ("ovs-vsctl", f"--db={database}")
        self.run(*self.vsctl, "--no-wait", "init")
        settings = {"dpdk-init": "true", "dpdk-extra": f'"{EAL}"', "dpdk-lcore-mask": "1", "pmd-cpu-mask": 1 << CORE}
        words = [f"other_config:{name}={value}" for name, value in settings.items()]
        self.run(*self.vsctl, "--no-wait", "set", "Open_vSwitch", ".", *words)
        self._daemon(PROGRAM, "switch", database)
        self.run(*self.vsctl, "add-br", "b", "--", "set", "bridge", "b", "datapath_type=netdev", "fail-mode=secure")

    def port(self, name, device):
        """Adds a DPDK device."""
        self._add(name, "type=dpdk", f"options:dpdk-devargs={device}")

    def vhost(self, name, socket):
        """Adds a vhost-user port, which connects to the socket of a device."""
        self._add(name, "type=dpdkvhostuserclient", f"options:vhost-server-path={socket}")

    def _add(self, name, *settings):
        self.run(*self.vsctl, "add-port", "b", name, "--", "set", "interface", name, *settings)

    def flows(self, text):
        """Has these flows of OpenFlow, and no others."""
        self.run("ovs-ofctl", "del-flows", "b")
        self.run("ovs-ofctl", "--bundle", "add-flows", "b", "-", input=text, timeout=600)


class OpenVSwitch(Switch):
    """The switch with a capture as its input. Where it is not installed, asking it for costs says so."""

    def __init__(self):
        super().__init__()
        self.fed = None

    def __enter__(self):
        return super().__enter__() if PROGRAM.exists() else self

    def __exit__(self, *_):
        if PROGRAM.exists():
            super().__exit__()

    def _start(self):
        super()._start()
        self.port("p1", "net_null0,no-rx=1")
        os.kill(self.daemons[1], signal.SIGSTOP)

    def _feed(self, flows, hidden):
        """Has `p0` receive these flows from now on."""
        if self.fed == (flows, hidden):
            return
        path = self.directory / f"{flows}{'-hidden' if hidden else ''}.pcap"
        frames.capture(path, frames.both(flows, hidden))
        if self.fed:
            self.run(*self.vsctl, "del-port", "b", "p0")
        smc = "true" if flows * 2 > MANY else "false"
        self.run(*self.vsctl, "set", "Open_vSwitch", ".", f"other_config:smc-enable={smc}")
        self.port("p0", f"net_pcap_{path.stem},rx_pcap={path},infinite_rx=1")
        self.fed = (flows, hidden)

    def _counters(self):
        """CPU nanoseconds of the polling thread, and packets that it received."""
        tasks = pathlib.Path(f"/proc/{self.daemons[1]}/task").iterdir()
        thread = next(task for task in tasks if (task / "comm").read_text(encoding="ascii").startswith("pmd-"))
        shown = self.control("dpif-netdev/pmd-stats-show", "-pmd", CORE)
        return processor_time(thread), received(shown)

    def _sent(self):
        return int(re.search(r"tx pkts=([0-9]+)", self.run("ovs-ofctl", "dump-ports", "b", "p1"))[1])

    def _window(self, least=WINDOW):
        """Nanoseconds a packet, over so much CPU time."""
        start, first = self._counters()
        for _ in range(TRIES):
            time.sleep(least / 1e9)
            now, last = self._counters()
            if now - start >= least and last > first:
                return (now - start) / (last - first)
        raise RuntimeError("Open vSwitch receives nothing")

    def cost(self, rules=PASS, flows=1024, hidden=None):
        """Ticks of a packet with these flows of OpenFlow, ports included; half of the packets are answers, to the address
        `hidden` if there is one. All of them have to pass."""
        if not PROGRAM.exists():
            raise NotInstalled
        try:
            os.kill(self.daemons[1], signal.SIGCONT)
        except ProcessLookupError:
            raise RuntimeError("Open vSwitch has died") from None
        try:
            self._feed(flows, hidden)
            # While no packet passes: flows of before would track new connections.
            self.flows("")
            self.control("dpctl/flush-conntrack")
            self.flows(rules)
            # What it decided by the flows of before would slow down, or speed up, what comes now.
            self.control("dpctl/del-flows")
            # Caches fill: one packet of a hundred of an unknown flow goes into the exact-match cache.
            self._window(WARM)
            (_, before), gone = self._counters(), self._sent()
            windows = [self._window() for _ in range(WINDOWS)]
            (_, after), left = self._counters(), self._sent()
            if left - gone < PASSED * (after - before):
                raise RuntimeError(f"Open vSwitch received {after - before} packets and sent {left - gone}")
            return statistics.median(windows) * ticks_per_nanosecond()
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.daemons[1], signal.SIGSTOP)

    def added(self, rules, flows=1024, hidden=None):
        """Ticks that these flows of OpenFlow take more than a single one that forwards."""
        return self.cost(rules, flows, hidden) - self.cost(PASS, flows, hidden)


def received(shown):
    """Packets in what `pmd-stats-show` prints of one thread."""
    return int(re.search(r"packets received: ([0-9]+)", shown)[1])
