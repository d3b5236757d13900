"""What only the RocksDB backend has: its files, what it releases, and what it refuses; grain: one store."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from barrier_tck.reference_impl.ids import CheckpointId, KeyGroupRange
from barrier_tck.reference_impl.protocol.messages import StateHandle
from barrier_tck.reference_impl.runtime_errors import (
    CorruptStateError,
    JobUsageError,
    SnapshotCancelled,
    StorageError,
)
from barrier_tck.reference_impl.state import rocksdb_restore
from barrier_tck.reference_impl.state.backend import StateScope
from barrier_tck.reference_impl.state.rocksdb import RocksDBStateBackend, RocksDBStateStore
from barrier_tck.reference_impl.state.rocksdb_library import LATE_FROM, MERGED_FROM
from barrier_tck.reference_impl.state.working_directory import WorkingDirectory
from tests.reference_impl.state_worlds import ALL, StateWorld, content

ONE = CheckpointId(1)


@pytest.fixture
def world() -> Iterator[StateWorld]:
    world = StateWorld("rocksdb")
    yield world
    world.close()


def descriptors() -> list[str]:
    found = []
    for number in os.listdir("/proc/self/fd"):
        try:
            found.append(os.readlink(f"/proc/self/fd/{number}"))
        except FileNotFoundError:
            continue  # this one listed the directory
    return found


def test_the_local_checkpoint_is_made_of_hard_links(world: StateWorld) -> None:
    store = world.store()
    store.put("a", 0, b"k", b"1")
    linked: list[bool] = []

    class Looking:
        """A writer that looks at the local checkpoint while it is uploaded."""

        def write(self, name: str, chunks: Iterable[bytes], key_groups: KeyGroupRange) -> StateHandle:
            (local,) = world.local_checkpoints()
            live = Path(local).parents[1] / "db"
            linked.extend(os.path.samefile(table, live / table.name) for table in Path(local).glob("*.sst"))
            return writer.write(name, chunks, key_groups)

    writer = world.writer()
    store.snapshot(ONE, Looking()).run()
    assert linked and all(linked)
    assert world.local_checkpoints() == []


def files_of_snapshots(directory: Path) -> list[list[tuple[str, int]]]:
    """Return names and sizes of the files of each snapshot of a store that works in no thread of its own."""
    world = StateWorld("rocksdb")
    directory.mkdir()
    scope = StateScope("j", "v", "o", 0, 1, ALL, str(directory), own_threads=False)
    store = world.backend.open(scope, [], world.storage)
    found = []
    try:
        for number in range(3 * MERGED_FROM):
            store.put_many("a", [0] * 20, [b"%d" % key for key in range(20)], [b"%d" % number] * 20)
            handles = store.snapshot(CheckpointId(number + 1), world.writer()).run()
            found.append([(handle.path.rpartition("-")[2], handle.size) for handle in handles])
            world.storage.discard(handles)
    finally:
        store.close()
        world.close()
    return found


def test_without_threads_of_its_own_files_are_merged_at_the_same_snapshots_every_time(tmp_path: Path) -> None:
    found = files_of_snapshots(tmp_path / "first")
    tables = [sum(name.endswith(".sst") for name, _ in files) for files in found]
    assert tables[: MERGED_FROM + 1] == [1, 2, 3, 1, 2] and max(tables) <= MERGED_FROM
    assert files_of_snapshots(tmp_path / "second") == found


@pytest.mark.parametrize("keys", [1, 2])
@pytest.mark.parametrize("own_threads", [False, True])
def test_a_snapshot_has_few_tables_however_much_was_written_before_it(
    own_threads: bool, keys: int, tmp_path: Path
) -> None:
    """Also one of a database whose threads have no time to merge: here they are told to wait (SNP-8)."""
    world = StateWorld("rocksdb")
    scope = StateScope("j", "v", "o", 0, 1, ALL, str(tmp_path), own_threads=own_threads)
    store = world.backend.open(scope, [], world.storage)
    assert isinstance(store, RocksDBStateStore)
    assert store._database is not None
    native = store._database.native
    native.set_options({"disable_auto_compactions": "true"})
    try:
        for number in range(3 * LATE_FROM):
            store.put_many("a", [0] * keys, [b"%d" % key for key in range(keys)], [b"%d" % number] * keys)
            native.flush(wait=True)
        handles = store.snapshot(ONE, world.writer()).run()
        assert [handle.path.endswith(".sst") for handle in handles].count(True) == 1
        assert store.get("a", 0, b"0") == b"%d" % (3 * LATE_FROM - 1)
    finally:
        store.close()
        world.close()


def test_there_is_no_write_ahead_log_to_lose(world: StateWorld) -> None:
    store = world.store()
    store.put("a", 0, b"k", b"1" * 10_000)
    logs = list(Path(world.root.name).glob("*/*/db/*.log"))
    assert logs and all(log.stat().st_size == 0 for log in logs)


def test_every_file_has_a_handle_and_the_index_comes_first(world: StateWorld) -> None:
    store = world.store(KeyGroupRange(2, 5))
    store.put("a", 3, b"k", b"1")
    handles = world.snapshot(store).run()
    assert world.storage.read(handles[0]).startswith(b"rockssnp")
    assert len(handles) == len(world.storage.files()) > 3
    assert all(handle.key_groups == KeyGroupRange(2, 5) for handle in handles)


def test_a_snapshot_with_a_file_missing_is_refused(world: StateWorld) -> None:
    store = world.store()
    store.put("a", 0, b"k", b"1")
    handles = world.snapshot(store).run()
    for missing in handles[1:]:
        with pytest.raises(CorruptStateError, match="not among the restored files"):
            world.store(handles=[handle for handle in handles if handle is not missing])
    with pytest.raises(CorruptStateError, match="is not the index"):
        world.store(handles=handles[1:])
    with pytest.raises(CorruptStateError, match="not once"):
        world.store(handles=[*handles, *handles])


def test_a_file_name_in_an_index_cannot_leave_the_directory(world: StateWorld) -> None:
    index = rocksdb_restore.encoded_index([("../evil", "x")])
    handle = world.writer().write("index", [index], ALL)
    with pytest.raises(CorruptStateError, match="not the name of a file"):
        world.store(handles=[handle])


class _Damaged:
    """Reads every table with one byte changed, as if there were no checksum except RocksDB's own."""

    def __init__(self, world: StateWorld) -> None:
        self._world = world

    def read(self, handle: Any) -> bytes:
        content: bytes = self._world.storage.read(handle)
        return content[:20] + b"?" + content[21:] if handle.path.endswith(".sst") else content


def test_damage_that_only_rocksdb_can_see_is_not_taken_for_the_end_of_the_state(world: StateWorld) -> None:
    store = world.store()
    store.put("a", 0, b"k", os.urandom(500))
    handles = world.snapshot(store).run()
    working = WorkingDirectory(world.backend, world.root.name)
    scope = StateScope("job", "v", "o", 0, 1, ALL, working.of_operator("o"))
    damaged = world.backend.open(scope, list(handles), _Damaged(world))
    for read in (
        lambda: content(damaged),
        lambda: damaged.get("a", 0, b"k"),
        lambda: damaged.get_many("a", [0], [b"k"]),
        lambda: damaged.snapshot(ONE, world.writer()),
    ):
        with pytest.raises(CorruptStateError, match="Corruption"):
            read()
    damaged.close()
    working.close()


def test_of_the_files_of_a_snapshot_one_at_a_time_is_in_memory(world: StateWorld) -> None:
    store = world.store()
    store.put("a", 0, b"k", b"1")
    handles = world.snapshot(store).run()
    in_memory: list[str] = []
    most = 0

    class Content(bytes):
        """A file's content, which says when it is gone."""

        def __del__(self) -> None:
            in_memory.pop()

    class Reading:
        def read(self, handle: StateHandle) -> bytes:
            nonlocal most
            in_memory.append(handle.path)
            most = max(most, len(in_memory))
            return Content(world.storage.read(handle))

    working = WorkingDirectory(world.backend, world.root.name)
    scope = StateScope("job", "v", "o", 0, 1, ALL, working.of_operator("o"))
    restored = world.backend.open(scope, list(handles), Reading())
    assert content(restored) == {("a", 0, b"k"): b"1"}
    assert len(handles) > 2 and (most, in_memory) == (1, [])
    restored.close()
    working.close()


def test_an_open_that_fails_half_way_leaves_nothing_open(world: StateWorld) -> None:
    handles: list[StateHandle] = []
    for part in (KeyGroupRange(0, 4), KeyGroupRange(4, 8)):
        store = world.store(part)
        store.put("a", part.start, b"k", os.urandom(500))
        handles.extend(world.snapshot(store).run())
        store.close()
    before = len(descriptors())
    working = WorkingDirectory(world.backend, world.root.name)
    scope = StateScope("job", "v", "o", 0, 1, ALL, working.of_operator("o"))
    with pytest.raises(CorruptStateError, match="Corruption"):
        world.backend.open(scope, handles, _Damaged(world))  # the second part is read to be copied
    assert len(descriptors()) == before
    working.close()


@pytest.mark.long
def test_closing_releases_descriptors_locks_and_threads(world: StateWorld) -> None:
    world.store().close()  # RocksDB's own thread pool starts once and stays
    gc.collect()
    before, threads = len(descriptors()), threading.active_count()
    store = world.store()
    store.put("a", 0, b"k", b"1")
    pending = world.snapshot(store)
    scan = store.scan("a", 0)
    store.close()
    with pytest.raises(SnapshotCancelled):
        pending.run()
    with pytest.raises(JobUsageError, match="closed"):
        next(scan)
    assert len(descriptors()) == before
    assert not [name for name in descriptors() if world.root.name in name]
    assert threading.active_count() == threads


def test_a_working_directory_is_asked_for_by_name() -> None:
    with pytest.raises(JobUsageError, match="working_directory"):
        RocksDBStateBackend().open(StateScope("j", "v", "o", 0, 1, ALL), [], StateWorld().storage)


def test_local_checkpoints_on_another_file_system_are_refused_at_open(
    world: StateWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    working, external_storage = tmp_path / "working" / "o", tmp_path / "elsewhere"
    working.mkdir(parents=True)
    scope = StateScope("j", "v", "o", 0, 1, ALL, str(working))
    real = os.stat

    def stat(path: Any, **options: Any) -> Any:
        if str(path).startswith(str(external_storage)):
            return SimpleNamespace(st_dev=-1)
        return real(path, **options)

    backend = RocksDBStateBackend(str(external_storage))
    with monkeypatch.context() as patched:
        patched.setattr(os, "stat", stat)
        with pytest.raises(JobUsageError, match="LOC-10"):
            backend.open(scope, [], world.storage)
    store = backend.open(scope, [], world.storage)
    store.put("a", 0, b"k", b"1")
    future = store.snapshot(ONE, world.writer())
    store.snapshot(CheckpointId(2), world.writer())  # it waits until the first one is captured
    assert list(external_storage.glob("working/o/*"))
    future.run()
    assert not list(external_storage.glob("working/o/*"))
    store.close()


def test_a_failing_local_disk_fails_the_checkpoint_only(world: StateWorld) -> None:
    store = world.store()
    assert isinstance(store, RocksDBStateStore)
    store.put("a", 0, b"k", b"1")
    present = store._checkpoints
    store._checkpoints = present / "there" / "is" / "no" / "such"
    failing = world.snapshot(store)
    store.put("a", 0, b"k", b"2")
    with pytest.raises(StorageError, match="local checkpoint"):
        failing.run()
    store._checkpoints = present
    assert world.held(world.snapshot(store).run()) == {("a", 0, b"k"): b"2"}


def test_values_that_are_no_bytes_are_the_callers_mistake(world: StateWorld) -> None:
    store = world.store()
    with pytest.raises(JobUsageError, match="bytes"):
        store.put("a", 0, b"k", "v")  # type: ignore[arg-type]
    with pytest.raises(JobUsageError, match="bytes"):
        store.put("a", 0, "k", b"v")  # type: ignore[arg-type]
    with pytest.raises(JobUsageError, match="bytes"):
        store.put_many("a", [0], [b"k"], ["v"])  # type: ignore[list-item]


def test_many_snapshots_with_compactions_between_them_stay_as_they_were(world: StateWorld) -> None:
    store = world.store()
    assert isinstance(store, RocksDBStateStore)
    taken = []
    for number in range(6):
        store.put_many("a", [0] * 50, [b"%d" % i for i in range(50)], [b"%d" % number] * 50)
        store.delete("a", 0, b"%d" % number)
        taken.append((world.snapshot(store), content(store)))
    assert store._database is not None
    store._database.native.compact_range(None, None)
    for future, expected in reversed(taken):
        assert world.held(future.run()) == expected


@pytest.fixture
def read_scope(world: StateWorld) -> Iterator[StateScope]:
    working = WorkingDirectory(world.backend, world.root.name)
    yield StateScope("job", "v", "o", 0, 1, ALL, working.of_operator("o"), read_only=True)
    working.close()


def test_a_store_that_is_only_read_holds_what_any_other_holds_and_keeps_no_file(
    world: StateWorld, read_scope: StateScope
) -> None:
    handles: list[StateHandle] = []
    for key_groups in (KeyGroupRange(0, 2), KeyGroupRange(2, 5)):
        store = world.store(key_groups)
        for group in key_groups:
            store.put("a", group, b"k%d" % group, b"first")
            store.put("b", group, b"", b"")
            store.put("a", group, b"gone", b"")
        world.snapshot(store).run()
        for group in key_groups:
            store.put("a", group, b"k%d" % group, b"second")
            store.delete("a", group, b"gone")
        handles += world.snapshot(store).run()
    read = world.backend.open(read_scope, handles, world.storage)
    assert content(read) == content(world.store(handles=handles)) != {}
    assert read.get("a", 3, b"k3") == b"second" and read.get("a", 3, b"gone") is None
    assert read_scope.working_directory is not None
    assert not [path for path in Path(read_scope.working_directory).rglob("*") if path.is_file()]
    read.close()
    narrow = replace(read_scope, key_groups=KeyGroupRange(1, 3))
    part = world.backend.open(narrow, handles, world.storage)
    assert [key for key, _ in part.scan("a", 2)] == [b"k2"]
    for foreign in (0, 3):
        with pytest.raises(JobUsageError):
            part.get("a", foreign, b"k%d" % foreign)


def test_a_store_that_is_only_read_notices_damage(world: StateWorld, read_scope: StateScope) -> None:
    store = world.store()
    store.put("a", 0, b"k", os.urandom(500))
    handles = world.snapshot(store).run()
    with pytest.raises(CorruptStateError, match="Corruption"):
        world.backend.open(read_scope, list(handles), _Damaged(world))
    with pytest.raises(CorruptStateError, match="not once"):
        world.backend.open(read_scope, [*handles, *handles], world.storage)
    assert content(world.backend.open(read_scope, [], world.storage)) == {}
