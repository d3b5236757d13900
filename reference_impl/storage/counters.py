"""The counters file of a job: what it has used of its ids and attempts, and which savepoints belong to it."""

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
    """Its state files, relative to the directory: they are still known when its metadata is gone."""


@dataclass(frozen=True, slots=True)
class JobCounters:
    """Content of the counters file: what a job has used of its ids and attempts."""

    checkpoint: int
    attempt: int
    started_from: str = ""
    """Directory of the savepoint that the job was started from."""
    started_above: int = 0
    """Checkpoints up to this one are older than that start."""
    claimed: tuple[ClaimedSavepoint, ...] = ()
    """The savepoints that the job took over and that are to be deleted."""
    announced: tuple[int, ...] = ()
    """Checkpoints that were reserved and may be kept; only storage that cannot trust listings writes this."""


def encode(counters: JobCounters) -> bytes:
    """Return the content of the file."""
    return metadata.frame(_FORMAT, _VERSION, msgspec.json.encode(counters))


def decode(content: bytes, path: str) -> JobCounters:
    """Read the content of the file at ``path``; raises CorruptStateError if it is damaged."""
    return metadata.decode_body(metadata.unframe(_FORMAT, _VERSION, content, path), JobCounters, path)
