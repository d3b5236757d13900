"""What only the heap backend has: copy-on-write, pins, its file format. For the rest see ``test_state_contract``."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from barrier_tck.reference_impl.ids import CheckpointId, KeyGroupRange
from barrier_tck.reference_impl.protocol.messages import StateHandle
from barrier_tck.reference_impl.runtime_errors import CorruptStateError, SnapshotCancelled, StorageError
from barrier_tck.reference_impl.state.backend import StateScope
from barrier_tck.reference_impl.state.heap import HeapStateBackend, HeapStateStore
from barrier_tck.reference_impl.state.heap_files import serialised
from barrier_tck.reference_impl.storage.checkpoint_storage import FileCheckpointStorage
from tests.reference_impl.state_worlds import ALL, CancelAfterFirstChunk, Model, StateWorld, content
from tests.reference_impl.storage_fakes import FailingFileSystem


@pytest.fixture
def world() -> Iterator[StateWorld]:
    world = StateWorld("heap")
    yield world
    world.close()


def heap_store(groups: KeyGroupRange = ALL) -> HeapStateStore:
    return HeapStateBackend().new_store(StateScope("job", "count", "aggregate", 0, 1, groups))


def test_a_write_copies_only_while_a_snapshot_holds_the_table(world: StateWorld) -> None:
    store = heap_store()
    store.put("a", 0, b"k", b"1")
    present = store._states["a"].readable[0]
    future = world.snapshot(store)
    future.run()
    store.put("a", 0, b"k", b"2")
    assert store._states["a"].readable[0] is present
    world.snapshot(store)
    store.put("a", 0, b"k", b"3")
    copied = store._states["a"].readable[0]
    assert copied is not present
    store.put("a", 0, b"k", b"4")
    assert store._states["a"].readable[0] is copied


def test_a_cancel_during_the_write_stops_it_and_leaves_no_file(world: StateWorld) -> None:
    store = heap_store()
    store.put_many("a", [i % 8 for i in range(800)], [b"%d" % i for i in range(800)], [b"x" * 2000] * 800)
    assert len(list(serialised(store.capture()))) > 2
    writer = CancelAfterFirstChunk(world.writer())
    writer.future = store.snapshot(CheckpointId(1), writer)
    with pytest.raises(SnapshotCancelled):
        writer.future.run()
    assert writer.taken == 1
    assert store.pinned_versions == 0
    assert world.storage.files() == []


def test_a_storage_error_at_any_operation_releases_the_pin_and_the_file() -> None:
    failures = 0
    for k in range(1, 20):
        world = StateWorld()
        store = heap_store()
        store.put("a", 0, b"k", b"1")
        files = FailingFileSystem(world.files, fail_at=k)
        future = store.snapshot(CheckpointId(1), world.writer(FileCheckpointStorage(files, "job")))
        try:
            handles = future.run()
        except StorageError:
            failures += 1
            assert world.storage.files() == []
        else:
            assert not files.failed
            assert world.held(handles) == content(store)
        assert store.pinned_versions == 0
    assert failures == 8, "create, write, sync, close, and names: of the file and of three directories above"


def test_overlapping_handles_are_refused(world: StateWorld) -> None:
    handles: list[StateHandle] = []
    for part in (KeyGroupRange(0, 5), KeyGroupRange(4, 8)):
        store = heap_store(part)
        store.put("a", 4, b"k", b"1")
        handles.extend(world.snapshot(store).run())
    with pytest.raises(CorruptStateError, match="overlap"):
        world.store(ALL, handles)
    lying = [handles[0], replace(handles[1], key_groups=KeyGroupRange(5, 8))]
    with pytest.raises(CorruptStateError, match="outside of its range"):
        world.store(ALL, lying)


def test_every_truncation_and_every_changed_byte_of_the_structure_is_noticed_or_harmless(
    world: StateWorld,
) -> None:
    store = heap_store()
    store.put_many("a", [0, 1], [b"k", b"l"], [b"1", b"2"])
    (handle,) = world.snapshot(store).run()
    whole = world.storage.read(handle)

    class Reader:
        def __init__(self, content: bytes) -> None:
            self.content = content

        def read(self, handle: StateHandle) -> bytes:
            return self.content

    def open_with(data: bytes) -> Model:
        scope = StateScope("job", "count", "aggregate", 0, 1, ALL)
        return content(HeapStateBackend().open(scope, [handle], Reader(data)))

    for end in range(len(whole)):
        with pytest.raises(CorruptStateError, match=handle.path):
            open_with(whole[:end])
    for position in range(len(whole)):
        damaged = bytearray(whole)
        damaged[position] ^= 0xFF
        try:
            found = open_with(bytes(damaged))
        except CorruptStateError:
            continue
        # Only the bytes of a key or a value can change unnoticed here; the checksum in the handle covers these.
        assert len(found) <= 2
