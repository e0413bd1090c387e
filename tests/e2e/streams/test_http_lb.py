"""`http-lb` between real clients and servers: the request chooses the server, and the connection is one."""

import functools
import hashlib
import http.server
import os
import socket
import threading

import pytest

from lab import routebench, traffic, wait
from lab.daemon import report
from lab.links.impair import Impairment
from lab.netns import SERVER4, SERVER6
from lab.traffic import WebServer, fetch, url

PORT, ONE, TWO, CLOSED = 8000, 8001, 8002, 8009
curl = functools.partial(traffic.curl, patience=40)
BAD = Impairment(loss=12, duplication=30, reordering=40, cuts=150)


def configuration(arguments):
    return f"nf add l http-lb {arguments}\nchain add c l\nadd-stateful tcp-dport {PORT} chain c\n"


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers with the port of the server, the path and the digest of the body."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        port = self.server.server_address[1]
        answer = f"{port} {self.path} {hashlib.sha256(body).hexdigest()}\n".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    do_GET = do_POST

    def log_message(self, *_):
        pass


class Server(http.server.ThreadingHTTPServer):
    """Python's server at all addresses of a namespace."""

    daemon_threads = True
    # Python's short queue: the kernel answers with SYN cookies, and forgets connections whose ACK is lost.
    request_queue_size = 5
    address_family = socket.AF_INET6

    def __init__(self, namespace, port):
        with namespace.entered():
            super().__init__(("::", port), Handler)
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    def server_bind(self):
        # The name of the host is not looked up.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        self.socket.bind(self.server_address)

    def handle_error(self, *_):
        """Connections that are reset are no error."""


@pytest.fixture
def serve():
    """serve(namespace, port, ...): servers, ended after the test."""
    made = []

    def make(namespace, *ports):
        made.extend(Server(namespace, port) for port in ports)

    yield make
    for server in made:
        server.shutdown()
        server.server_close()


def digest(body=b""):
    return hashlib.sha256(body).hexdigest()


BY_REQUEST = (
    f"host one.example to {SERVER4}:{ONE} [{SERVER6}]:{ONE} path /two to {SERVER4}:{TWO} [{SERVER6}]:{TWO} "
    f"cookie who me* to {SERVER4}:{TWO} header X-To one to {SERVER4}:{ONE}"
)


@pytest.mark.parametrize("workers", [1, 2])
def test_the_request_chooses_the_server(make_wire, serve, workers, tmp_path):
    wire = make_wire("af-packet", configuration(BY_REQUEST), workers=workers)
    serve(wire.server, ONE, TWO)
    for arguments, port in (
        (("-H", "Host: one.example"), ONE),
        (("-H", "Host: ONE.example:80", url("/two")), ONE),
        ((url("/x/../two/a"), "--path-as-is"), TWO),
        (("-b", "a=b; who=me2"), TWO),
        (("-H", "X-To: one"), ONE),
    ):
        arguments = arguments if any(word.startswith("http") for word in arguments) else (*arguments, url())
        assert curl(wire.client, *arguments).stdout.split()[0] == str(port), arguments
    assert curl(wire.client, url("/two", SERVER6)).stdout.split()[0] == str(TWO)
    assert curl(wire.client, "-o", "/dev/null", "-w", "%{http_code}", url("/none")).stdout == "503"
    # A connection stays with its first server.
    shown = curl(wire.client, "-w", "%{num_connects}\n", url("/two/1"), url("/other")).stdout
    assert [line.split()[0] for line in shown.splitlines()] == [str(TWO), "1", str(TWO), "0"]
    # A head of several segments, and bodies.
    long = [word for number in range(6) for word in ("-H", f"X-{number}: {'x' * 1800}")]
    assert curl(wire.client, *long, url("/two/long")).stdout.split()[1] == "/two/long"
    for size in (3, 30_000, 3 << 20):
        body = os.urandom(size)
        (tmp_path / "body").write_bytes(body)
        shown = curl(wire.client, "-H", "Expect:", "--data-binary", f"@{tmp_path / 'body'}", url("/two")).stdout
        assert shown.split() == [str(TWO), "/two", digest(body)]
    found = report(wire.daemon, "l")
    assert found["requests without clause"] == "1" and found["requests"] == "12", found


def test_slow_and_half_closed_clients(make_wire, serve):
    wire = make_wire("af-packet", configuration(BY_REQUEST))
    serve(wire.server, ONE, TWO)
    request = b"GET /two HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
    for pieces, is_closed in ((len(request), False), (3, False), (2, True), (1, True)):
        with wire.client.socket(socket.AF_INET, socket.SOCK_STREAM) as connection:
            connection.settimeout(wait.PATIENCE)
            connection.connect((SERVER4, PORT))
            size = -(-len(request) // pieces)
            for at in range(0, len(request), size):
                connection.sendall(request[at : at + size])
            if is_closed:
                connection.shutdown(socket.SHUT_WR)
            received = b""
            while part := connection.recv(65536):
                received += part
        assert received.endswith(f"{TWO} /two {digest()}\n".encode()), (pieces, received)


def test_servers_that_are_down(make_wire, serve):
    """A server that refuses costs a repetition of the request. Without any, the client gets a page."""
    down, nobody = f"{SERVER4}:{CLOSED}", "10.77.0.99"
    clauses = (
        f"path /one to {down} {SERVER4}:{ONE} path /silent to {nobody} {SERVER4}:{ONE} path /no to {down} "
        f"default to {SERVER4}:{TWO}"
    )
    wire = make_wire("af-packet", configuration(clauses))
    serve(wire.server, ONE, TWO)
    for _ in range(3):
        assert curl(wire.client, url("/one")).stdout.split()[0] == str(ONE)
    assert curl(wire.client, "-w", " %{http_code}", url("/no")).stdout.endswith("</h1>\n 503")
    assert curl(wire.client, url("/silent")).stdout.split()[0] == str(ONE)
    assert curl(wire.client, url("/other")).stdout.split()[0] == str(TWO)
    found = report(wire.daemon, "l")
    assert found["requests without server"] == "1" and int(found["servers that did not answer"]) >= 2, found


def ask_from(client, near_port, port):
    """Asks from a port, until the server closes: it is the server that has the connection in TIME-WAIT then."""
    with client.socket(socket.AF_INET, socket.SOCK_STREAM) as near:
        near.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        near.settimeout(10)
        near.bind(("", near_port))
        near.connect((SERVER4, port))
        near.sendall(b"GET / HTTP/1.0\r\n\r\n")
        answer = b""
        while part := near.recv(4096):
            answer += part
    assert answer.startswith(b"HTTP/1.1 200 ") and answer.endswith(b"\n"), (near_port, port, answer)


def test_a_port_is_used_again_at_once(make_wire, serve):
    """The server closes; often its FIN comes before the client's first acknowledgment."""
    wire = make_wire("af-packet", configuration(f"default to {SERVER4}:{ONE}"))
    serve(wire.server, ONE)
    # With some ports in turn, each connection has ended before its port comes again.
    for number in range(200):
        ask_from(wire.client, 40_000 + number % 20, PORT)
    assert report(wire.daemon, "l")["requests"] == "200"


def test_a_server_has_an_old_connection_with_newer_timestamps(make_wire, serve):
    """The client has asked the server itself from the same port. The server keeps that connection in TIME-WAIT,
    and ignores resets there, as it also does when a reset and a SYN arrive together.
    """
    wire = make_wire("af-packet", configuration(f"default to {SERVER4}:{ONE}"))
    serve(wire.server, ONE)
    wire.server.sysctl("net/ipv4/tcp_rfc1337", 1)
    # Timestamps with and without a random offset. In one order or the other, the second one is older.
    for near, clocks in ((40_000, (1, 2)), (40_001, (2, 1))):
        for port, clock in zip((ONE, PORT), clocks, strict=True):
            wire.client.sysctl("net/ipv4/tcp_timestamps", clock)
            ask_from(wire.client, near, port)


def test_two_nginx(make_wire):
    """Two nginx, downloads of some size at the same time, and wrk with connections that stay."""
    clauses = f"host one to {SERVER4}:{ONE} default to {SERVER4}:{TWO} by least-connections"
    wire = make_wire("af-xdp", configuration(clauses), workers=2)
    first, second = WebServer(wire.server, ONE), WebServer(wire.server, TWO)
    try:
        assert fetch(wire.client, url("/file")) == second.content
        wire.client.run("curl", "-sS", "--noproxy", "*", "-o", "/dev/null", "-H", "Host: one", url("/file"))
        shown = wire.client.run("wrk", "-t1", "-c8", "-d1s", "-H", "Host: one", url("/file")).stdout
        assert "Socket errors" not in shown and "Non-2xx" not in shown, shown
        wait.until(lambda: len(first.log_lines()) > 8 and len(second.log_lines()) == 1, "nginx to log all requests")
    finally:
        first.close()
        second.close()


EDITS = (
    "nf add m match SECRET replace no-secret\nnf add e http-edit response header set X-Seen yes type * "
    "response body replace two! three\nnf add w payload-count\n"
)


def edited(arguments, chain):
    return f"{EDITS}nf add l http-lb {arguments}\nchain add c {chain}\nadd-stateful tcp-dport {PORT} chain c\n"


@pytest.mark.parametrize("chain", ["l then e", "w then l then e", "m then l then e"])
def test_stream_functions_beside_it(make_wire, serve, tmp_path, chain):
    """Requests and responses are edited, whatever the order of the functions; the request chooses as it was sent."""
    clauses = f"path /two/SECRET to {SERVER4}:{TWO} default to {SERVER4}:{ONE}"
    wire = make_wire("af-packet", edited(clauses, chain), workers=2)
    serve(wire.server, ONE, TWO)
    path = "/two/no-secret" if "m" in chain else "/two/SECRET"
    for size in (0, 3, 30_000, 1 << 20):
        body = os.urandom(size)
        (tmp_path / "body").write_bytes(body)
        arguments = ("--data-binary", f"@{tmp_path / 'body'}") if size else ()
        shown = curl(wire.client, "-i", "-H", "Expect:", *arguments, url("/two/SECRET")).stdout.replace("\r", "")
        head, answer = shown.split("\n\n", 1)
        assert "\nX-Seen: yes" in head, shown
        # The path that the server has got, which it sends back.
        assert answer == f"{TWO} {path} {digest(body)}\n"
    assert curl(wire.client, url("/x/two!")).stdout == f"{ONE} /x/three {digest()}\n"
    assert report(wire.daemon, "l")["requests"] == "5"


def test_edits_on_bad_links(make_bad, serve, tmp_path):
    clauses = f"path /two to {SERVER4}:{TWO} default to {SERVER4}:{ONE}"
    bench = make_bad(edited(clauses, "m then l then e"), seed=12, before=BAD, behind=BAD, workers=2)
    serve(bench.server, ONE, TWO)
    body = os.urandom(100_000)
    (tmp_path / "body").write_bytes(body)
    clients = []
    for number in range(8):
        arguments = ("--data-binary", f"@{tmp_path / 'body'}") if number % 2 else ("-H", f"X-Long: {'x' * 2500}")
        command = ("curl", "-sS", "--noproxy", "*", "--max-time", "100", "-H", "Expect:", *arguments, url(f"/x/two!/{number}"))
        expected = f"{ONE} /x/three/{number} {digest(body if number % 2 else b'')}\n"
        clients.append((bench.client.popen(*command, stdout=-1), expected))
    for client, expected in clients:
        assert client.communicate(timeout=120)[0].decode() == expected
    assert report(bench.daemon, "l")["requests"] == "8"


@pytest.mark.parametrize("address, offload", [(SERVER4, "none"), (SERVER6, "none"), (SERVER4, "both")], ids=["ip4", "ip6", "offload"])
def test_bad_links(make_bad, serve, tmp_path, address, offload):
    bad = BAD if offload == "none" else Impairment(loss=50, duplication=30, reordering=30)
    bench = make_bad(configuration(BY_REQUEST), seed=11, before=bad, behind=bad, workers=2, offload=offload)
    serve(bench.server, ONE, TWO)
    body = os.urandom(100_000)
    (tmp_path / "body").write_bytes(body)
    clients = []
    for number in range(12):
        arguments = ("--data-binary", f"@{tmp_path / 'body'}") if number % 3 == 0 else ("-H", f"X-Long: {'x' * 2500}")
        path, expected = (f"/two/{number}", body if number % 3 == 0 else b"")
        target = url(path, address)
        command = ("curl", "-sS", "--noproxy", "*", "--max-time", "100", "-H", "Expect:", *arguments, target)
        clients.append((bench.client.popen(*command, stdout=-1), f"{TWO} {path} {digest(expected)}\n"))
    for client, expected in clients:
        assert client.communicate(timeout=120)[0].decode() == expected
    assert report(bench.daemon, "l")["requests"] == "12"


def test_routed(make_router, serve):
    servers = f"{routebench.SERVER}:{ONE} [{routebench.SERVER6}]:{ONE}"
    bench = make_router(configuration(f"host one.example to {servers}"), driver="af-packet", workers=2)
    serve(bench.servers, ONE)
    for address in (routebench.SERVER, routebench.SERVER6):
        ping = ("ping", "-c1", "-W1", address)
        wait.until(lambda: bench.client.run(*ping, check=False).returncode == 0, "the way to the server")
        shown = curl(bench.client, "-H", "Host: one.example", url("/", address)).stdout
        assert shown.split()[0] == str(ONE), (address, report(bench.daemon, "l"))
