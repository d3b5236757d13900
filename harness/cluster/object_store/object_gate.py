"""An HTTP proxy in front of an object store's server: it can refuse requests with 503, and strike in an upload.

Toxiproxy knows bytes, not requests; what is told apart here are requests.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from barrier_tck.faults.targets import UploadMoment

_TIMEOUT_S = 60.0
_HOP_BY_HOP = ("connection", "expect", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding")
_SLOW_DOWN = (
    b'<?xml version="1.0" encoding="UTF-8"?>\n'
    b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"
)


class Gate:
    """The proxy. ``start`` it; ``close`` it in every case. It may be used from any thread."""

    def __init__(self, listen: str, upstream: tuple[str, int]) -> None:
        """Take the address to listen at, and the server's."""
        self.upstream = upstream
        self._lock = threading.Lock()
        self._throttles = False
        self._refused = 0
        self._strike: tuple[UploadMoment, Callable[[], None]] | None = None
        self._server = _Server((listen, 0), _Request)
        self._server.gate = self
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.05,), name="gate of the object store", daemon=True
        )

    @property
    def address(self) -> tuple[str, int]:
        """Return where it listens."""
        host, port = self._server.server_address[:2]
        return str(host), port

    def start(self) -> None:
        """Take requests from now on."""
        self._thread.start()

    def close(self) -> None:
        """Take no more requests."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()

    def throttle(self, on: bool) -> None:
        """Refuse every request from now on, or no more."""
        with self._lock:
            self._throttles = on
            self._refused = 0 if on else self._refused

    @property
    def refused(self) -> int:
        """Return how many requests were refused since throttling began last."""
        return self._refused

    def strike(self, moment: UploadMoment | None, act: Callable[[], None] = lambda: None) -> None:
        """Call ``act`` once, at this moment of the next upload, and never answer that request; None: do not."""
        with self._lock:
            self._strike = None if moment is None else (moment, act)

    def refuses(self) -> bool:
        """Count a request, and tell whether it is refused."""
        with self._lock:
            self._refused += self._throttles
            return self._throttles

    def due(self, method: str, target: str) -> tuple[UploadMoment, Callable[[], None]] | None:
        """Return what is to strike in this request; it strikes once."""
        with self._lock:
            if self._strike is None or moment_of(method, target) is not self._strike[0]:
                return None
            strike, self._strike = self._strike, None
            return strike


def moment_of(method: str, target: str) -> UploadMoment | None:
    """Return which moment of an upload in parts a request is; None for any other request."""
    query = parse_qs(urlsplit(target).query)
    if "uploadId" not in query:
        return None
    if method == "PUT" and "partNumber" in query:
        return UploadMoment.PART
    return UploadMoment.COMPLETION if method == "POST" else None


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    gate: Gate

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing about a client that was killed or has given up; tell whatever else is wrong."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class _Request(BaseHTTPRequestHandler):
    """The requests of one connection."""

    protocol_version = "HTTP/1.1"
    # Headers and content are written apart. Otherwise the content waits up to 40 ms until the headers are acknowledged.
    disable_nagle_algorithm = True
    server: _Server

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server names it
        """Say nothing: the server itself has logs."""

    def _pass_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        gate = self.server.gate
        if gate.refuses():
            self._answer(503, "Slow Down", [("Content-Type", "application/xml")], _SLOW_DOWN)
            return
        strike = gate.due(self.command, self.path)
        upstream = HTTPConnection(*gate.upstream, timeout=_TIMEOUT_S)
        try:
            upstream.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                if name.lower() not in _HOP_BY_HOP:
                    upstream.putheader(name, value)
            upstream.putheader("Connection", "close")
            if strike is not None:
                self._struck(upstream, body, *strike)
                return
            upstream.endheaders(body)
            answer = upstream.getresponse()
            content = answer.read()
        except (OSError, HTTPException):
            self.close_connection = True  # as the server did, or as if there were none
            return
        finally:
            upstream.close()
        self._answer(answer.status, answer.reason, answer.getheaders(), content)

    def _struck(
        self, upstream: HTTPConnection, body: bytes, moment: UploadMoment, act: Callable[[], None]
    ) -> None:
        """Strike before the server has got the whole request; whoever has sent it gets no answer."""
        self.close_connection = True
        if moment is UploadMoment.PART:
            upstream.endheaders()
            upstream.send(body[: len(body) // 2])
        act()

    def _answer(self, status: int, reason: str, headers: list[tuple[str, str]], content: bytes) -> None:
        self.send_response_only(status, reason)
        for name, value in headers:
            if name.lower() not in (*_HOP_BY_HOP, "content-length"):
                self.send_header(name, value)
        length = {name.lower(): value for name, value in headers}.get("content-length", "0")
        self.send_header("Content-Length", length if self.command == "HEAD" else str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _pass_on  # noqa: N815 - the names that http.server asks for
