"""Context switches, system calls, interrupts and copies of a packet and of a request (MiddleNet, Tables I to V), counted by the kernel."""

import contextlib
import pathlib
import signal
import subprocess

from . import copies, processes
from ..ends import END_TO_END, SHARED, together
from ..layer7 import proxies, web
from ..results import Experiment, NotInstalled, Series
from ..wire import Wire

# What is counted while programs of the box run, by figure, and on the whole machine. The vector of a software
# interrupt is that of received packets (NET_RX, linux/interrupt.h); the others are those that one processor
# sends to another.
PROGRAMS = {"switches": ["sched:sched_switch"], "calls": ["raw_syscalls:sys_enter"]}
INTERRUPTS = ["irq:softirq_entry", "irq_vectors:reschedule_entry", "irq_vectors:call_function_single_entry"]
FILTERS = {"irq:softirq_entry": "vec == 3", copies.SENT: copies.OF_TCP}
FIGURES = (
    ("switches", "context switches of the box's programs", "context switches"),
    ("calls", "system calls of the box's programs", "system calls"),
    ("interrupts", "interrupts of the whole machine", "interrupts"),
    ("copies", "copies of its bytes", "copies"),
)
HOW = (
    "Counted by tracepoints (`perf stat`). Interrupts are the software interrupts of received packets and those between "
    "processors, of the whole machine: client and server have theirs, too."
)


def lineage(pids):
    """These processes, and all that come from them, in whatever namespace."""
    children = {}
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parent = int(path.read_text(encoding="utf-8").rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(path.parent.name))
    found = list(pids)
    for pid in found:
        found += [child for child in children.get(pid, []) if child not in found]
    return found


def perf(events, *where):
    """Starts counting events, or pairs of an event and its filter. What it prints once it is told to stop is read by `counts`."""
    chosen = [event if isinstance(event, tuple) else (event, FILTERS.get(event)) for event in events]
    filters = [word for name, condition in chosen for word in ("-e", name, *(["--filter", condition] if condition else []))]
    # The control descriptors tell when it has begun.
    command = ["perf", "stat", "-x", ",", "-D", "-1", "--control", "fd:0,1", *filters, *where]
    try:
        started = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    except FileNotFoundError:
        raise NotInstalled from None
    started.stdin.write("enable\n")
    started.stdin.flush()
    if "ack" not in started.stdout.readline():
        raise RuntimeError(f"perf does not count {', '.join(name for name, _ in chosen)}: {started.communicate(timeout=10)[1].strip()}")
    return started


def counts(counter):
    """Stops counting. Returns how often all events together happened."""
    counter.send_signal(signal.SIGINT)
    _, shown = counter.communicate(timeout=30)
    lines = [line.split(",") for line in shown.splitlines() if line.count(",") > 2]
    if not lines or any(not line[0].isdigit() for line in lines):
        raise RuntimeError(f"perf counted nothing: {shown.strip()}")
    return sum(int(line[0]) for line in lines)


def counted(pids, run, *more):
    """What `run` returns, and how often each of the figures' events happened meanwhile, and `more`: events, and where."""
    where = ("-p", ",".join(map(str, lineage(pids))))
    with contextlib.ExitStack() as stack:
        counters = []
        for events, what in ((PROGRAMS["switches"], where), (PROGRAMS["calls"], where), (INTERRUPTS, ("-a",)), *more):
            what = what or where
            counters.append(perf(events, *what))
            stack.callback(counters[-1].kill)
        returned = run()
        return returned, [counts(counter) for counter in counters]


def figures_of(name, title, x, unit, paper, setup, notes, how_copies, labels=()):
    how = {"copies": [how_copies, copies.LIMITS]}
    return [
        Experiment(f"{name}-{what}", f"{title}: {words}", END_TO_END, x, f"{short} a {unit}", paper, setup, [SHARED, *how.get(what, [HOW]), *notes], list(labels))
        for what, words, short in FIGURES
    ]


# Where the functions of a chain are, and what workers and processes do without packets.
PLACES = [processes.LOCAL, "poll", "event", "adaptive"]
FUNCTIONS = 2
LOADS = ["one at a time", "TCP streams"]


def placed():
    return {
        processes.LOCAL: "a chain of two `count` functions, af-xdp ports, `set worker-mode adaptive`",
        "poll": "each function in a process of its own, mode `poll`, and `set worker-mode poll`",
        "event": "the same with `event`",
        "adaptive": "the same with `adaptive`, both defaults",
    }


def packets_of(daemon):
    """Packets that the daemon's ports have received, and sent."""
    ports = daemon.json("show", "interfaces")["interfaces"]
    return tuple(sum(port[name] for port in ports) for name in ("rx_packets", "tx_packets"))


def packets(rounds, full):
    """Tables I and IV: what a packet through two functions costs."""
    paper = (
        "The paper counts by reading code: for its two functions 0 context switches and interrupts a packet if all poll, 6 and 7 if all "
        "is driven by events, and 4 and 5 with virtual machines or containers behind a vSwitch in the kernel. Copies: 0 in both cases, with "
        "ports whose packets lie in the shared memory, and 4 behind a vSwitch."
    )
    loads = "One at a time: a ping each 2 ms. TCP streams: iperf3, two, whose packets come in vectors."
    figures = figures_of("packets", "A packet through two functions", "load", "packet", "MiddleNet, Tables I and IV", placed(), [loads, paper], copies.OF_PACKETS, LOADS)

    def measured(name):
        def measure(load):
            # The mode of the workers is that of the processes; beside functions in the daemon, the default.
            mode = f"set worker-mode {name}\n" if name != processes.LOCAL else ""
            with Wire() as wire, wire.mmb(mode + processes.chain(name, FUNCTIONS)) as daemon:
                wire.round_trips(20)
                run = wire.goodput if load else wire.round_trips
                with copies.of_buffers() as buffers:
                    before = packets_of(daemon)
                    _, found = counted([daemon.process.pid], run, ([copies.redirected(wire.box)], ("-a",)), *buffers)
                    seen, sent = (now - then for now, then in zip(packets_of(daemon), before))
                switches, calls, interrupts, *copied = found
                return tuple(count / seen for count in (switches, calls, interrupts, copies.of_packets(sent, *copied)))

        return measure

    return together(figures, [Series(name, measured(name), [0, 1]) for name in PLACES], rounds)


def requests(rounds, full):
    """Tables II, III and V: what a request through a proxy costs that changes its path."""
    paper = (
        "The paper counts by reading code: for its two functions 2 or 6 context switches and 3 or 7 interrupts a packet, by polling or by "
        "events; 4 and 9 with containers on a bridge. Copies: 4 in both cases, 8 with containers on a bridge."
    )
    unified = (
        f"Table III is what a packet costs on its way from the functions of packets to the broker: 1 copy, 2 interrupts and 1 context switch if the network card "
        f"switches it back (SR-IOV), and 2 of each by virtio-user and TAP. Here it is what `{proxies.TRANSPARENT}` has more than `mmb`, for all packets of a request. "
        "Its copies are those of the broker: packets that the dataplane sends and receives are not in them."
    )
    setup = {**proxies.setup(), proxies.PROCESS: proxies.IN_A_PROCESS, proxies.TRANSPARENT: proxies.BY_A_RULE, proxies.HAPROXY_TRANSPARENT: proxies.BY_TPROXY}
    how = f"wrk, connections that stay open, {proxies.SIZE} KiB for each request. Every run checks an answer."
    figures = figures_of(
        "requests", "A request through two functions", "connections", "request", "MiddleNet, Tables II, III and V", setup, [how, paper, unified], copies.OF_REQUESTS
    )
    with Wire() as wire, web.site(wire, [proxies.SIZE], b"a text "):
        proxies.add_servers(wire)
        apart = proxies.add_bridge(wire)

        def measured(name):
            def measure(connections):
                with proxies.stand(wire, apart, name) as spaces:
                    proxies.check(wire, name)
                    pids = [pid for space in spaces for pid in space.pids()]
                    address = proxies.address(name) + proxies.OLD.rstrip("/")
                    ask = lambda: web.ask(wire, address, proxies.SIZE, proxies.SECONDS, connections, kept=True)  # noqa: E731
                    asked, found = counted(pids, ask, ([copies.RECEIVED, copies.SENT], None))
                    return tuple(count / (asked.rate * proxies.SECONDS) for count in found)

            return measure

        places = [1, 8, 32, 128] if full else [1, 32]
        return together(figures, [Series(name, measured(name), places) for name in setup], rounds)


ALL = {"packet-overheads": packets, "request-overheads": requests}
