"""Checkpoints of trials that are not among their files: in an object store, or where a storage puts them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from barrier_tck.faults.targets import TargetGone, UploadMoment
from barrier_tck.harness.cluster.object_store.object_gate import Gate, moment_of
from barrier_tck.harness.record.operations import FileRead, ServedFrom
from barrier_tck.harness.reference import served_storage
from barrier_tck.harness.reference.observed_reads import ObservedFiles
from barrier_tck.harness.reference.spark.job_driver import HiddenFiles
from barrier_tck.harness.reference.spark.object_store import StoreLink, TrialStore
from barrier_tck.harness.reference.stored_elsewhere import FilesAndMedium, StoredElsewhere
from barrier_tck.harness.support.errors import UsageProblem
from barrier_tck.reference_impl.ids import AttemptNumber, CheckpointId, KeyGroupRange, SubtaskId
from barrier_tck.reference_impl.runtime_errors import StorageError
from barrier_tck.reference_impl.storage.checkpoint_storage import MediumCheckpointStorage
from barrier_tck.reference_impl.storage.filesystem import LocalFileSystem
from tests.reference_impl.object_stores import VersityServer
from tests.waiting import eventually

GROUPS = KeyGroupRange(0, 8)
ON_FILES = "barrier_tck.reference_impl.storage.checkpoint_storage:file_storage"
IN_MEMORY = "barrier_tck.reference_impl.storage.memory_files:memory_storage"
CONTENT = bytes(range(256))


def write(storage: MediumCheckpointStorage, name: str = "state") -> str:
    writer = storage.writer(CheckpointId(1), AttemptNumber(1), SubtaskId("count", 0), "count")
    handle = writer.write(name, [CONTENT], GROUPS)
    assert storage.read(handle) == CONTENT
    return handle.path


def test_a_storage_from_outside_is_made_from_its_name_in_every_process(tmp_path: Path) -> None:
    made = StoredElsewhere(ON_FILES, str(tmp_path / "there"))
    sent = msgspec.json.decode(msgspec.json.encode(made), type=StoredElsewhere)
    path = write(sent(LocalFileSystem(tmp_path / "here"), "job"))
    assert (tmp_path / "there" / "checkpoints" / path).read_bytes() == CONTENT
    assert not (tmp_path / "here").exists()


@pytest.mark.parametrize(
    ("target", "said"),
    [
        (IN_MEMORY, "share none"),
        ("builtins:print", "derived from"),
        ("nowhere:storage", "cannot be imported"),
    ],
)
def test_a_storage_that_processes_cannot_share_or_nobody_can_read_is_refused(
    target: str, said: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageProblem, match=said):
        StoredElsewhere(target, str(tmp_path))(LocalFileSystem(tmp_path), "job")


def test_who_watches_and_hides_files_is_asked_about_another_medium_too(tmp_path: Path) -> None:
    made, here = StoredElsewhere(ON_FILES, str(tmp_path / "there")), LocalFileSystem(tmp_path / "here")
    reads: list[FileRead] = []
    watched = ObservedFiles(here, ServedFrom.PRIMARY, reads, "checkpoints")
    path = write(made(watched, "job"))
    assert [read.path for read in reads] == [path]
    with pytest.raises(StorageError, match="does not answer"):
        write(made(HiddenFiles(watched, 60_000.0), "job"), "other")
    assert len(reads) == 1


def test_judges_see_the_trials_files_and_those_that_are_elsewhere(tmp_path: Path) -> None:
    here = LocalFileSystem(tmp_path / "here")
    storage = StoredElsewhere(ON_FILES, str(tmp_path / "there"))(here, "job")
    path = f"checkpoints/{write(storage)}"
    stream = here.create("out/part")
    stream.write(b"rows")
    stream.close()
    seen = FilesAndMedium(here, storage.medium, ("checkpoints",))
    assert seen.list_files("checkpoints") == [path] and seen.list_files("out") == ["out/part"]
    assert seen.exists(path) and seen.size(path) == len(CONTENT) and seen.read("out/part") == b"rows"


@pytest.mark.parametrize(
    ("method", "target", "moment"),
    [
        ("PUT", "/b/key?partNumber=2&uploadId=u", UploadMoment.PART),
        ("POST", "/b/key?uploadId=u", UploadMoment.COMPLETION),
        ("POST", "/b/key?uploads", None),
        ("DELETE", "/b/key?uploadId=u", None),
        ("PUT", "/b/key", None),
    ],
)
def test_requests_of_an_upload_in_parts_are_told_apart(
    method: str, target: str, moment: UploadMoment | None
) -> None:
    assert moment_of(method, target) is moment


# --- on a real server -------------------------------------------------------------------------------------


@pytest.fixture
def server(tmp_path: Path) -> Iterator[VersityServer]:
    server = VersityServer(tmp_path / "objects")
    server.start()
    served_storage.prepare(server.url)
    yield server
    server.close()


@pytest.fixture
def store(server: VersityServer) -> Iterator[TrialStore]:
    gate = Gate("127.0.0.1", server.address)
    gate.start()
    yield TrialStore(server, gate, gate.address, StoreLink(None, ""))
    gate.close()


def objects(server: VersityServer) -> list[str]:
    """Return all files of the bucket, those of unfinished uploads too; beside it are locks of the server's own."""
    root = server.bucket_directory / served_storage.BUCKET
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


def start_again_when_dead(store: TrialStore) -> None:
    eventually("the server dies", store.is_dead)
    store.start_again()


@pytest.mark.parametrize("moment", UploadMoment)
def test_a_server_that_dies_in_an_upload_and_starts_again_loses_nothing_and_leaves_nothing(
    moment: UploadMoment, server: VersityServer, store: TrialStore, tmp_path: Path
) -> None:
    files = LocalFileSystem(tmp_path)
    kept = write(store.of_job(files, "job"), "kept")
    store.kill_in_upload(moment)
    assert not store.is_dead(), "nobody has uploaded anything yet"
    back = threading.Thread(target=start_again_when_dead, args=(store,))
    back.start()
    lasts = write(store.of_job(files, "job"), "lasts")
    back.join()
    assert objects(server) == sorted(f"checkpoints/{path}" for path in (kept, lasts))
    assert store.of_judges(files, "job").files() == sorted(f"checkpoints/{path}" for path in (kept, lasts))


def stop_throttling_when_felt(store: TrialStore) -> None:
    eventually("a request is refused", store.has_throttled)
    store.stop_throttling()


def test_a_throttled_store_is_asked_again_until_it_answers(store: TrialStore, tmp_path: Path) -> None:
    store.throttle()
    assert not store.has_throttled(), "nobody has asked for anything yet"
    relief = threading.Thread(target=stop_throttling_when_felt, args=(store,))
    relief.start()
    write(store.of_job(LocalFileSystem(tmp_path), "job"))
    relief.join()
    assert store.has_throttled()


def test_a_dead_server_is_not_killed_again(server: VersityServer, store: TrialStore) -> None:
    server.kill()
    with pytest.raises(TargetGone):
        store.kill_in_upload(UploadMoment.PART)
