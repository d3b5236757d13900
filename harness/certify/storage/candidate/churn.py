"""What a checkpoint storage holds when much is written, overwritten and deleted, but never much is needed at once."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from barrier_tck.harness.certify.storage.candidate.bench import (
    ATTEMPT,
    COUNT,
    FAILS,
    GROUPS,
    Broken,
    StorageBench,
    completed_of,
    content_of,
    write,
)
from barrier_tck.harness.certify.storage.candidate.observations import require_whole
from barrier_tck.reference_impl.ids import AttemptNumber, CheckpointId
from barrier_tck.reference_impl.protocol.messages import CompletedCheckpoint, Savepoint, StateHandle
from barrier_tck.reference_impl.runtime_errors import StorageError
from barrier_tck.reference_impl.storage.capacity import HasCapacityLimit, ReportsUsage
from barrier_tck.reference_impl.storage.checkpoint_storage import CheckpointStorage

_ROUNDS, _OVERWRITES = 6, 4
"""What is done to a storage without a limit: rounds, and how often each overwrites what is kept of a job."""
_FILLED = 3
"""As many times its limit a storage is written, in files that are deleted, and again in what is overwritten."""
_FILLED_MAX_BYTES = 64 * 1024 * 1024
"""A storage with a larger limit is not filled: that would take too long."""
_PIECE_BYTES = 4096
_LONG_NAME, _CLAIMED_FILES = "n" * 200, 150
"""Claiming a savepoint of so many files, with such names, makes large what a storage keeps of a job and overwrites."""
_GROWS_BYTES = 1024
"""As much may ids grow that are written as text."""


class _Torn(Exception):
    """What the chunks of a write fail with."""


def constant_data_never_fills_it(bench: StorageBench) -> None:
    """Write, overwrite and delete, a storage with a limit several times as much as it can hold."""
    churn = _Churn(bench)
    try:
        churn.begin()
        held = churn.round()
        for _ in range(churn.rounds - 1):
            churn.compare(held, churn.round())
    except StorageError as error:
        raise Broken(
            FAILS, f"{churn.description}, and never much was needed at once, but then it failed: {error}"
        ) from error


class _Churn:
    """A job with one retained checkpoint at a time."""

    def __init__(self, bench: StorageBench) -> None:
        self._bench = bench
        self._storage: CheckpointStorage = bench.open()
        limit = (
            self._storage.limit_bytes
            if isinstance(self._storage, HasCapacityLimit)
            else _FILLED_MAX_BYTES + 1
        )
        limited = limit <= _FILLED_MAX_BYTES
        self._files = min(_CLAIMED_FILES, limit // 4096) if limited else 10
        overwritten = self._files * len(_LONG_NAME)
        self._piece = limit // 32 if limited else _PIECE_BYTES
        # Each round writes five pieces.
        self.rounds = _FILLED * limit // (5 * self._piece) if limited else _ROUNDS
        self._overwrites = _FILLED * limit // (overwritten * self.rounds) if limited else _OVERWRITES
        self._retained: tuple[CompletedCheckpoint, StateHandle] | None = None
        self._newest = 1

    @property
    def description(self) -> str:
        """Say what was done so far."""
        written = f"files of {self._piece:,} bytes were written and deleted, up to checkpoint {self._newest}"
        return f"{written}, and ids were reserved {self._overwrites} times for each"

    def begin(self) -> None:
        """Claim a savepoint of many files, so that what the storage keeps of the job is large."""
        directory = "savepoints/" + _LONG_NAME[:20]
        origin = self._bench.open("origin")
        origin.reserve(CheckpointId(1), ATTEMPT)
        origin.begin_savepoint(CheckpointId(1), directory)
        names = [f"{_LONG_NAME}{number}" for number in range(self._files)]
        handles = [write(origin, 1, b"", name, directory) for name in names]
        origin.publish(completed_of(1, handles, savepoint=Savepoint(directory)))
        self._storage.start_from(self._storage.load_savepoint(directory), claim=True)

    def round(self) -> tuple[int, int]:
        """Take a checkpoint after some that fail, and discard the one before; return what is held then."""
        for again in range(self._overwrites):
            self._storage.reserve(CheckpointId(self._newest + again % 2), AttemptNumber(self._newest + again))
        for _ in range(2):
            self._fail()
        retained = self._complete()
        if self._retained is not None:
            (before, shared), self._retained = self._retained, None
            self._storage.discard_checkpoint(before.checkpoint, (shared.path,))
            self._storage.discard_shared([shared.path])
        self._retained = retained
        held = self._storage.held_bytes if isinstance(self._storage, ReportsUsage) else 0
        return held, len(self._storage.files())

    def compare(self, before: tuple[int, int], after: tuple[int, int]) -> None:
        """Demand that it holds no more than after the first round, and that the retained checkpoint is there."""
        bench = self._bench
        grown = after[0] - before[0]
        message = f"{self.description}: the same amount is needed, and {grown:,} bytes more are held"
        bench.require(FAILS, grown <= _GROWS_BYTES, message)
        message = f"{self.description}: there were {before[1]} files, and now there are {after[1]}"
        bench.require(FAILS, after[1] == before[1], message)
        assert self._retained is not None
        require_whole(bench, self._retained[0], FAILS, "after many others were discarded")

    def _fail(self) -> None:
        """Let a write fail, and discard what was written for its checkpoint before."""
        checkpoint = self._next()
        write(self._storage, checkpoint, content_of(self._piece))

        def chunks() -> Iterator[bytes]:
            yield content_of(self._piece // 2)
            raise _Torn

        with contextlib.suppress(_Torn):
            writer = self._storage.writer(CheckpointId(checkpoint), ATTEMPT, COUNT, "aggregate")
            writer.write("torn", chunks(), GROUPS)
        self._storage.discard_checkpoint(CheckpointId(checkpoint))

    def _complete(self) -> tuple[CompletedCheckpoint, StateHandle]:
        checkpoint = self._next()
        own = write(self._storage, checkpoint, content_of(self._piece))
        writer = self._storage.shared_writer(CheckpointId(checkpoint), ATTEMPT, COUNT, "aggregate")
        shared = writer.write("shared", [content_of(self._piece)], GROUPS)
        completed = completed_of(checkpoint, [own, shared])
        self._storage.publish(completed)
        return completed, shared

    def _next(self) -> int:
        self._newest += 1
        self._storage.reserve(CheckpointId(self._newest), ATTEMPT)
        return self._newest
