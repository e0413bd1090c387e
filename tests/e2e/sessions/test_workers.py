"""What belongs to all workers together: the ports of a pool, and sessions. And a flood, which takes nothing from
conversations.
"""

import os
import struct
import threading
import time

import pytest
from scapy.layers.inet import IP, TCP
from scapy.layers.l2 import Ether

from lab import wait
from lab.natbench import INSIDE, SERVER, Mirror, Speaker
from lab.netns import CLIENT4, CLIENT_MAC, SERVER4, SERVER_MAC
from lab.raw import RawPort

WORKERS = [1, 2, 4] if os.environ.get("E2E_LONG") else [1, 2]
FIRST, PORTS = 20_000, 96


@pytest.mark.parametrize("workers", WORKERS)
def test_one_host_gets_all_ports_of_a_pool(make_nat, workers, figure):
    """One inside host with as many sockets as a pool has ports gets all of them, and each keeps its port."""
    last = FIRST + PORTS - 1
    nat = make_nat(
        f"nat pool add wan 200.0.0.1 ports {FIRST}-{last}\nadd-stateful ip-saddr 10.0.0.0/24 nat wan\n", workers=workers
    )
    mirror = Mirror(nat.servers, SERVER, 7000)
    nat.on_close(mirror.close)
    seen = {}
    for port in range(FIRST, last + 1):
        speaker = Speaker(nat.hosts, INSIDE[0], port)
        nat.on_close(speaker.close)
        seen[port] = speaker.ask(SERVER, 7000)
    kept = sum(("200.0.0.1", port) == answer for port, answer in seen.items())
    figure(f"ports of a pool that one host got, {workers} worker(s)", f"{len(set(seen.values()))} of {PORTS}, {kept} kept")
    assert len(set(seen.values())) == kept == PORTS
    owners = [worker["sessions"] for worker in nat.daemon.json("show", "runtime")["workers"]]
    assert sum(owners) >= PORTS
    assert nat.daemon.drops()["nat-exhausted"] == 0


def ask_again(speaker):
    """Asks until there is an answer; returns it, and how many questions it took."""
    for asked in range(1, 60):
        speaker.socket.sendto(b"?", (SERVER, 7000))
        if wait.readable([speaker.socket], 0.3):
            seen, port = speaker.socket.recv(100).decode().split()
            return (seen, int(port)), asked
    raise wait.Late("no answer to 60 questions")


@pytest.mark.parametrize("workers", WORKERS)
def test_one_host_gets_all_sessions(make_nat, workers, figure):
    """`--sessions` is for all workers: the connections of one host fill the whole table. What another worker has
    borrowed and does not use comes back when a session was refused for it, so that a second packet opens it.
    """
    limit = 192
    nat = make_nat(
        "add-stateful ip-saddr 10.0.0.0/24 accept\nset session-limit source off\nset timeout udp-unreplied 600\n"
        "set timeout udp-replied 600\n",
        workers=workers, arguments=("--sessions", limit),
    )
    mirror = Mirror(nat.servers, SERVER, 7000)
    nat.on_close(mirror.close)
    again = 0
    for port in range(FIRST, FIRST + limit):
        speaker = Speaker(nat.hosts, INSIDE[0], port)
        nat.on_close(speaker.close)
        answer, asked = ask_again(speaker)
        assert answer == (INSIDE[0], port)
        again += asked > 1
    sessions = nat.daemon.json("show", "runtime")["sessions"]["sessions"]
    figure(
        f"sessions of {limit} that one host got, {workers} worker(s)", f"{sessions}, {again} of them at the second try"
    )
    assert sessions == limit
    assert again <= 16


class SynFlood:
    """SYNs from ever new sources, sent as fast as one thread can."""

    def __init__(self, port):
        frame = bytes(Ether(src=CLIENT_MAC, dst=SERVER_MAC) / IP(src="11.0.0.0", dst=SERVER4) / TCP(dport=9, flags="S"))
        self.port, self.head, self.tail, self.sent = port, frame[:26], frame[30:], 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        while not self._stop.is_set():
            for _ in range(64):
                self.port.send(self.head + struct.pack("!I", 0x0B000000 + self.sent) + self.tail)
                self.sent += 1

    def end(self):
        self._stop.set()
        self._thread.join()


def answers(speakers, seconds):
    """Asks with one speaker after the other; returns how many questions and how many answers there were."""
    asked = answered = 0
    begin = time.monotonic()
    while time.monotonic() - begin < seconds:
        for speaker in speakers:
            speaker.socket.send(b"?")
            asked += 1
            answered += bool(wait.readable([speaker.socket], 0.25)) and bool(speaker.socket.recv(100))
    return asked, answered


def test_conversations_go_on_beside_a_syn_flood(make_wire, figure):
    """Two workers, and a flood of SYNs that fills the ring between them: packets of sessions come first, so that
    conversations on both workers go on.
    """
    rules = "add-stateful ip-proto udp accept\nadd-stateful tcp-dport 9 accept\nset session-limit source off\n"
    wire = make_wire("af-packet", rules, workers=2, arguments=("--sessions", "4096"))
    wire.bench.know_neighbours()
    mirror = Mirror(wire.server, SERVER4, 5000)
    wire.bench.on_close(mirror.close)
    speakers = [Speaker(wire.client, CLIENT4, 4000 + n).connect(SERVER4, 5000) for n in range(8)]
    for speaker in speakers:
        wire.bench.on_close(speaker.close)
        assert speaker.ask() == (CLIENT4, speaker.port())
    owners = [worker["sessions"] for worker in wire.daemon.json("show", "runtime")["workers"]]
    assert all(owners), owners
    wire.server.run("ip", "route", "add", "blackhole", "11.0.0.0/8")
    port = RawPort(wire.client, "c0")
    wire.bench.on_close(port.close)
    flood = SynFlood(port)
    try:
        asked, answered = answers(speakers, 3)
    finally:
        flood.end()
    figure("questions answered beside a SYN flood, 2 workers", f"{answered} of {asked}, beside {flood.sent} SYNs")
    assert flood.sent > 3000
    assert answered >= 0.7 * asked and answered >= len(speakers), (asked, answered, wire.daemon.drops())
    # And without the flood, all are.
    assert all(speaker.ask() == (CLIENT4, speaker.port()) for speaker in speakers)
