"""A child process that reads one JSON object per line from its standard input and answers each with one line."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import time
from collections.abc import Mapping
from typing import Any

from barrier_tck.harness.support.errors import InternalError, OperatingError


class JsonLines:
    """The harness's end of the pipes to a child's standard input and output."""

    def __init__(self, child: subprocess.Popen[bytes], name: str) -> None:
        if child.stdin is None or child.stdout is None:
            raise InternalError(f"{name} was started without pipes.")
        self._child = child
        self._requests, self._answers = child.stdin, child.stdout
        self._name = name
        self._buffer = b""
        self.usable = True
        """False once a call has ended without its answer: the next line would answer the wrong question."""

    def call(self, command: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
        """Send a command, named by its key `do`, and wait for its answer.

        Raises:
            OperatingError: the child is gone, silent for `timeout_s`, or answered with an `error`.
        """
        if not self.usable:
            raise OperatingError(
                f"{self._capital()} still owes the answer to an earlier call; start another process."
            )
        self.usable = False
        try:
            self._requests.write(json.dumps(command).encode() + b"\n")
            self._requests.flush()
        except (BrokenPipeError, ValueError) as error:
            raise self._gone() from error
        deadline = time.monotonic() + timeout_s
        while b"\n" not in self._buffer:
            ready, _, _ = select.select([self._answers], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise OperatingError(f"{self._capital()} did not {command['do']} within {timeout_s:g} s.")
            data = os.read(self._answers.fileno(), 65536)
            if not data:
                raise self._gone()
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        self.usable = True
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise OperatingError(f"{self._capital()} could not {command['do']}: {answer['error']}")
        return answer

    def close(self, timeout_s: float) -> None:
        """Close the pipes, which ends a well-behaved child, and wait for it; kill it if it does not end."""
        for pipe in (self._requests, self._answers):
            with contextlib.suppress(BrokenPipeError):
                pipe.close()
        try:
            self._child.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()

    def _gone(self) -> OperatingError:
        return OperatingError(f"{self._capital()} process is gone; was it killed?")

    def _capital(self) -> str:
        return self._name[:1].upper() + self._name[1:]
