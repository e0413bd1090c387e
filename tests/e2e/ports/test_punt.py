"""Packets for the machine itself: a flood of them takes little from the packets that are forwarded."""

import socket
import threading
import time

from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether

from lab import traffic, wait
from lab.netns import CLIENT_MAC
from lab.raw import RawPort
from lab.routebench import BOX, CLIENT, SERVER, answered

FLOOD_RATE, TRANSIT_RATE, SECONDS = 45_000, 2_000, 3
BGP = 179


class Flood:
    """A thread that sends one frame again and again at a fixed rate."""

    def __init__(self, port, frame, rate):
        self.port, self.frame, self.rate = port, bytes(frame), rate
        self.sent = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        begin = time.monotonic()
        while not self._stop.is_set():
            due = int((time.monotonic() - begin) * self.rate) - self.sent
            for _ in range(min(due, 64)):
                self.port.send(self.frame)
                self.sent += 1
            if due < 64:
                self._stop.wait(0.0005)

    def end(self):
        self._stop.set()
        self._thread.join()


def flood_of_the_box(bench):
    """Datagrams from the client to a port of the box that nobody listens on."""
    port = RawPort(bench.client, "c0")
    bench.on_close(port.close)
    mac = bench.client.run("cat", "/sys/class/net/c0/address").stdout.strip()
    assert mac == CLIENT_MAC
    box = bench.mbox.run("cat", f"/sys/class/net/{bench.face(0)}/address").stdout.strip()
    frame = Ether(src=mac, dst=box) / IP(src=CLIENT, dst=BOX) / UDP(sport=5000, dport=9) / bytes(18)
    return port, frame


def transit(bench, seconds, port=7000):
    """Sends datagrams through the box at a fixed rate; returns how many were sent and how many arrived."""
    receiver = bench.servers.socket(socket.AF_INET, socket.SOCK_DGRAM)
    receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
    receiver.bind((SERVER, port))
    receiver.setblocking(False)
    sender = bench.client.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sender.connect((SERVER, port))
    begin, sent, arrived = time.monotonic(), 0, 0
    while sent < seconds * TRANSIT_RATE:
        due = min(int((time.monotonic() - begin) * TRANSIT_RATE), seconds * TRANSIT_RATE)
        while sent < due:
            sender.send(bytes(64))
            sent += 1
        time.sleep(0.001)
    while wait.readable([receiver], 0.5):
        receiver.recv(2048)
        arrived += 1
    sender.close()
    receiver.close()
    return sent, arrived


def routing(bench):
    return bench.daemon.json("show", "runtime")["routing"]


def test_a_flood_of_the_box_leaves_the_rest_alone(make_router, figure):
    """While a host floods an address of the box, transit traffic, ARP, BGP and pings of the box go on."""
    bench = make_router(driver="af-packet")
    assert answered(bench.client, SERVER) == [63]
    web = traffic.WebServer(bench.mbox, BGP)
    bench.on_close(web.close)
    port, frame = flood_of_the_box(bench)
    # Without the flood, nothing is lost.
    assert len(set(transit(bench, 1))) == 1
    before = routing(bench)["punted_by_class"]
    flood = Flood(port, frame, FLOOD_RATE)
    begin = time.monotonic()
    try:
        sent, arrived = transit(bench, SECONDS)
        # The peer of a routing protocol: the flood uses up another limit.
        page = f"http://{BOX}:{BGP}/file"
        assert traffic.fetch(bench.client, page) == web.content
        bench.client.run("ip", "neigh", "flush", "dev", "c0")
        assert traffic.fetch(bench.client, page) == web.content
    finally:
        flood.end()
    after = routing(bench)["punted_by_class"]
    lasted = time.monotonic() - begin
    figure("transit datagrams that arrived beside a flood of the box", f"{arrived} of {sent}")
    figure("packets of the flood", f"{flood.sent} in {lasted:.1f} s")
    drops = bench.daemon.json("show", "drops")["drops"]
    assert after["local"] - before["local"] <= 10_000 * lasted + 1_000
    assert after["routing"] > before["routing"] and after["neighbor"] > before["neighbor"]
    assert drops["punt-limit-local"] > 0
    assert not {"punt-limit-routing", "punt-limit-neighbor", "punt-full"} & {name for name, n in drops.items() if n}
    assert arrived >= 0.9 * sent


def test_limits_are_settings(make_router):
    """A limit is shown, kept in the configuration, and holds; `off` ends it."""
    bench = make_router(driver="af-packet", config="set punt-limit local 50\n")
    assert answered(bench.client, SERVER) == [63]
    assert "set punt-limit local 50\n" in bench.daemon.command("show", "config").stdout
    port, frame = flood_of_the_box(bench)

    def flood():
        before = routing(bench)["punted"]
        dropped = bench.daemon.json("show", "drops")["drops"].get("punt-limit-local", 0)
        for _ in range(400):
            port.send(frame)

        def counted():
            now = routing(bench)["punted"]
            drops = bench.daemon.json("show", "drops")["drops"].get("punt-limit-local", 0)
            return now - before + drops - dropped >= 400 and (now - before, drops - dropped)

        return wait.until(counted, "all packets to be counted")

    punted, dropped = flood()
    assert punted < 200 and dropped > 200
    assert "class local" in bench.daemon.command("set", "punt-limit", "local", "off").stdout
    punted, dropped = flood()
    assert punted >= 400 and dropped == 0
