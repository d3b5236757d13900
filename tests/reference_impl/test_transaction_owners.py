"""Who commits and who sweeps what a sink has prepared, while its parallelism changes again and again (RSC-3, SNK-1).

Sinks put off the commits of what they restore, as with ``on_unreadable = "older"``. A transaction may then be handed
on from one attempt to the next, each of another width.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barrier_tck.reference_impl.ids import AttemptNumber, CheckpointId, SubtaskId
from barrier_tck.reference_impl.operators.sinks import FileSink, TransactionalFileSink
from barrier_tck.reference_impl.protocol.messages import (
    CompletedCheckpoint,
    JobShape,
    OperatorSnapshot,
    SubtaskSnapshot,
    VertexShape,
)
from barrier_tck.reference_impl.protocol.rescale import NewJob, redistributed
from barrier_tck.reference_impl.protocol.transactions import TransactionFile, TransactionHandle, owner_of
from tests.reference_impl.storage_fakes import MemoryFileSystem
from tests.reference_impl.test_file_sink import PLANE, completed, context, pending, take, visible

VERTEX, WIDEST = "count", 6


class _SparingFiles(MemoryFileSystem):
    """Notes what would be deleted instead, while it is asked to."""

    spared: list[str] | None = None

    def delete(self, path: str) -> None:
        if self.spared is None:
            super().delete(path)
        else:
            self.spared.append(path)


@dataclass(frozen=True)
class Step:
    """One attempt: how many sinks there are, and which of them hear that the checkpoint was completed."""

    width: int
    hear: tuple[bool, ...]


STEPS = st.lists(
    st.builds(
        Step, st.integers(1, WIDEST), st.lists(st.booleans(), min_size=WIDEST, max_size=WIDEST).map(tuple)
    ),
    min_size=1,
    max_size=6,
)


def _shape(width: int) -> JobShape:
    return JobShape(8, (VertexShape(VERTEX, width, ("sink",)),))


def _checkpoint(number: int, attempt: int, parts: list[OperatorSnapshot]) -> CompletedCheckpoint:
    snapshots = tuple(
        SubtaskSnapshot(SubtaskId(VERTEX, index), AttemptNumber(attempt), (one,))
        for index, one in enumerate(parts)
    )
    return CompletedCheckpoint(
        CheckpointId(number), AttemptNumber(attempt), 0, 1, snapshots, _shape(len(parts))
    )


def _opened(
    files: MemoryFileSystem, attempt: int, width: int, restored: CompletedCheckpoint | None
) -> list[TransactionalFileSink]:
    """Open the sinks of one attempt with what redistribution gives them."""
    dealt = redistributed(restored, NewJob(_shape(width), ())) if restored is not None else None
    sinks = []
    for index in range(width):
        part = dealt.snapshot_of(SubtaskId(VERTEX, index)) if dealt is not None else None
        own = part.operators[0] if part is not None else None
        sink = FileSink("out", buffer_records=1).build(PLANE)
        place = replace(context(files, attempt, index), parallelism=width, defer_restored_commits=True)
        sink.open(place, own)
        sinks.append(sink)
    return sinks


def _require_one_owner_of_each_file(files: _SparingFiles, sinks: list[TransactionalFileSink]) -> None:
    """Require that each pending file could be swept by one sink only, and that this one holds its transaction."""
    held = {file.pending: i for i, one in enumerate(sinks) for t in one.prepared for file in t.files}
    sweepers: dict[str, list[int]] = {path: [] for path in pending(files)}
    for index, sink in enumerate(sinks):
        files.spared = []
        sink._discard_leftovers(())
        for path in files.spared:
            sweepers[path].append(index)
    files.spared = None
    assert {path: [held[path]] for path in sweepers} == sweepers


@given(STEPS)
@settings(max_examples=80, deadline=None)
def test_each_pending_file_is_swept_by_nobody_but_the_one_who_is_to_commit_it(steps: list[Step]) -> None:
    files, restored, number, expected = _SparingFiles(), None, 0, list[int]()
    sinks: list[TransactionalFileSink] = []
    for attempt, step in enumerate(steps, 1):
        sinks = _opened(files, attempt, step.width, restored)
        _require_one_owner_of_each_file(files, sinks)
        number += 1
        for index, sink in enumerate(sinks):
            sink.process([100 * attempt + index])
            expected.append(100 * attempt + index)
        restored = _checkpoint(number, attempt, [take(sink, number) for sink in sinks])
        for sink, hears in zip(sinks, step.hear, strict=False):
            if hears:
                completed(sink, number)
        # What is prepared for a checkpoint that never completes is swept by the next attempt.
        for sink in sinks:
            sink.process([-1])
            take(sink, number + 1)
    sinks = _opened(files, len(steps) + 1, steps[-1].width, restored)
    for sink in sinks:
        completed(sink, number)
    assert sorted(visible(files)) == sorted(expected)
    assert pending(files) == []


@pytest.mark.parametrize("widths", [(4, 3, 2), (3, 2, 3), (5, 2, 4, 1, 5)], ids=str)
def test_the_transaction_of_the_last_sink_survives_a_chain_of_widths(widths: tuple[int, ...]) -> None:
    files, restored = _SparingFiles(), None
    for attempt, width in enumerate(widths, 1):
        sinks = _opened(files, attempt, width, restored)
        if attempt == 1:
            sinks[-1].process([42])
        restored = _checkpoint(attempt, attempt, [take(sink, attempt) for sink in sinks])
    for sink in sinks:
        completed(sink, len(widths))
    assert visible(files) == [42]


def test_the_owner_of_a_transaction_is_there_and_is_its_writer_as_long_as_there_is_one() -> None:
    for width in range(1, 9):
        owners = [owner_of(writer, width) for writer in range(20)]
        assert owners[:width] == list(range(width))
        assert set(owners) == set(range(width))


def test_of_a_transaction_whose_writer_nobody_knows_the_holder_counts_as_its_writer() -> None:
    """Metadata before version 6 does not tell the writer."""
    old = TransactionHandle("t", CheckpointId(1), (TransactionFile("p", "c", 1, 1),))
    parts = [OperatorSnapshot("sink", transactions=(old,) * (index == 2)) for index in range(4)]
    found = redistributed(_checkpoint(1, 1, parts), NewJob(_shape(2), ()))
    assert [len(part.operators[0].transactions) for part in found.snapshots] == [1, 0]
