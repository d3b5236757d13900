"""Rows that sinks had committed or prepared in a completed checkpoint, and that are gone from the next or the output.

Whatever else may be wrong in a job, such rows were processed and covered: only the transactions of a sink can have lost
them (SNK-1). Without this, the same rows look as if a barrier, a channel or a change of parallelism had lost them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec

from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.oracle.evidence.recoveries import attempt_of, fell_back, restored_checkpoints
from barrier_tck.harness.record.history import End, Row, SnapshotView
from barrier_tck.harness.record.operations import Acknowledged, CheckpointCompleted

_encode = msgspec.json.Encoder(order="deterministic").encode


def lost_at_sinks(context: TrialContext, view: SnapshotView | None) -> bool:
    """Return whether rows that earlier checkpoints had are gone from a checkpoint or, with None, from the whole output.

    Earlier checkpoints are those of the same attempt with smaller numbers, and the restored one. If an older one than
    the newest was restored, what that had prepared may rightly be gone, and this says nothing.
    """
    if view is None and context.history.end is not End.FINISHED:
        return False  # what is prepared may not be committed yet
    after = context.history.output if view is None else view.reached_sinks
    if after is None or fell_back(context) is not None:
        return False
    bag = _bag(after)
    return any(_bag(other.reached_sinks or ()) - bag for other in _before(context, view))


@dataclass(frozen=True, slots=True)
class LostTransactions:
    """What was prepared for a completed checkpoint, and is not visible."""

    checkpoint: int
    attempt: int
    line: int
    """The line of the history at which the checkpoint was complete."""
    prepared: int
    visible: int

    def __str__(self) -> str:
        """Return a sentence."""
        return (
            f"{self.prepared} subtasks prepared records for checkpoint {self.checkpoint}, which completed in attempt "
            f"{self.attempt}, and {self.visible} transactions of it are visible"
        )


def lost_transactions(context: TrialContext) -> tuple[LostTransactions, ...]:
    """Return the completed checkpoints for which more subtasks prepared records than made a transaction visible.

    Nothing is returned unless the job finished, and the system reports both.
    """
    history = context.history
    if history.end is not End.FINISHED or history.storage is None or fell_back(context) is not None:
        return ()
    visible = Counter((found.attempt, found.checkpoint) for found in history.storage.transactions)
    prepared: dict[tuple[int, int], dict[str, None]] = {}
    for line in history.of(Acknowledged):
        if line.operation.prepared and not line.operation.forged:
            part = line.operation.attempt, line.operation.checkpoint
            prepared.setdefault(part, {})[line.operation.subtask] = None
    completed = {line.operation.checkpoint: line.index for line in history.of(CheckpointCompleted)}
    return tuple(
        LostTransactions(checkpoint, attempt, completed[checkpoint], len(sinks), visible[attempt, checkpoint])
        for (attempt, checkpoint), sinks in prepared.items()
        if checkpoint in completed and visible[attempt, checkpoint] < len(sinks)
    )


def _bag(rows: Sequence[Row]) -> Counter[bytes]:
    return Counter(map(_encode, rows))


def _before(context: TrialContext, view: SnapshotView | None) -> Iterator[SnapshotView]:
    """Yield the checkpoints before one, or before the end, in the same stretch of the job, as far as they are known."""
    restored = restored_checkpoints(context.history)
    attempt = attempt_of(context.history, view) if view is not None else max(restored, default=None)
    for other in context.history.checkpoints:
        of_attempt = attempt_of(context.history, other) == attempt
        earlier = of_attempt and (view is None or other.checkpoint < view.checkpoint)
        if other.problem is None and (earlier or other.checkpoint == restored.get(attempt or -1)):
            yield other
