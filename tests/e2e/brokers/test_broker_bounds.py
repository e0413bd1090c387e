"""What clients can make a broker hold: slow readers and long bodies, in the daemon and in a process."""

import os
import pathlib
import resource
import socket

from brokers.servers import BOTH_PLACES, LOCAL
from lab import wait

URL = f"http://{LOCAL}:8080"
GIB = 1 << 30
# What a broker holds of each direction of a connection: 64 KiB and the last read, in KiB.
SHARE = 2 * (64 + 64)
READERS = 100


def used(daemon):
    """KiB of memory that the daemon and the processes of its functions use."""
    domains = daemon.json("show", "domains")["domains"]
    processes = {one["process"] for domain in domains for one in domain["functions"] if one.get("process")}
    texts = [(pathlib.Path("/proc") / str(one) / "status").read_text(encoding="utf-8") for one in (daemon.process.pid, *processes)]
    return sum(int(text.split("VmRSS:")[1].split()[0]) for text in texts)


@BOTH_PLACES
def test_slow_readers_hold_their_share(site):
    """Clients that read nothing stop their servers, and cost others neither memory nor time."""
    web = site.web(9001, size=1000)
    web.put("large", b"")
    os.truncate(web.path("large"), GIB)
    site.start(f"nf add lb proxy {LOCAL}:9001", "chain add site lb", f"broker add web listen {LOCAL}:8080 chain site")
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    assert site.status(f"{URL}/file") == 200
    before, readers = used(site.daemon), []
    for _ in range(READERS):
        reader = site.space.socket(socket.AF_INET, socket.SOCK_STREAM)
        site.on_close(reader.close)
        # Little of it is in the buffers of the kernel.
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        reader.settimeout(wait.PATIENCE)
        reader.connect((LOCAL, 8080))
        reader.sendall(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n")
        assert reader.recv(12) == b"HTTP/1.1 200"
        readers.append(reader)

    def sent():
        return site.counters()["bytes_out"]

    def have_stopped(seen=[0]):
        last, seen[0] = seen[0], sent()
        return last == seen[0]

    wait.until(have_stopped, "no byte goes on")
    held = used(site.daemon) - before
    assert held < READERS * SHARE, f"{held} KiB for {READERS} clients"
    # Others are served meanwhile.
    assert site.status(f"{URL}/file") == 200
    # One that reads gets more than what was on its way.
    stopped, received = sent(), 0
    while received < 16 << 20:
        piece = readers[0].recv(65536)
        assert piece, received
        received += len(piece)
    assert sent() > stopped
    for reader in readers:
        reader.close()
    wait.until(lambda: site.counters()["clients"] == 0, "the end of all")


@BOTH_PLACES
def test_a_gigabyte_each_way_needs_little_memory(site):
    """A body of 1 GiB passes in each direction, and no part of it stays."""
    web = site.web(9001, size=1)
    web.put("large", b"")
    os.truncate(web.path("large"), GIB)
    # A server that answers when it has read everything.
    with site.space.entered():
        listener = socket.create_server((LOCAL, 9002))
    site.on_close(listener.close)
    site.start(
        f"nf add down proxy {LOCAL}:9001",
        f"nf add up proxy {LOCAL}:9002",
        "chain add site down",
        f"broker add web listen {LOCAL}:8080 chain site",
    )
    assert site.status(f"{URL}/file") == 200
    before = used(site.daemon)
    read = site.curl("-o", os.devnull, "-w", "%{http_code} %{size_download}", f"{URL}/large")
    assert read == f"200 {GIB}"
    assert used(site.daemon) - before < 2048
    site.daemon.line("chain set site up")
    upload = site.space.popen("curl", "-sS", "--max-time", 60, "-T", web.path("large"), "-w", "%{http_code} %{size_upload}", URL, stdout=-1, text=True)
    server = listener.accept()[0]
    with server:
        server.settimeout(wait.PATIENCE)
        head = b""
        while b"\r\n\r\n" not in head:
            head += server.recv(65536)
        head, _, body = head.partition(b"\r\n\r\n")
        assert f"Content-Length: {GIB}".encode() in head, head
        received, room = len(body), bytearray(1 << 20)
        if b"Expect: 100-continue" in head:
            server.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        while received < GIB:
            length = server.recv_into(room)
            assert length, received
            received += length
        server.sendall(b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n")
        assert upload.communicate(timeout=wait.PATIENCE)[0] == f"201 {GIB}"
    assert received == GIB
    assert used(site.daemon) - before < 2048
