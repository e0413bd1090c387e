"""Requests to a daemon: HTTP over its control socket, or HTTPS with a token or a certificate."""

from __future__ import annotations

import http.client
import ipaddress
import json
import os
import socket
import ssl
import urllib.parse
from collections.abc import Iterator, Mapping
from typing import Any

DEFAULT_SOCKET = "/run/mmb/mmb.sock"
PIECE = 1 << 16


class ApiError(Exception):
    """The daemon refused a request and changed nothing.

    status:      status of the answer (RFC 9110)
    diagnostics: errors in a text, each with `line`, `column` and `message`
    """

    def __init__(self, status: int, message: str, diagnostics: list[dict[str, Any]]):
        super().__init__(message)
        self.status = status
        self.diagnostics = diagnostics


class _SocketConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: str, timeout: float | None):
        super().__init__("mmb", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class Transport:
    """A daemon, at a control socket or at an address.

    socket_path: the control socket
    url:         `https://HOST:PORT`, or `http://ADDRESS:PORT` for a loopback address
    token:       the token of a user
    ca:          file with the authorities that sign the daemon's certificate; those of the system if absent
    certificate: files with the certificate of this client and its key
    timeout:     seconds to wait for a piece of an answer; None: no limit
    """

    def __init__(
        self,
        socket_path: str | os.PathLike[str] = DEFAULT_SOCKET,
        *,
        url: str | None = None,
        token: str | None = None,
        ca: str | os.PathLike[str] | None = None,
        certificate: tuple[str | os.PathLike[str], str | os.PathLike[str]] | None = None,
        timeout: float | None = 60,
    ):
        self._socket_path, self._url, self._timeout = os.fspath(socket_path), None, timeout
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._context = None
        if url is None:
            return
        self._url = urllib.parse.urlsplit(url)
        if self._url.scheme == "https":
            self._context = ssl.create_default_context(cafile=ca)
            if certificate:
                self._context.load_cert_chain(*certificate)
        elif self._url.scheme != "http" or not ipaddress.ip_address(self._url.hostname or "").is_loopback:
            raise ValueError(f"{url} is neither https nor a loopback address")

    def _connection(self) -> http.client.HTTPConnection:
        if self._url is None:
            return _SocketConnection(self._socket_path, self._timeout)
        host, port = self._url.hostname or "", self._url.port
        if self._context:
            return http.client.HTTPSConnection(host, port, timeout=self._timeout, context=self._context)
        return http.client.HTTPConnection(host, port, timeout=self._timeout)

    def _pieces(
        self, method: str, path: str, names: Mapping[str, Any], query: Mapping[str, Any], body: str | bytes | Mapping[str, Any] | None = None
    ) -> Iterator[bytes]:
        """The body of an answer as it comes. Closing the iterator ends the request."""
        path = path.format_map({name: urllib.parse.quote(str(value), safe="") for name, value in names.items()})
        values = {name: str(value).lower() if isinstance(value, bool) else value for name, value in query.items() if value is not None}
        if values:
            path += "?" + urllib.parse.urlencode(values, quote_via=urllib.parse.quote)
        headers = dict(self._headers)
        if isinstance(body, Mapping):
            body = json.dumps({name: value for name, value in body.items() if value is not None})
            headers["Content-Type"] = "application/json"
        connection = self._connection()
        try:
            connection.request(method, path, body.encode() if isinstance(body, str) else body, headers)
            answer = connection.getresponse()
            if not 200 <= answer.status < 300:
                raise _error(answer.status, answer.read())
            while piece := answer.read1(PIECE):
                yield piece
        finally:
            connection.close()

    def _text(self, *request: Any) -> str:
        return b"".join(self._pieces(*request)).decode()

    def _json(self, *request: Any) -> Any:
        return json.loads(b"".join(self._pieces(*request)))


def _error(status: int, body: bytes) -> ApiError:
    try:
        document = json.loads(body)
        return ApiError(status, document["error"], document.get("diagnostics", []))
    except (ValueError, KeyError, TypeError):
        return ApiError(status, body.decode(errors="replace"), [])
