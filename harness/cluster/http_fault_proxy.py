"""An HTTP proxy in front of the service that holds checkpoints: it can refuse requests, and strike in an upload.

Toxiproxy knows bytes, not requests; here requests are distinguished. ``Requests`` knows those of one protocol.
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
    """What is answered to a request."""

    status: int
    reason: str
    headers: Headers
    content: bytes


class Requests(Protocol):
    """The requests of one protocol to the servers of one service."""

    refusal: Answer
    """What a server answers that has too much to do."""

    def upstream(self, target: str) -> tuple[str, int]:
        """Return the address of the server that a request is for."""

    def moments(self, method: str, target: str) -> tuple[UploadMoment, ...]:
        """Return which moments of an upload a request has; none if it belongs to no upload."""

    def is_repeatable(self, method: str, target: str) -> bool:
        """Return whether a request changes something, and can be sent again by its client."""

    def redirected_here(self, headers: Headers, host: str) -> Headers:
        """Return the headers of an answer, changed so that a client that is sent to another server comes here again.

        ``host`` is the address by which the client has reached this.
        """


class FailingRequest:
    """One request that is to get no answer: the nth from now on that changes something. Any thread may ask."""

    def __init__(self, nth: int, carried_out: bool) -> None:
        self.left = nth
        self.carried_out = carried_out

    @property
    def met(self) -> bool:
        """Whether it has come."""
        return self.left <= 0


class _BrokeOff(Exception):
    """A client is gone before it had sent everything."""

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

    def fail(self, nth: int, carried_out: bool) -> FailingRequest:
        """Let one request get no answer."""
        with self._lock:
            self._failing.append(FailingRequest(nth, carried_out))
            return self._failing[-1]

    def fails(self, method: str, target: str) -> FailingRequest | None:
        """Count a request; return what lets it get no answer, if anything does."""
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
        """Return what is to strike in this request; it strikes once."""
        with self._lock:
            if self._strike is None or self._strike[0] not in self.requests.moments(method, target):
                return None
            strike, self._strike = self._strike, None
            return strike


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    proxy: HttpFaultProxy

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Be silent about a client that was killed or has given up; log whatever else is wrong."""
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
        proxy, requests = self.server.proxy, self.server.proxy.requests
        try:
            body, whole = b"".join(self._body()), True
        except _BrokeOff as broken:
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
                self.close_connection = True  # the server has got as much as the client has sent
                return
            got = upstream.getresponse()
            content = got.read()
        except (OSError, HTTPException):
            self.close_connection = True  # as the server did, or as if there were none
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
        """Yield what the client sends; raises _BrokeOff, with what has come, if it is gone before the end."""
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            expected = int(self.headers.get("Content-Length", 0))
            content = self.rfile.read(expected)
            if len(content) < expected:
                raise _BrokeOff(content)
            yield content
            return
        came = bytearray()
        while True:
            line = self.rfile.readline()
            size = int(line.partition(b";")[0], 16) if line.strip() else -1
            chunk = self.rfile.read(size) if size > 0 else b""
            came += chunk
            if size < 0 or len(chunk) < size or not self.rfile.readline():
                raise _BrokeOff(bytes(came))
            if not size:
                yield bytes(came)
                return

    def _struck(
        self, upstream: HTTPConnection, body: bytes, moment: UploadMoment, act: Callable[[], None]
    ) -> None:
        """Strike before the server has got the whole request; its client gets no answer."""
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

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _pass_on  # noqa: N815 - the names that http.server asks for
