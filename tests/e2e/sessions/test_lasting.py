"""Everything at once for a long time: memory, descriptors and sessions stay flat.

MMB_SOAK_SECONDS=3600 is the long mode (`make soak`); the ordinary run takes some seconds.
"""

import itertools
import os
import pathlib
import socket
import threading
import time

from scapy.all import IP, UDP, Ether, wrpcap

from lab import wait
from lab.chainbench import Echo
from lab.natbench import INSIDE, OUTSIDE, SERVER, Mirror, Speaker
from lab.netns import CLIENT_MAC, SERVER_MAC

SECONDS = int(os.environ.get("MMB_SOAK_SECONDS", "8"))
# Growth of the resident memory behind the first quarter, in MiB: what allocators keep.
SLACK = 16
SAMPLES = 40

CONFIG = f"""set timeout udp-unreplied 1
set timeout udp-replied 2
set timeout tcp-closed 1
nat pool add wan {OUTSIDE[0]}-{OUTSIDE[1]}
nf add stats count
nf add clamp mss-clamp 1400
nf add police police 500mbit burst 640000 per source
chain add web clamp | stats | police
add-stateful ip-saddr 10.0.0.0/24 nat wan chain web
"""


class Load:
    """A thread that does one thing again and again until it is stopped, and counts."""

    def __init__(self, name, work):
        self.name, self.count, self.error = name, 0, None
        self._work, self._stop = work, threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        try:
            for number in itertools.count():
                if self._stop.is_set():
                    return
                self._work(number)
                self.count += 1
        except BaseException as error:  # noqa: BLE001: the test reports it
            self.error = error

    def stop(self):
        self._stop.set()
        self._thread.join(wait.PATIENCE * 2)
        assert not self._thread.is_alive(), f"{self.name} hangs"
        if self.error:
            raise AssertionError(f"{self.name} failed after {self.count} times") from self.error


class Sample:
    """What the daemon uses at a time."""

    def __init__(self, daemon):
        process = pathlib.Path(f"/proc/{daemon.process.pid}")
        self.resident = daemon.memory() / 1024
        self.threads = int(daemon.status()["Threads"])
        self.descriptors = len(list((process / "fd").iterdir()))
        metrics = daemon.request("GET", "/metrics")[1].decode().splitlines()
        self.sessions = next(int(line.split()[1]) for line in metrics if line.startswith("mmb_sessions "))


def test_nothing_grows(make_chains, figure):
    bench = make_chains(CONFIG)
    daemon = bench.daemon
    mirror, echo = Mirror(bench.servers, SERVER, 7000), Echo(bench.servers, SERVER, 7001)
    bench.on_close(mirror.close)
    bench.on_close(echo.close)

    def datagrams(number):
        speaker = Speaker(bench.hosts, INSIDE[number % len(INSIDE)])
        try:
            speaker.ask(SERVER, 7000)
        finally:
            speaker.close()

    def streams(number):
        speaker = Speaker(bench.hosts, INSIDE[number % len(INSIDE)], kind=socket.SOCK_STREAM)
        try:
            speaker.connect(SERVER, 7001)
            speaker.socket.sendall(b"hello")
            assert speaker.socket.recv(4096).endswith(b"hello")
        finally:
            speaker.close()
        if number % 64 == 0:
            echo.connections = [c for c in echo.connections if c.fileno() >= 0]

    def changes(number):
        rule = daemon.add(f"tcp-dport {9000 + number % 1000} drop")
        daemon.line("nf add extra count")
        daemon.line("chain add other extra | stats")
        daemon.line("chain del other")
        daemon.line("nf del extra")
        daemon.line(f"del {rule}")

    files = daemon.state_directory / "files"
    wrpcap(str(files / "in.pcap"), [Ether(dst=SERVER_MAC, src=CLIENT_MAC) / IP(dst=SERVER) / UDP(dport=9)] * 100)

    def captures(_):
        daemon.line("interface add extra pcap in.pcap out.pcap")
        daemon.line("interface del extra")
        (files / "out.pcap").unlink()

    loads = [Load(work.__name__, work) for work in (datagrams, streams, changes, captures)]
    samples = []
    end = time.monotonic() + SECONDS
    try:
        for number in range(SAMPLES):
            pause = end - SECONDS * (SAMPLES - 1 - number) / SAMPLES - time.monotonic()
            threading.Event().wait(max(0.0, pause))
            samples.append(Sample(daemon))
            assert all(load.error is None for load in loads), [load.name for load in loads if load.error]
    finally:
        if any(load.error for load in loads):
            # What became of a packet that did not come back.
            for what in ("drops", "interfaces", "functions", "nat"):
                print(daemon.command("show", what).stdout)
        for load in loads:
            load.stop()
    warm, last = samples[SAMPLES // 4 :], samples[-1]
    for load in loads:
        figure(f"{load.name} in {SECONDS} s", load.count)
        assert load.count > 0, load.name

    def span(values):
        return f"{min(values)} to {max(values)}"

    resident = [sample.resident for sample in warm]
    descriptors = [sample.descriptors for sample in warm]
    figure(f"resident memory in MiB over {SECONDS} s, first quarter, then", f"{resident[0]:.1f}, {max(resident):.1f}")
    figure("descriptors", span(descriptors))
    figure("sessions", span([sample.sessions for sample in warm]))
    assert max(resident) - resident[0] < SLACK
    # A client's connection and the open files of an interface come and go.
    assert max(descriptors) - min(descriptors) < 24 and last.threads <= samples[0].threads + 2
    # Nothing is left when the traffic has ended.
    wait.until(lambda: Sample(daemon).sessions == 0, "the last session to end", 30)
    assert daemon.json("show", "functions")["functions"][-1]["name"] != "extra"
    assert daemon.stop() == 0
