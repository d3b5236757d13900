"""A small server that speaks Toxiproxy's HTTP interface, for machines without Toxiproxy.

What it knows: ``/version``, ``/proxies``, ``/proxies/{name}``, ``/proxies/{name}/toxics`` and one of them,
``/reset``, ``/populate``; the toxics of ``faults.toxiproxy.toxics``. Its answers have Toxiproxy's form and words.

Connections live on one asyncio loop, requests come on threads and are carried out on that loop. It is meant to run
in a process of its own (``faults.toxiproxy.parent_death_watch``): in the driver's, every byte would compete with the
coordinator for one interpreter lock, and a busy driver would delay channels that no plan delays.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Coroutine, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from barrier_tck.faults.toxiproxy.relay import Relay, split_address
from barrier_tck.faults.toxiproxy.toxics import InvalidToxic, toxic_from_json

VERSION = "embedded-1"
_MAX_BODY_BYTES = 1 << 20
_REQUEST_TIMEOUT_S = 20.0

Answer = tuple[int, Any]
"""HTTP status and what becomes the JSON body; None: no body."""


class _Refused(Exception):
    """A request that cannot be carried out."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class _Proxies:
    """All proxies, and the requests on them. Every method runs on the loop."""

    def __init__(self) -> None:
        self._relays: dict[str, Relay] = {}

    async def answer(self, method: str, path: tuple[str, ...], body: Any) -> Answer:
        """Carry out one request; raises _Refused."""
        match method, path:
            case "GET", ("version",):
                return 200, {"version": VERSION}
            case "POST", ("reset",):
                return await self._reset()
            case "POST", ("populate",):
                return await self._populate(body)
            case "GET", ("proxies",):
                return 200, {name: relay.as_json() for name, relay in self._relays.items()}
            case "POST", ("proxies",):
                return 201, (await self._create(body)).as_json()
            case _, ("proxies", name):
                return await self._on_proxy(method, self._relay(name), body)
            case "GET", ("proxies", name, "toxics"):
                return 200, [toxic.as_json() for toxic in self._relay(name).toxics.values()]
            case "POST", ("proxies", name, "toxics"):
                return self._add_toxic(self._relay(name), _object(body))
            case _, ("proxies", name, "toxics", toxic):
                return self._on_toxic(method, self._relay(name), toxic, body)
            case _:
                raise _Refused(404, "404 page not found")

    async def close(self) -> None:
        """Stop every proxy."""
        for relay in self._relays.values():
            await relay.stop()
        self._relays.clear()

    def _relay(self, name: str) -> Relay:
        if name not in self._relays:
            raise _Refused(404, "proxy not found")
        return self._relays[name]

    async def _create(self, body: Any) -> Relay:
        wanted = _object(body)
        for field in ("name", "upstream"):
            if not wanted.get(field):
                raise _Refused(400, f"missing required field: {field}")
        relay = Relay(
            str(wanted["name"]), str(wanted.get("listen") or "127.0.0.1:0"), str(wanted["upstream"])
        )
        if relay.name in self._relays:
            raise _Refused(409, "proxy already exists")
        _check_addresses(relay)
        if wanted.get("enabled", True):
            _start(relay)
        self._relays[relay.name] = relay
        return relay

    async def _populate(self, body: Any) -> Answer:
        if not isinstance(body, list):
            raise _Refused(400, "bad request body: an array of proxies is wanted")
        made = []
        for wanted in body:
            old = self._relays.pop(str(_object(wanted).get("name")), None)
            if old is not None:
                await old.stop()
            made.append((await self._create(wanted)).as_json())
        return 201, {"proxies": made}

    async def _reset(self) -> Answer:
        for relay in self._relays.values():
            relay.set_toxics({})
            _start(relay)
        return 204, None

    async def _on_proxy(self, method: str, relay: Relay, body: Any) -> Answer:
        if method == "DELETE":
            await relay.stop()
            del self._relays[relay.name]
            return 204, None
        if method in ("POST", "PATCH"):
            await self._update(relay, _object(body))
        elif method != "GET":
            raise _Refused(405, "method not allowed")
        return 200, relay.as_json()

    async def _update(self, relay: Relay, wanted: Mapping[str, Any]) -> None:
        listen, upstream = wanted.get("listen") or relay.listen, wanted.get("upstream") or relay.upstream
        enabled = bool(wanted.get("enabled", relay.enabled))
        if (listen, upstream) != (relay.listen, relay.upstream) or not enabled:
            await relay.stop()
            relay.listen, relay.upstream = str(listen), str(upstream)
            _check_addresses(relay)
        if enabled:
            _start(relay)

    def _add_toxic(self, relay: Relay, body: Mapping[str, Any]) -> Answer:
        toxic = _toxic(body)
        if toxic.name in relay.toxics:
            raise _Refused(409, "toxic already exists")
        relay.set_toxics({**relay.toxics, toxic.name: toxic})
        return 200, toxic.as_json()

    def _on_toxic(self, method: str, relay: Relay, name: str, body: Any) -> Answer:
        toxic = relay.toxics.get(name)
        if toxic is None:
            raise _Refused(404, "toxic not found")
        if method == "DELETE":
            relay.set_toxics({key: value for key, value in relay.toxics.items() if key != name})
            return 204, None
        if method in ("POST", "PATCH"):
            try:
                toxic = toxic_from_json(_object(body), toxic)
            except InvalidToxic as error:
                raise _Refused(400, str(error)) from error
            relay.set_toxics({**relay.toxics, name: toxic})
        elif method != "GET":
            raise _Refused(405, "method not allowed")
        return 200, toxic.as_json()


def _object(body: Any) -> Mapping[str, Any]:
    if not isinstance(body, Mapping):
        raise _Refused(400, "bad request body: a JSON object is wanted")
    return body


def _toxic(body: Mapping[str, Any]) -> Any:
    try:
        return toxic_from_json(body)
    except InvalidToxic as error:
        raise _Refused(400, str(error)) from error


def _check_addresses(relay: Relay) -> None:
    try:
        split_address(relay.listen)
        split_address(relay.upstream)
    except ValueError as error:
        raise _Refused(400, f"bad request body: {error}") from error


def _start(relay: Relay) -> None:
    try:
        relay.start()
    except OSError as error:
        raise _Refused(500, f"listen {relay.listen}: {error}") from error


class EmbeddedServer:
    """The server in this process: two threads, one for connections and one that takes requests in."""

    def __init__(self, host: str = "127.0.0.1", port: int = 0) -> None:
        """Bind the address of the HTTP interface; raises OSError if that is not possible. Nothing runs yet."""
        self._proxies = _Proxies()
        self._loop = asyncio.new_event_loop()
        self._http = ThreadingHTTPServer((host, port), _handler(self))
        self._http.daemon_threads = True
        self._threads = [
            threading.Thread(target=self._loop.run_forever, name="toxiproxy-connections", daemon=True),
            threading.Thread(target=self._http.serve_forever, name="toxiproxy-requests", daemon=True),
        ]

    @property
    def url(self) -> str:
        """The address of the HTTP interface."""
        host, port = self._http.server_address[:2]
        return f"http://{host!s}:{port}"

    def start(self) -> None:
        """Begin to serve."""
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """End every proxy and both threads."""
        self._http.shutdown()
        self._http.server_close()
        self._on_loop(self._proxies.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        for thread in self._threads:
            thread.join()
        self._loop.close()

    def answer(self, method: str, path: str, data: bytes) -> Answer:
        """Carry out a request, from any thread."""
        parts = tuple(part for part in path.partition("?")[0].split("/") if part)
        try:
            body = json.loads(data) if data else None
        except ValueError as error:
            return 400, {"error": f"bad request body: {error}", "status": 400}
        try:
            answer: Answer = self._on_loop(self._proxies.answer(method, parts, body))
        except _Refused as refused:
            return refused.status, {"error": str(refused), "status": refused.status}
        return answer

    def _on_loop(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_REQUEST_TIMEOUT_S)


def _handler(server: EmbeddedServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        """Hands requests on to the server."""

        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            length = self.headers.get("Content-Length", "0")
            if self.headers.get("User-Agent", "").startswith("Mozilla/"):
                # As Toxiproxy does: a page in a browser must not be able to redirect connections.
                self._reply(403, {"error": "User agent not allowed", "status": 403})
                return
            if not length.isdigit() or int(length) > _MAX_BODY_BYTES:
                self.close_connection = True
                self._reply(413, {"error": f"a body of {length} bytes is too long", "status": 413})
                return
            self._reply(*server.answer(self.command, self.path, self.rfile.read(int(length))))

        do_GET = do_POST = do_PATCH = do_DELETE = _serve  # noqa: N815 - the standard library's names

        def _reply(self, status: int, body: Any) -> None:
            data = b"" if body is None else json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the standard library's name
            """Log nothing: requests are not worth it."""

    return Handler
