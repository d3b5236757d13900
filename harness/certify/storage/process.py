"""The process of a candidate storage, which is asked to check one property after the other."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile

import msgspec

from barrier_tck.harness.certify.engine.ended_by_others import ended_by_others
from barrier_tck.harness.certify.storage.wire import Checked, Loaded, Refused, decoded

WORKER = "barrier_tck.harness.certify.storage.candidate.worker"
LOG_BYTES = 16 * 1024
"""How many bytes of the candidate's output are kept, from its end."""


class NoAnswer(Exception):
    """The process ended, sent no valid answer, or took too long (``hung``).

    ``from_outside``: another program ended it.
    """

    def __init__(self, message: str, hung: bool = False, from_outside: bool = False) -> None:
        super().__init__(message)
        self.hung = hung
        self.from_outside = from_outside


class StorageProcess:
    """A process in which the candidate runs. ``kill`` ends it and all processes that it started."""

    def __init__(self, target: str, location: str) -> None:
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed by kill
        self._link, worker_end = socket.socketpair()
        environ = os.environ | {"PYTHONPATH": os.pathsep.join(os.path.abspath(path) for path in sys.path)}
        with worker_end:
            self._process = subprocess.Popen(
                [sys.executable, "-m", WORKER, str(worker_end.fileno()), target, location],
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=subprocess.STDOUT,
                pass_fds=[worker_end.fileno()],
                start_new_session=True,
                env=environ,
            )
        self._answers = self._link.makefile("rb")

    def loaded(self, timeout_s: float) -> Loaded | Refused:
        """Return the first answer: the candidate's storage was made, or the target is refused. Raises NoAnswer."""
        answer = self._answer(timeout_s)
        if isinstance(answer, Checked):
            raise NoAnswer("its process sent an answer to another request")
        return answer

    def check(self, name: str, timeout_s: float) -> Checked:
        """Check one property in the process; raises NoAnswer."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the answer tells how it ended
            self._link.sendall(f"{name}\n".encode())
        answer = self._answer(timeout_s)
        if not isinstance(answer, Checked) or answer.name != name:
            raise NoAnswer("its process sent an answer to another request")
        return answer

    def kill(self) -> str:
        """End the process with all that it started in its session; return the end of what it printed."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._answers.close()
        self._link.close()
        with self._log as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - LOG_BYTES))
            return log.read().decode(errors="replace")

    def _answer(self, timeout_s: float) -> Loaded | Refused | Checked:
        self._link.settimeout(timeout_s)
        try:
            line = self._answers.readline()
        except TimeoutError as error:
            raise NoAnswer(f"it took longer than {timeout_s:g} s", hung=True) from error
        except ConnectionResetError:
            line = b""
        if not line.endswith(b"\n"):
            code = self._process.wait()
            how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
            raise NoAnswer(f"its process ended with {how}", from_outside=ended_by_others(code))
        try:
            return decoded(line)
        except msgspec.MsgspecError as error:
            raise NoAnswer(f"its process sent an invalid answer: {error}") from error
