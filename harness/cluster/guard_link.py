"""The harness's end of the pipe to the guard process of a cluster (`harness.cluster.guard`)."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

from harness.cluster import guard
from harness.cluster.processes import ProcessIdentity
from harness.errors import InternalError, OperatingError

_END_TIMEOUT_S = 20.0


class GuardLink:
    """Starts a guard; then one command, one answer."""

    def __init__(self, directory: Path, *, temporary: bool) -> None:
        script = Path(guard.__file__)
        with open(directory / "guard.log", "ab") as log:
            # -P: the script's own directory holds modules whose names must not shadow others.
            self._popen = subprocess.Popen(
                [sys.executable, "-P", str(script), str(os.getpid()), str(directory) if temporary else ""],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd="/",
                start_new_session=True,
            )
        self._buffer = b""
        self.process = ProcessIdentity(self._popen.pid, float(psutil.Process(self._popen.pid).create_time()))

    def call(self, command: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
        """Send a command and wait for its answer.

        Raises:
            OperatingError: the guard is gone, silent for `timeout_s`, or could not do it.
        """
        if self._popen.stdin is None or self._popen.stdout is None:
            raise InternalError("The guard was started without pipes.")
        try:
            self._popen.stdin.write(json.dumps(command).encode() + b"\n")
            self._popen.stdin.flush()
        except (BrokenPipeError, ValueError) as error:
            raise OperatingError("The cluster's guard process is gone; was it killed?") from error
        deadline = time.monotonic() + timeout_s
        while b"\n" not in self._buffer:
            ready, _, _ = select.select([self._popen.stdout], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise OperatingError(f"The cluster's guard did not {command['do']} within {timeout_s:g} s.")
            data = os.read(self._popen.stdout.fileno(), 65536)
            if not data:
                raise OperatingError("The cluster's guard process is gone; was it killed?")
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise OperatingError(f"The cluster's guard could not {command['do']}: {answer['error']}")
        return answer

    def close(self) -> None:
        """Wait for the guard to end; kill it if it does not. Its children die with it then."""
        for pipe in (self._popen.stdin, self._popen.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
        try:
            self._popen.wait(_END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            self._popen.wait()
