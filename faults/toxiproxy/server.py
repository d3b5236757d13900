"""Which proxy server is used, and starting it: ``TOXIPROXY_URL``, one on the PATH, or the embedded one.

A server that was started here runs in a process of its own below a parent-death watch
(``faults.toxiproxy.parent_death_watch``), so that it ends with this process however that ends.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import IO, Protocol

import barrier_tck
from barrier_tck.faults.toxiproxy.client import ToxiproxyClient, ToxiproxyProblem

URL_VARIABLE = "TOXIPROXY_URL"
PROGRAM = "toxiproxy-server"

START_TIMEOUT_S = 60.0
"""How long a server may take to answer first: with many processes beside it, it takes long."""
_END_TIMEOUT_S = 5.0
_PROBE_TIMEOUT_S = 3.0
_POLL_S = 0.02
_TRIES = 3


class ServerKind(StrEnum):
    """Where a proxy server comes from, in words that complete "proxies are made by"."""

    URL = "the server that TOXIPROXY_URL names"
    PROGRAM = "toxiproxy-server on the PATH"
    EMBEDDED = "the embedded server"


@dataclass(frozen=True, slots=True)
class ServerChoice:
    """Which server would be used."""

    kind: ServerKind
    where: str = ""
    """Its URL, or the program's path; empty for the embedded server."""


class _Which(Protocol):
    def __call__(self, cmd: str, /) -> str | None: ...


def choose_server(environ: Mapping[str, str] | None = None, which: _Which = shutil.which) -> ServerChoice:
    """Return the server to use; nothing is started or asked."""
    url = (os.environ if environ is None else environ).get(URL_VARIABLE, "")
    if url:
        return ServerChoice(ServerKind.URL, url)
    program = which(PROGRAM)
    if program is not None:
        return ServerChoice(ServerKind.PROGRAM, program)
    return ServerChoice(ServerKind.EMBEDDED)


@contextlib.contextmanager
def proxy_server(
    choice: ServerChoice | None = None, start_timeout_s: float = START_TIMEOUT_S
) -> Iterator[ToxiproxyClient]:
    """Give a client of the chosen server; one that is started for it ends at exit.

    Raises ToxiproxyProblem if the server does not answer or does not start.
    """
    chosen = choice or choose_server()
    if chosen.kind is ServerKind.URL:
        ToxiproxyClient(chosen.where, _PROBE_TIMEOUT_S).version()
        yield ToxiproxyClient(chosen.where)
        return
    process, url = (
        _start_program(chosen.where, start_timeout_s)
        if chosen.kind is ServerKind.PROGRAM
        else _start_embedded(start_timeout_s)
    )
    try:
        yield ToxiproxyClient(url)
    finally:
        _stop(process)


def _start_program(program: str, timeout_s: float) -> tuple[subprocess.Popen[bytes], str]:
    """Start Toxiproxy on a free port. It cannot choose one itself, so another process may be quicker: try again."""
    reason = ""
    deadline = time.monotonic() + timeout_s
    for _ in range(_TRIES):
        port = _free_port()
        process = _start_watched(program, "-host", "127.0.0.1", "-port", str(port))
        url = f"http://127.0.0.1:{port}"
        client = ToxiproxyClient(url, min(_PROBE_TIMEOUT_S, timeout_s))
        while process.poll() is None and time.monotonic() < deadline:
            try:
                client.version()
            except ToxiproxyProblem:
                time.sleep(_POLL_S)
            else:
                return process, url
        ended = process.returncode
        _stop(process)
        if ended is None:  # another port would change nothing
            reason = f"it did not answer within {timeout_s:g} s"
            break
        reason = f"it ended with code {ended}"
    raise ToxiproxyProblem(
        f"{program} did not start: {reason}; run it by hand to see why, or take it off the PATH to use the embedded one"
    )


def _start_embedded(timeout_s: float) -> tuple[subprocess.Popen[bytes], str]:
    with tempfile.TemporaryFile() as errors:
        process = _start_watched(errors=errors)
        assert process.stdout is not None
        ready, _, _ = select.select([process.stdout], [], [], timeout_s)
        url = process.stdout.readline().decode().strip() if ready else ""
        if url:
            return process, url
        _stop(process)
        errors.seek(0)
        reason = errors.read().decode(errors="replace").strip().rpartition("\n")[2] or "without a word"
    if ready:
        raise ToxiproxyProblem(f"the embedded proxy server ended with code {process.returncode}: {reason}")
    raise ToxiproxyProblem(f"the embedded proxy server did not start within {timeout_s:g} s: {reason}")


def _start_watched(*command: str, errors: IO[bytes] | None = None) -> subprocess.Popen[bytes]:
    # This process may find the package only through its working directory.
    root = str(Path(barrier_tck.__file__).resolve().parents[1])
    path = os.pathsep.join(part for part in (root, os.environ.get("PYTHONPATH", "")) if part)
    return subprocess.Popen(
        [sys.executable, "-m", "barrier_tck.faults.toxiproxy.parent_death_watch", *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL if command else subprocess.PIPE,
        stderr=subprocess.DEVNULL if errors is None else errors,
        env={**os.environ, "PYTHONPATH": path, "LOG_LEVEL": "error"},
        # A terminal's Ctrl-C must reach the harness alone.
        start_new_session=True,
    )


def _stop(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(BrokenPipeError):
                pipe.close()
    try:
        process.wait(_END_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
