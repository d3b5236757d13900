"""The data plane of the embedded server: listeners, connections, and what toxics do to the bytes.

Everything here runs on one asyncio loop. A connection is two streams. A stream without toxics hands bytes from
socket to socket; one with toxics puts them into a queue, with the time of their arrival, from which a second task
sends them as the toxics allow. Bytes never overtake each other (BAR-2).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import socket
import struct
from collections import deque
from collections.abc import Coroutine, Sequence
from typing import Any

from barrier_tck.faults.toxiproxy.toxics import DOWNSTREAM, UPSTREAM, Toxic

_READ_BYTES = 256 << 10
_QUEUE_BYTES = 32 << 20
"""A stream holds back no more than this; then it stops reading. Toxiproxy's own bound is of this size."""
_SLICE_MS = 100
"""A throttled stream sends at once what it may send in this many milliseconds."""
_CONNECT_TIMEOUT_S = 10.0
_ACCEPT_AGAIN_S = 0.1
_RESET = struct.pack("ii", 1, 0)
"""SO_LINGER with no time: closing sends a reset."""
_log = logging.getLogger(__name__)


def _end(connection: socket.socket, reset: bool = False) -> None:
    """Close a socket so that both its reader and its peer notice. Harmless twice."""
    with contextlib.suppress(OSError):
        if reset:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        else:
            connection.shutdown(socket.SHUT_RDWR)
    connection.close()


class _LimitReached(OSError):
    """A stream has carried all that it may."""


class _Stream:
    """One direction of one connection."""

    def __init__(self, source: socket.socket, target: socket.socket, randomness: random.Random) -> None:
        self._source = source
        self._target = target
        self._random = randomness
        self._queue: deque[tuple[float, bytes]] = deque()
        self._queued = 0
        self._ended = False
        self._toxics: tuple[Toxic, ...] = ()
        self._limited = 0
        """Bytes that were let through since the limit was set."""
        self._changed = asyncio.Event()
        """Set whenever the writer or the reader has something to look at."""
        self._room = asyncio.Event()

    def set_toxics(self, toxics: Sequence[Toxic]) -> bool:
        """Apply these toxics from now on, also to what is held back; return whether a black hole was removed."""
        was_hole = self._toxic("timeout") is not None
        had_limit = self._toxic("limit_data") is not None
        self._toxics = tuple(toxics)
        if not had_limit:
            self._limited = 0
        self._changed.set()
        return was_hole and self._toxic("timeout") is None

    async def run(self) -> None:
        """Carry bytes until the source ends, then say so to the target."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._read())
            tasks.create_task(self._write())

    def _toxic(self, kind: str) -> Toxic | None:
        return next((toxic for toxic in self._toxics if toxic.type == kind), None)

    async def _read(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            data = await loop.sock_recv(self._source, _READ_BYTES)
            if not data:
                break
            if not self._toxics and not self._queued:
                # The common case, without the queue and its second task.
                await loop.sock_sendall(self._target, data)
                continue
            self._queue.append((loop.time(), data))
            self._queued += len(data)
            self._changed.set()
            while self._queued >= _QUEUE_BYTES:
                self._room.clear()
                await self._room.wait()
        self._ended = True
        self._changed.set()

    async def _write(self) -> None:
        while True:
            while not self._queue and not self._ended:
                await self._wait(None)
            if not self._queue:
                break
            arrived, data = self._queue[0]
            await self._deliver(arrived, data)
            self._queue.popleft()
            self._queued -= len(data)
            self._room.set()
        closing = self._toxic("slow_close")
        if closing is not None:
            await asyncio.sleep(closing.number("delay") / 1000.0)
        with contextlib.suppress(OSError):
            self._target.shutdown(socket.SHUT_WR)

    async def _wait(self, seconds: float | None) -> None:
        """Wait until something changes, but no longer than this."""
        self._changed.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()

    async def _deliver(self, arrived: float, data: bytes) -> None:
        loop = asyncio.get_running_loop()
        if self._toxic("timeout") is not None or self._toxic("reset_peer") is not None:
            return  # a hole: the bytes are gone
        due = self._due(arrived)
        while due is not None and loop.time() < due:
            await self._wait(due - loop.time())
            if self._toxic("latency") is None:
                due = None
        limit = self._toxic("limit_data")
        if limit is None:
            await self._send(data)
            return
        most = limit.number("bytes")
        data = data[: max(0, most - self._limited)]
        await self._send(data)
        self._limited += len(data)
        if self._limited >= most:
            raise _LimitReached(f"{most} bytes are through")

    def _due(self, arrived: float) -> float | None:
        latency = self._toxic("latency")
        if latency is None:
            return None
        jitter = latency.number("jitter")
        delay_ms = latency.number("latency") + (self._random.randint(-jitter, jitter) if jitter else 0)
        return arrived + max(0, delay_ms) / 1000.0

    async def _send(self, data: bytes) -> None:
        loop = asyncio.get_running_loop()
        rest = memoryview(data)
        while rest:
            bandwidth = self._toxic("bandwidth")
            if bandwidth is None:
                await loop.sock_sendall(self._target, rest)
                return
            rate = bandwidth.number("rate")
            if rate == 0:
                await self._wait(None)
                continue
            if self._toxic("timeout") is not None:
                return
            piece, rest = rest[: rate * _SLICE_MS], rest[rate * _SLICE_MS :]
            await asyncio.sleep(len(piece) / (rate * 1000.0))
            await loop.sock_sendall(self._target, piece)


class _Connection:
    """A client of the proxy, and the proxy's own connection to the server."""

    def __init__(self, client: socket.socket, server: socket.socket, randomness: random.Random) -> None:
        self._client = client
        self._server = server
        self._random = randomness
        self._streams = {
            UPSTREAM: _Stream(client, server, randomness),
            DOWNSTREAM: _Stream(server, client, randomness),
        }
        self._hit: dict[str, bool] = {}
        """Toxic -> whether this connection is among the share that it acts on."""
        self._timers: list[asyncio.TimerHandle] = []
        self._timed: list[str] = []
        self._task: asyncio.Task[None] | None = None
        self._reset = False

    def set_toxics(self, toxics: Sequence[Toxic]) -> None:
        """Apply the toxics of the proxy; ends the connection if a black hole was removed."""
        for toxic in toxics:
            if toxic.name not in self._hit:
                self._hit[toxic.name] = self._random.random() < toxic.toxicity
        hits = [toxic for toxic in toxics if self._hit[toxic.name]]
        self._start_timers(hits)
        healed = [
            stream.set_toxics([toxic for toxic in hits if toxic.stream == name])
            for name, stream in self._streams.items()
        ]
        if any(healed):
            # What the hole swallowed is lost; a stream with a gap must not go on.
            self.end()

    def _start_timers(self, toxics: Sequence[Toxic]) -> None:
        loop = asyncio.get_running_loop()
        for toxic in toxics:
            if toxic.type not in ("timeout", "reset_peer") or toxic.name in self._timed:
                continue
            reset = toxic.type == "reset_peer"
            if reset or toxic.number("timeout"):
                self._timed.append(toxic.name)
                self._timers.append(loop.call_later(toxic.number("timeout") / 1000.0, self.end, reset))

    async def run(self) -> None:
        """Carry both streams to their ends; whatever breaks, or a call of ``end``, ends the connection."""
        self._task = asyncio.current_task()
        try:
            async with asyncio.TaskGroup() as tasks:
                for stream in self._streams.values():
                    tasks.create_task(stream.run())
        except* OSError as errors:
            _log.debug("a connection broke: %s", errors.exceptions)
        finally:
            for timer in self._timers:
                timer.cancel()
            for end in (self._client, self._server):
                _end(end, self._reset)

    def end(self, reset: bool = False) -> None:
        """Close both ends, with a reset if wanted. The sockets are closed by ``run``, once nothing waits on them."""
        self._reset = reset
        if self._task is not None:
            self._task.cancel()


class Relay:
    """One proxy: a listening address, an upstream address, toxics. All methods are called on the loop."""

    def __init__(self, name: str, listen: str, upstream: str) -> None:
        self.name = name
        self.listen = listen
        self.upstream = upstream
        self.toxics: dict[str, Toxic] = {}
        self._listener: socket.socket | None = None
        self._connections: dict[int, _Connection] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._serial = 0
        # Which connections a toxic with a toxicity below 1 hits, and jitter, are the same in every run.
        self._random = random.Random(name)

    @property
    def enabled(self) -> bool:
        """Whether it listens."""
        return self._listener is not None

    def start(self) -> None:
        """Begin to listen; raises OSError if the address cannot be bound, ValueError if it is not an address."""
        if self._listener is not None:
            return
        listener = socket.create_server(split_address(self.listen), backlog=256)
        listener.setblocking(False)
        host, port = listener.getsockname()[:2]
        # The same port as before, if it listened before: clients know the address.
        self.listen = f"{host}:{port}"
        self._listener = listener
        self._spawn(self._accept(listener))

    async def stop(self) -> None:
        """Stop listening and close every connection."""
        listener, self._listener = self._listener, None
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if listener is not None:
            _end(listener)

    def set_toxics(self, toxics: dict[str, Toxic]) -> None:
        """Replace all toxics, for open and future connections."""
        self.toxics = toxics
        for connection in list(self._connections.values()):
            connection.set_toxics(list(toxics.values()))

    def as_json(self) -> dict[str, Any]:
        """Return the proxy as the HTTP interface shows it."""
        return {
            "name": self.name,
            "listen": self.listen,
            "upstream": self.upstream,
            "enabled": self.enabled,
            "toxics": [toxic.as_json() for toxic in self.toxics.values()],
        }

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self._serial += 1
        serial = self._serial
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[serial] = task
        task.add_done_callback(lambda _: self._tasks.pop(serial, None))

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                client, _ = await loop.sock_accept(listener)
            except OSError as error:
                # Out of file descriptors, most likely: others may come free. Stopping cancels this task.
                _log.warning("%s cannot accept: %s", self.name, error)
                await asyncio.sleep(_ACCEPT_AGAIN_S)
                continue
            self._spawn(self._serve(client))

    async def _serve(self, client: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        server = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        for end in (client, server):
            end.setblocking(False)
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            async with asyncio.timeout(_CONNECT_TIMEOUT_S):
                await loop.sock_connect(server, split_address(self.upstream))
        except (OSError, asyncio.CancelledError) as error:
            _end(client)
            server.close()
            if isinstance(error, asyncio.CancelledError):
                raise
            return
        connection = _Connection(client, server, self._random)
        self._serial += 1
        serial = self._serial
        self._connections[serial] = connection
        try:
            connection.set_toxics(list(self.toxics.values()))
            await connection.run()
        finally:
            del self._connections[serial]


def split_address(address: str) -> tuple[str, int]:
    """Return host and port; raises ValueError for anything that is not ``host:port``."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"{address!r} is not host:port")
    return host.strip("[]"), int(port)
