"""Translates the reference runtime's causes and errors into the reasons of histories."""

from __future__ import annotations

from barrier_tck.harness.record.reasons import Reason
from barrier_tck.reference_impl.protocol.causes import Cause
from barrier_tck.reference_impl.runtime_errors import RuntimeFailure, StorageCause, StorageError

_REASONS: dict[Cause | StorageCause, Reason] = {
    Cause.FINISHED: Reason.FINISHED,
    Cause.STOPPED: Reason.STOPPED,
    Cause.SUBTASK_FAILED: Reason.SUBTASK_FAILED,
    Cause.PROCESS_LOST: Reason.PROCESS_LOST,
    Cause.STORAGE_FAILED: Reason.STORAGE_FAILED,
    Cause.CHECKPOINT_UNREADABLE: Reason.CHECKPOINT_UNREADABLE,
    Cause.CHECKPOINTS_FAILED: Reason.CHECKPOINTS_FAILED,
    Cause.DECLINED: Reason.DECLINED,
    Cause.EXPIRED: Reason.EXPIRED,
    Cause.SUBSUMED: Reason.SUBSUMED,
    Cause.ATTEMPT_FAILED: Reason.ATTEMPT_FAILED,
    Cause.RESTARTS_USED_UP: Reason.RESTARTS_USED_UP,
    StorageCause.FAILED: Reason.STORAGE_FAILED,
    StorageCause.MISSING: Reason.MISSING,
    StorageCause.WRONG_SIZE: Reason.WRONG_SIZE,
    StorageCause.WRONG_CHECKSUM: Reason.WRONG_CHECKSUM,
    StorageCause.MALFORMED: Reason.MALFORMED,
    StorageCause.FOREIGN: Reason.FOREIGN,
}


def reason_of(cause: Cause | StorageCause) -> Reason:
    """Return the reason that stands for one of the runtime's causes."""
    return _REASONS[cause]


def reason_of_error(error: Exception) -> Reason:
    """Return the reason that stands for an error raised while a checkpoint was read."""
    if isinstance(error, StorageError):
        return _REASONS[error.cause]
    return Reason.STORAGE_FAILED if isinstance(error, RuntimeFailure) else Reason.BACKEND_FAILED
