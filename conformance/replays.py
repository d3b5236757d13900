"""What is left of restored records in flight when a checkpoint is taken: proof that one began while they waited."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import msgspec

from barrier_tck.conformance.trials import Trial
from barrier_tck.harness.record.history import SnapshotView
from barrier_tck.harness.record.operations import AttemptStarted

STILL_THERE = "were restored records still in flight in a checkpoint of the attempt that restored them"

_encode = msgspec.json.Encoder(order="sorted").encode


def still_replayed(trial: Trial) -> int:
    """Return how many restored records were still in flight in checkpoints of the attempts that restored them (UNA-4).

    Such a record was on the same channel in the checkpoint that the attempt started from, and no subtask had processed
    it when the new checkpoint was taken. No record may pass a channel twice in the same form: those of ``lineage`` and
    ``rounds`` do not, because they show their whole way.
    """
    views = {view.checkpoint: view for view in trial.history.checkpoints}
    restored = {
        line.operation.attempt: views.get(line.operation.restored_checkpoint or 0)
        for line in trial.history.of(AttemptStarted)
    }
    left = 0
    for view in views.values():
        before = restored.get(view.attempt or 0)
        if before is not None and before is not view:
            left += (Counter(_records(before)) & Counter(_records(view))).total()
    return left


def _records(view: SnapshotView) -> Iterator[tuple[str, str, int, bytes]]:
    for channel in view.in_flight:
        for row in channel.rows:
            yield channel.sender, channel.receiver, channel.edge, _encode(row)
