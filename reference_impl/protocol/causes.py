"""Why an attempt ended, a checkpoint was aborted, or a job was given up: one word for programs, beside the sentence
for people.
"""

from __future__ import annotations

from enum import StrEnum


class Cause(StrEnum):
    """What happened; the sentence that goes with it names who and where."""

    FINISHED = "finished"
    """The job is over, with everything committed."""
    STOPPED = "stopped"
    """The job was stopped with a savepoint, with everything before it committed."""
    SUBTASK_FAILED = "subtask_failed"
    """A subtask reported that it cannot go on."""
    PROCESS_LOST = "process_lost"
    """A process, its executor or its link is gone, or silent, or never came."""
    STORAGE_FAILED = "storage_failed"
    """The coordinator could not write to durable storage."""
    CHECKPOINT_UNREADABLE = "checkpoint_unreadable"
    """What was to be restored can be read from no copy (LOC-5, REC-4)."""
    CHECKPOINTS_FAILED = "checkpoints_failed"
    """More checkpoints failed in a row than are tolerated (COO-2)."""
    DECLINED = "declined"
    """A subtask could not take or store its snapshot."""
    EXPIRED = "expired"
    """The checkpoint did not complete in time."""
    SUBSUMED = "subsumed"
    """A newer checkpoint completed (COO-4)."""
    ATTEMPT_FAILED = "attempt_failed"
    """The attempt that took the checkpoint is over."""
    RESTARTS_USED_UP = "restarts_used_up"
    """The restart strategy allows no further attempt (REC-3)."""
