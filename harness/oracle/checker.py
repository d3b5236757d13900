"""The interface of a checker: what it may look at, and what it returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from barrier_tck.faults.vocabulary import ScheduledFault
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.record.history import History
from barrier_tck.harness.record.operations import AttemptStarted, JobStopped
from barrier_tck.harness.record.records import FaultRecord
from barrier_tck.harness.record.verdict import Finding
from barrier_tck.harness.system.job_view import JobView


@dataclass(frozen=True, slots=True)
class TrialContext:
    """Everything that a checker may look at: the plan, and what the trial left. Times in milliseconds."""

    plan: TrialPlan
    history: History
    faults: tuple[FaultRecord, ...] = ()
    """What became of each planned fault, in the order of the plan."""
    subtasks: tuple[str, ...] = ()
    """Every subtask, upstream first."""
    job: JobView | None = None
    """What the system says about the job: roles and links; None if it says nothing."""
    capabilities: frozenset[str] = frozenset()
    """Names of ``harness.system.system_under_test.Capability`` that the system declares, e.g. SNAPSHOT_INSPECTION."""
    later_jobs: tuple[JobView, ...] = ()
    """What the system says about the jobs that are started after the first stop with a savepoint, after the second one,
    and so on, if the plan rescales them."""

    def stops_before(self, attempt: int | None) -> int:
        """Return how often the job had been rescaled before an attempt; 0 if the attempt is not known."""
        stops = 0
        for line in self.history.operations if self.later_jobs and attempt is not None else ():
            if isinstance(line.operation, AttemptStarted) and line.operation.attempt == attempt:
                return min(stops, len(self.later_jobs))
            stops += isinstance(line.operation, JobStopped)
        return 0

    def plan_of(self, attempt: int | None) -> TrialPlan:
        """Return the plan with the job of an attempt."""
        return self.plan.after_stops(self.stops_before(attempt))

    def job_of(self, attempt: int | None) -> JobView | None:
        """Return what the system says about the job of an attempt; None if it says nothing."""
        stops = self.stops_before(attempt)
        return self.later_jobs[stops - 1] if stops else self.job

    def subtasks_of(self, attempt: int | None) -> tuple[str, ...]:
        """Return every subtask of the job of an attempt, upstream first."""
        stops = self.stops_before(attempt)
        return self.later_jobs[stops - 1].names if stops else self.subtasks

    @property
    def every_subtask(self) -> tuple[str, ...]:
        """Return the subtasks of all jobs of the trial."""
        return tuple(dict.fromkeys((*self.subtasks, *(one for job in self.later_jobs for one in job.names))))

    @property
    def planned_faults(self) -> tuple[ScheduledFault, ...]:
        """Return the plan's fault schedule."""
        return self.plan.faults


class Checker(Protocol):
    """Judges one property in one trial. One checker per file, named for its property."""

    @property
    def name(self) -> str:
        """Return the property's name, for instance ``exactly-once-output``."""

    @property
    def clauses(self) -> tuple[str, ...]:
        """Return the ids of the clauses that the property speaks for."""

    def check(self, context: TrialContext) -> Finding:
        """Judge the trial. If it raises, the checker could not judge, and the finding becomes UNKNOWN."""
