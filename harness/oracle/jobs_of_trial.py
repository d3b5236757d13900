"""The jobs of one trial: as it was started, as it went on from savepoints, and narrower while slots were missing.

They differ in their parallelism only. A job that has another one than the job before it is the next one, also if some
job had that parallelism before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.record.history import History
from barrier_tck.harness.record.operations import AttemptStarted, JobStopped, Narrowed


@dataclass(frozen=True, slots=True)
class _Job:
    """Which job it is."""

    stops: int
    """After how many stops with a savepoint it was started, as far as the plan rescales what follows."""
    narrowed: Mapping[str, int]
    """Vertex -> parallelism, if slots were missing; otherwise empty."""


@dataclass(frozen=True)
class JobsOfTrial:
    """The jobs in their order."""

    planned: TrialPlan
    jobs: tuple[_Job, ...]
    of: Mapping[int, int]
    """Attempt -> the number of its job, 0 for the first."""

    def plan_of(self, number: int) -> TrialPlan:
        """Return the plan with one of the jobs, as parallel as it is if no slot is missing."""
        return self.planned.after_stops(self.jobs[number].stops)

    @cached_property
    def plans(self) -> tuple[TrialPlan, ...]:
        """The plan with each of the jobs; the plan's job must be filled in."""
        return tuple(
            self.plan_of(number).at_widths(job.narrowed) if job.narrowed else self.plan_of(number)
            for number, job in enumerate(self.jobs)
        )


def jobs_of_trial(plan: TrialPlan, history: History) -> JobsOfTrial:
    """Return the jobs that a history shows."""
    narrowed = {line.operation.attempt: line.operation.widths for line in history.of(Narrowed)}
    stops = [line.index for line in history.of(JobStopped)]
    jobs, found = [_Job(0, {})], dict[int, int]()
    for started in history.of(AttemptStarted):
        before = sum(stop < started.index for stop in stops)
        attempt = started.operation.attempt
        job = _Job(min(before, len(plan.rescales)), narrowed.get(attempt, {}))
        if job != jobs[-1]:
            jobs.append(job)
        found[attempt] = len(jobs) - 1
    return JobsOfTrial(plan, tuple(jobs), found)
