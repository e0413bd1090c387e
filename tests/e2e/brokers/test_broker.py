"""Brokers with real clients and servers: curl, wrk, nginx and Python's servers, under the daemon's filters."""

import contextlib
import json
import os
import pathlib
import resource
import socket
import threading

import pytest

from brokers.servers import BOTH_PLACES, LOCAL
from lab import wait
from lab.netns import CommandFailed
from lab.traffic import fetch

# The capability to listen on ports below 1024 (capabilities(7)).
NET_BIND_SERVICE = 1 << 10


def ask(connection, request):
    """Sends a request. Returns what comes up to the end of the connection."""
    # A broker that refuses a request may have closed the connection.
    with contextlib.suppress(ConnectionError):
        connection.sendall(request)
    received = b""
    with contextlib.suppress(ConnectionError):
        while piece := connection.recv(65536):
            received += piece
    return received


@BOTH_PLACES
def test_a_proxy_with_rewriting(site):
    """curl's requests reach both servers by their new paths, and no other header of theirs is lost."""
    servers = [site.server(port) for port in (9001, 9002)]
    daemon = site.start()
    for line in (
        f"nf add lb proxy {LOCAL}:9001 {LOCAL}:9002",
        "nf add urls url-rewrite ^/old/(.*) /new/$1 ^/gone/(.*) /$1 redirect 301",
        "nf add page respond 200 hello path /page",
        "nf add ads http-filter block path /secret redirect https://b.example/ host b.example",
        "chain add site ads then lb then urls then page",
        f"broker add web listen {LOCAL}:8080 chain site",
    ):
        daemon.line(line)
    url = f"http://{LOCAL}:8080"
    seen = [json.loads(site.curl("-H", "X-Own: 1", "-H", "Connection: X-Hop", "-H", "X-Hop: 1", f"{url}/old/a?b=c")) for _ in range(4)]
    assert [one["path"] for one in seen] == ["/new/a?b=c"] * 4
    assert sorted(one["server"] for one in seen) == [9001, 9001, 9002, 9002]
    headers = seen[0]["headers"]
    assert (headers["X-Forwarded-For"], headers["X-Forwarded-Proto"], headers["Via"]) == (LOCAL, "http", "1.1 mmb")
    assert headers["Host"] == f"{LOCAL}:8080" and headers["X-Own"] == "1" and "X-Hop" not in headers
    assert site.curl("-o", os.devnull, "-w", "%{http_code} %{redirect_url}", f"{url}/gone/x") == f"301 {url}/x"
    assert site.curl(f"{url}/page") == "hello"
    assert site.curl("--data-binary", "body", "-H", "Expect: 100-continue", f"{url}/echo") == "body"
    assert site.status("--path-as-is", f"{url}/x/../secret") == 403
    assert site.curl("-o", os.devnull, "-w", "%{redirect_url}", "-H", "Host: b.example", url) == "https://b.example/"
    assert [len(server.seen) for server in servers] == [2, 2]
    shown = daemon.line("show brokers").stdout.splitlines()
    assert shown[1].split() == ["web", f"{LOCAL}:8080", "site", "up", "0", "9", "0", "2"], shown
    functions = daemon.line("show functions").stdout
    assert "urls: paths rewritten: 4\nurls: clients redirected: 1\n" in functions
    assert "ads: requests: 9\nads: blocked: 1\nads: redirected: 1\n" in functions
    status, metrics = daemon.request("GET", "/metrics")
    assert status == 200 and b'mmb_broker_requests_total{broker="web"} 9\n' in metrics
    config = daemon.json("show", "config")["config"]
    assert config.splitlines()[-1] == f"broker add web listen {LOCAL}:8080 chain site"
    daemon.line("broker del web")
    with pytest.raises(CommandFailed):
        site.curl(url)
    daemon.config.write_text(config, encoding="utf-8")
    assert "+ broker add web" in daemon.command("diff", daemon.config).stdout
    daemon.command("apply", daemon.config)
    assert site.curl(f"{url}/page") == "hello"


@BOTH_PLACES
def test_stream_functions(site, tmp_path):
    """Functions of streams edit, search and log what curl sends and gets, compressed or not."""
    web = site.web(9001, size=3000)
    web.put("page.html", b"see http://a and http://b\n" * 100)
    echo = site.server(9002)
    log = tmp_path / "access.log"
    daemon = site.start(
        f"nf add web proxy {LOCAL}:9001",
        f"nf add echo proxy {LOCAL}:9002",
        "nf add edit http-edit request header set X-Seen yes response body replace http:// https://",
        f"nf add log http-log json file {log}",
        "nf add ids match evil reset http-body",
        "chain add site log then ids then edit then web",
        f"broker add web listen {LOCAL}:8080 chain site",
    )
    url = f"http://{LOCAL}:8080"
    expected = "see https://a and https://b\n" * 100
    assert site.curl(f"{url}/page.html") == expected
    assert site.curl("--compressed", f"{url}/page.html") == expected
    assert site.curl("--http1.0", f"{url}/page.html") == expected
    assert fetch(site.space, f"{url}/file") == web.content
    daemon.line("chain set site log then ids then edit then echo")
    assert json.loads(site.curl(url))["headers"]["X-Seen"] == "yes"
    assert site.curl("--data-binary", "good", url) == "good"
    refused = site.space.run("curl", "--silent", "--noproxy", "*", "--data-binary", "evil", url, check=False)
    assert refused.returncode == 56, refused
    assert site.counters()["refused"] == 1 and len(echo.seen) == 1
    wait.until(lambda: log.exists() and len(log.read_text(encoding="utf-8").splitlines()) == 7, "seven lines")
    lines = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    assert [line["status"] for line in lines] == [200] * 6 + [None]
    assert [line["client"] for line in lines] == [LOCAL] * 7 and lines[0]["server_port"] == 8080
    functions = daemon.line("show functions").stdout
    assert "edit: requests: 6\n" in functions and "log: responses: 6\n" in functions, functions


@BOTH_PLACES
def test_files_of_nginx_and_large_bodies(site):
    web = site.web(9001, size=8 << 20)
    site.start(f"nf add lb proxy {LOCAL}:9001", "chain add site lb", "broker add web listen [::]:8080 chain site")
    for host in (LOCAL, "[::1]"):
        assert fetch(site.space, f"http://{host}:8080/file") == web.content
    assert site.status("--head", f"http://{LOCAL}:8080/file") == 200
    assert site.status("--http1.0", f"http://{LOCAL}:8080/none") == 404
    echo = site.server(9002)
    site.daemon.line(f"nf add echo proxy {LOCAL}:9002")
    site.daemon.line("chain set site echo")
    upload = site.daemon.directory / "upload"
    upload.write_bytes(web.content)
    received = site.daemon.directory / "received"
    site.curl("--data-binary", f"@{upload}", "-o", received, f"http://{LOCAL}:8080/")
    assert received.read_bytes() == web.content and not echo.seen


@BOTH_PLACES
def test_servers_that_die(site):
    """A dead server costs no request; one that dies within its answer is not taken for a whole one."""
    server = site.server(9001)
    site.start(
        f"nf add lb proxy {LOCAL}:9001 {LOCAL}:9002 check http /health every 0.1",
        "nf add bad proxy 127.0.0.1:9002 retries 0",
        "chain add site lb",
        "chain add dead bad",
        f"broker add web listen {LOCAL}:8080 chain site",
    )
    url = f"http://{LOCAL}:8080"
    assert [site.status(url) for _ in range(6)] == [200] * 6
    broken = site.space.run("curl", "--silent", "--noproxy", "*", f"{url}/broken", check=False)
    assert broken.returncode == 18 and broken.stdout == "the beginning", broken
    connection = site.connect()
    connection.sendall(b"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: echo\r\nConnection: upgrade\r\n\r\n")
    lines = connection.makefile("rb")
    assert lines.readline() == b"HTTP/1.1 101 Switching Protocols\r\n"
    while lines.readline() != b"\r\n":
        pass
    for text in (b"abc\n", b"def\n"):
        connection.sendall(text)
        assert lines.read(len(text)) == text[::-1]
    connection.shutdown(socket.SHUT_WR)
    assert lines.read() == b""
    server.is_healthy = False
    wait.until(lambda: "9001: down" in site.daemon.line("show functions").stdout, "the server to be down")
    assert site.status(url) == 503
    server.is_healthy = True
    wait.until(lambda: site.status(url) == 200, "the server to be up again")
    site.daemon.line("broker del web")
    site.daemon.line(f"broker add web listen {LOCAL}:8080 chain dead")
    assert site.status(url) == 502
    assert site.counters()["failed"] == 1


SMUGGLED = (
    b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nx",
    b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +1\r\n\r\nx",
    b"GET / HTTP/1.1\r\nHost: a\r\nX: y\nGET /smuggled HTTP/1.1\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost : a\r\n\r\n",
    b"GET http://b/ HTTP/1.1\r\nHost: a\r\n\r\n",
    # Codings that one of two readers may not take for chunks (RFC 9112, 6.1 and 6.3).
    b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: identity\r\nContent-Length: 1\r\n\r\nx",
    b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: x\r\n\r\n0\r\n\r\n",
    b'POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: "chunked"\r\n\r\n0\r\n\r\n',
    b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    # Lengths that are no numbers, or two.
    b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1, 2\r\n\r\nx",
    b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0x1\r\n\r\nx",
    b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\nx",
    b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1 1\r\n\r\nx",
    b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length:\r\n\r\nx",
    b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999999999999\r\n\r\nx",
    b"POST / HTTP/1.1\r\nHost: a\r\nContent\x00-Length: 1\r\n\r\nx",
    # Lines that end in another manner, or do not begin as they have to (RFC 9112, 2.2 and 5.2).
    b"GET / HTTP/1.1\rHost: a\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\nX: y\rZ: z\r\n\r\n",
    b"GET / HTTP/1.1\r\n Host: a\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\n: x\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\nX: \x00\r\n\r\n",
    b"GET /\x01 HTTP/1.1\r\nHost: a\r\n\r\n",
)
# The server has got the heads of these, and must not get more.
SMUGGLED_CHUNKS = (
    b"0x1\r\nx\r\n0\r\n\r\n",
    b"-1\r\n",
    b"1 \x0b\r\nx\r\n0\r\n\r\n",
    b"ffffffffffffffff1\r\nx",
    b"1\nx\r\n0\r\n\r\n",
    b"1\r\nxy\r\n0\r\n\r\n",
    b"1;x=\n\r\nx\r\n0\r\n\r\n",
    b"0\r\nX : y\r\n\r\n",
    b"0\r\nX: y\nGET /smuggled HTTP/1.1\r\n\r\n",
)


@BOTH_PLACES
def test_hostile_clients(site):
    """Smuggled requests reach no server; slow clients end in time, and others are served meanwhile."""
    server = site.server(9001)
    site.start(
        f"nf add lb proxy {LOCAL}:9001",
        "chain add site lb",
        f"broker add web listen {LOCAL}:8080 chain site header-timeout 1 body-limit 1000",
    )
    url = f"http://{LOCAL}:8080"
    for request in SMUGGLED:
        answer = ask(site.connect(), request)
        assert answer.startswith(b"HTTP/1.1 400 ") and answer.count(b"HTTP/1.1") == 1, (request, answer)
    assert ask(site.connect(), b"GET / x HTTP/1.1\r\nHost: a\r\n\r\n").startswith(b"HTTP/1.1 505 ")
    assert ask(site.connect(), b"GET /" + b"a" * 9000).startswith(b"HTTP/1.1 431 ")
    assert server.seen == []
    for chunks in SMUGGLED_CHUNKS:
        request = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks
        answer = ask(site.connect(), request + b"GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 400 ") and answer.count(b"HTTP/1.1") == 1, (chunks, answer)
    assert server.seen == []
    # h2c would pass no function: the upgrade is left out.
    upgrade = ("-H", "Connection: Upgrade, HTTP2-Settings", "-H", "Upgrade: h2c", "-H", "HTTP2-Settings: AAMAAABkAAQ")
    assert "Upgrade" not in json.loads(site.curl(*upgrade, url))["headers"]
    assert site.status("--data-binary", "x" * 1001, url) == 413
    slow = [site.connect() for _ in range(50)]
    for connection in slow:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: a\r\nX-Slow: ")
    assert site.status(url) == 200
    for connection in slow:
        assert ask(connection, b"x").startswith(b"HTTP/1.1 408 ")
    assert site.counters()["client_timeouts"] == 50
    assert site.status(url) == 200


def tasks_of(daemon):
    """The directories of the broker's thread, and of its process if it has one."""
    domains = daemon.json("show", "domains")["domains"]
    processes = {function["process"] for domain in domains for function in domain["functions"] if function.get("process")}
    thread = daemon.process_directory() / "task" / str(daemon.thread("broker-web"))
    return [thread, *(pathlib.Path("/proc") / str(process) for process in processes)]


def ticks_and_switches(tasks):
    """CPU time and voluntary context switches."""
    found = []
    for task in tasks:
        fields = (task / "stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()
        switches = (task / "status").read_text(encoding="utf-8").split("voluntary_ctxt_switches:")[1].split()[0]
        found.append((int(fields[11]) + int(fields[12]), int(switches)))
    return found


@BOTH_PLACES
def test_idle_connections_cost_nothing(site):
    """A thousand connections without a request wake nobody, and are there when they are needed."""
    site.start("nf add page respond 200 hello", "chain add site page", f"broker add web listen {LOCAL}:8080 chain site")
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    connections = [site.connect() for _ in range(1000)]
    request = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"

    def answered(connection):
        connection.sendall(request)
        return connection.recv(4096).endswith(b"hello")

    assert all(answered(connection) for connection in connections[:10])
    wait.until(lambda: site.counters()["clients"] == 1000, "all connections")
    tasks = tasks_of(site.daemon)

    def sleep():
        before = ticks_and_switches(tasks)
        # Long enough for any periodic wake-up.
        threading.Event().wait(1)
        return ticks_and_switches(tasks) == before

    # What looks after a process looks once more behind the last request.
    wait.until(sleep, "a second without a wake-up")
    assert all(answered(connection) for connection in connections[990:])


def test_ten_thousand_idle_connections_need_little_memory(site):
    """Connections between two requests hold no buffer."""
    site.start(
        "nf add page respond 200 hello",
        "chain add site page",
        f"broker add web listen {LOCAL}:8080 chain site source-connections 10001",
    )
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    first = [site.connect() for _ in range(10)]
    request = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
    for connection in first:
        connection.sendall(request)
        assert connection.recv(4096).endswith(b"hello")
    before = site.daemon.memory()
    with site.space.entered():
        many = [socket.create_connection((LOCAL, 8080), timeout=wait.PATIENCE) for _ in range(9990)]
    for connection in many:
        connection.sendall(request)
    assert all(connection.recv(4096).endswith(b"hello") for connection in many)
    assert site.counters()["clients"] == 10_000
    used = site.daemon.memory() - before
    for connection in many:
        connection.close()
    wait.until(lambda: site.counters()["clients"] == 10, "the connections to be closed")
    assert used < 10_000 * 2, f"{used} KiB for 10,000 connections"


@BOTH_PLACES
def test_changes_under_load_cost_no_request(site):
    site.web(9001, size=1000)
    site.web(9002, size=1000)
    site.start(
        f"nf add one proxy {LOCAL}:9001",
        f"nf add two proxy {LOCAL}:9002",
        f"nf add both proxy {LOCAL}:9001 {LOCAL}:9002",
        "nf add urls url-rewrite ^/old/(.*) /$1",
        "chain add site one then urls",
        f"broker add web listen {LOCAL}:8080 chain site",
    )
    wrk = site.space.popen(
        "wrk", "-t", 1, "-c", 16, "-d", 3, f"http://{LOCAL}:8080/old/file", stdout=-1, stderr=-1, text=True
    )
    changes = 0
    while wrk.poll() is None:
        body = ("two | urls", "both | urls", "urls | one")[changes % 3]
        site.daemon.command("chain", "set", "site", *body.split())
        site.daemon.line(f"nf set both {('drain', 'undrain')[changes % 2]} {LOCAL}:9001")
        changes += 1
    report = wrk.communicate()[0]
    assert changes > 3 and "Requests/sec" in report, report
    assert "Non-2xx" not in report and "Socket errors" not in report, report
    counters = site.counters()
    assert counters["requests"] > 100 and counters["failed"] == counters["invalid"] == 0, counters


def test_what_cannot_be_is_refused(site):
    """One sentence each, and nothing has changed."""
    daemon = site.start("nf add lb proxy 192.0.2.1", "nf add stats count", "nf add log http-log", "chain add site lb", "chain add inside stats")
    other = site.space.socket(socket.AF_INET, socket.SOCK_STREAM)
    other.bind((LOCAL, 8081))
    other.listen()
    site.on_close(other.close)
    before = daemon.state()
    for line, sentence in (
        (f"broker add web listen {LOCAL}:8081 chain site", "another program listens there"),
        ("broker add web listen 192.0.2.7:8080 chain site", "this machine does not have the address"),
        (f"broker add web listen {LOCAL}:80 chain site", "ports below 1024 need `mmb run --low-ports`"),
        (f"broker add web listen {LOCAL}:8080 chain inside", "cannot use chain `inside`"),
        (f"broker add web listen {LOCAL}:8080 chain none", "there is no chain `none`"),
        (f"broker add web listen {LOCAL} chain site", "is not an address with a port"),
        (f"broker add web listen {LOCAL}:8080 chain site connections 0", "invalid value of `connections`"),
        ("broker del web", "there is no broker `web`"),
        ("add tcp-dport 80 chain site", "rules cannot use chain `site`"),
        ("chain add both lb then stats", "a chain has functions of one kind"),
        ("chain add both lb then log", "put `log` before `lb`"),
        ("nf add x proxy", "1 to 256 servers"),
    ):
        refused = daemon.line(line, check=False)
        assert refused.returncode == 1 and sentence in refused.stderr, (line, refused)
        assert daemon.state() == before, line
    assert daemon.line("show brokers").stdout == "no brokers\n"
    assert int(daemon.status()["CapEff"], 16) & NET_BIND_SERVICE == 0


@BOTH_PLACES
def test_a_broker_on_all_addresses_is_replaced_by_one_on_one_address(site):
    """In one change, since a port cannot have both. If the change fails, the old one goes on."""
    daemon = site.start("nf add page respond 200 hello", "chain add site page", "broker add web listen 0.0.0.0:8080 chain site")
    url = f"http://{LOCAL}:8080"
    before = daemon.json("show", "config")["config"]
    text = before.replace("0.0.0.0:8080", "192.0.2.7:8080")
    daemon.config.write_text(text, encoding="utf-8")
    refused = daemon.command("apply", daemon.config, check=False)
    assert refused.returncode == 1 and "does not have the address" in refused.stderr, refused
    assert daemon.json("show", "config")["config"] == before
    assert site.curl(url) == "hello"
    for old, new in (("0.0.0.0:8080", f"{LOCAL}:8080"), (f"{LOCAL}:8080", "0.0.0.0:8080")):
        daemon.config.write_text(before.replace("0.0.0.0:8080", new), encoding="utf-8")
        daemon.command("apply", daemon.config)
        assert site.curl(url) == "hello"
        assert new in daemon.line("show brokers").stdout and old not in daemon.line("show brokers").stdout


@BOTH_PLACES
def test_a_response_without_length_that_breaks_off_is_reset(site):
    """A client of HTTP/1.0 knows the end of a body by the end of the connection. A plain end would be a whole body."""
    with site.space.entered():
        listener = socket.create_server((LOCAL, 9001))
    site.on_close(listener.close)
    site.start(f"nf add lb proxy {LOCAL}:9001", "chain add site lb", f"broker add web listen {LOCAL}:8080 chain site")

    def answer():
        far = listener.accept()[0]
        far.recv(65536)
        far.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
        far.close()

    server = threading.Thread(target=answer, daemon=True)
    server.start()
    near = site.space.socket(socket.AF_INET, socket.SOCK_STREAM)
    with near:
        near.settimeout(wait.PATIENCE)
        near.connect((LOCAL, 8080))
        near.sendall(b"GET / HTTP/1.0\r\n\r\n")
        received = b""
        with pytest.raises(ConnectionResetError):
            while piece := near.recv(65536):
                received += piece
    assert received.startswith(b"HTTP/1.1 200 OK") and received.endswith(b"\r\n\r\nabc"), received
    server.join(wait.PATIENCE)


@BOTH_PLACES
def test_low_ports(site):
    """A broker of the file to start with may have a low port; one that cannot listen is down."""
    daemon = site.start(
        "nf add page respond 200 hello",
        "chain add site page",
        f"broker add web listen {LOCAL}:80 chain site",
        "broker add far listen 192.0.2.7:80 chain site",
    )
    assert site.curl(f"http://{LOCAL}") == "hello"
    assert int(daemon.status()["CapEff"], 16) & NET_BIND_SERVICE
    shown = daemon.line("show brokers").stdout
    assert "broker `far` cannot listen on 192.0.2.7:80: this machine does not have the address" in shown
    assert "broker `far` is down" in daemon.log()
    site.space.run("ip", "address", "add", "192.0.2.7/32", "dev", "lo")
    daemon.line("set tcp-pickup off")
    assert site.curl("http://192.0.2.7") == "hello"
    assert daemon.stop() == 0
