"""What both TCP servers of a job do: accept peers that have not proven themselves yet, a bounded number at a time.

If there are too many, the oldest of them has to go. A peer of the job proves itself within milliseconds, so those that
wait are strangers: connections that were opened and then say nothing cannot keep peers out.
"""

from __future__ import annotations

import logging
import socket
import struct
import threading
from collections.abc import Callable

from barrier_tck.reference_impl.spark.control_wire import ConnectionLost

_MOST_UNPROVEN_PEERS = 64
_ACCEPT_AGAIN_S = 0.1

_log = logging.getLogger(__name__)


def wake(connection: socket.socket) -> None:
    """End a connection so that threads blocked on it wake up; one of them closes it. Harmless twice."""
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        _log.debug("the connection was closed already")


def shut(connection: socket.socket) -> None:
    """End a connection so that threads blocked on it wake up, and close it. Harmless twice."""
    wake(connection)
    connection.close()


def bound_sends(connection: socket.socket, timeout_s: float) -> None:
    """Let a send fail if the peer takes nothing for this long."""
    milliseconds = int(1000 * timeout_s)
    timeout = struct.pack("ll", milliseconds // 1000, milliseconds % 1000 * 1000)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, timeout)


class Listener:
    """A listening socket, from which each peer is handed on with a place that it gives back once it is proven."""

    def __init__(self, host: str, backlog: int) -> None:
        """Listen on a free port of an address; raises ConnectionLost if it cannot be bound."""
        try:
            self._socket = socket.create_server((host, 0), backlog=backlog)
        except OSError as error:
            raise ConnectionLost(f"cannot listen on {host}: {error}") from error
        self.host = host
        self.port: int = self._socket.getsockname()[1]
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._unproven: dict[socket.socket, None] = {}
        """Peers in the order in which they came."""

    def accept_each(self, serve: Callable[[socket.socket], None]) -> None:
        """Hand on every peer that comes, until the listener is closed; ``serve`` must not block, and must see to it
        that ``proven`` is called once for each, and that the connection is closed in the end.
        """
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError as error:
                if self._closed.is_set():
                    return
                # Out of file descriptors, say, or the peer left at once: the next one may be luckier.
                _log.warning("a peer could not be accepted: %s", error)
                self._closed.wait(_ACCEPT_AGAIN_S)
                continue
            self._take_in(connection)
            serve(connection)

    def _take_in(self, connection: socket.socket) -> None:
        """Give a new peer a place; if none is free, the oldest peer's place, whose handshake then fails at once."""
        with self._lock:
            oldest = next(iter(self._unproven)) if len(self._unproven) >= _MOST_UNPROVEN_PEERS else None
            if oldest is not None:
                del self._unproven[oldest]
            self._unproven[connection] = None
        if oldest is not None:
            wake(oldest)

    def proven(self, connection: socket.socket) -> bool:
        """Free the place of a peer that has proven itself or was refused. Calling it twice is harmless.

        Returns False if it had no place any more: it was given away, and the peer was refused for that.
        """
        with self._lock:
            kept = connection in self._unproven
            self._unproven.pop(connection, None)
        return kept

    def close(self) -> None:
        """Accept no peer any more. Closing twice is harmless."""
        self._closed.set()
        shut(self._socket)
