"""Whether the service that holds the checkpoints was out of reach when a job ended, so that it could delete nothing."""

from __future__ import annotations

from collections.abc import Container
from math import inf

from barrier_tck.faults.fault import OnProgress
from barrier_tck.faults.targets import TargetKind
from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.record.operations import FaultFired, FaultHealed, JobCut, JobFailed, JobFinished

ANY = (OnProgress.SLOWS, OnProgress.STOPS)
"""Faults that refuse requests, and faults that make them slow."""
REFUSES = (OnProgress.STOPS,)
"""Faults that refuse requests."""


def lasted_to_the_end(
    context: TrialContext, effects: Container[OnProgress], begun_by_ms: float = inf
) -> bool:
    """Return whether one fault of the service with such an effect lasted until the job had ended.

    ``begun_by_ms``: the fault had fired by then, on the trial's clock.
    """
    history = context.history
    ends = (JobFinished, JobFailed, JobCut)
    ended = min(
        (line.time_ms for line in history.operations if isinstance(line.operation, ends)), default=inf
    )
    healed = {line.operation.fault: line.time_ms for line in history.of(FaultHealed)}
    for line in history.of(FaultFired):
        fault = context.planned_faults[line.operation.fault].fault
        if fault.needs is TargetKind.OBJECT_STORE and fault.on_progress in effects:
            begun = line.time_ms <= min(begun_by_ms, ended)
            if begun and ended <= healed.get(line.operation.fault, inf):
                return True
    return False
