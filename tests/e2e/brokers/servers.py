"""A namespace with a daemon, its brokers, and the servers behind them."""

import http.server
import json
import os
import socket
import threading

import pytest

from lab import wait
from lab.netns import Network
from lab.traffic import WebServer, curl

LOCAL = "127.0.0.1"
# For tests whose functions run in the daemon, and then in a process.
BOTH_PLACES = pytest.mark.parametrize("site", [None, "tenant"], ids=["daemon", "process"], indirect=True)


class Handler(http.server.BaseHTTPRequestHandler):
    """Tells which server it is and what it has got; breaks off or echoes."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.server.seen.append(self.path)
        if self.path == "/broken":
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            self.wfile.write(b"the beginning")
            self.close_connection = True
        elif self.path == "/health":
            self.answer(b"", 200 if self.server.is_healthy else 503)
        elif self.headers.get("Upgrade") == "echo":
            self.send_response(101)
            self.send_header("Connection", "Upgrade")
            self.send_header("Upgrade", "echo")
            self.end_headers()
            while line := self.rfile.readline():
                self.wfile.write(line[::-1])
            self.close_connection = True
        else:
            seen = {"server": self.server.server_port, "path": self.path, "headers": dict(self.headers)}
            self.answer(json.dumps(seen).encode())

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.answer(body)

    def answer(self, body, status=200):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Server(http.server.ThreadingHTTPServer):
    """A server in a namespace."""

    daemon_threads = True
    request_queue_size = 1024

    def __init__(self, namespace, port):
        self.seen, self.is_healthy = [], True
        with namespace.entered():
            super().__init__((LOCAL, port), Handler)
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    def server_bind(self):
        # The name of the host is not looked up.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_name, self.server_port = "server", self.server_address[1]

    def handle_error(self, *_):
        """Connections that are reset are no error."""


class Site(Network):
    """A namespace with a daemon and the servers behind it."""

    def __init__(self, make_daemon, domain=None):
        super().__init__()
        self.space = self._namespace("site")
        self._make_daemon = make_daemon
        self._domain = domain
        self.daemon = None

    def start(self, *lines, **options):
        first = [f"domain add {self._domain} private"] if self._domain else []
        text = "\n".join([*first, *map(self.placed, lines)]) + "\n"
        self.daemon = self._make_daemon(self.space, text, **options)
        if self._domain:
            line = self.daemon.line
            self.daemon.line = lambda text, *words, **named: line(self.placed(text), *words, **named)
        return self.daemon

    def placed(self, line):
        """The line, with its function in the domain if there is one."""
        return f"{line} process {self._domain}" if self._domain and line.startswith("nf add ") else line

    def server(self, port):
        server = Server(self.space, port)
        self.on_close(server.server_close)
        self.on_close(server.shutdown)
        return server

    def web(self, port, **options):
        server = WebServer(self.space, port, **options)
        self.on_close(server.close)
        return server

    def connect(self, port=8080):
        with self.space.entered():
            connection = socket.create_connection((LOCAL, port), timeout=wait.PATIENCE)
        self.on_close(connection.close)
        return connection

    def curl(self, *words):
        """What curl prints."""
        return curl(self.space, *words).stdout

    def status(self, *words):
        return int(self.curl("-o", os.devnull, "-w", "%{http_code}", *words))

    def counters(self):
        (broker,) = self.daemon.json("show", "brokers")["brokers"]
        return broker["counters"]
