"""What retained checkpoints are in bytes: facts that somebody read off durable storage, without asking the system."""

from __future__ import annotations

import msgspec

from barrier_tck.harness.record.reasons import Reason


class StoredFile(msgspec.Struct, frozen=True):
    """One file that a checkpoint names."""

    path: str
    """As the metadata has it."""
    size: int
    """Bytes, as the metadata has it; likewise the checksum."""
    checksum: str
    found_size: int | None = None
    """Bytes that are there; None: no such file can be read."""
    found_checksum: str | None = None
    """Of the bytes that are there."""


class StoredOperator(msgspec.Struct, frozen=True):
    """What a checkpoint holds of one operator of one subtask."""

    operator: str
    positions: dict[str, int] = {}
    """Split -> how many of its records were read."""
    files: tuple[StoredFile, ...] = ()


class StoredPart(msgspec.Struct, frozen=True):
    """What a checkpoint holds of one subtask."""

    subtask: str
    operators: tuple[StoredOperator, ...] = ()

    @property
    def positions(self) -> list[tuple[str, int]]:
        """Return every (split, position) of the part."""
        return [position for operator in self.operators for position in operator.positions.items()]

    @property
    def files(self) -> list[StoredFile]:
        """Return every file of the part."""
        return [file for operator in self.operators for file in operator.files]


class StoredCheckpoint(msgspec.Struct, frozen=True):
    """One retained checkpoint, as its metadata file tells it."""

    checkpoint: int
    """By the place of the file, not by what is in it."""
    parts: tuple[StoredPart, ...] = ()
    widths: dict[str, int] = {}
    """Vertex -> how many subtasks it had, as the metadata says; empty if it does not say."""
    problem: Reason | None = None
    """What is the matter with the metadata file; None if it can be read."""
    detail: str = ""
    """The same in words."""
