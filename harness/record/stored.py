"""What retained checkpoints really contain: facts read from the bytes in durable storage, without asking the system."""

from __future__ import annotations

import msgspec

from barrier_tck.harness.record.reasons import Reason


class StoredFile(msgspec.Struct, frozen=True):
    """One file that a checkpoint names."""

    path: str
    """Its path according to the metadata."""
    size: int
    """Size in bytes according to the metadata; the checksum comes from the metadata too."""
    checksum: str
    found_size: int | None = None
    """Size in bytes of the file that is there; None if no such file can be read."""
    found_checksum: str | None = None
    """Checksum of the bytes that are there."""
    codec: str = ""
    """How its key groups are compressed, ``none`` if they are not; empty if that is unknown (SNP-6)."""
    misread: str = ""
    """Why its key groups cannot be read one by one, if they cannot."""


class StoredOperator(msgspec.Struct, frozen=True):
    """What a checkpoint holds of one operator of one subtask."""

    operator: str
    positions: dict[str, int] = {}
    """Split -> how many of its records had been read."""
    files: tuple[StoredFile, ...] = ()


class StoredPart(msgspec.Struct, frozen=True):
    """What a checkpoint holds of one subtask."""

    subtask: str
    operators: tuple[StoredOperator, ...] = ()
    channels: StoredFile | None = None
    """The file of its records in flight; None if there were none."""
    finished: bool = False
    """Whether the subtask had finished before the checkpoint (BAR-6)."""
    miscounted: tuple[str, ...] = ()
    """How its channels hold other buffers, or another number of bytes, than the metadata says, in words."""

    @property
    def positions(self) -> list[tuple[str, int]]:
        """Return every (split, position) of the part."""
        return [position for operator in self.operators for position in operator.positions.items()]

    @property
    def files(self) -> list[StoredFile]:
        found = [file for operator in self.operators for file in operator.files]
        return found if self.channels is None else [*found, self.channels]


class StoredCheckpoint(msgspec.Struct, frozen=True):
    """One retained checkpoint, as its metadata file describes it."""

    checkpoint: int
    """The id according to the path of the metadata file, not according to its content."""
    parts: tuple[StoredPart, ...] = ()
    widths: dict[str, int] = {}
    """Vertex -> how many subtasks it had according to the metadata; empty if the metadata does not say."""
    problem: Reason | None = None
    """What is wrong with the metadata file; None if it can be read."""
    detail: str = ""
    """The same in words."""
    triggered_at_ms: float | None = None
    """When it was triggered, by the clock of the coordinator; None if the metadata does not say."""
    completed_at_ms: float | None = None
    """When it had all acknowledgements, by the same clock."""


class StoredSavepoint(msgspec.Struct, frozen=True):
    """One complete savepoint: what its directory alone describes (COO-5)."""

    directory: str
    contents: StoredCheckpoint
    """Its metadata, with the files that it names; their paths are relative to the directory."""
    outside: tuple[str, ...] = ()
    """Files that its metadata names outside the directory: it is not self-contained."""
    unnamed: tuple[str, ...] = ()
    """Files in the directory that its metadata does not name."""
