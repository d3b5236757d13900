"""Checkpoint storage: what is durable at which time, what a failure leaves behind, and what is never deleted."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from barrier_tck.reference_impl.ids import AttemptNumber, CheckpointId, KeyGroupRange, SubtaskId
from barrier_tck.reference_impl.paths import safe_name
from barrier_tck.reference_impl.protocol.messages import CompletedCheckpoint, StateHandle
from barrier_tck.reference_impl.runtime_errors import (
    CorruptStateError,
    JobUsageError,
    SnapshotCancelled,
    StorageError,
)
from barrier_tck.reference_impl.storage import metadata
from barrier_tck.reference_impl.storage.checkpoint_storage import FileCheckpointStorage
from barrier_tck.reference_impl.storage.filesystem import FileSystem, LocalFileSystem
from tests.reference_impl.storage_fakes import FailingFileSystem, MemoryFileSystem
from tests.reference_impl.storage_fakes import completed_checkpoint as completed_of

GROUPS = KeyGroupRange(0, 8)
COUNT = SubtaskId("count", 0)


def write(storage: FileCheckpointStorage, checkpoint: int = 1, content: bytes = b"state") -> StateHandle:
    writer = storage.writer(CheckpointId(checkpoint), AttemptNumber(1), COUNT, "aggregate")
    return writer.write("state", [content[:2], content[2:]], GROUPS)


def complete(storage: FileCheckpointStorage, checkpoint: int = 1) -> CompletedCheckpoint:
    completed = completed_of(checkpoint, [write(storage, checkpoint)])
    storage.publish(completed)
    return completed


def problems_with(checkpoint: CompletedCheckpoint, storage: FileCheckpointStorage) -> list[str]:
    """Read every state file of a checkpoint in full; return the problems of those that cannot be read."""
    problems = []
    for part in checkpoint.snapshots:
        for operator in part.operators:
            for handle in operator.handles:
                try:
                    storage.read(handle)
                except StorageError as error:
                    problems.append(f"{part.subtask}, operator {operator.operator}: {error}")
    return problems


@pytest.fixture(params=["memory", "disk"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> FileSystem:
    return MemoryFileSystem() if request.param == "memory" else LocalFileSystem(tmp_path)


def test_a_complete_checkpoint_is_found_and_read_by_another_process(files: FileSystem) -> None:
    completed = complete(FileCheckpointStorage(files, "job"), 7)
    other = FileCheckpointStorage(files, "job")
    assert other.completed() == (7,)
    assert other.load(CheckpointId(7)) == completed
    assert problems_with(completed, other) == []
    assert other.files() == [
        "checkpoints/job/chk-7/_metadata",
        "checkpoints/job/chk-7/count-0-a1-aggregate-state",
    ]


def test_ids_are_listed_in_the_order_of_numbers(files: FileSystem) -> None:
    storage = FileCheckpointStorage(files, "job")
    for checkpoint in (9, 10, 100):
        complete(storage, checkpoint)
    assert storage.completed() == (9, 10, 100)


def test_a_checkpoint_without_published_metadata_is_not_complete(files: FileSystem) -> None:
    storage = FileCheckpointStorage(files, "job")
    write(storage, 1)
    files.create("checkpoints/job/chk-2/_metadata.tmp").close()
    files.create("checkpoints/job/chk-3/deeper/_metadata").close()
    files.create("checkpoints/other/chk-4/_metadata").close()
    assert storage.completed() == ()


def test_what_was_acknowledged_and_published_survives_a_crash_of_the_host() -> None:
    files = MemoryFileSystem()
    storage = FileCheckpointStorage(files, "job", root="deep/below")
    storage.reserve(CheckpointId(3), AttemptNumber(2))
    completed = complete(storage, 3)
    files.crash()
    again = FileCheckpointStorage(files, "job", root="deep/below")
    assert again.reserved() == (3, 2)
    assert again.completed() == (3,)
    assert problems_with(again.load(CheckpointId(3)), again) == []
    assert again.load(CheckpointId(3)) == completed


def test_a_state_file_is_durable_with_its_name_before_its_handle_is_given_out() -> None:
    files = MemoryFileSystem()
    storage = FileCheckpointStorage(files, "job")
    # The directories are durable already, so only the file is tested.
    storage.reserve(CheckpointId(1), AttemptNumber(1))
    write(storage, 1)
    files.sync_directory("checkpoints/job")
    handle = write(storage, 1, b"newer")
    files.crash()
    assert storage.read(handle) == b"newer"


@pytest.mark.parametrize("afterwards", [False, True])
def test_a_failure_at_any_operation_of_a_write_leaves_no_file(afterwards: bool) -> None:
    failures = 0
    for k in range(1, 30):
        inner = MemoryFileSystem()
        files = FailingFileSystem(inner, k, afterwards)
        try:
            write(FileCheckpointStorage(files, "job"))
        except StorageError:
            failures += 1
            assert inner.list_files("checkpoints") == []
        else:
            assert not files.failed, f"operation {k} failed, but the handle was given out (BE-06)"
    assert failures == 9, (
        "create, two writes, sync, close, and names: of the file and of three directories above"
    )


@pytest.mark.parametrize("afterwards", [False, True])
@pytest.mark.parametrize("crash", [False, True])
def test_a_checkpoint_is_complete_exactly_if_publish_returned(afterwards: bool, crash: bool) -> None:
    outcomes = []
    for k in range(1, 30):
        inner = MemoryFileSystem()
        good = FileCheckpointStorage(inner, "job")
        complete(good, 1)
        handles = [write(good, 2)]
        files = FailingFileSystem(inner, k, afterwards)
        storage = FileCheckpointStorage(files, "job")
        try:
            storage.publish(completed_of(2, handles))
            returned = True
        except StorageError:
            returned = False
        assert returned == (not files.failed)
        if crash:
            inner.crash()
        assert good.completed() == ((1, 2) if returned else (1,))
        for checkpoint in good.completed():
            assert problems_with(good.load(checkpoint), good) == []
        outcomes.append(returned)
    assert outcomes.count(False) >= 6
    assert outcomes[-1]


def test_publishing_costs_no_more_syncs_than_it_needs() -> None:
    files = MemoryFileSystem()
    storage = FileCheckpointStorage(files, "job")
    complete(storage, 1)
    files.synced_directories.clear()
    complete(storage, 2)
    job = "checkpoints/job"
    # The directory of the checkpoint has a new name, which holds before anything is acknowledged, and so does the file.
    assert files.synced_directories == [f"{job}/chk-2", job, f"{job}/chk-2", job]


@pytest.mark.parametrize("afterwards", [False, True])
def test_counters_never_fall_whatever_operation_fails(afterwards: bool) -> None:
    for k in range(1, 12):
        inner = MemoryFileSystem()
        FileCheckpointStorage(inner, "job").reserve(CheckpointId(4), AttemptNumber(2))
        files = FailingFileSystem(inner, k, afterwards)
        storage = FileCheckpointStorage(files, "job")
        try:
            storage.reserve(CheckpointId(5), AttemptNumber(3))
            expected = [(5, 3)]
        except StorageError:
            expected = [(4, 2), (5, 3)]
        inner.crash()
        assert FileCheckpointStorage(inner, "job").reserved() in expected


def test_reserving_less_keeps_what_was_reserved_and_writes_nothing() -> None:
    files = MemoryFileSystem()
    storage = FileCheckpointStorage(files, "job")
    assert storage.reserved() == (0, 0)
    storage.reserve(CheckpointId(4), AttemptNumber(2))
    syncs = len(files.synced_directories)
    storage.reserve(CheckpointId(3), AttemptNumber(2))
    assert storage.reserved() == (4, 2)
    assert len(files.synced_directories) == syncs


def test_damaged_counters_are_an_error_not_a_new_job() -> None:
    files = MemoryFileSystem()
    storage = FileCheckpointStorage(files, "job")
    storage.reserve(CheckpointId(4), AttemptNumber(2))
    files.damage("checkpoints/job/counters", b"")
    with pytest.raises(CorruptStateError, match="checkpoints/job/counters"):
        FileCheckpointStorage(files, "job").reserved()


@pytest.mark.parametrize("content", [b"stat", b"state!", b"stale", b""])
def test_a_state_file_that_changed_is_refused_with_file_expected_and_found(content: bytes) -> None:
    files = MemoryFileSystem()
    storage = FileCheckpointStorage(files, "job")
    completed = complete(storage)
    (handle,) = completed.snapshots[-1].handles()
    files.damage(f"checkpoints/{handle.path}", content)
    with pytest.raises(CorruptStateError, match=rf"{handle.path} has .*, expected") as caught:
        storage.read(handle)
    assert problems_with(completed, storage) == [f"count[0], operator aggregate: {caught.value}"]


def test_a_missing_state_file_is_a_problem_and_nothing_is_deleted(files: FileSystem) -> None:
    storage = FileCheckpointStorage(files, "job")
    completed = complete(storage)
    (handle,) = completed.snapshots[-1].handles()
    storage.discard([handle])
    assert len(problems_with(completed, storage)) == 1
    assert storage.completed() == (1,)


def test_a_write_that_is_cancelled_leaves_nothing(files: FileSystem) -> None:
    storage = FileCheckpointStorage(files, "job")
    writer = storage.writer(CheckpointId(1), AttemptNumber(1), COUNT, "aggregate")
    writer.write("first", [b"x"], GROUPS)

    def chunks() -> Iterator[bytes]:
        yield b"x"
        raise SnapshotCancelled("noticed between two chunks")

    with pytest.raises(SnapshotCancelled):
        writer.write("second", chunks(), GROUPS)
    assert storage.files() == ["checkpoints/job/chk-1/count-0-a1-aggregate-first"]


def test_a_name_is_used_once_per_writer_and_an_id_once_per_job(files: FileSystem) -> None:
    storage = FileCheckpointStorage(files, "job")
    writer = storage.writer(CheckpointId(1), AttemptNumber(1), COUNT, "aggregate")
    handle = writer.write("state", [b"x"], GROUPS)
    with pytest.raises(JobUsageError, match="written already"):
        writer.write("state", [b"y"], GROUPS)
    assert storage.read(handle) == b"x"
    storage.publish(completed_of(1, [handle]))
    with pytest.raises(JobUsageError, match="published already"):
        storage.publish(completed_of(1, []))
    assert storage.completed() == (1,)


def test_discarding_a_checkpoint_removes_its_metadata_first_and_only_its_files() -> None:
    inner = MemoryFileSystem()
    storage = FileCheckpointStorage(inner, "job")
    complete(storage, 1)
    kept = complete(storage, 11)
    with pytest.raises(StorageError):
        # It looks for the note of a savepoint, deletes the metadata, and fails then.
        FileCheckpointStorage(FailingFileSystem(inner, 3), "job").discard_checkpoint(CheckpointId(1))
    assert storage.completed() == (11,)
    storage.discard_checkpoint(CheckpointId(1))
    storage.discard_checkpoint(CheckpointId(1))
    assert all("/chk-11/" in path for path in storage.files())
    assert problems_with(kept, storage) == []


def test_a_file_that_cannot_be_deleted_does_not_keep_the_others() -> None:
    inner = MemoryFileSystem()
    storage = FileCheckpointStorage(inner, "job")
    handles = [write(storage, checkpoint) for checkpoint in (1, 2, 3)]
    with pytest.raises(StorageError, match="injected: operation 2"):
        FileCheckpointStorage(FailingFileSystem(inner, 2), "job").discard(handles)
    assert storage.files() == [f"checkpoints/{handles[1].path}"]
    with pytest.raises(JobUsageError, match="other/x"):
        storage.discard([replace(handles[1], path="other/x")])


def test_a_storage_that_cannot_be_listed_is_an_error_not_an_empty_one(tmp_path: Path) -> None:
    complete(FileCheckpointStorage(LocalFileSystem(tmp_path), "job"))
    (tmp_path / "checkpoints" / "job").rename(tmp_path / "aside")
    (tmp_path / "checkpoints" / "job").write_bytes(b"a file where the directory was")
    with pytest.raises(StorageError, match="cannot list"):
        FileCheckpointStorage(LocalFileSystem(tmp_path), "job").completed()


def test_a_directory_below_that_cannot_be_listed_is_an_error_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root may read everything, so each call is made to fail."""
    files = LocalFileSystem(tmp_path)
    for path in ("a/chk-1/_metadata", "a/chk-2/_metadata", "a/chk-2/shared/x", "b/y"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(b"x")
    everything = files.list_files("a")
    scandir, refused = os.scandir, ""

    def failing(path: str) -> object:
        if str(path) == refused:
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", failing)
    for directory in ("a", "a/chk-1", "a/chk-2", "a/chk-2/shared"):
        refused = str(tmp_path / directory)
        with pytest.raises(StorageError, match="cannot list"):
            files.list_files("a")
    refused = str(tmp_path / "b")
    assert (
        files.list_files("a") == everything == ["a/chk-1/_metadata", "a/chk-2/_metadata", "a/chk-2/shared/x"]
    )


def test_metadata_of_a_newer_release_is_refused_with_what_to_do() -> None:
    content = metadata.frame(metadata.FORMAT, metadata.VERSION + 1, b"{}")
    with pytest.raises(StorageError, match=f"version {metadata.VERSION + 1}.*newer release") as caught:
        metadata.decode(content, "chk-1/_metadata")
    assert not isinstance(caught.value, CorruptStateError)


def test_damage_to_any_byte_of_metadata_is_noticed_or_changes_nothing() -> None:
    handle = StateHandle("job/chk-1/x", 3, "crc32:00000000", GROUPS)
    completed = completed_of(1, [handle])
    whole = metadata.encode(completed)
    assert metadata.decode(whole) == completed
    for end in range(len(whole)):
        with pytest.raises(CorruptStateError):
            metadata.decode(whole[:end])
    version = whole.index(b'"version":') + len(b'"version":')
    for position in range(len(whole)):
        damaged = bytearray(whole)
        damaged[position] ^= 0x04
        if position == version:
            # An older version's number: what the checksum covers is read as what it is.
            assert int(damaged[position : position + 1]) < metadata.VERSION
            assert metadata.decode(bytes(damaged)) == completed
            continue
        with pytest.raises(StorageError):
            metadata.decode(bytes(damaged))


def test_metadata_of_another_checkpoint_in_its_place_is_noticed() -> None:
    files = MemoryFileSystem()
    storage = FileCheckpointStorage(files, "job")
    complete(storage, 1)
    complete(storage, 2)
    files.damage("checkpoints/job/chk-2/_metadata", files.read("checkpoints/job/chk-1/_metadata"))
    with pytest.raises(CorruptStateError, match="metadata of checkpoint 1"):
        storage.load(CheckpointId(2))


def test_metadata_is_the_same_in_every_process() -> None:
    program = (
        "import sys; from barrier_tck.reference_impl.storage import metadata; "
        "from tests.reference_impl.storage_fakes import completed_checkpoint; "
        "sys.stdout.buffer.write(metadata.encode(completed_checkpoint(3)))"
    )
    root = Path(__file__).resolve().parents[2]
    found = {
        subprocess.run(
            [sys.executable, "-c", program],
            check=True,
            capture_output=True,
            cwd=root,
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    }
    assert found == {metadata.encode(completed_of(3))}


@pytest.mark.long
@given(st.text(), st.text())
def test_file_names_are_safe_and_one_to_one(first: str, second: str) -> None:
    try:
        names = safe_name(first), safe_name(second)
    except UnicodeEncodeError:
        return
    assert (names[0] == names[1]) == (first == second)
    assert not set(names[0]) & set("/-\\\0")
    assert not names[0].startswith(".")


def test_two_operators_never_share_a_file(files: FileSystem) -> None:
    storage = FileCheckpointStorage(files, "job")
    paths = []
    for operator, name in (("a", "b-c"), ("a-b", "c"), ("a/b", "c")):
        writer = storage.writer(CheckpointId(1), AttemptNumber(1), COUNT, operator)
        paths.append(writer.write(name, [b"x"], GROUPS).path)
    assert len(set(paths)) == 3


def test_unpublished_checkpoints_with_files_are_listed_as_incomplete(files: FileSystem) -> None:
    storage = FileCheckpointStorage(files, "job")
    storage.reserve(CheckpointId(9), AttemptNumber(1))
    complete(storage, 1)
    write(storage, 10)
    write(storage, 2)
    assert storage.incomplete() == (2, 10)
    storage.discard_checkpoint(CheckpointId(2))
    assert storage.incomplete() == (10,)


def test_who_deletes_a_tree_at_the_same_time_saves_nothing_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The coordinator discards a checkpoint, and a subtask that learns of it removes what it wrote, both at once."""
    files = LocalFileSystem(tmp_path)
    names = [f"chk-7/{name}" for name in "abcde"]
    for name in names:
        files.create(name).close()
    unlink, others = os.unlink, names[:-1]

    def unlink_late(path: str, *, dir_fd: int | None = None) -> None:
        while others:
            unlink(tmp_path / others.pop())
        unlink(path, dir_fd=dir_fd)

    monkeypatch.setattr(os, "unlink", unlink_late)
    files.delete_tree("chk-7")
    assert not others and files.list_files("") == []
