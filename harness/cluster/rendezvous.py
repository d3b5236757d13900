"""A place where processes that the harness did not start connect to it: they wait at a point until it lets them go.

A process that the harness starts inherits its end of a connection (``driver``). A Python worker of Spark does not, so
it connects to a socket in a directory that only the user may enter. Who may connect is decided by the file system. What
is sent is what a ``Peer`` sends: calls of an interface, and nothing else is decoded.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from barrier_tck.harness.cluster.driver.peer import Peer

_SOCKET = "rendezvous"
_OFFER = "points"
InterfaceT = TypeVar("InterfaceT")


class Rendezvous:
    """The harness's side; a context manager. Each process that comes is served by a thread of its own."""

    def __init__(self, directory: Path, interface: type, target: object) -> None:
        directory.mkdir(mode=0o700)
        self._interface, self._target = interface, target
        self._peers: list[Peer] = []
        self._lock = threading.Lock()
        self._closed = False
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with _address(directory) as address:
            self._listening.bind(address)
        self._listening.listen()
        self._thread = threading.Thread(target=self._accept, name="rendezvous", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Let all go that still wait here, and accept no more connections. Closing twice is harmless."""
        with self._lock:
            self._closed = True
            peers, self._peers = self._peers, []
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listening.close()
        for peer in peers:
            peer.close()

    def __enter__(self) -> Rendezvous:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:  # it was closed
                return
            peer = Peer(connection, "a process that stands at a point")
            peer.offer(_OFFER, self._interface, self._target)
            with self._lock:
                self._peers = [known for known in self._peers if not known.gone]
                if not self._closed:
                    self._peers.append(peer)
            peer.start()
            threading.Thread(target=peer.work, name="serves a point", daemon=True).start()


@contextlib.contextmanager
def met(directory: str, interface: type[InterfaceT]) -> Iterator[InterfaceT]:
    """Connect a process with the harness, which listens in a directory, and yield what it offers.

    Raises OSError if nothing listens there; a call raises PeerGone once the harness has closed the rendezvous.
    """
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with _address(Path(directory)) as address:
            connection.connect(address)
    except OSError:
        connection.close()
        raise
    peer = Peer(connection, "the harness")
    peer.start()
    try:
        yield peer.remote(_OFFER, interface)
    finally:
        peer.close()


@contextlib.contextmanager
def _address(directory: Path) -> Iterator[str]:
    """Yield the socket's address by way of an open directory: an address has 107 bytes, and a path may have more."""
    opened = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{opened}/{_SOCKET}"
    finally:
        os.close(opened)
