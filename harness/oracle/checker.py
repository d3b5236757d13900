"""The interface of a checker: what it may look at, and what it returns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol, TypeVar, cast

from barrier_tck.faults.vocabulary import ScheduledFault
from barrier_tck.harness.oracle.jobs_of_trial import JobsOfTrial, jobs_of_trial
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.record.history import History
from barrier_tck.harness.record.records import FaultRecord
from barrier_tck.harness.record.verdict import Finding
from barrier_tck.harness.system.job_view import JobView

FoundT = TypeVar("FoundT")


@dataclass(frozen=True)
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
    """What the system says about the other jobs of the trial, in their order, as ``jobs_of_trial`` counts them."""
    _found: dict[Callable[..., Any], Any] = field(default_factory=dict, init=False, repr=False, compare=False)
    """What ``once`` has returned."""

    def once(self, find: Callable[[TrialContext], FoundT]) -> FoundT:
        """Return what a function finds in the trial. It is called once, for all checkers that ask; none may change
        what it returns."""
        if find not in self._found:
            self._found[find] = find(self)
        return cast("FoundT", self._found[find])

    @cached_property
    def jobs(self) -> JobsOfTrial:
        """The jobs of the trial, according to plan and history."""
        return jobs_of_trial(self.plan, self.history)

    def job_number(self, attempt: int | None) -> int:
        """Return which job of the trial an attempt ran, 0 for the first; 0 if the attempt is not known."""
        if not self.later_jobs or attempt is None:
            return 0
        return min(self.jobs.of.get(attempt, 0), len(self.later_jobs))

    def plan_of(self, attempt: int | None) -> TrialPlan:
        """Return the plan with the job of an attempt."""
        return self.jobs.plans[self.job_number(attempt)]

    def job_of(self, attempt: int | None) -> JobView | None:
        """Return what the system says about the job of an attempt; None if it says nothing."""
        number = self.job_number(attempt)
        return self.later_jobs[number - 1] if number else self.job

    def subtasks_of(self, attempt: int | None) -> tuple[str, ...]:
        """Return every subtask of the job of an attempt, upstream first."""
        number = self.job_number(attempt)
        return self.later_jobs[number - 1].names if number else self.subtasks

    @property
    def every_subtask(self) -> tuple[str, ...]:
        """Return the subtasks of all jobs of the trial."""
        return tuple(
            dict.fromkeys((*self.subtasks, *(name for job in self.later_jobs for name in job.names)))
        )

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
        """Return the ids of the clauses that the property covers."""

    def check(self, context: TrialContext) -> Finding:
        """Judge the trial. If it raises, the checker could not judge, and the finding becomes UNKNOWN."""
