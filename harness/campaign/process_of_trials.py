"""A process that runs trials, from the side of who started it: ``trial_process`` is what runs in it.

It lives as long as its owner. Whoever gives it a trial that ends it learns how it ended, and starts another one.
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
from collections.abc import Mapping, Sequence

import psutil

from barrier_tck.harness.campaign.trial_messages import (
    Answer,
    NotDone,
    OpenSystem,
    Request,
    answer_of,
    line_of,
)
from barrier_tck.harness.cluster.installation import import_path
from barrier_tck.harness.support import errors
from barrier_tck.harness.support.errors import HarnessError, InternalError, OperatingError
from barrier_tck.harness.support.wall_clock import is_kept_waiting, waited_for_a_processor_s

_END_TIMEOUT_S = 5.0
_KEEPER_END_TIMEOUT_S = 180.0
"""A keeper waits for a cluster to stop, then ends what is left of it."""
_TRIALS = "barrier_tck.harness.campaign.trial_process"
_KEEPER = "barrier_tck.harness.campaign.host_keeper"


class TrialProcess:
    """The owner's end of one process."""

    def __init__(
        self, environment: Mapping[str, str] | None = None, keeper: Sequence[str] | None = None
    ) -> None:
        """Start it, with these variables besides the owner's.

        With ``keeper``, a ``host_keeper`` with these arguments waits for this host and starts it then. All variables
        are those that are given, and it always ends in order: in the middle of a trial it stops its cluster first.
        """
        self._kept = keeper is not None
        module = [_TRIALS] if keeper is None else [_KEEPER, *keeper]
        own = {"PYTHONPATH": import_path()}
        given = environment or {}
        self._popen = subprocess.Popen(
            [sys.executable, "-P", "-m", *module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # Ctrl-C is for the owner, which then ends this process.
            start_new_session=True,
            env={**os.environ, **given, **own} if keeper is None else {**own, **given},
        )
        assert self._popen.stdin is not None and self._popen.stdout is not None
        self._requests, self._answers = self._popen.stdin, self._popen.stdout
        self.gone = False
        self.overran = ""
        """Why it was ended, if it did not answer in time."""

    def open(self, opening: OpenSystem) -> None:
        """Open the system on which its trials run; raises OperatingError if the process ends of it."""
        if self.ask(opening) is None:
            raise OperatingError(f"a process for trials cannot be started: it ended: {self.ending()}")

    def ask(self, request: Request, within_s: float | None = None) -> Answer | None:
        """Return the answer; None if the process ended without one. Raises the error that the process reports.

        A process that does not answer ``within_s`` seconds is ended, and ``overran`` says so. It has longer if it, or
        one of those below a keeper, waited for a processor half of that time.
        """
        line = self.ask_in_lines(line_of(request), within_s)
        return None if line is None else answered(line)

    def ask_in_lines(self, request: bytes, within_s: float | None = None) -> bytes | None:
        """Return the line that answers a line, in the same way, but whatever it says."""
        line = b""
        with contextlib.suppress(
            BrokenPipeError, ValueError
        ):  # ValueError: it was closed here in the meantime
            self._requests.write(request)
            self._requests.flush()
            if not self._answers_within(within_s):
                self.overran = f"the process that ran it gave no answer within {within_s:g} s and was ended"
                self.close(at_once=True)
            line = self._answers.readline()
        if not line.endswith(b"\n"):
            self.gone = True
            return None
        return line

    def _answers_within(self, seconds: float | None) -> bool:
        """Wait for an answer, as long again each time that the process was mostly kept waiting by a busy machine."""
        while True:
            before = self._waited_s()
            if select.select([self._answers], [], [], seconds)[0]:
                return True
            waited = max(now - before.get(pid, 0.0) for pid, now in self._waited_s().items())
            if seconds is None or not is_kept_waiting(waited, seconds):
                return False

    def _waited_s(self) -> dict[int, float]:
        """Return how long each process that works on the answer has waited for a processor, by its number."""
        pids = [self._popen.pid]
        if self._kept:  # the keeper itself is idle: the trial and its cluster are below it
            with contextlib.suppress(psutil.Error):
                pids += [child.pid for child in psutil.Process(pids[0]).children(recursive=True)]
        return {pid: waited_for_a_processor_s(pid) for pid in pids}

    def why_lost(self) -> str:
        """Return why there was no answer to a trial."""
        return self.overran or f"the process that ran it ended: {self.ending()}"

    def ending(self) -> str:
        """Return how it ended, in words."""
        self.close(at_once=False)
        code = self._popen.returncode
        return f"killed by signal {-code}" if code < 0 else f"exit code {code}"

    def close(self, at_once: bool) -> None:
        """End the process and wait for it; normally it ends when its input does."""
        if at_once and not self._kept:
            self._popen.kill()
        with contextlib.suppress(BrokenPipeError):
            self._requests.close()
        try:
            self._popen.wait(_KEEPER_END_TIMEOUT_S if self._kept else _END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            self._popen.wait()
        self._answers.close()


def answered(line: bytes) -> Answer:
    """Return what a line answers; raises the error that it reports."""
    answer = answer_of(line)
    if isinstance(answer, NotDone):
        raise _error_of(answer)
    return answer


def _error_of(answer: NotDone) -> HarnessError:
    kind = getattr(errors, answer.error, None)
    if isinstance(kind, type) and issubclass(kind, HarnessError):
        return kind(answer.message)
    return InternalError(f"{answer.error}: {answer.message}")
