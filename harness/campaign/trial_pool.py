"""Runs the simulated trials of a campaign in several processes, with the same verdicts, digests and order as one.

Each process runs one trial at a time for its own thread here. If a process dies, its trial is UNKNOWN and says so,
and another process replaces it.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime
from typing import TypeVar

from barrier_tck.harness.campaign.process_of_trials import TrialProcess
from barrier_tck.harness.campaign.trial_messages import (
    OpenSystem,
    RunTrial,
    ShrinkTrial,
    TrialRan,
    TrialShrunk,
)
from barrier_tck.harness.campaign.tried_plans import FailedTrial, PlannedTrial, TriedPlan
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.support.errors import OperatingError, UsageProblem
from barrier_tck.harness.support.futures import result_of
from barrier_tck.harness.system.system_names import reference_of
from barrier_tck.harness.system.system_under_test import SystemUnderTest
from barrier_tck.harness.trial.trial_run import lost_trial

_Given = TypeVar("_Given")
_Done = TypeVar("_Done")

AHEAD = 4
"""For each process, how many trials may run or wait to be counted: enough that no process waits for another."""
GRACE_S = 30.0
"""A process that has not ended a trial this long after the trial's limit is ended: it stands still in a library."""


def seconds_for(trial: PlannedTrial) -> float:
    """Return how long a process may take for a trial."""
    # A drawn plan may run a second time, without the faults whose moment never came.
    return 2 * trial.plan.limits.wall_s + GRACE_S


def require_parallel(system: SystemUnderTest, jobs: int) -> None:
    """Raise UsageProblem if the system's trials cannot run in several processes."""
    if jobs > 1 and system.world != "simulated":
        raise UsageProblem(
            f"--jobs {jobs}: {system.name} runs its trials one by one, on all cores; only simulated trials can run in "
            "several processes"
        )


class TrialPool:
    """Runs trials in several processes, which live as long as one call of ``run`` or ``shrink``."""

    def __init__(self, system: SystemUnderTest, jobs: int) -> None:
        self._system = system
        self._jobs = jobs
        self._opening = OpenSystem(reference_of(system), tuple(sys.path))
        self._own = threading.local()
        self._lock = threading.Lock()
        self._processes: list[TrialProcess] = []
        self._over = False

    def run(self, planned: Iterable[PlannedTrial | None]) -> Generator[TriedPlan, None, None]:
        """Yield the result of each trial, in the order of the plans.

        Raises HarnessError as the trial itself would have, and OperatingError if no process can be started. No
        process is left, however it ends.
        """
        return self._in_order(self._try, planned)

    def shrink(self, failing: Iterable[FailedTrial]) -> Generator[TrialPlan | None, None, None]:
        """Yield the smallest plan of each, in order; None if it cannot be shrunk. Raises as ``run`` does."""
        return self._in_order(self._shrink, failing)

    def _in_order(
        self, work: Callable[[_Given], _Done], given: Iterable[_Given | None]
    ) -> Generator[_Done, None, None]:
        self._over = False
        waiting: deque[Future[_Done]] = deque()
        threads = ThreadPoolExecutor(self._jobs, "trials")
        try:
            for one in given:
                if one is not None:
                    waiting.append(threads.submit(work, one))
                most = 0 if one is None else AHEAD * self._jobs - 1
                while len(waiting) > most:
                    yield result_of(waiting.popleft())
            while waiting:
                yield result_of(waiting.popleft())
        finally:
            finished = not waiting
            self._end(at_once=not finished)
            threads.shutdown(wait=True, cancel_futures=True)

    def _try(self, trial: PlannedTrial) -> TriedPlan:
        """Run a trial in this thread's process."""
        process = self._own_process()
        started_at, started = datetime.now(UTC), time.monotonic()
        answer = process.ask(RunTrial(trial), seconds_for(trial))
        if answer is None:
            seconds = time.monotonic() - started
            why = process.why_lost()
            return TriedPlan(lost_trial(trial.number, trial.plan, self._system, why, started_at, seconds))
        assert isinstance(answer, TrialRan), "a trial is answered by its result"
        return answer.tried

    def _shrink(self, failed: FailedTrial) -> TrialPlan | None:
        answer = self._own_process().ask(ShrinkTrial(failed))
        assert isinstance(answer, TrialShrunk | None), "a failure is answered by its smallest plan"
        return None if answer is None else answer.plan

    def _own_process(self) -> TrialProcess:
        """Return this thread's process."""
        process: TrialProcess | None = getattr(self._own, "process", None)
        if process is None or process.gone:
            process = self._own.process = self._started()
        return process

    def _started(self) -> TrialProcess:
        with self._lock:
            if self._over:
                raise OperatingError("the campaign is over")
            process = TrialProcess()
            self._processes.append(process)
        process.open(self._opening)
        return process

    def _end(self, at_once: bool) -> None:
        with self._lock:
            self._over = True
            processes, self._processes = self._processes, []
        for process in processes:
            process.close(at_once)
