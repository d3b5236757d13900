"""How long a job took to start at first: the measure of how fast, and how busy, the machine of a trial is.

The bounds of a trial are times for a machine that has nothing else to do. A real one may be slow or busy, and then it
starts executors again many times as slowly. How long it took at first, when no fault had struck, shows by how much. In
a simulator the trial's clock is virtual, and nothing is added.
"""

from __future__ import annotations

from collections.abc import Iterable

from barrier_tck.harness.record.history import Recorded
from barrier_tck.harness.record.operations import AttemptRunning, AttemptStarted, FaultFired, Operation

STARTS_ALLOWED = 3
"""A job may take as long again as it took to start at first, this many times: a new driver, its executors, their
workers."""


def first_start_ms(operations: Iterable[Recorded[Operation]]) -> float | None:
    """Return how long the first attempt took from its start until it ran, in milliseconds of the trial's clock.

    None if it has not run yet, or if a fault fired before it did.
    """
    started_ms: float | None = None
    for line in operations:
        match line.operation:
            case AttemptStarted() if started_ms is None:
                started_ms = line.time_ms
            case AttemptRunning() if started_ms is not None:
                return line.time_ms - started_ms
            case AttemptStarted() | FaultFired():
                return None
    return None


def allowed_for_starts_ms(operations: Iterable[Recorded[Operation]], at_most_ms: float) -> float:
    """Return what a real machine is given beyond a bound, in milliseconds; a bound is at most doubled by it."""
    return min(STARTS_ALLOWED * (first_start_ms(operations) or 0.0), at_most_ms)
