"""An HTTP proxy in front of the storage service that holds checkpoints.

It can refuse requests, leave one without a response, and carry out a fault at a moment of an upload. Toxiproxy handles
bytes; this proxy tells requests apart, as ``Requests`` describes them for one protocol.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Protocol

from barrier_tck.faults.upload_moment import UploadMoment

_TIMEOUT_S = 60.0
_HOP_BY_HOP = ("connection", "expect", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding")
Headers = list[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP response."""

    status: int
    reason: str
    headers: Headers
    content: bytes


class Requests(Protocol):
    """The requests of one protocol to the servers of one service."""

    refusal: Answer
    """The response of an overloaded server."""

    def upstream(self, target: str) -> tuple[str, int]:
        """Return the address of the server that a request is for."""

    def moments(self, method: str, target: str) -> tuple[UploadMoment, ...]:
        """Return the moments of an upload that a request passes; none if it belongs to no upload."""

    def is_repeatable(self, method: str, target: str) -> bool:
        """Return whether a request changes something and its client may send it again."""

    def redirected_here(self, headers: Headers, host: str) -> Headers:
        """Return the headers of a response, changed so that a redirect to another server leads to this proxy again.

        ``host`` is the address by which the client has reached the proxy.
        """


class FailingRequest:
    """A request that gets no response: the nth repeatable one from now on. ``met`` may be read from any thread."""

    def __init__(self, nth: int, carried_out: bool) -> None:
        self.left = nth
        self.carried_out = carried_out

    @property
    def met(self) -> bool:
        """Whether this request has come."""
        return self.left <= 0


class _ClientGone(Exception):
    """A client closed its connection before it had sent the whole request."""

    def __init__(self, sent: bytes) -> None:
        super().__init__()
        self.sent = sent


class HttpFaultProxy:
    """The proxy. ``start`` it; ``close`` it in every case. It may be used from any thread."""

    def __init__(self, listen: str, requests: Requests) -> None:
        self.requests = requests
        self._lock = threading.Lock()
        self._throttles = False
        self._refused = 0
        self._strike: tuple[UploadMoment, Callable[[], None]] | None = None
        self._failing: list[FailingRequest] = []
        self._server = _Server((listen, 0), _Request)
        self._server.proxy = self
        self._thread = threading.Thread(
            target=self._server.serve_forever,
            args=(0.05,),
            name="fault proxy of the storage service",
            daemon=True,
        )

    @property
    def address(self) -> tuple[str, int]:
        """Return where it listens."""
        host, port = self._server.server_address[:2]
        return str(host), port

    def start(self) -> None:
        """Accept requests from now on."""
        self._thread.start()

    def close(self) -> None:
        """Accept no more requests."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()

    def throttle(self, on: bool) -> None:
        """Begin or stop to refuse every request."""
        with self._lock:
            self._throttles = on
            self._refused = 0 if on else self._refused

    @property
    def refused(self) -> int:
        """Return how many requests were refused since throttling last began."""
        return self._refused

    def strike(self, moment: UploadMoment | None, act: Callable[[], None] = lambda: None) -> None:
        """Call ``act`` once, at this moment of the next upload, and leave that request unanswered; None: do not."""
        with self._lock:
            self._strike = None if moment is None else (moment, act)

    def fail(self, nth: int, carried_out: bool) -> FailingRequest:
        """Send no response to the nth repeatable request; ``carried_out``: whether the server still gets it."""
        with self._lock:
            self._failing.append(FailingRequest(nth, carried_out))
            return self._failing[-1]

    def fails(self, method: str, target: str) -> FailingRequest | None:
        """Count a request; return the failure because of which it gets no response, if there is one."""
        if not self.requests.is_repeatable(method, target):
            return None
        with self._lock:
            for failing in self._failing:
                failing.left -= 1
            met = [failing for failing in self._failing if failing.met]
            self._failing = [failing for failing in self._failing if not failing.met]
        return met[0] if met else None

    def refuses(self) -> bool:
        """Count a request, and return whether it is refused."""
        with self._lock:
            self._refused += self._throttles
            return self._throttles

    def due(self, method: str, target: str) -> tuple[UploadMoment, Callable[[], None]] | None:
        """Return the moment and the action of the fault that is due in this request, and forget them."""
        with self._lock:
            if self._strike is None or self._strike[0] not in self.requests.moments(method, target):
                return None
            strike, self._strike = self._strike, None
            return strike


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    proxy: HttpFaultProxy

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log every error but that of a client that was killed or has given up."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class _Request(BaseHTTPRequestHandler):
    """The requests of one connection."""

    protocol_version = "HTTP/1.1"
    # Headers and content are two writes. With Nagle's algorithm the second waits up to 40 ms for the first one's ACK.
    disable_nagle_algorithm = True
    server: _Server

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server names it
        """Log nothing: the storage service has logs of its own."""

    def _forward(self) -> None:
        proxy, requests = self.server.proxy, self.server.proxy.requests
        try:
            body, whole = b"".join(self._body()), True
        except _ClientGone as broken:
            body, whole = broken.sent, False
        if proxy.refuses():
            self._answer(requests.refusal)
            return
        strike = proxy.due(self.command, self.path) if whole else None
        failing = proxy.fails(self.command, self.path) if whole and strike is None else None
        if failing is not None and not failing.carried_out:
            self.close_connection = True
            return
        upstream = HTTPConnection(*requests.upstream(self.path), timeout=_TIMEOUT_S)
        try:
            upstream.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                if name.lower() not in (*_HOP_BY_HOP, "content-length"):
                    upstream.putheader(name, value)
            upstream.putheader("Connection", "close")
            if body or not whole or self.command in ("PUT", "POST"):
                upstream.putheader("Content-Length", str(len(body) if whole else len(body) + 1))
            if strike is not None and strike[0] is not UploadMoment.ANSWER:
                self._struck(upstream, body, *strike)
                return
            upstream.endheaders(body)
            if not whole:
                self.close_connection = True  # the server has received as much as the client has sent
                return
            got = upstream.getresponse()
            content = got.read()
        except (OSError, HTTPException):
            self.close_connection = True  # the client sees what the proxy saw: a broken connection
            return
        finally:
            upstream.close()
        if strike is not None:
            self.close_connection = True
            strike[1]()
            return
        if failing is not None:
            self.close_connection = True
            return
        headers = requests.redirected_here(got.getheaders(), self.headers.get("Host", ""))
        self._answer(Answer(got.status, got.reason, headers, content))

    def _body(self) -> Iterator[bytes]:
        """Yield the request's body; raises _ClientGone, with the bytes received, if the client is gone too early."""
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            expected = int(self.headers.get("Content-Length", 0))
            content = self.rfile.read(expected)
            if len(content) < expected:
                raise _ClientGone(content)
            yield content
            return
        came = bytearray()
        while True:
            line = self.rfile.readline()
            size = int(line.partition(b";")[0], 16) if line.strip() else -1
            chunk = self.rfile.read(size) if size > 0 else b""
            came += chunk
            if size < 0 or len(chunk) < size or not self.rfile.readline():
                raise _ClientGone(bytes(came))
            if not size:
                yield bytes(came)
                return

    def _struck(
        self, upstream: HTTPConnection, body: bytes, moment: UploadMoment, act: Callable[[], None]
    ) -> None:
        """Carry out a fault before the server has received the whole request; the client gets no response."""
        self.close_connection = True
        if moment is UploadMoment.PART:
            upstream.endheaders()
            upstream.send(body[: len(body) // 2])
        act()

    def _answer(self, answer: Answer) -> None:
        self.send_response_only(answer.status, answer.reason)
        for name, value in answer.headers:
            if name.lower() not in (*_HOP_BY_HOP, "content-length"):
                self.send_header(name, value)
        length = {name.lower(): value for name, value in answer.headers}.get("content-length", "0")
        head = self.command == "HEAD"
        self.send_header("Content-Length", length if head else str(len(answer.content)))
        self.end_headers()
        if not head:
            self.wfile.write(answer.content)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _forward  # noqa: N815 - the names that http.server asks for
