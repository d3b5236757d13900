"""Errors of the runtime, in families, so that a reader knows whose fault it is and what to do.

Operating errors come from the world and are handled (a restore falls back, a checkpoint aborts). Usage errors
are the caller's mistake. Protocol errors are bugs: an event that the state machine calls illegal.
"""

from __future__ import annotations


class RuntimeFailure(Exception):
    """The world failed: a disk, a link, a process. The runtime reacts; nobody made a mistake."""


class StorageError(RuntimeFailure):
    """A read or a write of durable storage failed."""


class CorruptStateError(StorageError):
    """A stored file is not what its metadata says: wrong size, wrong checksum, or unreadable."""


class RestoreError(RuntimeFailure):
    """A checkpoint could not be restored from any copy; the message names what was tried (LOC-5, REC-4)."""


class SnapshotCancelled(RuntimeFailure):
    """The asynchronous part of a snapshot was cancelled (SNP-2)."""


class JobUsageError(Exception):
    """The caller's mistake; the message says what to change."""


class ProtocolError(Exception):
    """An illegal event reached a state machine; its state is unchanged and the message tells the story."""
