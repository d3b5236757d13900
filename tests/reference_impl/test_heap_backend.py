"""The heap backend against a dict: what it holds, what its snapshots hold, and what it holds on to."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from reference_impl.errors import CorruptStateError, SnapshotCancelled, StorageError, UsageError
from reference_impl.ids import AttemptNumber, CheckpointId, KeyGroupRange, SubtaskId
from reference_impl.protocol.messages import StateHandle
from reference_impl.state.backend import KeyedStateStore, SnapshotFuture, StateScope
from reference_impl.state.heap import HeapStateBackend, HeapStateStore, serialised
from reference_impl.storage.checkpoint_storage import FileCheckpointStorage, FileStateWriter
from tests.reference_impl.storage_fakes import FailingFileSystem, MemoryFileSystem

ALL = KeyGroupRange(0, 8)
Model = dict[tuple[str, int, bytes], bytes]
Handles = tuple[StateHandle, ...]


def scope(groups: KeyGroupRange = ALL) -> StateScope:
    return StateScope("job", "count", "aggregate", 0, 1, groups)


class World:
    """A checkpoint storage in memory, and stores in front of it."""

    def __init__(self) -> None:
        self.files = MemoryFileSystem()
        self.storage = FileCheckpointStorage(self.files, "job")
        self._written = 0

    def store(self, groups: KeyGroupRange = ALL) -> HeapStateStore:
        return HeapStateBackend().new_store(scope(groups))

    def restored(self, handles: Iterable[StateHandle], groups: KeyGroupRange = ALL) -> KeyedStateStore:
        return HeapStateBackend().open(scope(groups), list(handles), self.storage)

    def writer(self, storage: FileCheckpointStorage | None = None) -> FileStateWriter:
        self._written += 1
        subtask = SubtaskId("count", self._written)
        return (storage or self.storage).writer(CheckpointId(1), AttemptNumber(1), subtask, "aggregate")

    def snapshot(self, store: HeapStateStore) -> SnapshotFuture[Handles]:
        return store.snapshot(CheckpointId(1), self.writer())


@pytest.fixture
def world() -> World:
    return World()


def content(store: KeyedStateStore, groups: KeyGroupRange = ALL, names: Iterable[str] = ("a", "b")) -> Model:
    return {
        (name, group, key): value
        for name in names
        for group in groups
        for key, value in store.scan(name, group)
    }


class _FullDisk:
    """A writer that takes a chunk and then fails."""

    def write(self, name: str, chunks: Iterable[bytes], key_groups: KeyGroupRange) -> StateHandle:
        next(iter(chunks))
        raise StorageError("disk full")


keys = st.binary(max_size=3)
names = st.sampled_from(["a", "b"])
groups = st.integers(0, 7)


class HeapStoreMachine(RuleBasedStateMachine):
    """Writes and snapshots in any order: each snapshot shows exactly the state at its synchronous part."""

    snapshots = Bundle("snapshots")

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.store = self.world.store()
        self.model: Model = {}
        self.outstanding = 0

    @rule(name=names, group=groups, key=keys, value=keys)
    def put(self, name: str, group: int, key: bytes, value: bytes) -> None:
        self.store.put(name, group, key, value)
        self.model[name, group, key] = value

    @rule(name=names, entries=st.lists(st.tuples(groups, keys, keys), max_size=6))
    def put_many(self, name: str, entries: list[tuple[int, bytes, bytes]]) -> None:
        in_step = (
            [entry[0] for entry in entries],
            [entry[1] for entry in entries],
            [entry[2] for entry in entries],
        )
        self.store.put_many(name, *in_step)
        self.model.update({(name, group, key): value for group, key, value in entries})

    @rule(name=names, group=groups, key=keys)
    def delete(self, name: str, group: int, key: bytes) -> None:
        self.store.delete(name, group, key)
        self.model.pop((name, group, key), None)

    @rule(name=names, wanted=st.lists(st.tuples(groups, keys), max_size=6))
    def get_many(self, name: str, wanted: list[tuple[int, bytes]]) -> None:
        found = self.store.get_many(name, [group for group, _ in wanted], [key for _, key in wanted])
        assert found == [self.model.get((name, group, key)) for group, key in wanted]
        assert found == [self.store.get(name, group, key) for group, key in wanted]

    @rule(target=snapshots)
    def snapshot(self) -> tuple[SnapshotFuture[Handles], Model]:
        future = self.world.snapshot(self.store)
        self.outstanding += not future.done
        return future, dict(self.model)

    @rule(snapshot=consumes(snapshots))
    def finish(self, snapshot: tuple[SnapshotFuture[Handles], Model]) -> None:
        future, expected = snapshot
        self.outstanding -= not future.done
        assert content(self.world.restored(future.run())) == expected
        future.cancel()

    @rule(snapshot=consumes(snapshots))
    def cancel(self, snapshot: tuple[SnapshotFuture[Handles], Model]) -> None:
        future, _ = snapshot
        self.outstanding -= not future.done
        future.cancel()
        future.cancel()

    @rule()
    def fail_a_snapshot(self) -> None:
        future = self.store.snapshot(CheckpointId(1), _FullDisk())
        if not future.done:
            with pytest.raises(StorageError, match="disk full"):
                future.run()

    @rule(checkpoint=st.just(CheckpointId(99)))
    def learn_of_other_checkpoints(self, checkpoint: CheckpointId) -> None:
        self.store.abort(checkpoint)
        self.store.confirm(checkpoint)

    @invariant()
    def holds_what_the_model_holds(self) -> None:
        assert content(self.store) == self.model

    @invariant()
    def pins_only_what_a_snapshot_still_needs(self) -> None:
        assert self.store.pinned_versions == self.outstanding


TestHeapStoreMachine = HeapStoreMachine.TestCase
TestHeapStoreMachine.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)


def test_states_registered_after_the_synchronous_part_are_not_in_the_snapshot(world: World) -> None:
    store = world.store()
    store.put("a", 0, b"k", b"before")
    future = world.snapshot(store)
    store.put("b", 0, b"k", b"a new state")
    store.put("a", 5, b"k", b"a new key group")
    assert content(world.restored(future.run())) == {("a", 0, b"k"): b"before"}


def test_a_write_copies_only_while_a_snapshot_holds_the_table(world: World) -> None:
    store = world.store()
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


@pytest.mark.parametrize("end", ["abort", "close"])
def test_ending_a_checkpoint_or_the_store_cancels_the_outstanding_part(world: World, end: str) -> None:
    store = world.store()
    store.put("a", 0, b"k", b"1")
    future = world.snapshot(store)
    store.abort(CheckpointId(1)) if end == "abort" else store.close()
    assert store.pinned_versions == 0
    with pytest.raises(SnapshotCancelled):
        future.run()
    assert world.storage.files() == []


class _CancelAfterFirstChunk:
    """Passes chunks on to a writer and has the snapshot cancelled once the first was taken."""

    def __init__(self, writer: FileStateWriter) -> None:
        self._writer = writer
        self.future: SnapshotFuture[Handles] | None = None
        self.taken = 0

    def _pass_on(self, chunks: Iterable[bytes]) -> Iterable[bytes]:
        for chunk in chunks:
            self.taken += 1
            yield chunk
            assert self.future is not None
            self.future.cancel()

    def write(self, name: str, chunks: Iterable[bytes], key_groups: KeyGroupRange) -> StateHandle:
        return self._writer.write(name, self._pass_on(chunks), key_groups)


def test_a_cancel_during_the_write_stops_it_and_leaves_no_file(world: World) -> None:
    store = world.store()
    store.put_many("a", [i % 8 for i in range(800)], [b"%d" % i for i in range(800)], [b"x" * 2000] * 800)
    assert len(list(serialised(store.capture()))) > 2
    writer = _CancelAfterFirstChunk(world.writer())
    writer.future = store.snapshot(CheckpointId(1), writer)
    with pytest.raises(SnapshotCancelled):
        writer.future.run()
    assert writer.taken == 1
    assert store.pinned_versions == 0
    assert world.storage.files() == []


def test_a_storage_error_at_any_operation_releases_the_pin_and_the_file() -> None:
    failures = 0
    for k in range(1, 20):
        world = World()
        store = world.store()
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
            assert content(world.restored(handles)) == content(store)
        assert store.pinned_versions == 0
    assert failures == 5, "create, write, sync, close, sync_directory"


@pytest.mark.parametrize("parallelism", [1, 2, 3, 8])
def test_rescaling_gives_each_entry_to_the_owner_of_its_key_group(world: World, parallelism: int) -> None:
    handles: list[StateHandle] = []
    model: Model = {}
    for part in (KeyGroupRange(0, 3), KeyGroupRange(3, 6), KeyGroupRange(6, 8)):
        store = world.store(part)
        for group in part:
            # The handles do not all hold the same states (BE-03).
            name = "a" if part.start else "b"
            store.put(name, group, b"k", b"%d" % group)
            model[name, group, b"k"] = b"%d" % group
        handles.extend(world.snapshot(store).run())
    together: Model = {}
    for index in range(parallelism):
        part = KeyGroupRange(index * 8 // parallelism, (index + 1) * 8 // parallelism)
        found = content(world.restored(handles, part), part)
        assert all(group in part for _, group, _ in found)
        together |= found
    assert together == model


def test_an_empty_state_writes_no_file(world: World) -> None:
    store = world.store()
    store.put("a", 0, b"k", b"1")
    store.delete("a", 0, b"k")
    assert world.snapshot(world.store()).run() == ()
    assert content(world.restored(world.snapshot(store).run())) == {}


def test_overlapping_handles_are_refused(world: World) -> None:
    handles: list[StateHandle] = []
    for part in (KeyGroupRange(0, 5), KeyGroupRange(4, 8)):
        store = world.store(part)
        store.put("a", 4, b"k", b"1")
        handles.extend(world.snapshot(store).run())
    with pytest.raises(CorruptStateError, match="overlap"):
        world.restored(handles)
    lying = [handles[0], replace(handles[1], key_groups=KeyGroupRange(5, 8))]
    with pytest.raises(CorruptStateError, match="outside of its range"):
        world.restored(lying)


def test_every_truncation_and_every_changed_byte_of_the_structure_is_noticed_or_harmless(
    world: World,
) -> None:
    store = world.store()
    store.put_many("a", [0, 1], [b"k", b"l"], [b"1", b"2"])
    (handle,) = world.snapshot(store).run()
    whole = world.storage.read(handle)

    class Reader:
        def __init__(self, content: bytes) -> None:
            self.content = content

        def read(self, handle: StateHandle) -> bytes:
            return self.content

    def open_with(data: bytes) -> Model:
        return content(HeapStateBackend().open(scope(), [handle], Reader(data)))

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
        # Only the bytes of a key or a value can change unnoticed here; the checksum of the handle covers
        # those.
        assert len(found) <= 2


def test_key_groups_of_another_subtask_are_refused(world: World) -> None:
    store = world.store(KeyGroupRange(2, 4))
    for group in (1, 4):
        with pytest.raises(UsageError, match=f"key group {group} "):
            store.put("a", group, b"k", b"v")
        with pytest.raises(UsageError, match=f"key group {group} "):
            store.get("a", group, b"k")


def test_sequences_out_of_step_are_refused_before_anything_is_written(world: World) -> None:
    store = world.store()
    with pytest.raises(UsageError, match="2 and 1"):
        store.put_many("a", [0, 1], [b"k"], [b"v"])
    with pytest.raises(UsageError, match="1 and 2"):
        store.get_many("a", [0], [b"k", b"l"])
    assert content(store) == {}


def test_a_closed_store_is_not_used_again(world: World) -> None:
    store = world.store()
    store.put("a", 0, b"k", b"v")
    store.close()
    store.close()
    with pytest.raises(UsageError, match="closed"):
        store.get("a", 0, b"k")
