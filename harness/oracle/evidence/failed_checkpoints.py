"""How many checkpoints of an attempt failed in a row (COO-2)."""

from __future__ import annotations

from barrier_tck.harness.oracle.evidence.checkpoint_lives import AttemptLife, CheckpointLife
from barrier_tck.harness.record.reasons import Reason

COUNTED = (Reason.DECLINED, Reason.EXPIRED, Reason.STORAGE_FAILED)
"""Failures of a checkpoint itself; a checkpoint that was subsumed, or that ended with its attempt, did not fail."""


def ended_checkpoints(attempt: AttemptLife) -> list[CheckpointLife]:
    """Return the checkpoints whose end was reported, without savepoints, in the order of their ends."""
    return sorted(
        (life for life in attempt.checkpoints if life.ended_at is not None and life.savepoint is None),
        key=lambda life: life.ended_at or 0,
    )


def rows_of_failures(attempt: AttemptLife) -> list[int]:
    """Return how many checkpoints had failed in a row after each end of a checkpoint; savepoints do not count."""
    row, rows = 0, []
    for life in ended_checkpoints(attempt):
        if life.completed:
            row = 0
        elif life.failed in COUNTED and (life.ended_ms or 0.0) <= attempt.ended_ms:
            row += 1
        rows.append(row)
    return rows
