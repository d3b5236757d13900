"""The counters file of a job: the highest checkpoint id and attempt number used, and the savepoints that it owns."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from barrier_tck.reference_impl.storage import metadata

_FORMAT, _VERSION = "counters", 2


@dataclass(frozen=True, slots=True)
class ClaimedSavepoint:
    """A savepoint that belongs to a job that was started from it."""

    checkpoint: int
    directory: str
    files: tuple[str, ...]
    """Its state files, relative to the directory, so that they can be deleted after its metadata."""


@dataclass(frozen=True, slots=True)
class JobCounters:
    """Content of the counters file; ``checkpoint`` and ``attempt`` are the highest that the job has used."""

    checkpoint: int
    attempt: int
    started_from: str = ""
    """Directory of the savepoint that the job was started from."""
    started_above: int = 0
    """Checkpoints up to this id were taken before the job started from that savepoint."""
    claimed: tuple[ClaimedSavepoint, ...] = ()
    """The savepoints that the job has claimed and not yet deleted."""
    announced: tuple[int, ...] = ()
    """Reserved checkpoints of which storage may hold files; written only by storage that cannot trust its listings."""


def encode(counters: JobCounters) -> bytes:
    """Return the content of the file."""
    return metadata.frame(_FORMAT, _VERSION, msgspec.json.encode(counters))


def decode(content: bytes, path: str) -> JobCounters:
    """Read the content of the file at ``path``; raises CorruptStateError if it is damaged."""
    return metadata.decode_body(metadata.unframe(_FORMAT, _VERSION, content, path), JobCounters, path)
