"""HTTP functions in live connections: curl, Python's server and nginx, with mmb between them."""

import contextlib
import gzip
import http.server
import json
import os
import socket
import threading
import zlib

import pytest
from scapy.utils import rdpcap, wrpcap

from lab import frames, wait
from lab.daemon import mmb, report
from lab.frames import IP, TCP
from lab.links.impair import Impairment
from lab.netns import CLIENT4, CLIENT6, SERVER4, SERVER6
from lab.traffic import WebServer, curl, fetch, url
from lab.wire import PLACES, chain

PORT = 8000
MIB = os.urandom(1 << 20)
PAGE = b"<html><body>" + b"a page with evil words, " * 4000 + b"</body></html>"
BANNER = b"<p>a banner of some bytes</p></body>"
# Without repetitions, so that it has many segments.
ENCODER = zlib.compressobj(wbits=31, strategy=zlib.Z_HUFFMAN_ONLY)
GZIPPED = ENCODER.compress(PAGE) + ENCODER.flush()
# A page of which all fits a segment.
DENSE = b"evil " * 6000


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers with a length, in chunks, until the end of the connection, or with another protocol."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.server.seen.append(f"{self.command} {self.path}")
        if self.headers.get("Upgrade") == "echo":
            self.send_response(101)
            self.end_headers()
            self.wfile.write(self.rfile.read(9)[::-1])
            self.close_connection = True
        elif self.path == "/chunked":
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for part in (b"abc", b"defgh"):
                self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
            self.wfile.write(b"0\r\nX-Trailer: t\r\n\r\n")
        elif self.path == "/chunks":
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for at in range(0, len(PAGE), 1001):
                part = PAGE[at : at + 1001]
                self.wfile.write(b"%x;x=y\r\n%s\r\n" % (len(part), part))
            self.wfile.write(b"0\r\nX-Trailer: t\r\n\r\n")
        elif self.path == "/page":
            self.answer(PAGE, "text/html; charset=utf-8")
        elif self.path == "/gzip":
            self.answer(GZIPPED, "text/html", "gzip")
        elif self.path == "/dense":
            self.answer(gzip.compress(DENSE), "text/html", "gzip")
        elif self.path == "/headers":
            self.answer(json.dumps(dict(self.headers)).encode(), "application/json")
        elif self.path == "/moved":
            self.send_response(302)
            self.send_header("Location", f"http://inner.example:{PORT}/headers")
            self.send_header("Content-Length", "0")
            self.end_headers()
        elif self.path == "/close":
            self.send_response(200)
            self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(b"until the end")
        else:
            self.answer(MIB if self.path == "/mib" else b"hello", "video/mp4" if self.path == "/video" else "text/html")

    def do_HEAD(self):
        self.do_GET()

    def do_POST(self):
        self.server.seen.append(f"POST {self.path}")
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/echo":
            self.answer(body, "application/octet-stream")
        else:
            self.answer(b"same" if body == MIB else b"other", "text/plain")

    def answer(self, body, media, coding=None):
        self.send_response(200)
        self.send_header("Content-Type", media)
        if coding:
            self.send_header("Content-Encoding", coding)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_):
        pass


class Server(http.server.ThreadingHTTPServer):
    """Python's server in a namespace. `seen` has the requests that reach it."""

    daemon_threads = True

    def __init__(self, namespace, address):
        self.address_family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self.seen = []
        with namespace.entered():
            super().__init__((address, PORT), Handler)
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    def server_bind(self):
        # The name of the host is not looked up.
        socket.socket.setsockopt(self.socket, socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_name, self.server_port = "server", PORT

    def handle_error(self, *_):
        """Connections that are reset are no error."""


@pytest.fixture
def serve():
    """serve(namespace, address) -> Server, ended after the test."""
    made = []

    def make(namespace, address=SERVER4):
        made.append(Server(namespace, address))
        return made[-1]

    yield make
    for server in made:
        server.shutdown()
        server.server_close()


def exchange(namespace, pieces, size, address=SERVER4):
    """Sends pieces on one connection, each in a segment of its own. Returns what comes back until the end."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with namespace.socket(family, socket.SOCK_STREAM) as connection:
        connection.settimeout(20)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.connect((address, PORT))
        for piece in pieces:
            connection.sendall(piece)
        received = b""
        while len(received) < size and (part := connection.recv(65536)):
            received += part
        return received


def logged(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


@pytest.mark.parametrize("driver, address", [("af-xdp", SERVER4), ("af-packet", SERVER6)])
def test_each_request_is_logged(make_wire, serve, tmp_path, driver, address):
    log = tmp_path / "http.log"
    wire = make_wire(driver, chain(f"http-log json file {log}"))
    serve(wire.server, address)
    upload = tmp_path / "upload"
    upload.write_bytes(MIB)
    # Two requests on one connection, then one that announces its body (100 Continue).
    assert curl(wire.client, url("/a", address), url("/chunked", address)).stdout == "helloabcdefgh"
    assert curl(wire.client, url("/close", address)).stdout == "until the end"
    curl(wire.client, "-I", url("/mib", address))
    curl(wire.client, "-o", tmp_path / "mib", url("/mib", address))
    assert (tmp_path / "mib").read_bytes() == MIB
    posted = curl(wire.client, "-H", "Expect: 100-continue", "--data-binary", f"@{upload}", url("/up", address))
    assert posted.stdout == "same"
    pipelined = b"GET /1 HTTP/1.1\r\nHost: a\r\n\r\nHEAD /2 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
    assert exchange(wire.client, [pipelined], 1 << 20, address).count(b"HTTP/1.1 200 OK") == 2
    wait.until(lambda: len(logged(log)) == 8, "a line for each request")
    found = {one["target"]: one for one in logged(log) if one["method"] != "HEAD"}
    sizes = {target: (one["status"], one["request_bytes"], one["response_bytes"]) for target, one in found.items()}
    expected = {
        "/a": (200, 0, 5),
        "/chunked": (200, 0, 8),
        "/close": (200, 0, 13),
        "/mib": (200, 0, 1 << 20),
        "/up": (200, 1 << 20, 4),
        "/1": (200, 0, 5),
    }
    assert sizes == expected
    assert all(one["complete"] and one["server_port"] == PORT for one in logged(log))
    assert found["/a"]["user_agent"].startswith("curl/")
    assert found["/a"]["client_port"] == found["/chunked"]["client_port"], "one connection"
    heads = [(one["target"], one["response_bytes"]) for one in logged(log) if one["method"] == "HEAD"]
    assert sorted(heads) == [("/2", 0), ("/mib", 0)]


def test_what_is_edited_is_logged(make_wire, serve, tmp_path):
    """Both functions fit into the scratchpad of a session with the default settings."""
    log = tmp_path / "http.log"
    functions = f"nf add e http-edit request path replace ^/old /a response header set X-Box mmb\nnf add l http-log json file {log}\n"
    wire = make_wire("af-packet", f"{functions}chain add c e then l\nadd-stateful tcp-dport {PORT} chain c\n")
    serve(wire.server)
    answer = curl(wire.client, "-i", url("/old")).stdout
    assert "X-Box: mmb" in answer and answer.endswith("hello")
    wait.until(lambda: logged(log), "a line")
    assert [(one["target"], one["status"], one["response_bytes"]) for one in logged(log)] == [("/a", 200, 5)]


@PLACES
@pytest.mark.parametrize("driver, address", [("af-xdp", SERVER6), ("af-packet", SERVER4)])
def test_requests_are_blocked(make_wire, serve, driver, address, place):
    rules = "http-filter block path /no redirect http://b.example/ path /old reset path /reset block type video/*"
    wire = make_wire(driver, chain(rules, place))
    server = serve(wire.server, address)
    assert curl(wire.client, url("/a", address)).stdout == "hello"
    # On one connection; the second answer ends it, and curl opens another one.
    shown = curl(wire.client, "-w", "%{http_code} ", *(url(path, address) for path in ("/a", "/no/x", "/b"))).stdout
    assert shown.split("403 Forbidden</h1>")[1].endswith("hello200 ") and "403 " in shown and "hello200 " in shown
    blocked = curl(wire.client, "-I", url("/%6eo", address)).stdout
    assert blocked.startswith("HTTP/1.1 403 Forbidden")
    moved = curl(wire.client, "-o", "/dev/null", "-w", "%{http_code} %{redirect_url}", url("/old", address)).stdout
    assert moved == "302 http://b.example/"
    # 56: the connection was reset.
    assert curl(wire.client, url("/reset", address), check=False).returncode == 56
    assert "403 Forbidden" in curl(wire.client, url("/video", address)).stdout
    assert server.seen == ["GET /a", "GET /a", "GET /b", "GET /video"]
    counted = report(wire.daemon)
    assert [counted[name] for name in ("requests", "blocked", "redirected", "reset")] == ["8", "3", "1", "1"]
    assert wire.daemon.drops()["http-blocked"] > 0


@PLACES
def test_heads_in_pieces_and_other_protocols(make_wire, serve, place):
    wire = make_wire("af-packet", chain("http-filter block path /no", place))
    server = serve(wire.server)
    for size in (1, 7, 20):
        text = b"GET /no HTTP/1.1\r\nHost: a\r\nX-Long: 0123456789\r\n\r\n"
        pieces = [text[at : at + size] for at in range(0, len(text), size)]
        assert exchange(wire.client, pieces, 1 << 20).startswith(b"HTTP/1.1 403 Forbidden\r\n")
    assert server.seen == []
    # Behind 101 the bytes are not HTTP, and pass.
    switch = b"GET /ws HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n"
    with wire.client.socket(socket.AF_INET, socket.SOCK_STREAM) as connection:
        connection.settimeout(20)
        connection.connect((SERVER4, PORT))
        connection.sendall(switch)
        received = b""
        while not received.endswith(b"\r\n\r\n"):
            received += connection.recv(1000)
        connection.sendall(b"GET /no\r\n")
        assert received.startswith(b"HTTP/1.1 101") and connection.recv(100) == b"\n\ron/ TEG"
    smuggled = b"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert exchange(wire.client, [smuggled], 1 << 20).startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert server.seen == ["GET /ws"]
    assert report(wire.daemon)["rejected: Content-Length with Transfer-Encoding"] == "1"


def payloads(sniffer):
    """Returns the payloads of the segments to the server that a packet socket has got."""
    found = b""
    while True:
        try:
            frame = frames.Ether(sniffer.recv(65536))
        except BlockingIOError:
            return found
        if frame.haslayer(TCP) and frame[TCP].dport == PORT:
            length = frame[IP].len - 4 * frame[IP].ihl - 4 * frame[TCP].dataofs
            found += bytes(frame[TCP].payload)[:length]


@PLACES
def test_the_server_gets_no_byte_of_a_blocked_request(make_wire, place):
    wire = make_wire("af-packet", chain("http-filter block path /no", place))
    first, blocked = (f"GET {path} HTTP/1.1\r\nHost: a\r\n\r\n".encode() for path in ("/yes", "/no"))
    ok = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

    def serve(listener):
        # The reset may come before the connection is accepted.
        with contextlib.suppress(OSError):
            connection, _ = listener.accept()
            with connection:
                while connection.recv(65536):
                    connection.sendall(ok)

    # At once, in segments, and pipelined between others.
    for sent in ([blocked], [blocked[at : at + 5] for at in range(0, len(blocked), 5)], [first + blocked + first]):
        passed = first if sent[0].startswith(first) else b""
        with (
            wire.server.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)) as sniffer,
            wire.server.socket(socket.AF_INET, socket.SOCK_STREAM) as listener,
        ):
            sniffer.setblocking(False)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((SERVER4, PORT))
            listener.listen()
            server = threading.Thread(target=serve, args=(listener,))
            server.start()
            answer = exchange(wire.client, sent, 1 << 20)
            listener.shutdown(socket.SHUT_RDWR)
            server.join()
            assert payloads(sniffer) == passed
        assert answer.startswith((ok if passed else b"") + b"HTTP/1.1 403 Forbidden\r\n")
        assert answer.count(b"HTTP/1.1") == (2 if passed else 1)


@PLACES
def test_answers_survive_loss(make_bad, serve, place):
    """Every fifth frame is lost on both sides; a client gets its answer all the same, and the server no request."""
    bad = Impairment(loss=200, duplication=50, reordering=50)
    bench = make_bad(chain("http-filter block path /no", place), seed=3, before=bad, behind=bad)
    server = serve(bench.server)
    rounds = 40 if os.environ.get("E2E_LONG") else 6
    answers = []

    def ask():
        answers.append(curl(bench.client, "--max-time", 60, url("/no")).stdout)

    threads = [threading.Thread(target=ask) for _ in range(rounds)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == rounds and all("403 Forbidden" in answer for answer in answers)
    assert server.seen == [] and sum(link.lost for link in bench.links) > 0


def edited(page):
    return page.replace(b"evil", b"friendly").replace(b"</body>", BANNER)


def edits(tmp_path):
    """An instance that edits headers, paths and the bodies of responses."""
    banner = tmp_path / "banner.html"
    banner.write_bytes(BANNER)
    return (
        "http-edit request header set X-Forwarded-For client-address request header del X-Secret "
        "request path replace ^/old/(.*) /$1 response header del Server response header add X-Box mmb "
        f"body replace evil friendly body replace </body> file {banner}"
    )


@PLACES
@pytest.mark.parametrize("driver, address, client", [("af-xdp", SERVER4, CLIENT4), ("af-packet", SERVER6, CLIENT6)])
def test_headers_paths_and_bodies_are_edited(make_wire, serve, tmp_path, driver, address, client, place):
    wire = make_wire(driver, chain(edits(tmp_path), place))
    server = serve(wire.server, address)
    sent = ("-H", "X-Forwarded-For: 1.2.3.4", "-H", "X-Secret: s", "--compressed")
    seen = json.loads(curl(wire.client, *sent, url("/old/headers", address)).stdout)
    assert (seen["X-Forwarded-For"], seen["Accept-Encoding"]) == (client, "identity") and "X-Secret" not in seen
    assert server.seen == ["GET /headers"]
    heads, body = tmp_path / "heads", tmp_path / "body"
    # On one connection.
    for path in ("/page", "/chunks"):
        pages = [url(path, address)] * 2
        curl(wire.client, "-D", heads, "-o", body, "-o", tmp_path / "second", *pages)
        assert body.read_bytes() == (tmp_path / "second").read_bytes() == edited(PAGE), path
        head = heads.read_text(encoding="ascii")
        assert "X-Box: mmb" in head and "Server" not in head and "Content-Length" not in head
    head = curl(wire.client, "-I", url("/page", address)).stdout
    assert head.startswith("HTTP/1.1 200") and "X-Box: mmb" in head and "Content-Length" not in head
    # Other types, uploads and 100 Continue.
    upload = tmp_path / "upload"
    upload.write_bytes(MIB)
    posted = curl(wire.client, "-H", "Expect: 100-continue", "--data-binary", f"@{upload}", url("/up", address))
    assert posted.stdout == "same"
    pipelined = b"GET /old/1 HTTP/1.1\r\nHost: a\r\n\r\nHEAD /old/2 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
    assert exchange(wire.client, [pipelined], 1 << 20, address).count(b"X-Box: mmb") == 2
    assert server.seen[-2:] == ["GET /1", "HEAD /2"]
    counted = report(wire.daemon)
    assert [counted[name] for name in ("paths rewritten", "bodies edited")] == ["3", "6"]
    assert int(counted["texts replaced"]) == 4 * 4001


@PLACES
def test_redirects_lead_back(make_wire, serve, place):
    """A server that has another name and other paths inside redirects the client, who comes back by the same way."""
    edit = f"http-edit request path replace ^/out(/.*) $1 response location replace ^http://inner.example:{PORT} http://{SERVER4}:{PORT}/out"
    wire = make_wire("af-packet", chain(edit, place))
    server = serve(wire.server)
    seen = curl(wire.client, "-L", "-w", " %{num_redirects} %{url_effective}", url("/out/moved")).stdout
    assert seen.endswith(f"}} 1 {url('/out/headers')}"), seen
    assert server.seen == ["GET /moved", "GET /headers"]
    counted = report(wire.daemon)
    assert [counted[name] for name in ("paths rewritten", "locations rewritten")] == ["2", "1"]


def test_requests_are_edited_wherever_they_are_cut(make_wire, serve):
    wire = make_wire("af-packet", chain("http-edit request header del X-Secret request body replace evil good-natured"))
    serve(wire.server)
    text = b"POST /echo HTTP/1.1\r\nHost: a\r\nX-Secret: 1\r\nConnection: close\r\nContent-Length: 12\r\n\r\nan evil text"
    for size in (1, 7, 50, 200):
        pieces = [text[at : at + size] for at in range(0, len(text), size)]
        assert exchange(wire.client, pieces, 1 << 20).endswith(b"\r\n\r\nan good-natured text"), size


@pytest.mark.parametrize("offload", ["none", "both"])
def test_edits_survive_loss(make_bad, serve, tmp_path, offload):
    bad = Impairment(loss=30, duplication=30, reordering=30, cuts=100 if offload == "none" else 0)
    bench = make_bad(chain(edits(tmp_path)), seed=4, before=bad, behind=bad, offload=offload)
    serve(bench.server)
    rounds = 20 if os.environ.get("E2E_LONG") else 3
    bodies = [tmp_path / f"body{n}" for n in range(rounds)]
    threads = [
        threading.Thread(target=curl, args=(bench.client, "--max-time", 60, "-o", body, url(path)))
        for body, path in zip(bodies, ["/page", "/chunks", "/gzip"] * rounds)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # A text may get through if its end is lost in front of mmb; what is not edited is the same.
    for body in bodies:
        assert body.read_bytes().replace(b"evil", b"friendly") == edited(PAGE)
    assert sum(link.lost for link in bench.links) > 0


def test_replay_writes_what_is_edited(tmp_path):
    """A request and its response in three segments each, with a retransmission."""
    edit = "http-edit request header set X-Client client-address body replace evil friendly type text/*"
    (tmp_path / "policy").write_text(chain(edit), encoding="ascii")
    request = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
    response = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\nan evil text, an ev"
    there = frames.ether() / IP(src=CLIENT4, dst=SERVER4)
    back = frames.ether() / IP(src=SERVER4, dst=CLIENT4)
    packets = [
        there / TCP(sport=4000, dport=PORT, flags="S", seq=99),
        back / TCP(sport=PORT, dport=4000, flags="SA", seq=499, ack=100),
    ]
    for at, to in ((0, 9), (9, 20), (9, 20), (20, len(request))):
        packets.append(there / TCP(sport=4000, dport=PORT, flags="A", seq=100 + at, ack=500) / request[at:to])
    for at, to in ((0, 10), (10, 53), (53, len(response))):
        tcp = TCP(sport=PORT, dport=4000, flags="A", seq=500 + at, ack=100 + len(request))
        packets.append(back / tcp / response[at:to])
    packets.append(back / TCP(sport=PORT, dport=4000, flags="FA", seq=500 + len(response), ack=100 + len(request)))
    wrpcap(str(tmp_path / "in.pcap"), packets)
    mmb("replay", "-c", tmp_path / "policy", tmp_path / "in.pcap", "-w", tmp_path / "out.pcap")
    found = [bytearray(), bytearray()]
    for packet in rdpcap(str(tmp_path / "out.pcap")):
        way = int(packet[TCP].sport == PORT)
        at, payload = packet[TCP].seq - (100, 500)[way], bytes(packet[TCP].payload)
        if payload and not packet[TCP].flags.S:
            assert at <= len(found[way])
            found[way][at : at + len(payload)] = payload
    assert found[0] == b"GET / HTTP/1.1\r\nHost: a\r\nX-Client: 10.77.0.1\r\nAccept-Encoding: identity\r\n\r\n"
    assert found[1] == response.replace(b"evil", b"friendly")


def test_nginx(make_wire):
    wire = make_wire("af-packet", chain("http-filter block path /no"))
    web = WebServer(wire.server, PORT)
    try:
        assert fetch(wire.client, url("/file")) == web.content
        assert curl(wire.client, "-o", "/dev/null", "-w", "%{http_code}", url("/no")).stdout == "403"
        wait.until(lambda: len(web.log_lines()) == 1, "nginx to log one request")
    finally:
        web.close()
