"""The savepoints that a plan asks for, in the runtime's own terms."""

from __future__ import annotations

from dataclasses import dataclass, replace

from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.reference.jobs import SAVEPOINTS
from barrier_tck.reference_impl.config import JobConfig
from barrier_tck.reference_impl.protocol.messages import Savepoint


@dataclass(frozen=True, slots=True)
class PlannedSavepoint:
    """A savepoint, and when to ask for it."""

    savepoint: Savepoint
    after_checkpoints: int
    delay_ms: float
    claim: bool = False
    """Whether the job that is started from it takes it over."""


def planned_savepoints(plan: TrialPlan) -> tuple[PlannedSavepoint, ...]:
    """Return the plan's savepoints, each with a directory of its own."""
    return tuple(
        PlannedSavepoint(
            Savepoint(f"{SAVEPOINTS}/savepoint-{number}", planned.stop),
            planned.after_checkpoints,
            float(planned.delay_ms),
            planned.claim,
        )
        for number, planned in enumerate(plan.savepoints, start=1)
    )


def is_claimed(plan: TrialPlan, directory: str) -> bool:
    """Return whether the job that is started from the savepoint in a directory takes it over."""
    return any(
        savepoint.claim and savepoint.savepoint.directory == directory
        for savepoint in planned_savepoints(plan)
    )


def started_from(config: JobConfig, plan: TrialPlan, directory: str | None) -> JobConfig:
    """Return the settings of a job that starts from the savepoint in a directory; None: from none."""
    claim = directory is not None and is_claimed(plan, directory)
    return replace(config, start_from=directory, claim_savepoint=claim)
