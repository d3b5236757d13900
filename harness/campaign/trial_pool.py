"""Runs the simulated trials of a campaign in several processes, with the same verdicts, digests and order as one.

Each process runs one trial at a time for its own thread here. If a process dies, its trial is UNKNOWN and says so,
and another process replaces it.
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime

from barrier_tck.harness.campaign.trial_messages import (
    Answer,
    NotDone,
    OpenSystem,
    Request,
    RunTrial,
    TrialRan,
    answer_of,
    line_of,
)
from barrier_tck.harness.campaign.tried_plans import PlannedTrial, TriedPlan
from barrier_tck.harness.cluster.installation import import_path
from barrier_tck.harness.support import errors
from barrier_tck.harness.support.errors import HarnessError, InternalError, OperatingError, UsageProblem
from barrier_tck.harness.system.system_names import reference_of
from barrier_tck.harness.system.system_under_test import SystemUnderTest
from barrier_tck.harness.trial.trial_run import lost_trial

AHEAD = 4
"""For each process, how many trials may run or wait to be counted: enough that no process waits for another."""
GRACE_S = 30.0
"""A process that has not ended a trial this long after the trial's limit is ended: it stands still in a library."""
_END_TIMEOUT_S = 5.0


def require_parallel(system: SystemUnderTest, jobs: int) -> None:
    """Raise UsageProblem if the system's trials cannot run in several processes."""
    if jobs > 1 and system.world != "simulated":
        raise UsageProblem(
            f"--jobs {jobs}: {system.name} runs its trials one by one, on all cores; only simulated trials can run in "
            "several processes"
        )


class TrialPool:
    """Runs trials in several processes, which live as long as one call of ``run``."""

    def __init__(self, system: SystemUnderTest, jobs: int) -> None:
        self._system = system
        self._jobs = jobs
        self._opening = OpenSystem(reference_of(system), tuple(sys.path))
        self._own = threading.local()
        self._lock = threading.Lock()
        self._processes: list[_TrialProcess] = []
        self._over = False

    def run(self, planned: Iterable[PlannedTrial]) -> Generator[TriedPlan, None, None]:
        """Yield the result of each trial, in the order of the plans.

        Raises HarnessError as the trial itself would have, and OperatingError if no process can be started. No
        process is left, however it ends.
        """
        self._over = False
        waiting: deque[Future[TriedPlan]] = deque()
        threads = ThreadPoolExecutor(self._jobs, "trials")
        try:
            for trial in planned:
                waiting.append(threads.submit(self._try, trial))
                if len(waiting) >= AHEAD * self._jobs:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            finished = not waiting
            self._end(at_once=not finished)
            threads.shutdown(wait=True, cancel_futures=True)

    def _try(self, trial: PlannedTrial) -> TriedPlan:
        """Run a trial in this thread's process."""
        process: _TrialProcess | None = getattr(self._own, "process", None)
        if process is None or process.gone:
            process = self._own.process = self._started()
        started_at, started = datetime.now(UTC), time.monotonic()
        # A drawn plan may run a second time, without the faults whose moment never came.
        answer = process.ask(RunTrial(trial), 2 * trial.plan.limits.wall_s + GRACE_S)
        if answer is None:
            why = process.overran or f"the process that ran it ended: {process.ending()}"
            seconds = time.monotonic() - started
            return TriedPlan(lost_trial(trial.number, trial.plan, self._system, why, started_at, seconds))
        assert isinstance(answer, TrialRan), "a trial is answered by its result"
        return answer.tried

    def _started(self) -> _TrialProcess:
        with self._lock:
            if self._over:
                raise OperatingError("the campaign is over")
            process = _TrialProcess()
            self._processes.append(process)
        if process.ask(self._opening) is None:
            raise OperatingError(f"a process for trials cannot be started: it ended: {process.ending()}")
        return process

    def _end(self, at_once: bool) -> None:
        with self._lock:
            self._over = True
            processes, self._processes = self._processes, []
        for process in processes:
            process.close(at_once)


class _TrialProcess:
    """The campaign's end of one process."""

    def __init__(self) -> None:
        self._popen = subprocess.Popen(
            [sys.executable, "-P", "-m", "barrier_tck.harness.campaign.trial_process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # Ctrl-C is for the campaign, which then ends this process.
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": import_path()},
        )
        assert self._popen.stdin is not None and self._popen.stdout is not None
        self._requests, self._answers = self._popen.stdin, self._popen.stdout
        self.gone = False
        self.overran = ""
        """Why it was ended, if it did not answer in time."""

    def ask(self, request: Request, within_s: float | None = None) -> Answer | None:
        """Return the answer; None if the process ended without one. Raises the error that the process reports.

        A process that does not answer ``within_s`` seconds is ended, and ``overran`` says so.
        """
        line = b""
        with contextlib.suppress(
            BrokenPipeError, ValueError
        ):  # ValueError: it was closed here in the meantime
            self._requests.write(line_of(request))
            self._requests.flush()
            if not select.select([self._answers], [], [], within_s)[0]:
                self.overran = f"the process that ran it gave no answer within {within_s:g} s and was ended"
                self.close(at_once=True)
            line = self._answers.readline()
        if not line.endswith(b"\n"):
            self.gone = True
            return None
        answer = answer_of(line)
        if isinstance(answer, NotDone):
            raise _error_of(answer)
        return answer

    def ending(self) -> str:
        self.close(at_once=False)
        code = self._popen.returncode
        return f"killed by signal {-code}" if code < 0 else f"exit code {code}"

    def close(self, at_once: bool) -> None:
        """End the process and wait for it; normally it ends when its input does."""
        if at_once:
            self._popen.kill()
        with contextlib.suppress(BrokenPipeError):
            self._requests.close()
        try:
            self._popen.wait(_END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            self._popen.wait()
        self._answers.close()


def _error_of(answer: NotDone) -> HarnessError:
    kind = getattr(errors, answer.error, None)
    if isinstance(kind, type) and issubclass(kind, HarnessError):
        return kind(answer.message)
    return InternalError(f"{answer.error}: {answer.message}")
