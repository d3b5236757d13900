"""A server of objects that speaks the S3 protocol, in a process of its own on this machine.

It is Versity's S3 gateway over a directory if ``versitygw`` is on the PATH; what it has stored outlives it. Otherwise
it is the server of moto, if that is installed, which keeps everything in memory and so must not be killed.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

from barrier_tck.faults.toxiproxy import parent_death_watch
from barrier_tck.faults.upload_moment import UploadMoment
from barrier_tck.harness.cluster.installation import import_path
from barrier_tck.harness.support.errors import EnvironmentProblem

PROGRAM = "versitygw"
KEY, SECRET, REGION = "barrier-tck", "only-on-this-machine", "us-east-1"
"""Who may use the server: clients that the harness gives the address to. It listens on the loopback interface only."""

_ADDRESS = "127.0.0.1"
_START_S = 120.0
_POLL_S = 0.02
_TRIES = 3
_END_S = 5.0


class ObjectServer:
    """One server, always at the same address. ``start`` it; ``close`` it in every case."""

    def __init__(self, directory: Path) -> None:
        """Take an empty directory in which it may keep everything; nothing is started.

        Raises EnvironmentProblem if this machine has no such server.
        """
        self._directory = directory
        self._program = shutil.which(PROGRAM)
        if self._program is None and importlib.util.find_spec("moto") is None:
            raise EnvironmentProblem(
                f"checkpoints in an object store need a server: put {PROGRAM} on the PATH (go install "
                "github.com/versity/versitygw/cmd/versitygw@latest), or install moto[s3,server]"
            )
        self._port = 0
        self._watched: subprocess.Popen[bytes] | None = None
        self._pid = 0

    @property
    def address(self) -> tuple[str, int]:
        """Return where it answers."""
        return _ADDRESS, self._port

    @property
    def url(self) -> str:
        """Return where it answers, for clients."""
        return f"http://{_ADDRESS}:{self._port}"

    @property
    def name(self) -> str:
        """Return which server it is, with its process."""
        return f"{PROGRAM if self._program is not None else 'moto'} (pid {self._pid})"

    @property
    def outlives_a_kill(self) -> bool:
        return self._program is not None

    @property
    def bucket_directory(self) -> Path:
        """Return the directory whose directories are buckets; only if what is stored outlives the server."""
        return self._directory / "buckets"

    @property
    def running(self) -> bool:
        """Whether its process is alive."""
        return self._watched is not None and psutil.pid_exists(self._pid)

    def start(self) -> None:
        """Start it with what it has stored and return when it answers. Harmless if it runs.

        Raises EnvironmentProblem if it does not answer in time.
        """
        if self.running:
            return
        for _ in range(_TRIES):
            # Between the choice of a free port and its use another process may take it; then it is chosen again.
            port = self._port or _free_port()
            failure = self._started_at(port)
            if failure is None:
                self._port = port
                return
        raise EnvironmentProblem(f"the object store's server does not start: {failure}")

    def kill(self) -> None:
        """Kill it (SIGKILL) and return when it is dead. Harmless if it is."""
        with contextlib.suppress(psutil.NoSuchProcess):
            server = psutil.Process(self._pid) if self._pid else None
            if server is not None:
                server.kill()
                server.wait(_END_S)
        self._end_watched()

    def strike(self, moment: UploadMoment) -> None:
        self.kill()

    def close(self) -> None:
        """End it. Closing twice is harmless."""
        self.kill()

    def _started_at(self, port: int) -> str | None:
        """Start it on a port; return None when it answers, or why it does not."""
        (self._directory / "buckets").mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile() as errors:
            self._watched = subprocess.Popen(
                [sys.executable, "-m", parent_death_watch.__name__, *self._command(port)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                env={**os.environ, "PYTHONPATH": import_path()},
                start_new_session=True,  # a terminal's Ctrl-C must reach the harness alone
            )
            bound_s = time.monotonic() + _START_S
            while self._watched.poll() is None and time.monotonic() < bound_s:
                if _answers(port):
                    children = psutil.Process(self._watched.pid).children()
                    if children:
                        self._pid = children[0].pid
                        return None
                time.sleep(_POLL_S)
            self._end_watched()
            errors.seek(0)
            failure = errors.read().decode(errors="replace").strip().rpartition("\n")[2]
        return failure or f"it does not answer on port {port} within {_START_S:g} s"

    def _command(self, port: int) -> Sequence[str]:
        if self._program is None:
            return [sys.executable, "-m", "moto.server", "-H", _ADDRESS, "-p", str(port)]
        credentials = ("--access", KEY, "--secret", SECRET, "--region", REGION)
        where = ("--port", f"{_ADDRESS}:{port}", "--quiet", "posix", str(self.bucket_directory))
        return [self._program, *credentials, *where]

    def _end_watched(self) -> None:
        held, self._watched = self._watched, None
        if held is None:
            return
        assert held.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            held.stdin.close()
        try:
            held.wait(_END_S)
        except subprocess.TimeoutExpired:
            held.kill()
            held.wait()


def _answers(port: int) -> bool:
    """Return whether connections are accepted on a port."""
    try:
        with socket.create_connection((_ADDRESS, port), timeout=1.0):
            return True
    except OSError:
        return False


def _free_port() -> int:
    with socket.create_server((_ADDRESS, 0)) as free:
        port: int = free.getsockname()[1]
        return port
