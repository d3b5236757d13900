"""Incremental snapshots of the project's backends: what they write, refer to and restore; grain: one store."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from msgspec.structs import replace

from barrier_tck.reference_impl.ids import AttemptNumber, CheckpointId, KeyGroupRange, SubtaskId
from barrier_tck.reference_impl.protocol.messages import StateHandle
from barrier_tck.reference_impl.runtime_errors import CorruptStateError, JobUsageError
from barrier_tck.reference_impl.state.backend import (
    KeyedStateStore,
    SnapshotFuture,
    StateCapability,
    StateScope,
)
from barrier_tck.reference_impl.state.heap_increments import INCREMENTS_MAX
from barrier_tck.reference_impl.state.working_directory import WorkingDirectory
from barrier_tck.reference_impl.storage.sharing_writer import SharingWriter
from tests.reference_impl.state_worlds import ALL, Handles, Model, StateWorld, content

BACKENDS = ("heap", "rocksdb")
KEYS = 40


class IncrementalWorld(StateWorld):
    """A backend whose stores are opened for increments, and writers that share files."""

    def __init__(self, backend: str = "heap") -> None:
        super().__init__(backend)
        assert StateCapability.INCREMENTAL_SNAPSHOTS in self.backend.capabilities
        self.attempt = 1

    def incremental(
        self, handles: Iterable[StateHandle] = (), restored: int | None = None, groups: KeyGroupRange = ALL
    ) -> KeyedStateStore:
        working = WorkingDirectory(self.backend, self.root.name)
        scope = StateScope(
            *("job", "count", "aggregate", 0, self.attempt, groups, working.of_operator("aggregate")),
            incremental=True,
            restored=None if restored is None else CheckpointId(restored),
        )
        self.attempt += 1
        store = self.backend.open(scope, list(handles), self.storage)
        self._opened.append((store, working))
        return store

    def sharing(self, checkpoint: int, reuse_from: int = 1) -> SharingWriter:
        place = CheckpointId(checkpoint), AttemptNumber(self.attempt), SubtaskId("count", 0), "aggregate"
        return SharingWriter(self.storage.writer(*place), self.storage.shared_writer(*place), reuse_from)

    def taken(self, store: KeyedStateStore, checkpoint: int, reuse_from: int = 1) -> Handles:
        return store.snapshot(CheckpointId(checkpoint), self.sharing(checkpoint, reuse_from)).run()


@pytest.fixture(params=BACKENDS)
def world(request: pytest.FixtureRequest) -> Iterator[IncrementalWorld]:
    world = IncrementalWorld(request.param)
    yield world
    world.close()


def fill(store: KeyedStateStore, keys: int = KEYS) -> None:
    store.put_many("a", [i % 8 for i in range(keys)], [b"%04d" % i for i in range(keys)], [bytes(100)] * keys)


def reused(handles: Sequence[StateHandle], checkpoint: int) -> list[StateHandle]:
    return [handle for handle in handles if not handle.is_written_for(checkpoint)]


def written(handles: Sequence[StateHandle], checkpoint: int) -> int:
    return sum(handle.size for handle in handles if handle.is_written_for(checkpoint))


def test_an_increment_refers_to_confirmed_files_and_writes_what_has_changed(world: IncrementalWorld) -> None:
    store = world.incremental()
    fill(store, 4_000)
    first = world.taken(store, 1)
    store.confirm(CheckpointId(1))
    store.put("a", 1, b"0001", b"new")
    store.delete("a", 2, b"0002")
    store.put("b", 3, b"x", b"another state")
    second = world.taken(store, 2)
    assert reused(first, 1) == [] and reused(second, 2)
    assert written(second, 2) * 5 < written(first, 1)
    assert world.held(second) == content(store)
    assert world.held(first) != content(store), "an increment changes no file of the first one"


def test_nothing_is_reused_that_was_not_confirmed(world: IncrementalWorld) -> None:
    store = world.incremental()
    fill(store)
    world.taken(store, 1)
    assert reused(world.taken(store, 2), 2) == [], "1 and 2 are in flight"
    store.abort(CheckpointId(1))
    store.confirm(CheckpointId(1))
    assert reused(world.taken(store, 3), 3) == [], "1 was aborted"
    store.confirm(CheckpointId(2))
    store.put("a", 0, b"k", b"v")
    fourth = world.taken(store, 4)
    assert {handle.shared for handle in reused(fourth, 4)} == {2}
    assert world.held(fourth) == content(store)


def test_what_changed_for_a_checkpoint_that_failed_is_in_the_next_one(world: IncrementalWorld) -> None:
    store = world.incremental()
    fill(store)
    world.taken(store, 1)
    store.confirm(CheckpointId(1))
    store.put("a", 0, b"0000", b"changed before 2")
    store.delete("a", 1, b"0001")
    world.taken(store, 2)
    store.abort(CheckpointId(2))
    store.put("a", 3, b"0003", b"changed before 3")
    third = world.taken(store, 3)
    assert {handle.shared for handle in reused(third, 3)} == {1}
    assert world.held(third) == content(store)


def test_files_that_may_be_deleted_soon_are_not_reused(world: IncrementalWorld) -> None:
    store = world.incremental()
    fill(store)
    world.taken(store, 1)
    store.confirm(CheckpointId(1))
    store.put("a", 0, b"k", b"v")
    late = world.taken(store, 5, reuse_from=4)
    assert reused(late, 5) == [] and world.held(late) == content(store)


def test_a_savepoint_in_between_is_full_and_disturbs_no_chain(world: IncrementalWorld) -> None:
    store = world.incremental()
    fill(store)
    world.taken(store, 1)
    store.confirm(CheckpointId(1))
    store.put("a", 0, b"k", b"1")
    savepoint = store.snapshot(CheckpointId(2), world.writer()).run()
    assert [handle.shared for handle in savepoint] == [0] * len(savepoint)
    store.confirm(CheckpointId(2))
    store.put("a", 0, b"l", b"2")
    third = world.taken(store, 3)
    assert {handle.shared for handle in reused(third, 3)} == {1}
    assert world.held(savepoint) == {
        entry: value for entry, value in content(store).items() if entry != ("a", 0, b"l")
    }
    assert world.held(third) == content(store)


def test_a_restored_store_builds_on_what_it_restored(world: IncrementalWorld) -> None:
    store = world.incremental()
    fill(store)
    world.taken(store, 1)
    store.confirm(CheckpointId(1))
    store.put("a", 0, b"k", b"v")
    second = world.taken(store, 2)
    again = world.incremental(second, restored=2)
    again.put("a", 4, b"after", b"the restore")
    again.delete("a", 0, b"k")
    third = world.taken(again, 3)
    assert reused(third, 3)
    assert world.held(third) == content(again)
    fresh = world.incremental(second)
    assert reused(world.taken(fresh, 3), 3) == [], "nobody says that these files may be used again"


def test_after_a_redistribution_the_first_snapshot_is_full(world: IncrementalWorld) -> None:
    store = world.incremental()
    fill(store)
    first = world.taken(store, 1)
    parts: list[StateHandle] = []
    for groups in (KeyGroupRange(0, 4), KeyGroupRange(4, 8)):
        half = world.incremental(first, restored=1, groups=groups)
        half.put("b", groups.start, b"k", b"v")
        handles = world.taken(half, 2)
        assert reused(handles, 2) == []
        assert world.held(handles, groups) == content(half, groups)
        half.confirm(CheckpointId(2))
        half.put("b", groups.start, b"l", b"w")
        parts += world.taken(half, 3)
    joined = world.held(parts)
    assert joined == content(store) | {
        ("b", g, k): v for g in (0, 4) for k, v in ((b"k", b"v"), (b"l", b"w"))
    }


def test_a_store_that_is_not_asked_for_increments_takes_full_snapshots(world: IncrementalWorld) -> None:
    store = world.store()
    store.put("a", 0, b"k", b"v")
    handles = world.snapshot(store).run()
    assert handles and all(handle.shared == 0 for handle in handles)


def test_only_shared_files_can_be_used_again(world: IncrementalWorld) -> None:
    private = world.writer().write("x", [b"1"], ALL)
    with pytest.raises(JobUsageError, match="write_shared"):
        world.sharing(2).reuse(private)


def test_a_heap_chain_is_ended_by_a_full_snapshot() -> None:
    world = IncrementalWorld()
    store = world.incremental()
    fill(store, 400)
    lengths = []
    for checkpoint in range(1, INCREMENTS_MAX + 4):
        store.put("a", 0, b"k", b"%d" % checkpoint)
        handles = world.taken(store, checkpoint)
        store.confirm(CheckpointId(checkpoint))
        lengths.append(len(handles))
        assert world.held(handles) == content(store)
    assert lengths == [*range(1, INCREMENTS_MAX + 2), 1, 2]
    world.close()


def test_a_heap_snapshot_without_changes_writes_no_file() -> None:
    world = IncrementalWorld()
    store = world.incremental()
    fill(store)
    first = world.taken(store, 1)
    store.confirm(CheckpointId(1))
    assert world.taken(store, 2) == first
    world.close()


def test_a_heap_chain_that_lacks_a_link_is_refused() -> None:
    world = IncrementalWorld()
    store = world.incremental()
    fill(store)
    for checkpoint in (1, 2, 3):
        store.put("a", 0, b"k", b"%d" % checkpoint)
        handles = world.taken(store, checkpoint)
        store.confirm(CheckpointId(checkpoint))
    full, first, second = handles
    for broken, found in (
        ([full, second], "a full snapshot was restored before"),
        ([first, second], "nothing was restored before"),
        ([full, second, first], "a full snapshot was restored before"),
        ([full, first, first], "increment 1 was restored before"),
    ):
        with pytest.raises(CorruptStateError, match=found):
            world.incremental(broken)
    with pytest.raises(CorruptStateError, match=first.path):
        world.incremental([full, replace(first, checksum="crc32:00000000"), second])
    world.close()


class IncrementalContract(RuleBasedStateMachine):
    """Any order of writes, snapshots, outcomes and recoveries: each snapshot restores to what it was taken of."""

    backend = "heap"

    def __init__(self) -> None:
        super().__init__()
        self.world = IncrementalWorld(self.backend)
        self.store = self.world.incremental()
        fill(self.store)
        self.model: Model = content(self.store)
        self.checkpoint = 0
        self.running: dict[int, tuple[SnapshotFuture[Handles], Model]] = {}
        self.stored: dict[int, tuple[Handles, Model]] = {}
        self.completed: dict[int, tuple[Handles, Model]] = {}

    def teardown(self) -> None:
        self.world.close()

    @rule(name=st.sampled_from("ab"), key=st.integers(0, KEYS + 10), value=st.binary(max_size=2))
    def put(self, name: str, key: int, value: bytes) -> None:
        self.store.put(name, key % 8, b"%04d" % key, value)
        self.model[name, key % 8, b"%04d" % key] = value

    @rule(name=st.sampled_from("ab"), key=st.integers(0, KEYS + 10))
    def delete(self, name: str, key: int) -> None:
        self.store.delete(name, key % 8, b"%04d" % key)
        self.model.pop((name, key % 8, b"%04d" % key), None)

    @rule(savepoint=st.booleans())
    def snapshot(self, savepoint: bool) -> None:
        self.checkpoint += 1
        base = min(self.completed, default=self.checkpoint)
        writer = self.world.writer() if savepoint else self.world.sharing(self.checkpoint, base)
        future = self.store.snapshot(CheckpointId(self.checkpoint), writer)
        self.running[self.checkpoint] = future, dict(self.model)

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        checkpoint = data.draw(st.sampled_from(sorted(self.running)))
        future, model = self.running.pop(checkpoint)
        self.stored[checkpoint] = future.run(), model

    @precondition(lambda self: self.stored)
    @rule(data=st.data(), completes=st.booleans())
    def end(self, data: st.DataObject, completes: bool) -> None:
        checkpoint = data.draw(st.sampled_from(sorted(self.stored)))
        handles, model = self.stored.pop(checkpoint)
        known = {handle.path for files, _ in self.completed.values() for handle in files}
        assert {handle.path for handle in reused(handles, checkpoint) if handle.shared} <= known
        assert self.world.held(handles) == model
        if completes:
            self.completed[checkpoint] = handles, model
            self.store.confirm(CheckpointId(checkpoint))
        else:
            self.store.abort(CheckpointId(checkpoint))

    @precondition(lambda self: self.completed)
    @rule()
    def recover(self) -> None:
        newest = max(self.completed)
        handles, model = self.completed[newest]
        self.store.close()
        self.store, self.model = self.world.incremental(handles, newest), dict(model)
        self.running.clear()
        self.stored.clear()

    @invariant()
    def holds_what_the_model_holds(self) -> None:
        assert content(self.store) == self.model


class RocksDBIncrementalContract(IncrementalContract):
    backend = "rocksdb"


TestHeapIncrements = IncrementalContract.TestCase
TestHeapIncrements.settings = settings(max_examples=30, stateful_step_count=30, deadline=None)
TestRocksDBIncrements = RocksDBIncrementalContract.TestCase
TestRocksDBIncrements.settings = settings(max_examples=5, stateful_step_count=20, deadline=None)


def test_local_files_of_a_snapshot_stay_in_its_directory() -> None:
    """A reference to an earlier snapshot is no reason to keep a local checkpoint of it."""
    world = IncrementalWorld("rocksdb")
    store = world.incremental()
    fill(store)
    world.taken(store, 1)
    store.confirm(CheckpointId(1))
    assert world.local_checkpoints() == []
    world.close()
