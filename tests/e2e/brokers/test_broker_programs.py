"""Brokers between programs that people run: load generators, WebSocket, nginx and HAProxy on both sides."""

import asyncio
import json
import os
import re

import pytest
import websockets

from brokers.servers import LOCAL
from lab import wait
from lab.netns import end

URL = f"http://{LOCAL}:8080"
PROXY = [f"nf add lb proxy {LOCAL}:9001", "chain add site lb", f"broker add web listen {LOCAL}:8080 chain site"]
REQUESTS, CONNECTIONS = 2000, 32


def ab(space, *words):
    """ApacheBench speaks HTTP/1.0. Returns how many requests it has completed, and how many failed."""
    shown = space.run("ab", "-q", "-n", REQUESTS, "-c", CONNECTIONS, *words, f"{URL}/file").stdout
    failed = re.findall(r"(?:Failed requests|Non-2xx responses):\s+(\d+)", shown)
    return int(re.search(r"Complete requests:\s+(\d+)", shown)[1]), sum(map(int, failed))


def ab_kept(space):
    return ab(space, "-k")


def h2load(space):
    """h2load with HTTP/1.1."""
    shown = space.run("h2load", "--h1", "-n", REQUESTS, "-c", CONNECTIONS, f"{URL}/file").stdout
    found = re.search(r"(\d+) succeeded, (\d+) failed, (\d+) errored, (\d+) timeout", shown)
    succeeded, *others = map(int, found.groups())
    return succeeded, sum(others)


@pytest.mark.parametrize("generator", [ab, ab_kept, h2load])
def test_load_generators_lose_no_request(site, generator):
    web = site.web(9001, size=1000)
    site.start(*PROXY)
    assert generator(site.space) == (REQUESTS, 0)
    assert len(web.log_lines()) >= REQUESTS
    assert site.counters()["requests"] >= REQUESTS


def test_websockets_are_tunnels(site):
    """Messages of all sizes both ways, pings, and the close with its code (RFC 6455)."""
    site.start(*PROXY)
    sizes = [0, 1, 125, 126, 65535, 65536, 1 << 20]

    async def echo(connection, *_):
        async for message in connection:
            await connection.send(message)
        assert connection.close_code == 4000

    async def talk():
        async with websockets.serve(echo, LOCAL, 9001, max_size=None):
            async with websockets.connect(f"ws://{LOCAL}:8080/chat", max_size=None) as client:
                for size in sizes:
                    message = os.urandom(size)
                    await client.send(message)
                    assert await client.recv() == message
                await asyncio.wait_for(await client.ping(b"are you there"), wait.PATIENCE)
                # A message of several frames goes on while another one comes back.
                await client.send(["a", "b" * 70000, "c"])
                assert await client.recv() == "a" + "b" * 70000 + "c"
                await client.close(4000, "done")
                assert client.close_code == 4000

    with site.space.entered():
        asyncio.run(asyncio.wait_for(talk(), wait.PATIENCE))
    assert site.counters()["tunnels"] == 1


def haproxy(port, lines):
    return (
        "global\n  nbthread 1\ndefaults\n  mode http\n  timeout connect 5s\n  timeout client 30s\n  timeout server 30s\n"
        f"listen all\n  bind {LOCAL}:{port}\n{lines}"
    )


def nginx(directory, port, lines):
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    places = " ".join(f"{kind}_temp_path {directory}/tmp;" for kind in kinds)
    return (
        f"daemon off; pid {directory}/pid; error_log stderr; events {{ }}\n"
        f"http {{ access_log off; {places} upstream broker {{ server {LOCAL}:8080; keepalive 8; }}\n server {{ listen {LOCAL}:{port}; {lines} }} }}\n"
    )


@pytest.fixture
def start(site, tmp_path):
    """start(program, port, lines): the program with a configuration, when it listens."""

    def started(program, port, lines):
        tmp_path.chmod(0o755)
        path = tmp_path / f"{program}-{port}"
        path.write_text(haproxy(port, lines) if program == "haproxy" else nginx(tmp_path, port, lines), encoding="utf-8")
        command = ("haproxy", "-db", "-f") if program == "haproxy" else ("nginx", "-c")
        process = site.space.popen(*command, path)
        site.on_close(end, process)
        wait.until(lambda: site.space.listens(port), f"{program} to listen")

    return started


IN_FRONT = {
    "nginx": "location / { proxy_pass http://broker; proxy_http_version 1.1; proxy_set_header Connection ''; "
    "proxy_set_header X-Forwarded-For $remote_addr; client_max_body_size 0; proxy_request_buffering off; }",
    "haproxy": f"  option forwardfor\n  http-reuse always\n  server broker {LOCAL}:8080\n",
}


@pytest.mark.parametrize("program", IN_FRONT)
def test_behind_another_proxy(site, start, program, tmp_path):
    """Requests of several clients come by the proxy's connections; bodies have a length, or chunks."""
    site.server(9001)
    site.start(*PROXY)
    start(program, 8000, IN_FRONT[program])
    url = f"http://{LOCAL}:8000"
    for number in range(20):
        seen = json.loads(site.curl(f"{url}/{number}"))
        assert seen["path"] == f"/{number}"
        # The client, and the proxy in front.
        assert seen["headers"]["X-Forwarded-For"].replace(" ", "").split(",") == [LOCAL, LOCAL]
    body = tmp_path / "body"
    body.write_bytes(os.urandom(1 << 20).hex().encode())
    assert site.curl("--data-binary", f"@{body}", url) == body.read_text(encoding="ascii")
    counters = site.counters()
    assert counters["requests"] == 21
    assert counters["accepted"] < 21, "the proxy keeps its connections"


SERVING = {
    "nginx": "location /old { return 404 old; } location /new { default_type text/plain; return 200 $uri; }",
    "haproxy": "  http-request return status 404 if { path_beg /old }\n"
    "  http-request return status 200 content-type text/plain lf-string %HP\n",
}


@pytest.mark.parametrize("program", SERVING)
def test_in_front_of_another_server(site, start, program):
    start(program, 9001, SERVING[program])
    site.start(PROXY[0], "nf add urls url-rewrite ^/old/(.*) /new/$1", "chain add site urls then lb", PROXY[2])
    urls = [f"{URL}/old/{number}" for number in range(20)]
    assert site.curl(*urls) == "".join(f"/new/{number}" for number in range(20))
    assert site.status("-X", "HEAD", "-I", f"{URL}/new/x") == 200
    assert site.status(f"{URL}/oldest") == 404


# Each returns the address and the port that the header in front of the requests names.
BEHIND_HEADER = {
    "nginx": "listen 127.0.0.1:9002 proxy_protocol; location / { default_type text/plain; "
    "return 200 '$proxy_protocol_addr $proxy_protocol_port,'; }",
    "haproxy": f"  bind {LOCAL}:9002 accept-proxy\n"
    "  http-request return status 200 content-type text/plain lf-string '%[src] %[src_port],'\n",
}


@pytest.mark.parametrize("version", ["v1", "v2"])
@pytest.mark.parametrize("program", BEHIND_HEADER)
def test_servers_learn_the_client_by_a_header(site, start, program, version):
    """nginx and HAProxy find the client's address and port in the header of the PROXY protocol, and accept that of checks."""
    start(program, 9001, BEHIND_HEADER[program])
    site.start(f"nf add lb proxy {LOCAL}:9002 send-proxy {version} check http / every 0.1", *PROXY[1:])
    wait.until(lambda: int(re.search(r"checks (\d+) passed", site.daemon.line("show functions").stdout)[1]) > 1, "two checks")
    for port in (20001, 20002):
        seen = site.curl("--interface", "127.0.0.2", "--local-port", port, URL, URL)
        assert seen == f"127.0.0.2 {port}," * 2
    counters = site.counters()
    assert (counters["failed"], counters["connects"], counters["reused"]) == (0, 2, 2)
