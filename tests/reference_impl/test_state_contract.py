"""The contract of state backends, checked on every backend of the project; grain: one store."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule
from msgspec.structs import replace

from barrier_tck.reference_impl.ids import CheckpointId, KeyGroupRange
from barrier_tck.reference_impl.protocol.messages import StateHandle
from barrier_tck.reference_impl.runtime_errors import (
    CorruptStateError,
    JobUsageError,
    SnapshotCancelled,
    StorageError,
)
from barrier_tck.reference_impl.state.backend import SnapshotFuture, StateCapability
from barrier_tck.reference_impl.state.heap import HeapStateStore
from barrier_tck.reference_impl.storage.checkpoint_storage import FileCheckpointStorage
from tests.reference_impl.state_worlds import (
    CancelAfterFirstChunk,
    FullDisk,
    Handles,
    Model,
    StateWorld,
    content,
)
from tests.reference_impl.storage_fakes import FailingFileSystem

BACKENDS = ("heap", "rocksdb", "examples.minimal_backend.backend:SortedDictBackend")
Taken = tuple[SnapshotFuture[Handles], Model, int]
"""(snapshot, what it must hold, number of the store that took it)."""


@pytest.fixture(params=BACKENDS)
def world(request: pytest.FixtureRequest) -> Iterator[StateWorld]:
    world = StateWorld(request.param)
    yield world
    world.close()


keys = st.binary(max_size=3)
names = st.sampled_from(["a", "b"])
groups = st.integers(0, 7)


class StateContract(RuleBasedStateMachine):
    """Writes and snapshots in any order: each snapshot shows exactly the state at its synchronous part."""

    backend = "heap"
    snapshots = Bundle("snapshots")

    def __init__(self) -> None:
        super().__init__()
        self.world = StateWorld(self.backend)
        self.store = self.world.store()
        self.model: Model = {}
        self.outstanding = 0
        self.stores = 1

    def teardown(self) -> None:
        self.world.close()

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

    @rule(name=names, group=groups)
    def scan(self, name: str, group: int) -> None:
        begun = self.store.scan(name, group)
        self.store.put(name, group, b"\xff later", b"x")
        found = list(begun)
        self.store.delete(name, group, b"\xff later")
        expected = sorted((k, v) for (n, g, k), v in self.model.items() if (n, g) == (name, group))
        ordered = StateCapability.ORDERED_SCAN in self.world.backend.capabilities
        assert (found if ordered else sorted(found)) == expected

    @rule(target=snapshots)
    def snapshot(self) -> Taken:
        future = self.world.snapshot(self.store)
        self.outstanding += not future.done
        return future, dict(self.model), self.stores

    @rule(snapshot=consumes(snapshots))
    def finish(self, snapshot: Taken) -> None:
        self.check_finished(snapshot)

    def check_finished(self, snapshot: Taken) -> Handles | None:
        future, expected, taken_by = snapshot
        if taken_by != self.stores and not future.done:
            with pytest.raises(SnapshotCancelled):
                future.run()  # its store was closed in the meantime
            return None
        self.outstanding -= not future.done
        handles = future.run()
        assert self.world.held(handles) == expected
        assert self.world.held(handles) == expected, "restored a second time"
        future.cancel()
        return handles

    @rule(snapshot=consumes(snapshots))
    def cancel(self, snapshot: Taken) -> None:
        future, _, taken_by = snapshot
        self.outstanding -= taken_by == self.stores and not future.done
        future.cancel()
        future.cancel()

    @rule(snapshot=consumes(snapshots))
    def recover_from(self, snapshot: Taken) -> None:
        """A new store takes over; the old store's unfinished snapshots become invalid."""
        handles = self.check_finished(snapshot)
        if handles is not None:
            self.store.close()
            self.store, self.model = self.world.store(handles=handles), dict(snapshot[1])
            self.outstanding = 0
            self.stores += 1

    @rule()
    def fail_a_snapshot(self) -> None:
        try:
            future = self.store.snapshot(CheckpointId(1), FullDisk())
        except StorageError:
            return  # a purely synchronous snapshot fails at once
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
    def holds_on_to_what_a_snapshot_still_needs_only(self) -> None:
        if isinstance(self.store, HeapStateStore):
            assert self.store.pinned_versions == self.outstanding
        elif self.backend == "rocksdb":
            # The newest one is made by its asynchronous part, or when the next one begins.
            at_least = max(0, self.outstanding - 1)
            assert at_least <= len(self.world.local_checkpoints()) <= self.outstanding


class HeapContract(StateContract):
    backend = BACKENDS[0]


class RocksDBContract(StateContract):
    backend = BACKENDS[1]


class MinimalContract(StateContract):
    backend = BACKENDS[2]


TestHeapContract = HeapContract.TestCase
TestHeapContract.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
TestRocksDBContract = RocksDBContract.TestCase
TestRocksDBContract.settings = settings(max_examples=6, stateful_step_count=20, deadline=None)
TestMinimalContract = MinimalContract.TestCase
TestMinimalContract.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)


def test_states_registered_after_the_synchronous_part_are_not_in_the_snapshot(world: StateWorld) -> None:
    store = world.store()
    store.put("a", 0, b"k", b"before")
    future = world.snapshot(store)
    store.put("b", 0, b"k", b"a new state")
    store.put("a", 5, b"k", b"a new key group")
    assert world.held(future.run()) == {("a", 0, b"k"): b"before"}


def test_names_and_keys_that_begin_alike_are_told_apart(world: StateWorld) -> None:
    store = world.store()
    entries = [("a", b"b"), ("ab", b""), ("", b"ab"), ("a", b""), ("a", b"\0"), ("é\U0001f600", b"\xff" * 9)]
    for number, (name, key) in enumerate(entries):
        store.put(name, 3, key, b"%d" % number)
    handles = world.snapshot(store).run()
    for found in (store, world.store(handles=handles)):
        for number, (name, key) in enumerate(entries):
            assert found.get(name, 3, key) == b"%d" % number
            assert found.get(name, 2, key) is None
        assert dict(found.scan("a", 3)) == {b"b": b"0", b"": b"3", b"\0": b"4"}


@pytest.mark.parametrize("end", ["abort", "close"])
def test_ending_a_checkpoint_or_the_store_cancels_the_outstanding_part(world: StateWorld, end: str) -> None:
    store = world.store()
    store.put("a", 0, b"k", b"1")
    future = world.snapshot(store)
    if future.done:
        pytest.skip("a purely synchronous backend has no outstanding part")
    store.abort(CheckpointId(1)) if end == "abort" else store.close()
    assert world.local_checkpoints() == []
    with pytest.raises(SnapshotCancelled):
        future.run()
    assert world.storage.files() == []


def test_a_cancel_during_the_write_stops_it_and_leaves_no_local_copy(world: StateWorld) -> None:
    store = world.store()
    values = [bytes(((i * j) & 0xFF) for j in range(2000)) for i in range(800)]
    store.put_many("a", [i % 8 for i in range(800)], [b"%d" % i for i in range(800)], values)
    writer = CancelAfterFirstChunk(world.writer())
    if StateCapability.ASYNCHRONOUS_SNAPSHOTS not in world.backend.capabilities:
        pytest.skip("there is nothing to cancel")
    writer.future = store.snapshot(CheckpointId(1), writer)
    with pytest.raises(SnapshotCancelled):
        writer.future.run()
    assert writer.taken == 1
    assert world.local_checkpoints() == []
    assert content(store) == {("a", i % 8, b"%d" % i): value for i, value in enumerate(values)}


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_storage_error_at_any_operation_fails_the_snapshot_and_nothing_else(backend: str) -> None:
    failures = k = 0
    world = StateWorld(backend)
    store = world.store()
    store.put("a", 0, b"k", b"1")
    while True:
        k += 1
        files = FailingFileSystem(world.files, fail_at=k)
        writer = world.writer(FileCheckpointStorage(files, "job"))
        try:
            handles = store.snapshot(CheckpointId(1), writer).run()
        except StorageError:
            failures += 1
            assert world.local_checkpoints() == []
            assert content(store) == {("a", 0, b"k"): b"1"}
        else:
            assert not files.failed
            assert world.held(handles) == content(store)
            break
    assert failures >= 5, "create, write, sync, close, sync_directory at least"
    world.close()


@pytest.mark.parametrize("parallelism", [1, 2, 3, 8])
def test_rescaling_gives_each_entry_to_the_owner_of_its_key_group(
    world: StateWorld, parallelism: int
) -> None:
    handles: list[StateHandle] = []
    model: Model = {}
    for part in (KeyGroupRange(0, 3), KeyGroupRange(3, 6), KeyGroupRange(6, 8)):
        store = world.store(part)
        for group in part:
            # Not all handles hold the same states (BE-03).
            name = "a" if part.start else "b"
            store.put(name, group, b"k", b"%d" % group)
            model[name, group, b"k"] = b"%d" % group
        handles.extend(world.snapshot(store).run())
    together: Model = {}
    for index in range(parallelism):
        part = KeyGroupRange(index * 8 // parallelism, (index + 1) * 8 // parallelism)
        store = world.store(part, handles)
        found = content(store, part)
        assert all(group in part for _, group, _ in found)
        # Key groups that it does not own are not in its next snapshot either.
        assert world.held(world.snapshot(store).run(), part) == found
        together |= found
    assert together == model


def test_entries_of_a_former_owner_do_not_return_when_parts_are_joined_again(world: StateWorld) -> None:
    """A store is split in two, each owner empties its half, and both are joined: no half restores the other's
    entries."""
    whole = world.store()
    whole.put_many("a", list(range(8)), [b"k"] * 8, [b"old"] * 8)
    handles = world.snapshot(whole).run()
    parts: list[StateHandle] = []
    for part in (KeyGroupRange(0, 4), KeyGroupRange(4, 8)):
        store = world.store(part, handles)
        for group in part:
            store.delete("a", group, b"k")
        store.put("b", part.start, b"k", b"new")
        parts.extend(world.snapshot(store).run())
    assert world.held(parts) == {("b", 0, b"k"): b"new", ("b", 4, b"k"): b"new"}


def test_an_emptied_state_is_restored_as_empty(world: StateWorld) -> None:
    store = world.store()
    store.put("a", 0, b"k", b"1")
    store.delete("a", 0, b"k")
    assert world.snapshot(world.store()).run() == ()
    assert world.held(world.snapshot(store).run()) == {}


def test_overlapping_handles_are_refused(world: StateWorld) -> None:
    handles: list[StateHandle] = []
    for part in (KeyGroupRange(0, 5), KeyGroupRange(4, 8)):
        store = world.store(part)
        store.put("a", 4, b"k", b"1")
        handles.extend(world.snapshot(store).run())
    with pytest.raises(CorruptStateError, match="overlap"):
        world.store(handles=handles)


def test_a_file_that_is_no_snapshot_is_refused_with_its_path(world: StateWorld) -> None:
    store = world.store()
    store.put("a", 0, b"k", b"1")
    first, *others = world.snapshot(store).run()
    nonsense = world.writer().write("x", [b"nonsense"], first.key_groups)
    with pytest.raises(CorruptStateError, match=nonsense.path):
        world.store(handles=[nonsense, *others])
    with pytest.raises(CorruptStateError, match=first.path):
        world.store(handles=[replace(first, checksum="crc32:00000000"), *others])


def test_key_groups_of_another_subtask_are_refused(world: StateWorld) -> None:
    store = world.store(KeyGroupRange(2, 4))
    for group in (1, 4):
        with pytest.raises(JobUsageError, match=f"key group {group} "):
            store.put("a", group, b"k", b"v")
        with pytest.raises(JobUsageError, match=f"key group {group} "):
            store.get("a", group, b"k")


def test_sequences_out_of_step_are_refused_before_anything_is_written(world: StateWorld) -> None:
    store = world.store()
    with pytest.raises(JobUsageError, match="2 and 1"):
        store.put_many("a", [0, 1], [b"k"], [b"v"])
    with pytest.raises(JobUsageError, match="1 and 2"):
        store.get_many("a", [0], [b"k", b"l"])
    assert content(store) == {}


def test_a_closed_store_is_not_used_again(world: StateWorld) -> None:
    store = world.store()
    store.put("a", 0, b"k", b"v")
    store.close()
    store.close()
    with pytest.raises(JobUsageError, match="closed"):
        store.get("a", 0, b"k")
    with pytest.raises(JobUsageError, match="closed"):
        world.snapshot(store)


def test_every_capability_has_a_sentence_and_backends_declare_known_ones(world: StateWorld) -> None:
    assert world.backend.capabilities <= frozenset(StateCapability)
    for capability in StateCapability:
        assert capability.sentence.endswith(".")


def test_a_declared_capability_holds(world: StateWorld) -> None:
    declared = world.backend.capabilities
    contents = []
    for _ in range(2):
        store = world.store()
        store.put_many("a", [2, 1], [b"l", b"k"], [b"2", b"1"])
        future = world.snapshot(store)
        if StateCapability.ASYNCHRONOUS_SNAPSHOTS in declared:
            assert not future.done and world.storage.files() == []
        handles = future.run()
        contents.append([world.storage.read(handle) for handle in handles])
        world.storage.discard(handles)
    if StateCapability.DETERMINISTIC_FILES in declared:
        assert contents[0] == contents[1]
