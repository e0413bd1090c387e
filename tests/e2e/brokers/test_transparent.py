"""Transparent brokers: connections to anybody, which a rule sends to a broker on the kernel's TCP."""

import contextlib
import hashlib
import http.client
import http.server
import json
import os
import pathlib
import re
import signal
import socket
import sys
import threading

import pytest

from lab import traffic, wait
from lab.netns import CommandFailed, run
from lab.routebench import BOX, BOX6, CLIENT, CLIENT6, FAR, FAR6, SERVER, SERVER6

BOTH = [pytest.param(SERVER, CLIENT, FAR, id="ip4"), pytest.param(SERVER6, CLIENT6, FAR6, id="ip6")]
BROKER = """nf add mark http-edit response header add X-Broker all
nf add none url-rewrite ^/nowhere$ /
chain add site mark then none
broker add all transparent chain site
"""
RULE = "add in left tcp-dport 80 broker all"
# For tests whose functions run in the daemon, and then in a process.
BOTH_PLACES = pytest.mark.parametrize("make_box", [None, "tenant"], ids=["daemon", "process"], indirect=True)


def placed(lines, domain):
    """The lines, with their functions in a domain."""
    if domain is None:
        return lines
    added = (f"{line} process {domain}" if line.startswith("nf add ") else line for line in lines.splitlines())
    return "\n".join([f"domain add {domain} private", *added, ""])


class Origin(http.server.ThreadingHTTPServer):
    """A server that tells what it has got, and sends and takes large bodies."""

    address_family = socket.AF_INET6
    daemon_threads = True
    request_queue_size = 1024

    def __init__(self, namespace, port=80):
        self.resume = threading.Event()
        with namespace.entered():
            super().__init__(("::", port), Handler)
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    def server_bind(self):
        # The name of the host is not looked up.
        self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_name, self.server_port = "origin", self.server_address[1]

    def handle_error(self, *_):
        """Connections that are reset are no error."""


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        if self.path == "/slow":
            # The second half waits for the test.
            self.head(2 * len(HALF))
            self.wfile.write(HALF)
            self.server.resume.wait(wait.PATIENCE)
            self.wfile.write(HALF)
            return
        if self.path == "/large":
            self.head(len(LARGE))
            self.wfile.write(LARGE)
            return
        seen = {
            "from": self.client_address[0].removeprefix("::ffff:"),
            "forwarded": self.headers.get("X-Forwarded-For"),
            "path": self.path,
        }
        body = json.dumps(seen).encode()
        self.head(len(body))
        self.wfile.write(body)

    def do_POST(self):
        digest, left = hashlib.sha256(), int(self.headers["Content-Length"])
        while left:
            data = self.rfile.read(min(left, 1 << 20))
            digest.update(data)
            left -= len(data)
        body = digest.hexdigest().encode()
        self.head(len(body))
        self.wfile.write(body)

    def head(self, length):
        self.send_response(200)
        self.send_header("Content-Length", str(length))
        if self.headers.get("Connection") == "close":
            # Or wrk takes the end for an error.
            self.send_header("Connection", "close")
        self.end_headers()

    def log_message(self, *_):
        pass


HALF, LARGE = b"half of it " * 100_000, os.urandom(24 << 20)


def connect(namespace, address, port=80):
    connection = http.client.HTTPConnection(address, port, timeout=wait.PATIENCE)
    with namespace.entered():
        connection.connect()
    return connection


def get(connection, path="/"):
    """(whether it came through the broker, the body)."""
    connection.request("GET", path)
    response = connection.getresponse()
    return response.headers.get("X-Broker") is not None, response.read()


def get_new(bench, address, path="/", port=80):
    with contextlib.closing(connect(bench.client, address, port)) as connection:
        return get(connection, path)


@pytest.fixture
def make_box(make_router, request):
    """make_box(rules, …): a router with a broker and rules, and a server behind it."""

    def make(config=RULE, driver="af-packet", **options):
        bench = make_router(f"{placed(BROKER, getattr(request, 'param', None))}{config}\n", driver, **options)
        bench.origin = Origin(bench.servers)
        bench.on_close(bench.origin.server_close)
        bench.on_close(bench.origin.shutdown)
        bench.on_close(bench.origin.resume.set)
        return bench

    return make


def broker(bench):
    (one,) = bench.daemon.json("show", "brokers")["brokers"]
    return one


@BOTH_PLACES
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("server, client, far", BOTH)
def test_a_rule_sends_connections_to_the_broker(make_box, driver, server, client, far, workers):
    """curl reaches the server that it has named; the server sees the box, and learns the client's address."""
    bench = make_box(driver=driver, workers=workers)
    shown = bench.client.run("curl", "-sS", "-i", "--max-time", "10", f"http://[{server}]/x" if ":" in server else f"http://{server}/x").stdout
    head, _, body = shown.partition("\n\n")
    assert "X-Broker: all" in head, shown
    assert json.loads(body) == {"from": far, "forwarded": client, "path": "/x"}
    # Requests of one connection, and many connections.
    with contextlib.closing(connect(bench.client, server)) as connection:
        assert all(get(connection, "/y")[0] for _ in range(20))
    assert all(get_new(bench, server)[0] for _ in range(20))
    counters = broker(bench)["counters"]
    assert (counters["accepted"], counters["requests"], counters["status_2xx"]) == (22, 41, 41)
    # The session table has each connection once, with the packets of both directions.
    sessions = bench.daemon.json("show", "connections", "tcp-dport", "80")["connections"]
    assert len(sessions) == 22, sessions
    (rule,) = bench.daemon.rules().values()
    assert rule["packets"] >= 22
    drops = bench.daemon.drops()
    assert not any(drops[reason] for reason in ("rule", "no-route", "martian", "other-host", "punt-full", "port-gone"))


@BOTH_PLACES
@pytest.mark.parametrize("server, client, far", BOTH)
def test_large_bodies(make_box, driver, server, client, far):
    bench = make_box(driver=driver)
    through, body = get_new(bench, server, "/large")
    assert through and hashlib.sha256(body).digest() == hashlib.sha256(LARGE).digest()
    with contextlib.closing(connect(bench.client, server)) as connection:
        connection.request("POST", "/", LARGE)
        response = connection.getresponse()
        assert response.headers["X-Broker"] == "all"
        assert response.read().decode() == hashlib.sha256(LARGE).hexdigest()


@pytest.mark.parametrize("server, client, far", BOTH)
def test_connections_keep_their_plane(make_box, server, client, far):
    """One that began through the broker goes on through it without the rule, and one that began without the
    broker goes on without it under the rule."""
    bench = make_box(config="")
    direct = connect(bench.client, server)
    assert get(direct)[0] is False
    index = bench.daemon.add(RULE.removeprefix("add "))
    assert get(direct)[0] is False, "it began before the rule"
    brokered = connect(bench.client, server)
    brokered.request("GET", "/slow")
    response = brokered.getresponse()
    assert response.headers["X-Broker"] == "all" and response.read(len(HALF)) == HALF
    bench.daemon.line(f"del {index}")
    assert get_new(bench, server)[0] is False
    bench.origin.resume.set()
    assert response.read() == HALF
    assert get(brokered)[0] is True, "it began under the rule"
    assert get(direct)[0] is False
    for connection in (direct, brokered):
        connection.close()


def test_the_rule_comes_and_goes_under_load(make_box):
    """No request fails meanwhile: a connection goes on as it has begun, through the broker or without it."""
    bench = make_box(config="")
    wrk = bench.client.popen(
        "wrk", "-t", 1, "-c", 8, "-d", 3, "-H", "Connection: close", f"http://{SERVER}/x", stdout=-1, stderr=-1, text=True
    )
    changes = 0
    while wrk.poll() is None:
        index = bench.daemon.add(RULE.removeprefix("add "))
        before = broker(bench)["counters"]["requests"]
        wait.until(lambda before=before: wrk.poll() is not None or broker(bench)["counters"]["requests"] > before, "a request of the broker")
        bench.daemon.line(f"del {index}")
        changes += 1
    report = wrk.communicate()[0]
    asked, requests = int(re.search(r"(\d+) requests in", report)[1]), broker(bench)["counters"]["requests"]
    assert changes > 3 and 0 < requests < asked, (changes, requests, report)
    assert "Non-2xx" not in report and "Socket errors" not in report, report


def test_rules_and_translation_come_first(make_box):
    """The broker sees the address that NAT has given to the client, and no connection that a rule drops."""
    bench = make_box(
        config=f"nat pool add wan 10.2.0.77\nadd-stateful in left ip-saddr {CLIENT} nat wan\n{RULE}\nadd tcp-dport 80 ip-daddr 10.9.0.9 drop\n"
    )
    through, body = get_new(bench, SERVER)
    assert through and json.loads(body)["forwarded"] == "10.2.0.77"
    with pytest.raises(OSError), bench.client.socket(socket.AF_INET, socket.SOCK_STREAM) as blocked:
        blocked.settimeout(0.5)
        blocked.connect(("10.9.0.9", 80))
    assert broker(bench)["counters"]["accepted"] == 1


def test_only_tcp_is_selected(make_box):
    bench = make_box(config="add in left broker all")
    assert get_new(bench, SERVER)[0] is True
    done = bench.client.run("ping", "-c", "2", "-i", "0.05", "-W", "5", SERVER).stdout
    assert "2 received" in done
    datagrams = traffic.Datagrams(bench.client, bench.servers, SERVER)
    datagrams.send(10)
    assert len(bench.daemon.json("show", "connections")["connections"]) == 1


@pytest.mark.parametrize("client, size", [(CLIENT, 1000), (CLIENT6, 1300)])
def test_path_mtu(make_box, client, size):
    """What the broker sends is too long for the route to the client: the engine tells the kernel's TCP so."""
    bench = make_box()
    bench.mbox.run("ip", "-4" if "." in client else "-6", "route", "add", client, "dev", bench.face(0), "mtu", "lock", size)
    wait.until(lambda: f" {size}" in json.dumps(bench.daemon.json("show", "fib", client)), "the MTU of the route")
    through, body = get_new(bench, SERVER if "." in client else SERVER6, "/large")
    assert through and body == LARGE
    assert bench.daemon.drops()["frag-needed"] > 0


def kernel_state(bench):
    """What mmb could leave in the network namespace of the machine."""
    shown = [bench.mbox.run("ip", "-o", "link").stdout.count("\n")]
    for version in ("-4", "-6"):
        shown.append(bench.mbox.run("ip", version, "rule").stdout)
        routes = bench.mbox.run("ip", version, "route", "show", "table", "all").stdout.splitlines()
        # Link-local addresses come some time after their interface.
        shown.append(sorted(route for route in routes if "fe80::" not in route and "ff00::" not in route))
    return shown


def test_nothing_is_left_behind_by_a_killed_daemon(make_box):
    """The machine's own rules, routes and interfaces never change; a killed daemon starts again."""
    bench = make_box()
    with_broker = kernel_state(bench)
    assert get_new(bench, SERVER)[0] is True
    bench.daemon.line("del 1")
    bench.daemon.line("broker del all")
    assert kernel_state(bench) == with_broker
    bench.daemon.line("broker add all transparent chain site")
    bench.daemon.line(RULE)
    assert get_new(bench, SERVER)[0] is True
    held = connect(bench.client, SERVER)
    assert get(held)[0] is True
    bench.daemon.stop(signal.SIGKILL)
    bench.daemon.start()
    for interface, addresses in ((0, (f"{BOX}/24", f"{BOX6}/64")), (1, (f"{FAR}/24", f"{FAR6}/64"))):
        bench.add(bench.mbox, bench.face(interface), *addresses)
    bench.until_routed(FAR, "local")
    assert kernel_state(bench) == with_broker
    assert get_new(bench, SERVER)[0] is True
    held.close()


def interface_indexes(namespace):
    """The indexes of the interfaces in a namespace, which a file of /proc names, without loopback."""
    shown = run("nsenter", f"--net={namespace}", "ip", "-json", "link").stdout
    return {one["ifindex"] for one in json.loads(shown) if one["ifname"] != "lo"}


def test_the_same_index_in_two_namespaces(make_box):
    """The namespace of brokers numbers its interfaces as any other does: nothing takes one for a port of that number."""
    bench = make_box()
    process = pathlib.Path(f"/proc/{bench.daemon.process.pid}")
    own = os.readlink(process / "ns" / "net")
    spaces = {os.readlink(task / "ns" / "net"): task / "ns" / "net" for task in (process / "task").iterdir()}
    (other,) = [path for space, path in spaces.items() if space != own]
    taken = interface_indexes(other)
    ports = interface_indexes(process / "ns" / "net")
    for index in sorted(taken - ports):
        bench.mbox.run("ip", "link", "add", f"same{index}", "index", index, "type", "dummy")
        bench.mbox.run("ip", "link", "set", f"same{index}", "up")
    assert taken and taken <= interface_indexes(process / "ns" / "net")
    for _ in range(3):
        assert get_new(bench, SERVER)[0] is True
        assert get_new(bench, SERVER6)[0] is True


def test_deletion_ends_connections(make_box):
    bench = make_box(config="")
    index = bench.daemon.add(RULE.removeprefix("add "))
    connection = connect(bench.client, SERVER)
    assert get(connection)[0] is True
    with pytest.raises(CommandFailed, match="used by rule"):
        bench.daemon.line("broker del all")
    bench.daemon.line(f"del {index}")
    bench.daemon.line("broker del all")
    connection.sock.settimeout(wait.PATIENCE)
    with contextlib.suppress(ConnectionResetError):
        assert connection.sock.recv(1) == b""
    assert get_new(bench, SERVER)[0] is False


@pytest.mark.parametrize("domain", [None, "tenant"], ids=["daemon", "process"])
def test_listening_and_transparent(make_router, domain):
    """One broker with both entrances; `proxy` chooses the server of all."""
    config = (
        f"nf add lb proxy {SERVER}:8080\nchain add site lb\n"
        f"broker add web listen 127.0.0.1:8888 transparent chain site\nadd in left tcp-dport 80 broker web\n"
    )
    bench = make_router(driver="af-packet", config=placed(config, domain))
    origin = Origin(bench.servers, 8080)
    bench.on_close(origin.server_close)
    bench.on_close(origin.shutdown)
    assert json.loads(get_new(bench, "10.9.1.2")[1])["forwarded"] == CLIENT
    with contextlib.closing(connect(bench.mbox, "127.0.0.1", 8888)) as connection:
        assert json.loads(get(connection)[1])["forwarded"] == "127.0.0.1"
    assert broker(bench)["counters"]["accepted"] == 2
    assert "127.0.0.1:8888, transparent" in bench.daemon.line("show brokers").stdout


@BOTH_PLACES
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("server, client, far", BOTH)
def test_servers_see_the_client(make_box, driver, server, client, far, workers):
    bench = make_box(config="", driver=driver, workers=workers)
    bench.daemon.line("broker del all")
    bench.daemon.line("broker add all transparent keep-source chain site")
    bench.daemon.line(RULE)
    with contextlib.closing(connect(bench.client, server)) as connection:
        for _ in range(5):
            through, body = get(connection)
            assert through and json.loads(body)["from"] == client
    through, body = get_new(bench, server, "/large")
    assert through and body == LARGE
    # The connections of another client are its own.
    assert broker(bench)["counters"]["connects"] == 2


REFUSED = [
    ("add tcp-dport 80 broker none", "there is no broker `none`"),
    ("add tcp-dport 80 broker web", "broker `web` is not transparent"),
    ("add udp-dport 53 broker all", "gets TCP connections, and this rule matches none"),
    ("add-stateful tcp-dport 80 broker all drop", "opens no session"),
    ("add-stateful tcp-dport 80 chain fw broker all", "both `chain` and `broker`"),
    ("add-stateless tcp-dport 80 broker all", "`add-stateless` opens none"),
    ("add in a tcp-dport 80 broker all", "interface `a` is wired"),
    ("broker add all transparent chain site", "broker `all` already"),
    ("broker add other transparent", "chain"),
]


def test_refusals(make_router):
    config = (
        f"{BROKER}broker add web listen 127.0.0.1:8888 chain site\nnf add count count\nchain add fw count\n"
        "interface add a null\ninterface add b null\nwire a b\n"
    )
    bench = make_router(driver="af-packet", config=config)
    before = bench.daemon.state()
    for line, reason in REFUSED:
        with pytest.raises(CommandFailed, match=reason):
            bench.daemon.line(line)
    assert bench.daemon.state() == before


def test_without_the_right_to_a_namespace(make_bench, make_daemon):
    """The rest of the daemon works, and the refusal says what is missing."""
    bench = make_bench()
    daemon = make_daemon(bench.mbox, BROKER, wrapper=("setpriv", "--bounding-set", "-sys_admin", "--inh-caps", "-sys_admin"))
    (one,) = daemon.json("show", "brokers")["brokers"]
    assert "CAP_SYS_ADMIN" in one["down"]
    before = daemon.state()
    with pytest.raises(CommandFailed, match="broker `more` cannot be transparent.*CAP_SYS_ADMIN"):
        daemon.line("broker add more transparent chain site")
    assert daemon.state() == before
    # The port of the broker that is down is free again, and not down for the next one.
    daemon.line("broker del all")
    with pytest.raises(CommandFailed, match="broker `all` cannot be transparent.*CAP_SYS_ADMIN"):
        daemon.line("broker add all transparent chain site")


# A program that runs another one without the system call bpf(2), as in a kernel without BPF (seccomp(2)).
WITHOUT_BPF = """
import ctypes, os, struct, sys
LOAD, EQUAL, RETURN, NUMBER, ALLOW, ERRNO = 0x20, 0x15, 0x06, {"x86_64": 321, "aarch64": 280}[os.uname().machine], 0x7FFF0000, 0x50000
steps = [(LOAD, 0, 0, 0), (EQUAL, 0, 1, NUMBER), (RETURN, 0, 0, ERRNO | 38), (RETURN, 0, 0, ALLOW)]
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
filter = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(steps), ctypes.addressof(code)))
assert ctypes.CDLL(None).prctl(22, 2, filter, 0, 0) == 0
os.execvp(sys.argv[1], sys.argv[1:])
"""


def test_without_programs_in_the_kernel(make_bench, make_daemon):
    """A kernel that cannot select sockets: brokers that listen and functions in processes work, and the refusal says why."""
    bench = make_bench()
    config = f"{placed(BROKER, 'tenant')}broker add web listen 127.0.0.1:8888 chain site\n"
    daemon = make_daemon(bench.mbox, config, wrapper=(sys.executable, "-c", WITHOUT_BPF))
    brokers = {one["name"]: one.get("down") for one in daemon.json("show", "brokers")["brokers"]}
    assert brokers["web"] is None and "Linux does from 5.17 on" in brokers["all"], brokers
    # The chain has no server.
    assert " 503 " in bench.mbox.run("curl", "-sSi", "http://127.0.0.1:8888").stdout.splitlines()[0]
    before = daemon.state()
    with pytest.raises(CommandFailed, match="broker `more` cannot be transparent: the kernel cannot select sockets.*Function not implemented"):
        daemon.line("broker add more transparent chain site")
    assert daemon.state() == before


def test_slow_and_idle_clients(make_router):
    """They hold connections of the broker, up to its limits, and the control socket answers."""
    config = BROKER.replace("chain site\n", "chain site header-timeout 1 idle-timeout 30 source-connections 500\n") + RULE
    config = config.replace("chain add site mark then none header-timeout 1 idle-timeout 30 source-connections 500", "chain add site mark then none")
    bench = make_router(driver="af-packet", config=config + "\n")
    origin = Origin(bench.servers)
    bench.on_close(origin.server_close)
    bench.on_close(origin.shutdown)
    slow = bench.client.socket(socket.AF_INET, socket.SOCK_STREAM)
    slow.settimeout(wait.PATIENCE)
    slow.connect((SERVER, 80))
    slow.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nX-Slow: ")
    assert b" 408 " in slow.recv(1000)
    slow.close()
    with contextlib.ExitStack() as idle:
        for _ in range(700):
            one = idle.enter_context(bench.client.socket(socket.AF_INET, socket.SOCK_STREAM))
            one.settimeout(wait.PATIENCE)
            one.connect((SERVER, 80))
        wait.until(lambda: broker(bench)["counters"]["limited"] >= 199, "the limit")
        assert broker(bench)["counters"]["clients"] <= 500
        assert bench.daemon.line("show brokers").returncode == 0
    wait.until(lambda: broker(bench)["counters"]["clients"] == 0, "the end of all")
    assert get_new(bench, SERVER)[0] is True
