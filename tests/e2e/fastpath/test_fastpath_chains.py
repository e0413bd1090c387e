"""Sessions in the fast path whose chains only add constants to packets: `lb`, `nat`, `synproxy`, `http-lb`."""

import contextlib
import socket
import time

import pytest

from lab import traffic, wait
from lab.daemon import report
from lab.fastpath import fast, hits, the_connection
from lab.natbench import SERVER
from lab.netns import SERVER4, SERVER6
from lab.routebench import SERVER as FAR4

PORT, ONE, CHECK = 5001, 5002, 5003
REQUEST = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"


def configuration(function, chain="f"):
    return f"nf add f {function}\nchain add c {chain}\nadd-stateful in left tcp-dport {PORT} chain c\n"


def lost(daemon):
    """Dropped packets, but those of a handshake that a function takes for itself."""
    return {reason: n for reason, n in daemon.drops().items() if n and reason not in ("syn-cookie", "http-lb")}


def listening(namespace, address=SERVER4, port=ONE):
    with namespace.entered():
        return socket.create_server((address, port))


class Connection:
    """A connection from the client to PORT, which a function passes to a listener at the server."""

    def __init__(self, bench, listener):
        self._bench = bench
        address, _ = listener.getsockname()
        with contextlib.ExitStack() as stack:
            self.near = stack.enter_context(bench.client.socket(socket.AF_INET, socket.SOCK_STREAM))
            self.near.settimeout(wait.PATIENCE)
            listener.settimeout(wait.PATIENCE)
            self.near.connect((address, PORT))
            self.near.sendall(REQUEST)
            self.far = stack.enter_context(listener.accept()[0])
            self.far.settimeout(wait.PATIENCE)
            assert traffic.read(self.far, len(REQUEST)) == REQUEST
            self._stack = stack.pop_all()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._stack.close()

    def until_forwarded(self):
        """Both ends talk until the kernel forwards what they say."""
        before = hits(self._bench)

        def more():
            traffic.exchange(self.near, self.far, 256 << 10)
            return hits(self._bench) > before + 200

        wait.until(more, "the kernel to take over")

    def close(self):
        """Both ends close, and mmb sees them do so."""
        self.near.shutdown(socket.SHUT_WR)
        assert self.far.recv(1) == b""
        self.far.close()
        assert self.near.recv(1) == b""
        wait.until(
            lambda: the_connection(self._bench, "tcp-dport", PORT)["state"] == "closed", "the connection to close"
        )


@pytest.mark.parametrize(
    "function", [f"lb {SERVER4} {SERVER6} by hash", "synproxy", "synproxy window-scale 12", "mss-clamp 1400"]
)
def test_streams_through_functions(fast_wire, function):
    wire = fast_wire(configuration(function))
    for address in (SERVER4, SERVER6):
        before = hits(wire)
        assert len(set(traffic.bulk_transfer(wire.client, wire.server, address, port=PORT))) == 1
        wait.until(lambda: hits(wire) > before + 10_000, "what the kernel sent on to be counted")  # noqa: B023
    assert wire.daemon.hits(1) > hits(wire)


def test_a_stream_through_source_nat(fast_nat):
    nat = fast_nat(
        "nat pool add isp 200.0.0.1\nnf add f nat isp\nchain add c f\nadd-stateful ip-saddr 10.0.0.0/24 chain c\n"
    )
    assert len(set(traffic.bulk_transfer(nat.hosts, nat.servers, SERVER, port=PORT))) == 1
    wait.until(lambda: hits(nat) > 10_000, "what the kernel sent on to be counted")
    assert sum(nat.daemon.drops().values()) == 0


@pytest.mark.parametrize("clocks", [1, 0], ids=["timestamps", "no-timestamps"])
@pytest.mark.parametrize("address", [SERVER4, SERVER6])
def test_downloads_from_the_server_of_a_request(fast_wire, address, clocks):
    """The kernel adds to sequence numbers and timestamps, and shifts windows, also where packets are lost."""
    host = f"[{address}]" if ":" in address else address
    wire = fast_wire(configuration(f"http-lb path /file to {host}:{ONE}"))
    wire.client.sysctl("net/ipv4/tcp_timestamps", clocks)
    server = traffic.WebServer(wire.server, ONE, size=16 << 20)
    url = f"http://{host}:{PORT}/file"
    try:
        assert traffic.fetch(wire.client, url) == server.content
        wait.until(lambda: hits(wire) > 3_000, "what the kernel sent on to be counted")
        traffic.lossy(wire.client, 300)
        traffic.lossy(wire.server, 300)
        before = hits(wire)

        def has_forwarded():
            assert traffic.fetch(wire.client, url, patience=60) == server.content
            return hits(wire) > before + 3_000

        wait.until(has_forwarded, "downloads that the kernel forwards", patience=90)
    finally:
        server.close()
    assert not lost(wire.daemon)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_connection_from_its_request_to_its_end(fast_wire, workers):
    """Both directions are forwarded, and the function still counts the connection until it is closed."""
    wire = fast_wire(configuration(f"http-lb default to {SERVER4}:{ONE} by least-connections"), workers=workers)
    line = f"default to {SERVER4}:{ONE}"
    with listening(wire.server) as listener, Connection(wire, listener) as connection:
        connection.until_forwarded()
        assert report(wire.daemon)[line] == "up, 1 sessions, 1 opened"
        one = the_connection(wire, "tcp-dport", PORT)
        assert one["chain"] == "c" and one["state"] == "established", one
        connection.close()
    wait.until(lambda: report(wire.daemon)[line] == "up, 0 sessions, 1 opened", "the connection not to count any more")
    assert not lost(wire.daemon)


@pytest.mark.parametrize("function", [f"lb {FAR4}:{ONE}", f"http-lb default to {FAR4}:{ONE}"])
def test_connections_of_a_server_that_fails_come_back_and_end(fast_router, function):
    bench = fast_router(configuration(f"{function} check tcp {CHECK} every 0.1"))

    def is_up(state):
        return next(value for key, value in report(bench.daemon).items() if FAR4 in key).startswith(state)

    with listening(bench.servers, FAR4) as listener, listening(bench.servers, FAR4, CHECK) as checked:
        wait.until(lambda: is_up("up"), "the server to be up")
        with Connection(bench, listener) as connection:
            connection.until_forwarded()
            checked.close()
            wait.until(lambda: is_up("down"), "the server to be found dead")
            with pytest.raises(OSError):
                # The first bytes may leave before the entries of the kernel have gone.
                for _ in range(50):
                    traffic.exchange(connection.near, connection.far, 1)
                    time.sleep(0.02)
    assert bench.daemon.drops()["backend-down"] >= 1


def test_a_chain_changes_in_the_middle_of_a_connection(fast_wire):
    """A function that counts sees all that comes from then on, until it goes."""
    wire = fast_wire(configuration(f"http-lb default to {SERVER4}:{ONE}") + "nf add n count\n")
    with listening(wire.server) as listener, Connection(wire, listener) as connection:
        connection.until_forwarded()
        wire.daemon.line("chain set c f | n")
        # The kernel's counters are read with the end of its entries, or before.
        wait.until(lambda: fast(wire)["entries"] == 0, "the entries of the kernel to go")
        before = hits(wire)
        for _ in range(2):
            traffic.exchange(connection.near, connection.far)
        assert hits(wire) == before
        assert int(report(wire.daemon, "n")["bytes"]) > 4 << 20
        wire.daemon.line("chain set c f")
        connection.until_forwarded()
        wire.daemon.line("nf add g mss-clamp 1400")
        wire.daemon.line("chain set c g | f")
        connection.until_forwarded()
        connection.close()
    assert not lost(wire.daemon)
