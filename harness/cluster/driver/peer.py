"""Two processes of this machine that call each other's methods over one socket.

Each side *offers* objects, and calls the other side's objects through ``remote``. An interface, a class with type
hints, says which methods there are and what they take; arguments and results are MessagePack of those types, and
nothing else is decoded. A call returns when the other side has carried it out, so a process that reports that it
stands at some point stands still there until the report has been taken: that is the rendezvous of faults.

The socket is one of a connected pair that a process inherits from its parent. It has no address, so no third process
can speak on it.

Calls that come in are carried out one after the other, in the order in which they were sent, by the thread that runs
``work``. A call may call back meanwhile: answers are read on a thread of their own.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import queue
import socket
import struct
import threading
from dataclasses import dataclass
from typing import Any, TypeVar, cast, get_type_hints

import msgspec

from barrier_tck.harness.support.errors import InternalError, OperatingError

_log = logging.getLogger(__name__)

FRAME_BYTES_MAX = 64 << 20
"""No frame is longer. The largest name all state files of a checkpoint."""

_LENGTH = struct.Struct(">I")
_CALL, _RETURN, _RAISE = 0, 1, 2
_Frame = tuple[int, int, str, msgspec.Raw]
"""What it is, the number of the call, the method's name or the error's kind, arguments or result."""
_frames: msgspec.msgpack.Decoder[_Frame] = msgspec.msgpack.Decoder(_Frame)
_encode = msgspec.msgpack.Encoder().encode

InterfaceT = TypeVar("InterfaceT")


class PeerGone(OperatingError):
    """The other process is gone: no further call can be answered."""


class RemoteError(OperatingError):
    """What the other process raised while it carried out a call."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(f"{kind}: {text}")
        self.kind = kind
        self.text = text


@dataclass(frozen=True)
class _Method:
    """How one method of an interface is called."""

    arguments: Any
    """The type of all its arguments, as a tuple."""
    result: Any


def _methods_of(interface: type) -> dict[str, _Method]:
    found = {}
    for base in reversed(interface.__mro__):
        for name, member in vars(base).items():
            if name.startswith("_") or not callable(member):
                continue
            hints = get_type_hints(member)
            result = hints.pop("return", type(None))
            found[name] = _Method(tuple[tuple(hints.values())] if hints else tuple[()], result)  # type: ignore[misc]
    return found


class Peer:
    """One end of the connection."""

    def __init__(self, connection: socket.socket, name: str) -> None:
        self._connection = connection
        self._name = name
        self._sending = threading.Lock()
        self._lock = threading.Lock()
        self._serials = itertools.count(1)
        self._waiting: dict[int, queue.SimpleQueue[_Frame | None]] = {}
        self._calls: queue.SimpleQueue[_Frame | None] = queue.SimpleQueue()
        self._offered: dict[str, tuple[object, dict[str, _Method]]] = {}
        self._gone = threading.Event()
        self._reader = threading.Thread(target=self._read, name=f"reads from {name}", daemon=True)

    def offer(self, name: str, interface: type, target: object) -> None:
        """Let the other side call the methods of an interface on an object. Before ``start``."""
        self._offered[name] = (target, _methods_of(interface))

    def remote(self, name: str, interface: type[InterfaceT]) -> InterfaceT:
        """Return what the other side offers under a name. Its calls raise PeerGone and RemoteError."""
        return cast("InterfaceT", _Remote(self, name, _methods_of(interface)))

    def start(self) -> None:
        """Begin to read."""
        self._reader.start()

    def work(self) -> None:
        """Carry out the calls of the other side until it is gone; those that had come are all carried out."""
        while (frame := self._calls.get()) is not None:
            self._carry_out(frame)

    @property
    def gone(self) -> bool:
        """Whether the other side is gone."""
        return self._gone.is_set()

    def close(self) -> None:
        """Hang up. Closing twice is harmless."""
        with contextlib.suppress(OSError):  # it may be closed already, on this side or the other
            self._connection.shutdown(socket.SHUT_RDWR)
        if self._reader.is_alive() and threading.current_thread() is not self._reader:
            self._reader.join()
        self._connection.close()

    def call(self, path: str, method: _Method, arguments: tuple[Any, ...]) -> Any:
        """Call a method of the other side and return its result; ``remote`` is the usual way."""
        answer: queue.SimpleQueue[_Frame | None] = queue.SimpleQueue()
        serial = next(self._serials)
        with self._lock:
            self._waiting[serial] = answer
        try:
            if self._gone.is_set():
                raise self._is_gone()
            self._send((_CALL, serial, path, msgspec.Raw(_encode(arguments))))
            frame = answer.get()
        finally:
            with self._lock:
                del self._waiting[serial]
        if frame is None:
            raise self._is_gone()
        kind, _, name, body = frame
        if kind == _RAISE:
            raise RemoteError(name, msgspec.msgpack.decode(body, type=str))
        return msgspec.msgpack.decode(body, type=method.result)

    def _is_gone(self) -> PeerGone:
        return PeerGone(f"{self._name} is gone")

    def _carry_out(self, frame: _Frame) -> None:
        _, serial, path, body = frame
        try:
            name, _, method_name = path.partition(".")
            target, methods = self._offered[name]
            method = methods[method_name]
            arguments = msgspec.msgpack.decode(body, type=method.arguments)
            result = getattr(target, method_name)(*arguments)
            answer = (_RETURN, serial, "", msgspec.Raw(_encode(result)))
        except Exception as error:  # noqa: BLE001 - whatever it is, the other side gets it
            _log.debug("%s called %s", self._name, path, exc_info=True)
            answer = (_RAISE, serial, type(error).__name__, msgspec.Raw(_encode(str(error))))
        try:
            self._send(answer)
        except PeerGone:
            _log.debug("%s was gone before it had the answer of %s", self._name, path)

    def _send(self, frame: _Frame) -> None:
        data = _encode(frame)
        if len(data) > FRAME_BYTES_MAX:
            raise InternalError(
                f"a frame of {len(data)} bytes for {frame[2]}; at most {FRAME_BYTES_MAX} are sent"
            )
        try:
            with self._sending:
                self._connection.sendall(_LENGTH.pack(len(data)) + data)
        except OSError as error:
            raise self._is_gone() from error

    def _read(self) -> None:
        try:
            while (frame := self._receive()) is not None:
                if frame[0] == _CALL:
                    self._calls.put(frame)
                    continue
                with self._lock:
                    answer = self._waiting.get(frame[1])
                if answer is not None:
                    answer.put(frame)
        except (OSError, msgspec.DecodeError, InternalError) as error:
            _log.debug("%s: %r", self._name, error)
        self._gone.set()
        with self._lock:
            left = list(self._waiting.values())
        for answer in left:
            answer.put(None)
        self._calls.put(None)

    def _receive(self) -> _Frame | None:
        header = self._exactly(_LENGTH.size)
        if header is None:
            return None
        (length,) = _LENGTH.unpack(header)
        if length > FRAME_BYTES_MAX:
            raise InternalError(f"{self._name} announced a frame of {length} bytes")
        data = self._exactly(length)
        return None if data is None else _frames.decode(data)

    def _exactly(self, length: int) -> bytes | None:
        """Read so many bytes; None at the end of the connection, also in the middle: its process was killed."""
        parts = bytearray()
        while len(parts) < length:
            part = self._connection.recv(min(1 << 20, length - len(parts)))
            if not part:
                return None
            parts += part
        return bytes(parts)


class _Remote:
    """Calls the methods of an interface on the other side."""

    def __init__(self, peer: Peer, name: str, methods: dict[str, _Method]) -> None:
        self._peer = peer
        self._name = name
        self._methods = methods

    def __getattr__(self, name: str) -> Any:
        method = self._methods.get(name)
        if method is None:
            raise AttributeError(f"the other side's {self._name} has no method {name!r}")
        path = f"{self._name}.{name}"
        return lambda *arguments: self._peer.call(path, method, arguments)
