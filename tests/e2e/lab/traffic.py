"""Traffic between the end points: TCP streams hashed on both sides, numbered datagrams, a web server, compressed pages."""

import concurrent.futures
import contextlib
import ctypes
import hashlib
import http.server
import os
import pathlib
import socket
import struct
import tempfile
import threading
import time

from . import wait
from .netns import SERVER4, end

CHUNK = 256 << 10
UDP_SEGMENT = 103


def bulk_transfer(source, sink, address, port=5001, size=64 << 20, patience=30):
    """Sends `size` random bytes over one TCP connection; returns the SHA-256 on both sides. All of it has to be
    over after `patience` seconds."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    deadline = time.monotonic() + patience
    with sink.entered():
        listener = socket.create_server((address, port), family=family)
    with listener, concurrent.futures.ThreadPoolExecutor(2) as pool:
        received = pool.submit(_receive_all, listener, deadline)
        sent = pool.submit(_send_all, source, family, (address, port), size, deadline)
        return sent.result(), received.result()


def _in_time(endpoint, deadline):
    """`endpoint` with a timeout that ends at the deadline."""
    endpoint.settimeout(max(0.001, deadline - time.monotonic()))
    return endpoint


def _receive_all(listener, deadline):
    connection, _ = _in_time(listener, deadline).accept()
    digest = hashlib.sha256()
    with connection:
        while data := _in_time(connection, deadline).recv(CHUNK):
            digest.update(data)
        _in_time(connection, deadline).sendall(b"done")
    return digest.hexdigest()


def _send_all(source, family, address, size, deadline):
    digest = hashlib.sha256()
    with source.socket(family, socket.SOCK_STREAM) as connection:
        _in_time(connection, deadline).connect(address)
        block = os.urandom(CHUNK)
        for number in range(size // CHUNK):
            data = struct.pack("!Q", number) + block[8:]
            digest.update(data)
            _in_time(connection, deadline).sendall(data)
        connection.shutdown(socket.SHUT_WR)
        if _in_time(connection, deadline).recv(4) != b"done":
            raise AssertionError("the receiver did not confirm the end of the stream")
    return digest.hexdigest()


def deliver(source, sink, address, content, port=5001, patience=30):
    """Sends bytes over one TCP connection; returns what came."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    deadline = time.monotonic() + patience
    with sink.entered():
        listener = socket.create_server((address, port), family=family)
    received = bytearray()
    with listener, source.socket(family, socket.SOCK_STREAM) as near, concurrent.futures.ThreadPoolExecutor(1) as pool:
        _in_time(near, deadline).connect((address, port))

        def send():
            near.sendall(content)
            near.shutdown(socket.SHUT_WR)

        far, _ = _in_time(listener, deadline).accept()
        with far:
            sending = pool.submit(send)
            while data := _in_time(far, deadline).recv(CHUNK):
                received += data
            sending.result()
    return bytes(received)


def lossy(namespace, one_of):
    """From now on, a namespace loses one of so many packets for it, at random."""
    namespace.run("nft", "add table inet lossy")
    namespace.run("nft", "add chain inet lossy input { type filter hook input priority 0; }")
    namespace.run("nft", f"add rule inet lossy input numgen random mod {one_of} == 0 drop")


def exchange(near, far, size=1 << 20):
    """Both ends of a connection send random bytes at once, and get those of the other end."""
    sent = [os.urandom(size) for _ in range(2)]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        sending = [pool.submit(end.sendall, content) for end, content in zip((near, far), sent)]
        got = [read(end, size) for end in (far, near)]
        for one in sending:
            one.result()
    assert got == sent


def read(end, size):
    """So many bytes of a connection."""
    content = bytearray()
    while len(content) < size:
        piece = end.recv(size - len(content))
        assert piece, "the connection has ended"
        content += piece
    return bytes(content)


def segmented_datagrams(source, sink, address, buffers, size, port=7000, patience=wait.PATIENCE):
    """Sends each buffer as UDP datagrams of `size` bytes that segmentation offload makes (udp(7)). Returns what came, in
    order.
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    received = bytearray()
    with source.socket(family, socket.SOCK_DGRAM) as near, sink.socket(family, socket.SOCK_DGRAM) as far:
        far.bind((address, port))
        far.settimeout(patience)
        near.setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, size)
        near.connect((address, port))
        for buffer in buffers:
            near.send(buffer)
            # The next one waits, so that no queue overflows.
            end_of_buffer = len(received) + len(buffer)
            while len(received) < end_of_buffer:
                received += far.recv(size)
    return bytes(received)


class Datagrams:
    """Numbered UDP datagrams from client to server, with few in flight, so that no buffer overflows: a
    missing one was dropped deliberately.
    """

    WINDOW = 64

    def __init__(self, client, server, address, port=7000):
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self.receiver = server.socket(family, socket.SOCK_DGRAM)
        self.receiver.setsockopt(socket.SOL_SOCKET, 33, 8 << 20)
        self.receiver.bind((address, port))
        self.receiver.setblocking(False)
        self.sender = client.socket(family, socket.SOCK_DGRAM)
        self.sender.connect((address, port))
        self.sent = 0
        self.arrived = set()

    def send(self, count):
        """Sends `count` datagrams; every WINDOW of them it waits until the last one has arrived."""
        for _ in range(count):
            self.sender.send(struct.pack("!Q", self.sent) + bytes(40))
            self.sent += 1
            if self.sent % self.WINDOW == 0:
                self.settle()

    def settle(self, patience=wait.PATIENCE):
        """Collects until all sent datagrams have arrived; fails with the missing ones."""
        self.collect()
        while len(self.arrived) < self.sent:
            if not wait.readable([self.receiver], patience):
                missing = sorted(set(range(self.sent)) - self.arrived)
                raise wait.Late(
                    f"{len(missing)} of {self.sent} datagrams did not arrive, the first is number {missing[0]}"
                )
            self.collect()

    def collect(self):
        while True:
            try:
                data = self.receiver.recv(2048)
            except BlockingIOError:
                return
            self.arrived.add(struct.unpack("!Q", data[:8])[0])

    def close(self):
        self.sender.close()
        self.receiver.close()


@contextlib.contextmanager
def serving(namespace, address, handler, tls=None):
    """A web server of Python in a namespace; `handler` answers, `tls` is the context of its connections."""
    with namespace.entered():
        server = http.server.ThreadingHTTPServer(address, handler)
    if tls:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()


class WebServer:
    """A real nginx in a namespace, serving one file named `file` with random content."""

    CONFIG = """daemon off; worker_processes 1; pid {directory}/pid; error_log stderr;
events {{ worker_connections 1024; }}
http {{
  access_log {directory}/access.log;
  client_body_temp_path {directory}/tmp; proxy_temp_path {directory}/tmp; fastcgi_temp_path {directory}/tmp;
  uwsgi_temp_path {directory}/tmp; scgi_temp_path {directory}/tmp;
  server {{ listen {port}; listen [::]:{port}; root {directory}/www; }}
}}
"""

    def __init__(self, namespace, port, size=1 << 20):
        self._directory = tempfile.TemporaryDirectory(prefix="mmb-web-")
        directory = pathlib.Path(self._directory.name)
        # nginx serves as an unprivileged user, who has to be able to walk in.
        directory.chmod(0o755)
        (directory / "www").mkdir()
        self.content = os.urandom(size)
        (directory / "www" / "file").write_bytes(self.content)
        config = directory / "nginx.conf"
        config.write_text(self.CONFIG.format(directory=directory, port=port), encoding="utf-8")
        self._log = (directory / "log").open("wb")
        self._access_log = directory / "access.log"
        self.process = namespace.popen("nginx", "-c", config, stderr=self._log)
        wait.until(lambda: self._accepts(namespace, port), "nginx to accept connections")

    def _accepts(self, namespace, port):
        if self.process.poll() is not None:
            raise AssertionError(f"nginx ended with {self.process.returncode}")
        with namespace.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    def path(self, name):
        """Where a file that is served is."""
        return pathlib.Path(self._directory.name) / "www" / name

    def put(self, name, content):
        """Adds a file that is served."""
        self.path(name).write_bytes(content)

    def log_lines(self):
        """What nginx wrote about requests so far; a line begins with the client's address."""
        return self._access_log.read_text(encoding="utf-8").splitlines()

    def close(self):
        end(self.process)
        self._log.close()
        self._directory.cleanup()


def url(path="/", address=SERVER4, port=8000):
    host = f"[{address}]" if ":" in address else address
    return f"http://{host}:{port}{path}"


def curl(namespace, *arguments, check=True, patience=20):
    """Runs curl, which shows errors only. Returns the ended process."""
    return namespace.run("curl", "-s", "-S", "--noproxy", "*", "--max-time", patience, *arguments, check=check)


def fetch(namespace, url, patience=20):
    """The body that curl receives, as bytes; the error message has curl's exit status."""
    with tempfile.NamedTemporaryFile() as file:
        curl(namespace, "--fail", "-o", file.name, url, patience=patience)
        return pathlib.Path(file.name).read_bytes()


def brotli(content):
    """Data of brotli (RFC 7932) by the reference encoder, which curl's package brings along."""
    library = ctypes.CDLL("libbrotlienc.so.1")
    library.BrotliEncoderMaxCompressedSize.restype = ctypes.c_size_t
    room = ctypes.c_size_t(library.BrotliEncoderMaxCompressedSize(ctypes.c_size_t(len(content))))
    data = ctypes.create_string_buffer(room.value)
    size = ctypes.c_size_t(len(content))
    quality, window, generic = 5, 22, 0
    assert library.BrotliEncoderCompress(quality, window, generic, size, content, ctypes.byref(room), data)
    return data.raw[: room.value]


def zstd(content):
    """A frame of zstd (RFC 8878) by the reference encoder, which curl's package brings along."""
    library = ctypes.CDLL("libzstd.so.1")
    for name in ("ZSTD_compressBound", "ZSTD_compress"):
        getattr(library, name).restype = ctypes.c_size_t
    size = ctypes.c_size_t(len(content))
    room = library.ZSTD_compressBound(size)
    data = ctypes.create_string_buffer(room)
    length = library.ZSTD_compress(data, ctypes.c_size_t(room), content, size, 3)
    assert not library.ZSTD_isError(ctypes.c_size_t(length))
    return data.raw[:length]
