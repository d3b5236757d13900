"""The checkpoint from which a failed job starts again (REC-1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from barrier_tck.reference_impl.config import OnUnreadable
from barrier_tck.reference_impl.ids import CheckpointId
from barrier_tck.reference_impl.protocol.messages import CompletedCheckpoint


class RecoveryPlan(msgspec.Struct, frozen=True):
    """What the next attempt starts from; ``restore`` None means from the beginning of the input."""

    restore: CompletedCheckpoint | None
    problem: str | None = None
    """Why there can be no next attempt; names what was tried (REC-4)."""


def plan_recovery(
    completed: Sequence[CompletedCheckpoint],
    unreadable: Mapping[CheckpointId, str] | None = None,
    on_unreadable: OnUnreadable = OnUnreadable.FAIL,
) -> RecoveryPlan:
    """Choose the latest *completed* checkpoint, never a pending one (REC-1; CO-10 is the bug).

    ``unreadable`` are those that could be restored from no copy, with the reason. The latest of the others is chosen
    if the configuration says so. A job that has a checkpoint never starts from the beginning instead (REC-4).
    """
    unreadable = unreadable or {}
    newest_first = sorted(completed, key=lambda checkpoint: -checkpoint.checkpoint)
    if not newest_first:
        return RecoveryPlan(None)
    readable = [checkpoint for checkpoint in newest_first if checkpoint.checkpoint not in unreadable]
    if readable and (readable[0] is newest_first[0] or on_unreadable is OnUnreadable.OLDER):
        return RecoveryPlan(readable[0])
    tried = "; ".join(
        f"checkpoint {number}: {why}" for number, why in sorted(unreadable.items(), reverse=True)
    )
    hint = ""
    if readable:
        hint = f"; checkpoint {readable[0].checkpoint} is retained too, and on_unreadable = older would restore it"
    return RecoveryPlan(None, f"no checkpoint can be restored, and nothing was deleted. Tried: {tried}{hint}")
