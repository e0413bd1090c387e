"""Round trips of a host beside a flood of packets, each of which opens a session."""

import contextlib
import multiprocessing
import random
import socket
import struct
import time

from .. import boxes
from ..ends import END_TO_END, SHARED, percentiles
from ..peers.frames import SYN, segment
from ..results import Experiment
from ..wire import SERVER, Wire

# Packets a second, in pieces of a millisecond. More would take the cores from what is measured.
RATE, PIECE = 40_000, 0.001
DISCARD = 9
SHARES = [50, 99, 99.9]
PROTOS = {"syn": ("SYNs", socket.IPPROTO_TCP), "udp": ("datagrams", socket.IPPROTO_UDP)}


def packets(proto, seed=1):
    """Packets to the server without end: from random hosts of the client's subnet, and random ports."""
    draw = random.Random(seed)
    destination = socket.inet_aton(SERVER)
    while True:
        source = bytes((10, 1, draw.randrange(1, 255), draw.randrange(1, 255)))
        sport = draw.randrange(1024, 65536)
        if proto == socket.IPPROTO_TCP:
            text = segment(source, sport, destination, DISCARD, SYN, draw.randrange(1 << 32))
        else:
            text = struct.pack("!HHHH", sport, DISCARD, 8, 0)
        # The kernel fills in length, identification and checksum.
        yield struct.pack("!BBHHHBBH4s4s", 0x45, 0, 0, 0, 0, 64, proto, 0, source, destination) + text


def send(endpoint, proto):
    """Sends packets at the rate, until the process is ended."""
    each, due = int(RATE * PIECE), time.monotonic()
    stream = packets(proto)
    while True:
        for _ in range(each):
            endpoint.sendto(next(stream), (SERVER, 0))
        due = max(due + PIECE, time.monotonic() - PIECE)
        time.sleep(max(0, due - time.monotonic()))


@contextlib.contextmanager
def flood(wire, proto):
    """The client's subnet sends a flood, which the server drops; a context."""
    hook = "type filter hook prerouting priority -300"
    rule = f"meta l4proto {{ tcp, udp }} th dport {DISCARD} drop"
    wire.server.run("nft", "-f", "-", input=f"table ip flood {{ chain c {{ {hook}; {rule}; }}; }}")
    with wire.client.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW) as endpoint:
        process = multiprocessing.get_context("fork").Process(target=send, args=(endpoint, proto), daemon=True)
        process.start()
        try:
            yield
        finally:
            process.kill()
            process.join()
            wire.server.run("nft", "delete", "table", "ip", "flood")


def floods(rounds, full):
    """A flood of packets, each of which opens a session, in each protocol."""
    count = 3000 if full else 2000
    setup = {name: how for name, how in boxes.TRACKING.items() if name not in ("XDP", "iptables")}
    made = []
    with Wire(threads=False) as wire:
        for name, (what, proto) in PROTOS.items():
            experiment = Experiment(
                f"flood-{name}", f"Round trips beside a flood of {what}", END_TO_END, "percentile", "µs", "not in the papers",
                setup,
                [SHARED, f"ping, one every 2 ms, beside {RATE:,} packets a second from random hosts of the client's subnet, "
                 "each of which opens a session. The server drops them.",
                 "XDP is not there: the paper's tracker tracks none of them."],
            )

            def times(series, proto=proto):
                with boxes.tracking(wire, 1000)[series](), flood(wire, proto):
                    wire.round_trips(20)
                    return wire.round_trips(count)

            made.append(percentiles(experiment, list(setup), times, rounds, SHARES))
    return made


ALL = {"flood-syn": floods}
