"""Errors of the runtime, in families, so that a reader knows whose fault it is and what to do.

Operating errors come from the world and are handled (a restore falls back, a checkpoint aborts). Usage errors
are the caller's mistake. Protocol errors are bugs: an event that the state machine calls illegal.
"""

from __future__ import annotations

from enum import StrEnum


class RuntimeFailure(Exception):
    """The world failed: a disk, a link, a process. The runtime reacts; no caller made a mistake."""


class StorageCause(StrEnum):
    """What is wrong with a stored file, for code that has to tell cases apart; the message is for people."""

    FAILED = "failed"
    """The disk, or the way to it, did not do what was asked."""
    MISSING = "missing"
    WRONG_SIZE = "wrong_size"
    WRONG_CHECKSUM = "wrong_checksum"
    MALFORMED = "malformed"
    """It has the size and the checksum that it should have, and still makes no sense."""
    FOREIGN = "foreign"
    """It is well formed, but belongs to another checkpoint, attempt, subtask or range of key groups."""


class StorageError(RuntimeFailure):
    """A read or a write of durable storage failed."""

    def __init__(self, message: str = "", cause: StorageCause = StorageCause.FAILED) -> None:
        super().__init__(message)
        self.cause = cause


class CorruptStateError(StorageError):
    """A stored file is not what its metadata says: wrong size, wrong checksum, or unreadable."""

    def __init__(self, message: str = "", cause: StorageCause = StorageCause.MALFORMED) -> None:
        super().__init__(message, cause)


class RestoreError(RuntimeFailure):
    """A checkpoint could not be restored from any copy; the message names what was tried (LOC-5, REC-4)."""


class SnapshotCancelled(RuntimeFailure):
    """The asynchronous part of a snapshot was cancelled (SNP-2)."""


class JobUsageError(Exception):
    """The caller's mistake; the message says what to change."""


class IncompatibleState(JobUsageError):
    """A job was started from stored state that does not fit it; nothing in storage was changed."""


class ProtocolError(Exception):
    """An illegal event reached a state machine; its state is unchanged and the message tells the story."""


class BehindLoop(Exception):
    """Something goes round a loop that has ended (CHL-5)."""

    def __init__(self, message: str = "", loop: str = "") -> None:
        super().__init__(message)
        self.loop = loop


class ElementBehindLoop(BehindLoop, ProtocolError):
    """It came from another member of the loop."""


class RecordBehindLoop(BehindLoop, JobUsageError):
    """An operator emits it; if the loop has not ended too early, the operator is wrong."""
