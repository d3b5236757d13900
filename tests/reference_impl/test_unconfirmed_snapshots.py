"""What a replaced subtask removes at its end, and what it must leave."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from barrier_tck.reference_impl.ids import AttemptNumber, CheckpointId, KeyGroupRange, SubtaskId
from barrier_tck.reference_impl.protocol.messages import (
    CompletedCheckpoint,
    OperatorSnapshot,
    SubtaskSnapshot,
)
from barrier_tck.reference_impl.protocol.transactions import TransactionHandle
from barrier_tck.reference_impl.runtime.unconfirmed_snapshots import UNCONFIRMED_MAX, UnconfirmedSnapshots
from barrier_tck.reference_impl.storage.checkpoint_storage import FileCheckpointStorage
from tests.reference_impl.storage_fakes import MemoryFileSystem

SUBTASK = SubtaskId("count", 0)
FIRST, SECOND = AttemptNumber(1), AttemptNumber(2)


def storage_on(files: MemoryFileSystem) -> FileCheckpointStorage:
    """Each process has its own instance."""
    return FileCheckpointStorage(files, "job")


def written(files: MemoryFileSystem, checkpoint: int, attempt: AttemptNumber = FIRST) -> SubtaskSnapshot:
    """A snapshot with one file of state."""
    writer = storage_on(files).writer(CheckpointId(checkpoint), attempt, SUBTASK, "totals")
    handle = writer.write("state", [b"state"], KeyGroupRange(0, 4))
    return SubtaskSnapshot(SUBTASK, attempt, (OperatorSnapshot("totals", handles=(handle,)),))


def publish(files: MemoryFileSystem, checkpoint: int, snapshot: SubtaskSnapshot) -> None:
    storage_on(files).publish(
        CompletedCheckpoint(CheckpointId(checkpoint), snapshot.attempt, 1, 2, (snapshot,))
    )


def state_files(files: MemoryFileSystem) -> list[str]:
    return [path for path in files.list_files("checkpoints") if path.endswith("state")]


@pytest.fixture
def files() -> MemoryFileSystem:
    return MemoryFileSystem()


@pytest.fixture
def unconfirmed(files: MemoryFileSystem) -> UnconfirmedSnapshots:
    """The unconfirmed of attempt 1, which acknowledged its part of checkpoint 3."""
    snapshots = UnconfirmedSnapshots(storage_on(files), FIRST)
    snapshots.acknowledged(CheckpointId(3), written(files, 3))
    return snapshots


def test_unconfirmed_state_is_removed_once_a_newer_attempt_has_taken_over(
    files: MemoryFileSystem, unconfirmed: UnconfirmedSnapshots
) -> None:
    storage_on(files).reserve(CheckpointId(3), SECOND)
    unconfirmed.discard_if_superseded(())
    assert state_files(files) == []


def test_unconfirmed_state_stays_while_its_own_attempt_is_the_newest(
    files: MemoryFileSystem, unconfirmed: UnconfirmedSnapshots
) -> None:
    storage_on(files).reserve(CheckpointId(3), FIRST)
    unconfirmed.discard_if_superseded(())
    assert len(state_files(files)) == 1, "the checkpoint may still complete"


def test_state_in_a_completed_checkpoint_stays_although_its_completion_was_not_reported(
    files: MemoryFileSystem, unconfirmed: UnconfirmedSnapshots
) -> None:
    publish(files, 3, written(files, 3))
    storage_on(files).reserve(CheckpointId(3), SECOND)
    unconfirmed.discard_if_superseded(())
    assert len(state_files(files)) == 1


def test_state_that_the_coordinator_has_is_left_to_the_coordinator(
    files: MemoryFileSystem, unconfirmed: UnconfirmedSnapshots
) -> None:
    unconfirmed.completed(CheckpointId(3))
    storage_on(files).reserve(CheckpointId(3), SECOND)
    unconfirmed.discard_if_superseded(())
    assert len(state_files(files)) == 1


@pytest.mark.parametrize("first", [1, 2, 3])
def test_a_completion_confirms_earlier_acknowledgements_and_no_later_ones(
    files: MemoryFileSystem, first: int
) -> None:
    """Acknowledgements may come in any order of ids; the connection keeps the order in which they were sent."""
    order = [first, *(number for number in (1, 2, 3) if number != first)]
    snapshots = UnconfirmedSnapshots(storage_on(files), FIRST)
    for number in order:
        snapshots.acknowledged(CheckpointId(number), written(files, number))
    snapshots.completed(CheckpointId(order[1]))
    storage_on(files).reserve(CheckpointId(3), SECOND)
    snapshots.discard_if_superseded(())
    left = [path for path in state_files(files) if f"/chk-{order[2]}/" in path]
    assert (left, len(state_files(files))) == ([], 2)


def test_the_completion_of_a_checkpoint_that_was_never_acknowledged_confirms_nothing(
    files: MemoryFileSystem, unconfirmed: UnconfirmedSnapshots
) -> None:
    unconfirmed.completed(CheckpointId(4))
    storage_on(files).reserve(CheckpointId(4), SECOND)
    unconfirmed.discard_if_superseded(())
    assert state_files(files) == []


def test_a_subtask_whose_checkpoints_never_complete_remembers_a_bounded_number(
    files: MemoryFileSystem,
) -> None:
    snapshots = UnconfirmedSnapshots(storage_on(files), FIRST)
    for number in range(1, UNCONFIRMED_MAX + 6):
        snapshots.acknowledged(CheckpointId(number), written(files, number))
    storage_on(files).reserve(CheckpointId(UNCONFIRMED_MAX + 5), SECOND)
    snapshots.discard_if_superseded(())
    assert [path.split("/")[2] for path in state_files(files)] == [f"chk-{n}" for n in range(1, 6)]


class FakeSink:
    """An operator with prepared transactions; remembers which checkpoints it was told can be restored."""

    prepared = ("a transaction",)

    def __init__(self) -> None:
        self.restorable: list[int] | None = None

    def abandon_prepared(self, is_needed: Callable[[TransactionHandle], bool]) -> None:
        self.restorable = [number for number in range(1, 9) if is_needed(prepared_for(number))]


def prepared_for(number: int) -> TransactionHandle:
    """Return a transaction without files that was prepared for a checkpoint."""
    return TransactionHandle(f"sink-0-a1-{number}", CheckpointId(number), ())


def test_prepared_output_is_restorable_as_long_as_a_checkpoint_of_its_attempt_covers_it(
    files: MemoryFileSystem,
) -> None:
    publish(files, 3, written(files, 3))
    publish(files, 6, written(files, 6, SECOND))
    for attempt, restorable in ((FIRST, [1, 2, 3]), (SECOND, [1, 2, 3, 4, 5, 6])):
        storage_on(files).reserve(CheckpointId(6), AttemptNumber(attempt + 1))
        sink = FakeSink()
        UnconfirmedSnapshots(storage_on(files), attempt).discard_if_superseded((sink, object()))
        assert sink.restorable == restorable


def test_prepared_output_that_a_newer_attempt_has_yet_to_commit_is_needed(files: MemoryFileSystem) -> None:
    """An attempt that puts off its restored commits lists them in its own checkpoint, and the restored one goes."""
    restored = OperatorSnapshot("sink", transactions=(prepared_for(2),))
    publish(files, 6, SubtaskSnapshot(SubtaskId("sink", 0), SECOND, (restored,)))
    storage_on(files).reserve(CheckpointId(6), SECOND)
    sink = FakeSink()
    UnconfirmedSnapshots(storage_on(files), FIRST).discard_if_superseded((sink,))
    assert sink.restorable == [2]


def test_prepared_output_is_left_alone_while_its_own_attempt_is_the_newest(files: MemoryFileSystem) -> None:
    storage_on(files).reserve(CheckpointId(1), FIRST)
    sink = FakeSink()
    UnconfirmedSnapshots(storage_on(files), FIRST).discard_if_superseded((sink,))
    assert sink.restorable is None
