"""Checkpoints of trials that are not among their files: in an object store, or where a storage puts them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from barrier_tck.faults.targets import TargetGone
from barrier_tck.faults.upload_moment import UploadMoment
from barrier_tck.harness.cluster.hdfs.hdfs_nodes import HdfsNodes
from barrier_tck.harness.cluster.hdfs.webhdfs_requests import WebHdfsRequests
from barrier_tck.harness.cluster.http_fault_proxy import HttpFaultProxy
from barrier_tck.harness.cluster.object_store.s3_requests import S3Requests
from barrier_tck.harness.plan.storage_targets import storage_target
from barrier_tck.harness.record.operations import FileRead, ServedFrom
from barrier_tck.harness.reference import served_storage
from barrier_tck.harness.reference.external_storage import ExternalStorage, FilesAndMedium
from barrier_tck.harness.reference.observed_reads import ObservedFiles
from barrier_tck.harness.reference.spark.job_driver import HiddenFiles
from barrier_tck.harness.reference.spark.storage_services import StoreLink, TrialStore
from barrier_tck.harness.support.errors import EnvironmentProblem, UsageProblem
from barrier_tck.reference_impl.ids import AttemptNumber, CheckpointId, KeyGroupRange, SubtaskId
from barrier_tck.reference_impl.paths import safe_name
from barrier_tck.reference_impl.runtime_errors import StorageError
from barrier_tck.reference_impl.storage.checkpoint_storage import MediumCheckpointStorage
from barrier_tck.reference_impl.storage.filesystem import LocalFileSystem
from barrier_tck.reference_impl.storage.hdfs import HdfsCheckpointStorage
from barrier_tck.reference_impl.storage.webhdfs import Patience, WebHdfs
from tests.reference_impl.object_stores import VersityServer
from tests.waiting import eventually

GROUPS = KeyGroupRange(0, 8)
ON_FILES = "barrier_tck.reference_impl.storage.checkpoint_storage:file_storage"
IN_MEMORY = "barrier_tck.reference_impl.storage.memory_files:memory_storage"
CONTENT = bytes(range(256))
SERVED_STORAGE = "barrier_tck.harness.reference.served_storage:served_storage"


def write(storage: MediumCheckpointStorage, name: str = "state") -> str:
    writer = storage.writer(CheckpointId(1), AttemptNumber(1), SubtaskId("count", 0), "count")
    handle = writer.write(name, [CONTENT], GROUPS)
    assert storage.read(handle) == CONTENT
    return handle.path


def test_a_storage_from_outside_is_made_from_its_name_in_every_process(tmp_path: Path) -> None:
    made = ExternalStorage(ON_FILES, str(tmp_path / "there"))
    sent = msgspec.json.decode(msgspec.json.encode(made), type=ExternalStorage)
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
        ExternalStorage(target, str(tmp_path))(LocalFileSystem(tmp_path), "job")


def test_who_watches_and_hides_files_is_asked_about_another_medium_too(tmp_path: Path) -> None:
    made, here = ExternalStorage(ON_FILES, str(tmp_path / "there")), LocalFileSystem(tmp_path / "here")
    reads: list[FileRead] = []
    watched = ObservedFiles(here, ServedFrom.PRIMARY, reads, "checkpoints")
    path = write(made(watched, "job"))
    assert [read.path for read in reads] == [path]
    with pytest.raises(StorageError, match="does not answer"):
        write(made(HiddenFiles(watched, 60_000.0), "job"), "other")
    assert len(reads) == 1


def test_judges_see_the_trials_files_and_those_that_are_elsewhere(tmp_path: Path) -> None:
    here = LocalFileSystem(tmp_path / "here")
    storage = ExternalStorage(ON_FILES, str(tmp_path / "there"))(here, "job")
    path = f"checkpoints/{write(storage)}"
    stream = here.create("out/part")
    stream.write(b"rows")
    stream.close()
    seen = FilesAndMedium(here, storage.medium, ("checkpoints",))
    assert seen.list_files("checkpoints") == [path] and seen.list_files("out") == ["out/part"]
    assert seen.exists(path) and seen.size(path) == len(CONTENT) and seen.read("out/part") == b"rows"


@pytest.mark.parametrize(
    ("method", "target", "moments"),
    [
        ("PUT", "/b/key?partNumber=2&uploadId=u", [UploadMoment.PART]),
        ("POST", "/b/key?uploadId=u", [UploadMoment.COMPLETION, UploadMoment.ANSWER]),
        ("POST", "/b/key?uploads", []),
        ("DELETE", "/b/key?uploadId=u", []),
        ("PUT", "/b/key", []),
    ],
)
def test_requests_of_an_upload_in_parts_are_told_apart(
    method: str, target: str, moments: list[UploadMoment]
) -> None:
    assert list(S3Requests(("server", 1)).moments(method, target)) == moments


NAMES, CONTENTS = ("names", 1), ("contents", 2)


@pytest.mark.parametrize(
    ("method", "query", "node", "moments"),
    [
        ("PUT", "op=CREATE&overwrite=true", NAMES, []),
        ("PUT", "op=CREATE&namenoderpcaddress=n:1&overwrite=true", CONTENTS, [UploadMoment.PART]),
        ("GET", "op=OPEN&namenoderpcaddress=n:1", CONTENTS, []),
        ("PUT", "op=RENAME&destination=/b", NAMES, [UploadMoment.COMPLETION, UploadMoment.ANSWER]),
        ("GET", "op=LISTSTATUS", NAMES, []),
        ("DELETE", "op=DELETE&recursive=true", NAMES, []),
    ],
)
def test_requests_to_name_nodes_and_data_nodes_are_told_apart(
    method: str, query: str, node: tuple[str, int], moments: list[UploadMoment]
) -> None:
    requests = WebHdfsRequests(NAMES, CONTENTS)
    assert requests.upstream(f"/webhdfs/v1/a?{query}") == node
    assert list(requests.moments(method, f"/webhdfs/v1/a?{query}")) == moments


def test_a_client_that_is_sent_to_the_data_node_comes_to_the_gate_again() -> None:
    sent = [("Location", "http://contents:2/webhdfs/v1/a?op=OPEN"), ("Server", "http://contents:2/")]
    led = WebHdfsRequests(NAMES, CONTENTS).redirected_here(sent, "gate:7")
    assert led == [("Location", "http://gate:7/webhdfs/v1/a?op=OPEN"), ("Server", "http://contents:2/")]


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
    gate = HttpFaultProxy("127.0.0.1", S3Requests(server.address))
    gate.start()
    host, port = gate.address
    of_job = ExternalStorage(SERVED_STORAGE, f"http://{host}:{port}")
    yield TrialStore(server, gate, StoreLink(None, ""), of_job, ExternalStorage(SERVED_STORAGE, server.url))
    gate.close()


def objects(server: VersityServer) -> list[str]:
    """Return all files of the bucket, those of unfinished uploads too; beside it are locks of the server's own."""
    root = server.bucket_directory / served_storage.BUCKET
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


def start_again_when_dead(store: TrialStore) -> None:
    eventually("the server dies", store.is_dead)
    store.start_again()


@pytest.mark.long
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


# --- on real nodes of HDFS --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HdfsNodes]:
    try:
        real = HdfsNodes(tmp_path_factory.mktemp("hdfs") / "nodes")
    except EnvironmentProblem as problem:
        pytest.skip(str(problem))
    try:
        real.start()
        yield real
    finally:
        real.close()


@pytest.fixture
def hdfs(nodes: HdfsNodes, request: pytest.FixtureRequest) -> Iterator[TrialStore]:
    gate = HttpFaultProxy("127.0.0.1", WebHdfsRequests(nodes.name_node, nodes.data_node))
    gate.start()
    host, port = gate.address
    of_job, of_judges = (
        ExternalStorage(storage_target("hdfs"), f"{url}/{safe_name(request.node.name)}")
        for url in (f"webhdfs://{host}:{port}", nodes.url)
    )
    yield TrialStore(nodes, gate, StoreLink(None, ""), of_job, of_judges)
    gate.close()
    nodes.start()


@pytest.mark.nightly
@pytest.mark.parametrize("moment", UploadMoment)
def test_nodes_that_die_in_an_upload_and_start_again_lose_nothing_and_leave_nothing(
    moment: UploadMoment, hdfs: TrialStore, tmp_path: Path
) -> None:
    storage = patient(hdfs)
    # The data node may have lost its name node in the test before. Chunks exist once, and a small file is sent again.
    kept = "checkpoints/job/chk-1/kept"
    assert storage.medium.put_new(kept, CONTENT)
    hdfs.kill_in_upload(moment)
    assert not hdfs.is_dead(), "nobody has uploaded anything yet"
    back = threading.Thread(target=start_again_when_dead, args=(hdfs,))
    back.start()
    stored = [kept]
    if moment is UploadMoment.PART:
        with pytest.raises(StorageError, match="cannot write"):
            write(storage, "torn")
    else:
        stored.append("checkpoints/job/counters")
        assert storage.medium.put_new(stored[-1], CONTENT), "its own rename is not taken for another's"
    back.join()
    assert hdfs.has_struck() and not hdfs.is_dead()
    assert hdfs.of_judges(LocalFileSystem(tmp_path), "job").files() == sorted(stored)


def patient(hdfs: TrialStore) -> HdfsCheckpointStorage:
    """Return the job's storage, with a client that waits until a JVM has started, however busy the machine is."""
    scheme, _, place = hdfs.of_job.location.partition("://")
    host, _, directory = place.partition("/")
    assert scheme == "webhdfs"
    return HdfsCheckpointStorage(WebHdfs([f"http://{host}"], "tck", Patience(repeat_s=300)), directory, "job")


@pytest.mark.nightly
def test_name_nodes_that_refuse_are_asked_again_until_they_answer(hdfs: TrialStore, tmp_path: Path) -> None:
    hdfs.throttle()
    relief = threading.Thread(target=stop_throttling_when_felt, args=(hdfs,))
    relief.start()
    path = write(hdfs.of_job(LocalFileSystem(tmp_path), "job"))
    relief.join()
    assert hdfs.has_struck()
    assert hdfs.of_judges(LocalFileSystem(tmp_path), "job").files() == [f"checkpoints/{path}"]
