"""mmb as a bump in the wire between client and server, with raw sockets at both ends."""

import time

import pytest

from . import frames
from .raw import RawPort

DRIVERS = ("af-xdp", "af-packet")
# Where a function runs: words behind the line that adds it.
PLACES = pytest.mark.parametrize("place", ["", " process tenant"], ids=["worker", "process"])


def wire_config(left, right=None):
    """The configuration of a wire over the middlebox's two interfaces, of the same kind or of two. Taps are those of
    `Bench.move_taps`.
    """
    right = right or left
    near, far = "c0" if left == "tap" else "m0", "s0" if right == "tap" else "m1"
    return f"interface add left {left} {near}\ninterface add right {right} {far}\nwire left right\n"


def chain(line, place="", port=8000):
    """A configuration with the function `f` in a chain for TCP connections to a port."""
    domain = "domain add tenant private\n" if place else ""
    return f"{domain}nf add f {line}{place}\nchain add c f\nadd-stateful tcp-dport {port} chain c\n"


def tap_ends(left, right):
    """The end points' interfaces that are taps, for `Bench.move_taps`."""
    return [end for end, kind in (("c0", left), ("s0", right)) if kind == "tap"]


class Wire:
    """A bench with a running daemon; `cross` sends frames through and says which ones arrived.

    No test has to wait for something not to happen: a sentinel follows the frames, and when it has arrived, a
    second one. Packets of one vector may overtake each other, those of different vectors do not (with one worker);
    the second sentinel cannot share a vector with the frames, so when it is here, everything else is too, or was
    dropped.
    """

    def __init__(self, driver, bench, make_daemon, config="", workers=1, arguments=(), wrapper=()):
        self.driver, self.bench = driver, bench
        self.client, self.mbox, self.server = bench.client, bench.mbox, bench.server
        options = {"workers": workers, "arguments": arguments, "wrapper": wrapper}
        self.daemon = make_daemon(bench.mbox, wire_config(driver) + config, **options)
        bench.move_taps(*tap_ends(driver, driver))
        self.left = RawPort(bench.client, "c0")
        self.right = RawPort(bench.server, "s0")

    def cross(self, *sent, backwards=False):
        """Sends frames from the client's end (backwards: the server's) and returns what arrived, as bytes, in the order
        in which the frames' payloads were made."""
        source, sink = (self.right, self.left) if backwards else (self.left, self.right)
        sink.drain()
        for frame in sent:
            source.send(frame)
        arrived = []
        for _ in range(2):
            last = frames.sentinel()
            source.send(last)
            arrived += sink.receive_until(last.__eq__)
        return sorted((frame for frame in arrived if frames.is_ours(frame)), key=frames.serial)

    def passes(self, frame, **options):
        """Whether a frame arrives; it must not arrive changed."""
        arrived = self.cross(frame, **options)
        assert arrived in ([], [bytes(frame)]), f"sent {bytes(frame).hex()}\ncame {[found.hex() for found in arrived]}"
        return bool(arrived)

    def one_way(self, frame, pause, count):
        """Latencies in microseconds of single frames after `pause` seconds of silence, sorted."""
        taken, frame = [], bytes(frame)
        for _ in range(count):
            time.sleep(pause)
            start = time.perf_counter()
            self.left.send(frame)
            self.right.receive_until(frame.__eq__)
            taken.append((time.perf_counter() - start) * 1e6)
        return sorted(taken)

    def settle(self):
        """Waits until what is under way has arrived, in both directions."""
        self.cross()
        self.cross(backwards=True)

    def close(self):
        self.left.close()
        self.right.close()
