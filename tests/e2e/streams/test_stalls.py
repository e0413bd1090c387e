"""A connection that is edited does not stall longer than the same loss costs without functions, and one retransmission timeout."""

import contextlib
import socket
import struct
import threading
import time

import pytest

from lab.links.impair import Impairment
from lab.netns import SERVER4

PORT, PATIENCE = 7000, 60
OLD = b"evil"
SIZE, PIECE = 120_000, 4096
# Losses of one segment each. The test adds the last one, behind which nothing makes the receiver complain.
LOST = [20_000, 50_000, 80_000, 100_000]
# Other programs make a silence longer, never shorter, and what mmb does to the same bytes and losses is there
# each time. So the shortest of some transfers is what the loss costs.
ATTEMPTS = 5
# The kernel's timers go off late by up to an eighth (kernel/time/timer.c: granularity of the timer wheel).
LATE = 1.125


def text(size):
    """A word in each 50 bytes."""
    return (OLD.ljust(50, b".") * (size // 50 + 1))[:size]


def edits(new):
    action = f"replace {new}" if new else "remove"
    return f"set stream-hold-time 5000\nnf add polite match {OLD.decode()} {action}\nchain add c polite\nadd-stateful tcp-dport {PORT} chain c\n"


class Sender(threading.Thread):
    """Sends bytes, closes, and notes the longest that the kernel may take for a retransmission timeout, in seconds: `tcpi_rto`,
    as it is without backoff, and the lateness of its timer.
    """

    def __init__(self, connection, content):
        super().__init__(daemon=True)
        self.connection, self.content, self.timeout = connection, content, 0.0

    def run(self):
        for at in range(0, len(self.content), PIECE):
            self.connection.sendall(self.content[at : at + PIECE])
            _, _, _, _, backoff, _, _, _, timeout = struct.unpack("8BI", self.connection.getsockopt(socket.SOL_TCP, socket.TCP_INFO, 12))
            if not backoff:
                self.timeout = max(self.timeout, timeout / 1e6 * LATE)
        self.connection.shutdown(socket.SHUT_WR)


@contextlib.contextmanager
def connection(bench):
    """A connection from the client to the server: both sockets."""
    with bench.server.socket(socket.AF_INET, socket.SOCK_STREAM) as listener, bench.client.socket(socket.AF_INET, socket.SOCK_STREAM) as near:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((SERVER4, PORT))
        listener.listen()
        near.settimeout(PATIENCE)
        near.connect((SERVER4, PORT))
        far, _ = listener.accept()
        with far:
            far.settimeout(PATIENCE)
            yield near, far


def transfer(bench, content):
    """Sends bytes from the client to the server. Returns what came, the longest silence, and the sender's timeout, in seconds."""
    with connection(bench) as (near, far):
        sender = Sender(near, content)
        received, longest, last = [], 0.0, time.monotonic()
        sender.start()
        while part := far.recv(1 << 20):
            now = time.monotonic()
            received.append(part)
            longest, last = max(longest, now - last), now
        sender.join(PATIENCE)
        return b"".join(received), longest, sender.timeout


def least_silence(bench, content, expected, before=None):
    """The shortest of the longest silences so far, and the timeout of that transfer's sender."""
    received, silence, timeout = transfer(bench, content)
    assert received == expected
    return min(before or (silence, timeout), (silence, timeout))


@pytest.mark.parametrize("place", ["before", "behind"])
@pytest.mark.parametrize("new", ["very-harmless", "x", ""], ids=["longer", "shorter", "removed"])
def test_edits_do_not_make_a_loss_last_longer(make_bad, place, new):
    sent = text(SIZE)
    edited = sent.replace(OLD, new.encode())
    # Behind mmb, other bytes are lost: the other path carries what leaves mmb.
    plain = sent if place == "before" else edited
    positions = [*LOST, len(plain) - 1]
    bad = {place: Impairment(positions=[position for position in positions if position < len(plain)])}
    with_edits, without = make_bad(edits(new), seed=1, **bad), make_bad("", seed=1, **bad)
    ours = theirs = None
    for _ in range(ATTEMPTS):
        theirs = least_silence(without, plain, plain, theirs)
        ours = least_silence(with_edits, sent, edited, ours)
        (silence, timeout), (same, _) = ours, theirs
        if silence <= same + timeout:
            break
    lost = [sum(link.lost for link in bench.links) for bench in (with_edits, without)]
    assert lost[0] == lost[1] > 0
    assert silence <= same + timeout, f"{silence:.3f} s, and {same:.3f} s without edits; the timeout is {timeout:.3f} s"


def test_a_stall_is_seen(make_bad):
    """A segment that is lost three times costs more than one timeout: the sender doubles it."""
    content, once, often = text(SIZE), Impairment(positions=[50_000]), Impairment(positions=[SIZE - 1] * 3)
    (same, _), (silence, timeout) = (
        least_silence(make_bad("", seed=1, before=bad), content, content) for bad in (once, often)
    )
    assert silence > same + timeout


def counters(namespace):
    """What the TCP of a namespace has counted since it was made: {name: count}."""
    with namespace.entered(), open("/proc/thread-self/net/netstat", encoding="ascii") as file:
        lines = [line.split() for line in file]
    names, counts = next((one, two) for one, two in zip(lines, lines[1:]) if one[0] == two[0] == "TcpExt:")
    return {name: int(count) for name, count in zip(names[1:], counts[1:])}


READERS = "nf add volume digest crc32c\nchain add c volume\n" + f"add-stateful tcp-dport {PORT} chain c\n"


def edited_by(config, sent):
    """What functions of a configuration make of bytes."""
    return sent if config == READERS else sent.replace(OLD, b"very-harmless" if "replace" in config else b"")


@pytest.mark.parametrize("sack", [1, 0])
@pytest.mark.parametrize("config", [edits("very-harmless"), edits(""), READERS], ids=["longer", "removed", "read"])
def test_a_loss_in_front_is_repaired_without_a_timeout(make_bad, config, sack):
    """What follows the loss waits in mmb, and the receiver does not see it. The sender learns of it all the same, as its own counters
    tell: it repeats the bytes because of duplicate acknowledgements (RFC 5681, 3.2; RFC 6675), not because its timer has gone off.
    A busy machine may let a timer go off. So one transfer of some has to do. The receiver drops nothing for its timestamp (RFC 7323,
    5.3) in any of them: what has waited is older than what it waited for.
    """
    sent = text(SIZE)
    expected = edited_by(config, sent)
    bench = make_bad(config, seed=1, before=Impairment(positions=[50_000]))
    for namespace in (bench.client, bench.server):
        namespace.sysctl("net/ipv4/tcp_sack", sack)
    for attempt in range(ATTEMPTS):
        before = counters(bench.client)
        assert transfer(bench, sent)[0] == expected
        after = counters(bench.client)
        assert counters(bench.server)["PAWSEstab"] == 0
        assert bench.links[0].lost == attempt + 1
        repaired, timeouts = (after[name] - before[name] for name in ("TCPFastRetrans", "TCPTimeouts"))
        if repaired and not timeouts:
            return
    pytest.fail(f"{repaired} fast retransmissions and {timeouts} timeouts in the last transfer")


class Reader(threading.Thread):
    """Receives so many bytes from a connection."""

    def __init__(self, connection, size):
        super().__init__(daemon=True)
        self.connection, self.size, self.content = connection, size, bytearray()

    def run(self):
        while len(self.content) < self.size and (part := self.connection.recv(1 << 20)):
            self.content += part


def talk(bench, sent, size):
    """Sends bytes from both ends at once. Returns the `size` bytes that each end has got. The ends do not close before: a FIN takes the
    slow path, and acknowledgements of the same vector overtake it.
    """
    with connection(bench) as (near, far):
        readers = [Reader(end, size) for end in (near, far)]
        threads = [*readers, *(threading.Thread(target=end.sendall, args=(sent,), daemon=True) for end in (near, far))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(2 * PATIENCE)
        return [bytes(reader.content) for reader in readers]


@pytest.mark.parametrize("place", ["before", "behind"])
@pytest.mark.parametrize("config", [edits("very-harmless"), edits(""), READERS], ids=["longer", "removed", "read"])
def test_no_end_ignores_what_mmb_sends(make_bad, config, place):
    """Both ends send at once, and some of each is lost. What mmb acknowledges in their place, and what it sends late, is not older than
    what they have seen (RFC 7323, 5.3). One transfer of some has to do: the kernel's own packets may change places on a busy machine.
    """
    sent = text(8 * SIZE)
    expected = edited_by(config, sent)
    bench = make_bad(config, seed=1, **{place: Impairment(loss=30)})
    ignored = [0, 0]
    for _ in range(ATTEMPTS):
        assert talk(bench, sent, len(expected)) == [expected, expected]
        before, ignored = ignored, [counters(end)["PAWSEstab"] for end in (bench.client, bench.server)]
        if ignored == before:
            break
    else:
        pytest.fail(f"segments were ignored for their timestamps in each transfer: {ignored}")
    assert bench.links[place == "behind"].lost > 20
