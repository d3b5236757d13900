"""Why something ended, was aborted or could not be read: one word for oracles, whichever system it comes from."""

from __future__ import annotations

from enum import StrEnum


class Reason(StrEnum):
    """The words into which an adapter translates its system's errors. The free text beside them is for people."""

    UNSPECIFIED = "unspecified"
    """The system does not say, or there is no word here for what it says."""

    # --- ends of attempts and of the job ---
    FINISHED = "finished"
    """All input was consumed and all output committed."""
    STOPPED = "stopped"
    """The job was stopped with a savepoint, and all output before it committed."""
    SUBTASK_FAILED = "subtask_failed"
    """A subtask raised an error, or reported that it cannot go on."""
    PROCESS_LOST = "process_lost"
    """A process, its executor or its connection is gone, or was silent for too long."""
    CHECKPOINTS_FAILED = "checkpoints_failed"
    """More checkpoints failed in a row than are tolerated."""
    CHECKPOINT_UNREADABLE = "checkpoint_unreadable"
    """The state to be restored cannot be read from any copy (LOC-5, REC-4)."""
    RESTARTS_USED_UP = "restarts_used_up"
    """The restart strategy allows no further attempt (REC-3)."""
    OUT_OF_TIME = "out_of_time"
    """The trial reached its time limit first."""
    NOTHING_LEFT = "nothing_left"
    """No further event can happen, and the job is not over."""

    # --- aborts of checkpoints ---
    DECLINED = "declined"
    """A subtask could not take or store its snapshot."""
    EXPIRED = "expired"
    """The checkpoint did not complete in time."""
    SUBSUMED = "subsumed"
    """A newer checkpoint completed."""
    ATTEMPT_FAILED = "attempt_failed"
    """The attempt that took it is over."""

    # --- files and copies ---
    STORAGE_FAILED = "storage_failed"
    """A disk, or the connection to it, failed to do what was asked."""
    MISSING = "missing"
    WRONG_SIZE = "wrong_size"
    WRONG_CHECKSUM = "wrong_checksum"
    MALFORMED = "malformed"
    """It has the expected size and checksum, but its content makes no sense."""
    FOREIGN = "foreign"
    """It is well-formed, but belongs to another checkpoint, attempt, subtask or range of key groups."""
    INCOMPLETE = "incomplete"
    """A part that should be there is missing."""
    BACKEND_FAILED = "backend_failed"
    """The state backend that reads the files raised an error of its own."""
    NO_COPY = "no_copy"
    """There is no copy that could be looked for."""
