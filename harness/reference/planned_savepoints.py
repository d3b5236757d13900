"""The savepoints that a plan asks for, in the runtime's own terms."""

from __future__ import annotations

from dataclasses import dataclass

from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.reference.jobs import SAVEPOINTS
from barrier_tck.reference_impl.protocol.messages import Savepoint


@dataclass(frozen=True, slots=True)
class PlannedSavepoint:
    """A savepoint, and when to ask for it."""

    savepoint: Savepoint
    after_checkpoints: int
    delay_ms: float


def planned_savepoints(plan: TrialPlan) -> tuple[PlannedSavepoint, ...]:
    """Return the plan's savepoints, each with a directory of its own."""
    return tuple(
        PlannedSavepoint(
            Savepoint(f"{SAVEPOINTS}/savepoint-{number}", planned.stop),
            planned.after_checkpoints,
            float(planned.delay_ms),
        )
        for number, planned in enumerate(plan.savepoints, start=1)
    )
