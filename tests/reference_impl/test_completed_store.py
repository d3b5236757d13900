"""Which checkpoints are retained, and what a coordinator finds that starts again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference_impl.errors import StorageError, UsageError
from reference_impl.ids import CheckpointId
from reference_impl.storage.checkpoint_storage import FileCheckpointStorage
from reference_impl.storage.completed_store import CompletedCheckpointStore
from tests.reference_impl.storage_fakes import FailingFileSystem, MemoryFileSystem, completed_checkpoint


class World:
    def __init__(self) -> None:
        self.files = MemoryFileSystem()
        self.storage = FileCheckpointStorage(self.files, "job")

    def complete(self, store: CompletedCheckpointStore, checkpoint: int) -> list[int]:
        completed = completed_checkpoint(checkpoint)
        self.storage.publish(completed)
        return [subsumed.checkpoint for subsumed in store.add(completed)]


def ids(store: CompletedCheckpointStore) -> list[int]:
    return [completed.checkpoint for completed in store.retained()]


@given(st.lists(st.integers(1, 3), max_size=8), st.integers(1, 4))
def test_the_newest_are_retained_and_each_older_one_is_handed_back_once(
    steps: list[int], retained: int
) -> None:
    world = World()
    store = CompletedCheckpointStore(world.storage, retained)
    added = [sum(steps[: i + 1]) for i in range(len(steps))]
    subsumed = [old for checkpoint in added for old in world.complete(store, checkpoint)]
    assert ids(store) == added[-retained:]
    assert subsumed + ids(store) == added
    latest = store.latest()
    assert (latest.checkpoint if latest else None) == (added[-1] if added else None)


def test_a_new_process_finds_what_the_old_one_had_newest_last() -> None:
    world = World()
    store = CompletedCheckpointStore(world.storage, 2)
    for checkpoint in (8, 9, 10):
        for subsumed in world.complete(store, checkpoint):
            world.storage.discard_checkpoint(CheckpointId(subsumed))
    again = CompletedCheckpointStore(world.storage, 2)
    assert again.recover() == ()
    assert again.retained() == store.retained()
    assert ids(again) == [9, 10]


def test_what_a_crash_left_beyond_the_limit_is_handed_back_by_the_next_add() -> None:
    world = World()
    first = CompletedCheckpointStore(world.storage, 1)
    world.complete(first, 1)
    world.complete(first, 2)
    again = CompletedCheckpointStore(world.storage, 1)
    again.recover()
    assert ids(again) == [1, 2]
    assert world.complete(again, 3) == [1, 2]


def test_a_passing_outage_at_recovery_costs_no_checkpoint() -> None:
    world = World()
    store = CompletedCheckpointStore(world.storage, 3)
    for checkpoint in (1, 2, 3):
        world.complete(store, checkpoint)
    before = world.storage.files()
    # Operation 1 lists, 2 to 4 read; the third read fails once.
    flaky = FailingFileSystem(world.files, fail_at=4)
    again = CompletedCheckpointStore(FileCheckpointStorage(flaky, "job"), 3)
    unreadable = again.recover()
    assert [entry.checkpoint for entry in unreadable] == [3]
    assert "injected" in unreadable[0].problem
    assert ids(again) == [1, 2]
    assert world.storage.files() == before
    assert again.recover() == ()
    assert ids(again) == [1, 2, 3]


def test_a_storage_that_cannot_be_listed_stops_the_recovery() -> None:
    world = World()
    world.complete(CompletedCheckpointStore(world.storage, 1), 1)
    flaky = FailingFileSystem(world.files, fail_at=1)
    with pytest.raises(StorageError, match="injected"):
        CompletedCheckpointStore(FileCheckpointStorage(flaky, "job"), 1).recover()


def test_damaged_metadata_is_reported_and_never_handed_back_for_deletion() -> None:
    world = World()
    first = CompletedCheckpointStore(world.storage, 2)
    world.complete(first, 1)
    world.complete(first, 2)
    world.files.damage("checkpoints/job/chk-1/_metadata", b"garbage")
    again = CompletedCheckpointStore(world.storage, 1)
    assert [entry.checkpoint for entry in again.recover()] == [1]
    assert world.complete(again, 3) == [2]


@pytest.mark.parametrize("late", [1, 2])
def test_a_checkpoint_that_is_subsumed_already_is_refused(late: int) -> None:
    world = World()
    store = CompletedCheckpointStore(world.storage, 2)
    world.complete(store, 2)
    with pytest.raises(UsageError, match=f"checkpoint {late} came after 2"):
        store.add(completed_checkpoint(late))
    assert ids(store) == [2]


def test_retaining_none_is_refused() -> None:
    with pytest.raises(UsageError, match="0 retained"):
        CompletedCheckpointStore(World().storage, 0)
