"""Secondary copies: what is kept, for how long, and what a restore trusts; grain: one store, real files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from barrier_tck.reference_impl.config import Compression
from barrier_tck.reference_impl.ids import AttemptNumber, CheckpointId, KeyGroupRange, SubtaskId
from barrier_tck.reference_impl.protocol.messages import (
    OperatorSnapshot,
    ServedBy,
    StateHandle,
    SubtaskSnapshot,
)
from barrier_tck.reference_impl.runtime_errors import JobUsageError, SnapshotCancelled, StorageError
from barrier_tck.reference_impl.state.backend import StateWriter, TwoFormatStateWriter
from barrier_tck.reference_impl.state.heap import HeapStateBackend
from barrier_tck.reference_impl.state.rocksdb import RocksDBStateBackend
from barrier_tck.reference_impl.state.working_directory import WorkingDirectory
from barrier_tck.reference_impl.storage.checkpoint_storage import FileCheckpointStorage
from barrier_tck.reference_impl.storage.copying_writer import CopyingWriter
from barrier_tck.reference_impl.storage.filesystem import FileSystem, LocalFileSystem
from barrier_tck.reference_impl.storage.local_copies import (
    MANIFEST,
    LocalScope,
    TaskLocalStateStore,
    copies_on,
    encode_manifest,
    local_root,
    read_manifest,
    require_one_file_system,
)
from barrier_tck.reference_impl.storage.restore import RestoreReader
from tests.reference_impl.storage_fakes import FailingFileSystem, FullFileSystem, MemoryFileSystem

SUBTASK, GROUPS = SubtaskId("count", 0), KeyGroupRange(0, 4)
ONE, TWO, THREE = CheckpointId(1), CheckpointId(2), CheckpointId(3)
FIRST = AttemptNumber(1)


class Host:
    """A host's disk, checkpoint storage, and the subtask that writes to both."""

    def __init__(self, directory: Path) -> None:
        self.root = directory / "local"
        self.files = LocalFileSystem(self.root)
        self.durable = MemoryFileSystem()
        self.storage = FileCheckpointStorage(self.durable, "job")

    def store(
        self, attempt: int = 1, files: FileSystem | None = None, groups: KeyGroupRange = GROUPS
    ) -> TaskLocalStateStore:
        scope = LocalScope("job", SUBTASK, AttemptNumber(attempt), groups, "here")
        return TaskLocalStateStore(files or self.files, scope)

    def write(
        self, store: TaskLocalStateStore, checkpoint: CheckpointId, operators: tuple[str, ...] = ("a", "b")
    ) -> SubtaskSnapshot:
        """Write two files for each operator, and seal the copy."""
        parts = []
        for operator in operators:
            writer = CopyingWriter(store, checkpoint, operator, self.primary(store, checkpoint, operator))
            handles = tuple(
                writer.write(
                    f"state-{n}", [content(checkpoint, operator, n)], KeyGroupRange(2 * n, 2 * n + 2)
                )
                for n in range(2)
            )
            parts.append(OperatorSnapshot(operator, handles=handles))
        store.seal(checkpoint)
        return SubtaskSnapshot(SUBTASK, store.scope.attempt, tuple(parts))

    def primary(self, store: TaskLocalStateStore, checkpoint: CheckpointId, operator: str):  # type: ignore[no-untyped-def]
        return self.storage.writer(checkpoint, store.scope.attempt, SUBTASK, operator)

    def held(self) -> list[str]:
        return self.files.list_files("")

    def restore(
        self, snapshot: SubtaskSnapshot, checkpoint: CheckpointId, store: TaskLocalStateStore
    ) -> tuple[RestoreReader, list[bytes]]:
        reader = RestoreReader(self.storage, snapshot, checkpoint, store)
        return reader, [reader.read(handle) for handle in snapshot.handles()]


def content(checkpoint: int, operator: str, number: int) -> bytes:
    return f"checkpoint {checkpoint} of {operator}, file {number}".encode() * 20


def expected(snapshot: SubtaskSnapshot, checkpoint: int) -> list[bytes]:
    return [content(checkpoint, part.operator, n) for part in snapshot.operators for n in range(2)]


def served(reader: RestoreReader) -> list[ServedBy]:
    return [file.served_by for file in reader.files]


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


# --- writing ------------------------------------------------------------------------------------------------


def test_an_intact_copy_serves_every_file_and_says_so(host: Host) -> None:
    snapshot = host.write(host.store(), ONE)
    reader, found = host.restore(snapshot, ONE, host.store(attempt=2))
    assert found == expected(snapshot, 1)
    assert served(reader) == [ServedBy.SECONDARY] * 4
    assert [file.key_groups for file in reader.files] == [KeyGroupRange(0, 2), KeyGroupRange(2, 4)] * 2


def test_a_copy_that_was_never_sealed_is_none(host: Host) -> None:
    store = host.store()
    writer = CopyingWriter(store, ONE, "a", host.primary(store, ONE, "a"))
    handle = writer.write("state", [b"content"], GROUPS)
    snapshot = SubtaskSnapshot(SUBTASK, FIRST, (OperatorSnapshot("a", handles=(handle,)),))
    assert copies_on(host.files, [SUBTASK]) == ()
    reader, found = host.restore(snapshot, ONE, host.store(attempt=2))
    assert found == [b"content"] and served(reader) == [ServedBy.PRIMARY]
    assert MANIFEST in reader.files[0].reason


@pytest.mark.parametrize("fail_at", range(1, 40))
def test_whatever_the_local_disk_refuses_the_checkpoint_and_its_restore_succeed(
    host: Host, fail_at: int
) -> None:
    failing = FailingFileSystem(host.files, fail_at)
    snapshot = host.write(host.store(files=failing), ONE)
    reader, found = host.restore(snapshot, ONE, host.store(attempt=2))
    assert found == expected(snapshot, 1)
    assert len(set(served(reader))) == 1, "a copy is complete, or there is none"


def test_a_full_disk_is_reported_with_its_reason(host: Host) -> None:
    store = host.store()
    (host.root / "count-0").mkdir(parents=True)
    (host.root / "count-0" / "incoming").touch()
    host.write(store, ONE)
    report = store.report(ONE)
    assert not report.kept and "incoming" in report.problem
    assert copies_on(host.files, [SUBTASK]) == ()


@pytest.mark.parametrize("room", range(0, 4_000, 100))
def test_a_disk_that_stays_full_keeps_a_whole_copy_or_no_file(tmp_path: Path, room: int) -> None:
    """What is unfinished is deleted although the disk refuses to close it: it takes the room that is missing."""
    host, roomy = Host(tmp_path / "full"), Host(tmp_path / "roomy")
    roomy.write(roomy.store(), ONE)
    needed = sum(roomy.files.size(name) for name in roomy.held())
    store = host.store(files=FullFileSystem(host.root, room))
    host.write(store, ONE)
    assert store.report(ONE).kept == (room >= needed)
    assert host.held() == (roomy.held() if room >= needed else [])


def test_a_failed_primary_fails_the_write_and_leaves_no_local_file(host: Host) -> None:
    class Broken:
        def write(self, name: str, chunks: object, key_groups: KeyGroupRange) -> StateHandle:
            list(chunks)  # type: ignore[call-overload]
            raise StorageError("the storage is gone")

    store = host.store()
    with pytest.raises(StorageError, match="gone"):
        CopyingWriter(store, ONE, "a", Broken()).write("state", [b"content"], GROUPS)
    store.drop(ONE)
    assert host.held() == []


def test_a_cancelled_snapshot_leaves_no_local_file(host: Host) -> None:
    store = host.store()
    writer = CopyingWriter(store, ONE, "a", host.primary(store, ONE, "a"))
    writer.write("state-0", [b"content"], GROUPS)

    def chunks() -> Iterator[bytes]:
        yield b"con"
        raise SnapshotCancelled("noticed between two chunks")

    with pytest.raises(SnapshotCancelled):
        writer.write("state-1", chunks(), GROUPS)
    store.drop(ONE)
    store.seal(ONE)
    assert host.held() == []


# --- another format -----------------------------------------------------------------------------------------


def written_twice(host: Host, second: Iterator[bytes] | list[bytes]) -> SubtaskSnapshot:
    """Write one file in two formats, and seal the copy."""
    store = host.store()
    writer = CopyingWriter(store, ONE, "a", host.primary(store, ONE, "a"), Compression.NONE)
    seen_by_a_backend: StateWriter = writer
    assert isinstance(seen_by_a_backend, TwoFormatStateWriter)
    handle = writer.write_twice("state", [b"packed"], second, GROUPS)
    store.seal(ONE)
    return SubtaskSnapshot(SUBTASK, FIRST, (OperatorSnapshot("a", handles=(handle,)),))


def test_a_copy_in_another_format_serves_its_own_bytes(host: Host) -> None:
    snapshot = written_twice(host, [b"the same, ", b"unpacked"])
    reader, found = host.restore(snapshot, ONE, host.store(attempt=2))
    assert (found, served(reader)) == ([b"the same, unpacked"], [ServedBy.SECONDARY])


@pytest.mark.parametrize("content", [b"the same, unpackeD", b"the same", b"packed"])
def test_a_damaged_copy_in_another_format_does_not_serve_even_with_the_bytes_of_the_primary(
    host: Host, content: bytes
) -> None:
    snapshot = written_twice(host, [b"the same, unpacked"])
    (state,) = [name for name in host.held() if MANIFEST not in name]
    (host.root / state).write_bytes(content)
    reader, found = host.restore(snapshot, ONE, host.store(attempt=2))
    assert (found, served(reader)) == ([b"packed"], [ServedBy.PRIMARY])


def test_a_copy_in_another_format_is_bound_to_its_own_primary(host: Host) -> None:
    snapshot = written_twice(host, [b"the same, unpacked"])
    directory, (handle,) = "count-0/chk-1-a1", snapshot.handles()
    manifest = read_manifest(host.files, directory)
    other = replace(manifest, files=(replace(manifest.files[0], checksum="crc32:00000000"),))
    (host.root / directory / MANIFEST).write_bytes(encode_manifest(other))
    reader, found = host.restore(snapshot, ONE, host.store(attempt=2))
    assert (found, served(reader)) == ([b"packed"], [ServedBy.PRIMARY])
    assert f"expected {handle.size} and {handle.checksum}" in reader.files[0].reason


def test_a_disk_that_refuses_ends_the_second_format_and_nothing_else(host: Host) -> None:
    def second() -> Iterator[bytes]:
        (host.root / "count-0" / "incoming").rename(host.root / "gone")
        yield b"some"
        yield b"more"

    snapshot = written_twice(host, second())
    reader, found = host.restore(snapshot, ONE, host.store(attempt=2))
    assert (found, served(reader)) == ([b"packed"], [ServedBy.PRIMARY])


# --- the life of copies -------------------------------------------------------------------------------------


def test_only_the_newest_copy_is_kept_once_it_is_confirmed(host: Host) -> None:
    store = host.store()
    for checkpoint in (ONE, TWO, THREE):
        host.write(store, checkpoint)
    assert store.report(THREE).held == (1, 2, 3)
    store.confirm(TWO)
    assert store.report(THREE).held == (2, 3), "a copy of a checkpoint in flight stays"
    store.confirm(THREE)
    report = store.report(THREE)
    assert report.held == (3,) and report.confirmed == 3 and report.kept


def test_an_aborted_checkpoint_leaves_nothing_also_if_its_copy_was_not_sealed(host: Host) -> None:
    store = host.store()
    host.write(store, ONE)
    CopyingWriter(store, TWO, "a", host.primary(store, TWO, "a")).write("state", [b"x"], GROUPS)
    store.drop(TWO)
    assert store.report(ONE).held == (1,)


def test_an_attempt_keeps_what_it_restored_and_removes_what_others_left(host: Host) -> None:
    first = host.store()
    host.write(first, ONE)
    host.write(first, TWO)
    other = TaskLocalStateStore(host.files, LocalScope("job", SubtaskId("count", 1), FIRST, GROUPS))
    for checkpoint in (ONE, TWO):
        writer = CopyingWriter(other, checkpoint, "a", host.primary(first, checkpoint, f"x{checkpoint}"))
        writer.write("state", [b"x"], GROUPS)
        other.seal(checkpoint)
    host.store(attempt=2).restore_ended(TWO, FIRST)
    kept = {
        (copy.subtask.index, copy.checkpoint)
        for copy in copies_on(host.files, [SUBTASK, SubtaskId("count", 1)])
    }
    assert kept == {(0, 2), (1, 2)}, "another subtask's copy of the same checkpoint may still be wanted"


def test_what_another_subtask_left_goes_when_a_checkpoint_of_a_later_attempt_is_complete(host: Host) -> None:
    other = SubtaskId("count", 1)

    def copied(attempt: int, checkpoint: CheckpointId) -> None:
        scope = LocalScope("job", other, AttemptNumber(attempt), GROUPS)
        store = TaskLocalStateStore(host.files, scope)
        writer = CopyingWriter(store, checkpoint, "a", host.primary(host.store(), checkpoint, f"x{attempt}"))
        writer.write("state", [b"x"], GROUPS)
        store.seal(checkpoint)

    def kept() -> set[tuple[int, int]]:
        return {(copy.attempt, copy.checkpoint) for copy in copies_on(host.files, [other])}

    copied(1, ONE)
    copied(3, ONE)
    copied(1, THREE)
    store = host.store(attempt=2)
    store.restore_ended(ONE, FIRST)
    assert kept() == {(1, 1), (3, 1), (1, 3)}, "the copy of what is restored may still be wanted"
    store.confirm(TWO)
    assert kept() == {(3, 1), (1, 3)}, "what a later attempt wrote stays, and what is newer"


def test_two_operators_of_a_chain_do_not_meet_in_one_file(host: Host) -> None:
    store = host.store()
    assert store.operator_directory(ONE, "a") != store.operator_directory(ONE, "b")
    assert store.operator_directory(ONE, "a/b") != store.operator_directory(ONE, "a-b")


def test_jobs_of_one_name_with_other_storage_have_other_directories() -> None:
    assert local_root("/local", "job", "/one") != local_root("/local", "job", "/two")


# --- what a restore trusts ----------------------------------------------------------------------------------


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-3])


@pytest.mark.parametrize("damage", [flip, cut, os.remove], ids=["flipped", "truncated", "missing"])
def test_a_damaged_file_is_served_by_the_primary_and_the_others_by_the_copy(
    host: Host, damage: Callable[[Path], None]
) -> None:
    snapshot = host.write(host.store(), ONE)
    damage(host.root / "count-0/chk-1-a1/b/state%2D0")
    reader, found = host.restore(snapshot, ONE, host.store(attempt=2))
    assert found == expected(snapshot, 1)
    assert served(reader) == [*[ServedBy.SECONDARY] * 2, ServedBy.PRIMARY, ServedBy.SECONDARY]
    assert "state%2D0" in reader.files[2].reason


@pytest.mark.parametrize("damage", [flip, cut, os.remove], ids=["flipped", "truncated", "missing"])
def test_a_damaged_manifest_makes_the_copy_worthless(host: Host, damage: Callable[[Path], None]) -> None:
    snapshot = host.write(host.store(), ONE)
    damage(host.root / "count-0/chk-1-a1" / MANIFEST)
    reader, found = host.restore(snapshot, ONE, host.store(attempt=2))
    assert found == expected(snapshot, 1) and served(reader) == [ServedBy.PRIMARY] * 4


def test_a_file_that_was_found_damaged_is_not_trusted_by_the_next_restore(host: Host) -> None:
    snapshot = host.write(host.store(), ONE)
    path = host.root / "count-0/chk-1-a1/a/state%2D0"
    good = path.read_bytes()
    flip(path)
    host.restore(snapshot, ONE, host.store(attempt=2))
    assert not path.exists() and good
    reader, found = host.restore(snapshot, ONE, host.store(attempt=3))
    assert found == expected(snapshot, 1) and served(reader)[0] is ServedBy.PRIMARY


@pytest.mark.parametrize(
    ("renamed", "word"),
    [("chk-1-a1", "checkpoint 2"), ("chk-2-a2", "attempt 1")],
    ids=["of another checkpoint", "of another attempt"],
)
def test_a_copy_in_the_wrong_place_is_refused(host: Host, renamed: str, word: str) -> None:
    snapshot = host.write(host.store(), TWO)
    os.rename(host.root / "count-0/chk-2-a1", host.root / "count-0" / renamed)
    number, attempt = (int(part[-1]) for part in renamed.split("-")[1:])
    moved = SubtaskSnapshot(SUBTASK, AttemptNumber(attempt), snapshot.operators)
    reader, found = host.restore(moved, CheckpointId(number), host.store(attempt=3))
    assert found == expected(snapshot, 2) and served(reader) == [ServedBy.PRIMARY] * 4
    assert word in reader.files[0].reason


def test_a_copy_of_other_key_groups_is_refused(host: Host) -> None:
    snapshot = host.write(host.store(), ONE)
    reader, _ = host.restore(snapshot, ONE, host.store(attempt=2, groups=KeyGroupRange(0, 2)))
    assert served(reader) == [ServedBy.PRIMARY] * 4 and "key_groups" in reader.files[0].reason


def test_an_intact_copy_serves_also_where_the_primary_is_gone(host: Host) -> None:
    snapshot = host.write(host.store(), ONE)
    host.durable.delete_tree("checkpoints")
    reader, found = host.restore(snapshot, ONE, host.store(attempt=2))
    assert found == expected(snapshot, 1) and reader.unreadable is None


def test_a_file_that_no_copy_can_give_is_an_error_that_names_both(host: Host) -> None:
    snapshot = host.write(host.store(), ONE)
    (handle, *_) = snapshot.handles()
    host.durable.damage(f"checkpoints/{handle.path}", b"nonsense")
    cut(host.root / "count-0/chk-1-a1/a/state%2D0")
    reader = RestoreReader(host.storage, snapshot, ONE, host.store(attempt=2))
    with pytest.raises(StorageError):
        reader.read(handle)
    assert reader.unreadable is not None
    assert handle.path in reader.unreadable and "local copy" in reader.unreadable


# --- RocksDB ------------------------------------------------------------------------------------------------


def test_a_file_of_a_backend_is_kept_by_a_hard_link_and_costs_no_disk(host: Host, tmp_path: Path) -> None:
    table = tmp_path / "7.sst"
    table.write_bytes(b"entries")
    store = host.store()
    writer = CopyingWriter(store, ONE, "a", host.primary(store, ONE, "a"))
    handle = writer.write_file("7.sst", table, iter([table.read_bytes()]), GROUPS)
    store.seal(ONE)
    (copy,) = host.root.rglob("7.sst")
    assert os.path.samefile(copy, table)
    snapshot = SubtaskSnapshot(SUBTASK, FIRST, (OperatorSnapshot("a", handles=(handle,)),))
    reader = RestoreReader(host.storage, snapshot, ONE, host.store(attempt=2))
    assert reader.local_file(handle) == copy and served(reader) == [ServedBy.SECONDARY]


def test_a_local_directory_on_another_file_system_than_the_backends_is_refused(tmp_path: Path) -> None:
    other = Path("/dev/shm")
    if not other.is_dir() or os.stat(other).st_dev == os.stat(tmp_path).st_dev:
        pytest.skip("this machine has one file system for both")
    files = LocalFileSystem(tmp_path / "local")
    with pytest.raises(JobUsageError, match=r"another file system.*LOC-10"):
        require_one_file_system(files, WorkingDirectory(RocksDBStateBackend(), "/dev/shm"))
    require_one_file_system(files, WorkingDirectory(HeapStateBackend(), "/dev/shm"))
