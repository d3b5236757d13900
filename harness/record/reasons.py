"""Why something ended, was given up or could not be read: one word for oracles, whichever system it comes from."""

from __future__ import annotations

from enum import StrEnum


class Reason(StrEnum):
    """What an adapter translates its system's errors into. The free text beside it is for people."""

    UNSPECIFIED = "unspecified"
    """The system does not say, or what it says has no word here."""

    # --- ends of attempts and of the job ---
    FINISHED = "finished"
    """All input was consumed and all output committed."""
    SUBTASK_FAILED = "subtask_failed"
    """A subtask raised, or said that it cannot go on."""
    PROCESS_LOST = "process_lost"
    """A process, its executor or its connection is gone, or was silent for too long."""
    CHECKPOINTS_FAILED = "checkpoints_failed"
    """More checkpoints failed in a row than are tolerated."""
    CHECKPOINT_UNREADABLE = "checkpoint_unreadable"
    """What was to be restored can be read from no copy (LOC-5, REC-4)."""
    RESTARTS_USED_UP = "restarts_used_up"
    """The restart strategy allows no further attempt (REC-3)."""
    OUT_OF_TIME = "out_of_time"
    """The trial's bound came first."""
    NOTHING_LEFT = "nothing_left"
    """Nothing is left that could happen, and the job is not over."""

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
    """A disk, or the way to it, did not do what was asked."""
    MISSING = "missing"
    WRONG_SIZE = "wrong_size"
    WRONG_CHECKSUM = "wrong_checksum"
    MALFORMED = "malformed"
    """It has the size and the checksum that it should have, and still makes no sense."""
    FOREIGN = "foreign"
    """It is, in good form, something else: of another checkpoint, attempt, subtask or range of key groups."""
    INCOMPLETE = "incomplete"
    """A part that should be there is not."""
    BACKEND_FAILED = "backend_failed"
    """What reads the files raised something of its own."""
    NO_COPY = "no_copy"
    """There is no such copy to look for."""
