"""A driver in a process of its own, from the harness's side.

The process runs a module of the system under test. It is the leader of a session of its own, so a terminal's Ctrl-C
reaches only the harness. It ends when the harness closes the connection or dies, because then ``Peer.work`` returns
on its side. It carries the marker of its cluster, so that processes that it leaves behind are found and killed.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

import psutil

from barrier_tck.harness.cluster.driver.peer import Peer
from barrier_tck.harness.cluster.installation import import_path

_END_TIMEOUT_S = 20.0


class DriverProcess:
    """A started driver. There is no method to kill it, because faults that kill it need only its ``pid``."""

    def __init__(
        self,
        module: str,
        log_file: Path,
        environment: Mapping[str, str],
        offers: Mapping[str, tuple[type, object]],
    ) -> None:
        """Start ``python -m module`` with one argument, the file descriptor of its end of the connection.

        ``environment`` is added to the environment of this process. ``offers`` is what the driver may call: name ->
        interface and object. The calls are carried out on a thread of this object, one after the other.
        """
        ours, theirs = socket.socketpair()
        try:
            with open(log_file, "ab") as log:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", module, str(theirs.fileno())],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    pass_fds=(theirs.fileno(),),
                    env={**os.environ, "PYTHONPATH": import_path(), **environment},
                )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        self.pid = self._process.pid
        self.peer = Peer(ours, f"the driver process {self.pid}")
        for name, (interface, target) in offers.items():
            self.peer.offer(name, interface, target)
        self._worker = threading.Thread(target=self._work, name=f"serves driver {self.pid}", daemon=True)
        self._over = threading.Event()
        self._on_over: list[Callable[[], None]] = []
        self._lock = threading.Lock()
        self.peer.start()
        self._worker.start()

    @property
    def over(self) -> bool:
        """Whether the driver is gone, and all calls that it had sent have been carried out."""
        return self._over.is_set()

    def when_over(self, call: Callable[[], None]) -> None:
        """Call a function once the driver is over, on the thread that serves it; at once if it is over already."""
        with self._lock:
            if not self._over.is_set():
                self._on_over.append(call)
                return
        call()

    def close(self, patience_s: float = _END_TIMEOUT_S) -> None:
        """Let the driver end, kill it if it takes too long, and kill all that it started. Closing twice is harmless."""
        family = self._family()
        self.peer.close()
        try:
            self._process.wait(patience_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for process in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        if threading.current_thread() is not self._worker:
            self._worker.join(_END_TIMEOUT_S)

    def _family(self) -> list[psutil.Process]:
        try:
            return list(psutil.Process(self.pid).children(recursive=True))
        except psutil.NoSuchProcess:
            return []

    def _work(self) -> None:
        self.peer.work()
        with self._lock:
            self._over.set()
            calls = list(self._on_over)
        for call in calls:
            call()
