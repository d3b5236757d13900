"""What a trial did to durable storage, so that a system is not blamed for it."""

from __future__ import annotations

from collections.abc import Iterator

from barrier_tck.faults.fault import CopyPlace
from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.record.history import CheckpointProblem
from barrier_tck.harness.record.operations import AttemptEnded, AttemptStarted
from barrier_tck.harness.record.reasons import Reason
from barrier_tck.harness.record.records import FaultRecord


def primaries_damaged(context: TrialContext) -> int:
    """Return how often durable storage was damaged; then a system may find a checkpoint unreadable (REC-4)."""
    return sum(1 for _ in _damages(context))


def attempts_damaged(context: TrialContext) -> int:
    """Return how many attempts ended because their checkpoint could not be read, which names a damaged file.

    Incremental checkpoints share files, so one damage may make several of them unreadable.
    """
    damaged = damaged_files(context)
    harmed = [
        view.checkpoint
        for view in context.history.checkpoints
        if any(file.path in damaged for named in view.files.values() for file in named)
    ]
    unreadable = [
        line.operation.attempt
        for line in context.history.of(AttemptEnded)
        if line.operation.reason is Reason.CHECKPOINT_UNREADABLE
    ]
    return sum(
        line.operation.attempt in unreadable and line.operation.restored_checkpoint in harmed
        for line in context.history.of(AttemptStarted)
    )


def damaged_files(context: TrialContext) -> tuple[str, ...]:
    """Return the files of durable storage that the trial damaged."""
    return tuple(file for record in _damages(context) for file in record.files)


def is_own_damage(problem: CheckpointProblem, context: TrialContext) -> bool:
    """Return whether the unreadable file is one that the trial damaged."""
    return problem.file is not None and problem.file in damaged_files(context)


def _damages(context: TrialContext) -> Iterator[FaultRecord]:
    """Yield the records of faults that damaged durable storage."""
    for record in context.faults:
        hit = context.planned_faults[record.index].fault.copies_hit
        damages = hit is not None and hit.place is CopyPlace.DURABLE and hit.damage is not None
        if damages and record.outcome == "fired":
            yield record
