"""How much more time a bound gives to a job whose machine is slow, or busy with other things.

The bounds of a trial are times for a machine that has nothing else to do. Two things show that a real one has. One is
how long the job took to start at first, when no fault had struck: it starts executors again as slowly. The other is for
how long the job was held up (``HeldUp``): processes could have run and had no processor, waited for a disk, or waited
for the harness to take a report. The clock of a bound stands still meanwhile, so that a verdict does not depend on how
busy the machine is. The processes of a job that is stuck sleep, so its clock goes on. In a simulator the trial's clock
is virtual, and nothing is added.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from typing import cast

from barrier_tck.harness.record.history import Recorded
from barrier_tck.harness.record.operations import (
    AttemptRunning,
    AttemptStarted,
    FaultFired,
    HeldUp,
    Operation,
)

STARTS_ALLOWED = 3
"""A job may take as long again as it took to start at first, this many times: a new driver, its executors, their
workers. A bound is at most doubled by that."""
WAITS_ALLOWED = 4
"""A bound is made longer by at most this many times itself, because the job was held up: even of one that is stuck some
processes wake up now and then, and the trial must end."""


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


def held_up_ms(reports: Iterable[Recorded[HeldUp]], since_ms: float, until_ms: float) -> float:
    """Return for how long at the most the job was held up between two times of the trial's clock.

    That is said now and then. So what was said first after the end counts, too: the wait may have been before it.
    """
    before, total = 0.0, 0.0
    for line in reports:
        held = line.operation
        total = held.processor_ms + held.disk_ms + held.harness_ms
        if line.time_ms <= since_ms:
            before = total
        if line.time_ms >= until_ms:
            break
    return max(0.0, min(total - before, until_ms - since_ms))


def allowed_on_a_slow_machine_ms(
    operations: Iterable[Recorded[Operation]], bound_ms: float, since_ms: float = 0.0, until_ms: float = inf
) -> float:
    """Return what a real machine is given beyond a bound that counts from ``since_ms``, in milliseconds.

    ``until_ms``: what is judged came then. What was slow at the start may have waited for a processor, so it is the
    larger one of both.
    """
    lines = tuple(operations)
    reports = (cast("Recorded[HeldUp]", line) for line in lines if isinstance(line.operation, HeldUp))
    for_starts_ms = min(STARTS_ALLOWED * (first_start_ms(lines) or 0.0), bound_ms)
    return max(for_starts_ms, min(held_up_ms(reports, since_ms, until_ms), WAITS_ALLOWED * bound_ms))
