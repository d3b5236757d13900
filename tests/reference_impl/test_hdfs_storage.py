"""Checkpoint storage in HDFS: on a model that loses answers, and on real nodes that are killed."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from barrier_tck.faults.kinds.crash_coordinator import CrashCoordinator
from barrier_tck.faults.kinds.kill_worker import KillWorker
from barrier_tck.faults.vocabulary import After, ProtocolPoint, ScheduledFault
from barrier_tck.harness.certify.storage.suite import certify
from barrier_tck.harness.cluster.hdfs.hdfs_nodes import DATA_NODE, NAME_NODE, HdfsNodes
from barrier_tck.harness.plan.storage_targets import storage_target
from barrier_tck.harness.plan.trial_plan import CheckpointPlan, TrialPlan, WorkloadPlan
from barrier_tck.harness.record.verdict import Verdict
from barrier_tck.harness.reference.checkpoint_storages import require_checkpoint_storage
from barrier_tck.harness.reference.simulated.simulated_system import ReferenceSimulated
from barrier_tck.harness.reference.spark.spark_system import ReferenceSpark
from barrier_tck.harness.support.errors import EnvironmentProblem, UsageProblem
from barrier_tck.harness.trial.trial_run import execute
from barrier_tck.reference_impl.ids import AttemptNumber, CheckpointId, KeyGroupRange, SubtaskId
from barrier_tck.reference_impl.protocol.messages import CompletedCheckpoint, StateHandle
from barrier_tck.reference_impl.runtime_errors import JobUsageError, StorageCause, StorageError
from barrier_tck.reference_impl.storage.hdfs import LOCATION, HdfsCheckpointStorage, hdfs_storage
from barrier_tck.reference_impl.storage.webhdfs import Patience, WebHdfs
from tests.reference_impl.hdfs_model import ModelHdfs, Refusal
from tests.reference_impl.storage_fakes import completed_checkpoint
from tests.waiting import eventually

GROUPS = KeyGroupRange(0, 8)
COUNT = SubtaskId("count", 0)
AT_ONCE = Patience(repeat_s=0, pause_s=0)
PATIENT = Patience(repeat_s=300, pause_s=0)
LONG = [bytes([number]) * 1_000_000 for number in range(8)]
CHUNKS = (b"ab", b"", b"cd", b"e")
BELOW = "/tck/checkpoints/job"


@pytest.fixture
def hdfs() -> Iterator[ModelHdfs]:
    with ModelHdfs() as model:
        yield model


def on(*hdfs: ModelHdfs, patience: Patience = AT_ONCE) -> HdfsCheckpointStorage:
    return HdfsCheckpointStorage(WebHdfs([each.url for each in hdfs], "tck", patience), "tck", "job")


def write(storage: HdfsCheckpointStorage, checkpoint: int, chunks: Iterable[bytes] = CHUNKS) -> StateHandle:
    writer = storage.writer(CheckpointId(checkpoint), AttemptNumber(1), COUNT, "aggregate")
    return writer.write("state", chunks, GROUPS)


def complete(storage: HdfsCheckpointStorage, checkpoint: int) -> CompletedCheckpoint:
    storage.reserve(CheckpointId(checkpoint), AttemptNumber(1))
    completed = completed_checkpoint(checkpoint, [write(storage, checkpoint)])
    storage.publish(completed)
    return completed


# --- on the model -----------------------------------------------------------------------------------------

QUICK = (
    "state-files-are-read-as-written",
    "a-failed-write-leaves-nothing",
    "an-id-is-published-once",
    "complete-means-published",
    "counters-never-fall",
    "a-discarded-checkpoint-is-gone",
    "a-failed-request-leaves-all-with-the-same",
    "killed-in-the-middle-of-a-write",
    "killed-while-publishing",
)


PROPERTY_S = 900.0
"""No machine is so busy that a property takes so long."""


@pytest.mark.nightly
def test_the_hdfs_storage_has_the_properties_on_a_model(hdfs: ModelHdfs) -> None:
    outcomes = certify("hdfs", f"webhdfs://{hdfs.host}/quick", only=QUICK, property_s=PROPERTY_S).outcomes
    tried = {one.name: (one.status, one.reason) for one in outcomes if one.name in QUICK}
    assert tried == dict.fromkeys(QUICK, ("passed", ""))


def test_every_file_is_synced_on_its_data_nodes_before_it_is_closed(hdfs: ModelHdfs) -> None:
    complete(on(hdfs), 1)
    assert hdfs.flags == ["CREATE,SYNC_BLOCK"] * 3, "counters, a state file, metadata"


@pytest.mark.parametrize("afterwards", [False, True])
def test_a_write_that_fails_at_any_request_leaves_no_file(hdfs: ModelHdfs, afterwards: bool) -> None:
    failures = 0
    for k in range(1, 8):
        hdfs.asked.clear()
        hdfs.fail_at, hdfs.afterwards = k, afterwards
        try:
            write(on(hdfs), 1)
        except StorageError:
            failures += 1
            assert hdfs.files == {}
        else:
            assert len(hdfs.asked) < k, f"request {k} failed, but the handle was given out"
            assert list(hdfs.files.values()) == [b"abcde"]
    assert failures == 3, "make the directory, ask for a data node, send"


@pytest.mark.parametrize("afterwards", [False, True])
def test_a_checkpoint_is_complete_exactly_if_publish_returned(hdfs: ModelHdfs, afterwards: bool) -> None:
    complete(on(hdfs), 1)
    outcomes = []
    for k in range(1, 9):
        checkpoint = CheckpointId(k + 1)
        on(hdfs).reserve(checkpoint, AttemptNumber(1))
        handle = write(on(hdfs), checkpoint)
        before = on(hdfs).files()
        hdfs.asked.clear()
        hdfs.fail_at, hdfs.afterwards = k, afterwards
        try:
            on(hdfs).publish(completed_checkpoint(checkpoint, [handle]))
            returned = True
        except StorageError:
            returned = False
        assert returned == (len(hdfs.asked) < k)
        hdfs.fail_at = 0
        assert (checkpoint in on(hdfs).completed()) == returned
        assert returned or on(hdfs).files() == before, "nothing lies beside"
        outcomes.append(returned)
    assert outcomes == [False] * 5 + [True] * 3, "look, make the directory, twice for the content, rename"


@pytest.mark.long
@pytest.mark.parametrize("afterwards", [False, True])
def test_a_request_without_an_answer_is_made_again(hdfs: ModelHdfs, afterwards: bool) -> None:
    complete(on(hdfs), 1)
    before = len(hdfs.asked)
    complete(on(hdfs), 2)
    requests, failures = len(hdfs.asked) - before, []
    for k in range(1, requests + 1):
        hdfs.asked.clear()
        hdfs.fail_at, hdfs.afterwards = k, afterwards
        try:
            completed = complete(on(hdfs, patience=PATIENT), k + 2)
        except StorageError as error:
            failures.append(str(error))
            on(hdfs).discard_checkpoint(CheckpointId(k + 2))
            continue
        assert len(hdfs.asked) > requests
        assert on(hdfs).load(CheckpointId(k + 2)) == completed
    assert len(on(hdfs).completed()) == requests + 1
    (failure,) = failures
    assert "cannot write" in failure, "a state file passes through, so its chunks are there only once"
    assert not any(".tmp" in path for path in hdfs.files)


def test_of_two_coordinators_that_publish_one_is_refused_although_an_answer_was_lost(hdfs: ModelHdfs) -> None:
    complete(on(hdfs), 1)
    patient = on(hdfs, patience=PATIENT)
    hdfs.asked.clear()
    hdfs.fail_at, hdfs.afterwards = 5, True
    patient.publish(completed_checkpoint(2))
    assert hdfs.asked[4:6] == ["RENAME", "RENAME"], "the answer to the first one was lost"
    kept = dict(hdfs.files)
    for other in (patient, on(hdfs)):
        with pytest.raises(JobUsageError, match="published already"):
            other.publish(completed_checkpoint(2))
    assert hdfs.files == kept


def test_a_name_that_was_taken_meanwhile_is_refused_by_the_name_node(hdfs: ModelHdfs) -> None:
    medium = on(hdfs).medium
    assert medium.put_new("a/b", b"first")
    assert not medium.put_new("a/b", b"second")
    assert hdfs.files == {"/tck/a/b": b"first"}
    medium.put("a/b", b"third")
    assert hdfs.files == {"/tck/a/b": b"third"}


@pytest.mark.parametrize(
    "refusal",
    [
        Refusal("StandbyException", "Operation category READ is not supported in state standby."),
        Refusal("RemoteException", "SafeModeException: Cannot create file. Name node is in safe mode."),
        Refusal("RetriableException", "Server is too busy."),
        Refusal(
            "EOFException", "End of File Exception between local host is: node; destination host is: names."
        ),
        Refusal(
            "ConnectException", "Call From node to names failed on connection exception: Connection refused"
        ),
        503,
    ],
)
def test_a_node_that_refuses_for_the_moment_is_asked_again(hdfs: ModelHdfs, refusal: Refusal | int) -> None:
    hdfs.refusals = [refusal] * 3
    with pytest.raises(StorageError, match=r"Standby|SafeMode|Retriable|EOF|Connect|503"):
        write(on(hdfs), 1)
    hdfs.refusals = [refusal] * 3
    assert on(hdfs).read(write(on(hdfs, patience=PATIENT), 1)) == b"abcde"
    assert hdfs.refusals == []


def test_the_name_node_that_is_active_is_found_and_asked_from_then_on(hdfs: ModelHdfs) -> None:
    standby = Refusal("StandbyException", "not this one")
    with ModelHdfs(refusals=[standby] * 100) as passive:
        storage = on(passive, hdfs, patience=PATIENT)
        complete(storage, 1)
        assert len(passive.asked) == 1, "it is not asked again"
    hdfs.asked.clear()
    assert on(passive, hdfs, patience=PATIENT).completed() == (1,), "one that is gone is passed over, too"


def test_what_is_refused_for_good_is_not_asked_again(hdfs: ModelHdfs) -> None:
    hdfs.refusals = [Refusal("AccessControlException", "Permission denied: user=tck")]
    with pytest.raises(StorageError, match=r"cannot make the directory .*Permission denied") as caught:
        write(on(hdfs, patience=PATIENT), 1)
    assert caught.value.cause is StorageCause.FAILED
    assert hdfs.asked == ["MKDIRS", "DELETE"]


def test_data_nodes_that_do_not_answer_are_left_out(hdfs: ModelHdfs) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        dead = f"127.0.0.1:{taken.getsockname()[1]}"
    hdfs.data_nodes = [dead]
    handle = write(on(hdfs, patience=PATIENT), 1)
    assert on(hdfs, patience=PATIENT).read(handle) == b"abcde"
    with pytest.raises(StorageError, match="cannot write"):
        write(on(hdfs), 2)


def test_data_nodes_that_have_not_reported_yet_are_waited_for(hdfs: ModelHdfs) -> None:
    none = Refusal("IOException", "Failed to find datanode, suggest to check cluster health.")
    for patience, written in ((AT_ONCE, False), (PATIENT, True)):
        hdfs.refusals = [none] * 2
        try:
            WebHdfs([hdfs.url], "tck", patience).create("/a", b"there")
        except StorageError:
            assert not written
        assert ("/a" in hdfs.files) == written


def test_a_content_that_ends_too_early_is_no_content(hdfs: ModelHdfs) -> None:
    handle = write(on(hdfs), 1)
    hdfs.torn = True
    with pytest.raises(StorageError, match="cannot read"):
        on(hdfs).read(handle)


def test_what_a_killed_coordinator_left_beside_its_counters_is_deleted(hdfs: ModelHdfs) -> None:
    on(hdfs).reserve(CheckpointId(1), AttemptNumber(1))
    hdfs.files[f"{BELOW}/counters.tmp-0123"] = b"half"
    on(hdfs).reserve(CheckpointId(2), AttemptNumber(1))
    assert list(hdfs.files) == [f"{BELOW}/counters"]


def test_what_is_written_late_makes_no_file_of_a_discarded_checkpoint(hdfs: ModelHdfs) -> None:
    on(hdfs).reserve(CheckpointId(1), AttemptNumber(1))

    def chunks() -> Iterator[bytes]:
        yield b"first"
        on(hdfs).discard_checkpoint(CheckpointId(1))
        yield b"second"

    with pytest.raises(StorageError, match="Parent directory doesn't exist"):
        write(on(hdfs), 1, chunks())
    assert on(hdfs).incomplete() == () and f"{BELOW}/chk-1" not in hdfs.directories


def test_a_missing_file_is_told_apart_from_one_that_cannot_be_read(hdfs: ModelHdfs) -> None:
    medium = on(hdfs).medium
    with pytest.raises(StorageError, match="cannot read /tck/a in HDFS: FileNotFoundException") as caught:
        medium.read("a")
    assert caught.value.cause is StorageCause.MISSING
    assert not medium.exists("a") and medium.list_files("a") == []
    hdfs.refusals = [500]
    with pytest.raises(StorageError, match="HTTP status 500") as caught:
        medium.read("a")
    assert caught.value.cause is StorageCause.FAILED
    with pytest.raises(StorageError, match="leaves the directory"):
        medium.read("../a")


@pytest.mark.parametrize("location", ["webhdfs://", "webhdfs://,/a", "hdfs://name:8020/a", "/a/directory"])
def test_a_location_that_is_none_is_refused(location: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(LOCATION, raising=False)
    with pytest.raises(JobUsageError, match="webhdfs://host:port/directory"):
        hdfs_storage(location, "job")


# --- trials -----------------------------------------------------------------------------------------------

COMPLETED = ProtocolPoint.CHECKPOINT_COMPLETED
GIVEN = storage_target("hdfs")


def test_simulated_trials_keep_their_checkpoints_in_an_hdfs_that_is_given(
    hdfs: ModelHdfs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(LOCATION, raising=False)
    require_checkpoint_storage("hdfs")
    with pytest.raises(UsageProblem, match=LOCATION):
        require_checkpoint_storage(GIVEN)
    monkeypatch.setenv(LOCATION, f"webhdfs://{hdfs.host}/trials/")
    require_checkpoint_storage(GIVEN)
    plan = TrialPlan(
        workload=WorkloadPlan("keyed-totals", batches=60, keys=10),
        checkpoints=CheckpointPlan(interval_ms=15, storage=GIVEN),
        faults=(
            ScheduledFault(CrashCoordinator(), After(COMPLETED)),
            ScheduledFault(KillWorker("totals[0]"), After(COMPLETED, nth=2)),
        ),
    )
    assert execute(plan, ReferenceSimulated(), tmp_path).record.verdict is Verdict.VALID
    assert hdfs.files and all(path.startswith("/trials/") for path in hdfs.files)


# --- on real nodes ----------------------------------------------------------------------------------------


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


def on_real(nodes: HdfsNodes, directory: str) -> HdfsCheckpointStorage:
    """Return storage that waits for nodes as long as it takes them to start."""
    name_node = nodes.url.replace("webhdfs", "http")
    return HdfsCheckpointStorage(WebHdfs([name_node], "tck", Patience(repeat_s=300)), directory, "job")


@pytest.mark.nightly
def test_the_hdfs_storage_has_the_properties_on_real_nodes(nodes: HdfsNodes) -> None:
    outcomes = certify("hdfs", f"{nodes.url}/quick", only=QUICK, property_s=PROPERTY_S).outcomes
    tried = {one.name: (one.status, one.reason) for one in outcomes if one.name in QUICK}
    assert tried == dict.fromkeys(QUICK, ("passed", ""))


@pytest.mark.nightly
def test_the_hdfs_storage_is_certified_on_real_nodes(nodes: HdfsNodes) -> None:
    certificate = certify("hdfs", f"{nodes.url}/full", property_s=PROPERTY_S)
    assert {one.name: one.reason for one in certificate.outcomes if one.status != "passed"} == {}
    assert (certificate.verdict, certificate.level) == ("certified", "crash")


@pytest.mark.nightly
def test_a_data_node_syncs_what_it_has_before_the_file_is_closed(nodes: HdfsNodes) -> None:
    before = nodes.syncs()
    write(hdfs_storage(f"{nodes.url}/synced", "job"), 1)
    eventually("its counters show the syncs", lambda: nodes.syncs() > before)


@pytest.mark.nightly
def test_a_data_node_killed_in_the_middle_of_an_upload_loses_nothing_and_leaves_nothing(
    nodes: HdfsNodes,
) -> None:
    def storage() -> HdfsCheckpointStorage:
        return on_real(nodes, "killed")

    kept = complete(storage(), 1)
    before = storage().files()
    storage().reserve(CheckpointId(2), AttemptNumber(1))

    def chunks() -> Iterator[bytes]:
        yield from LONG[:5]
        nodes.kill(DATA_NODE)
        yield from LONG[5:]

    with pytest.raises(StorageError, match="cannot write"):
        write(storage(), 2, chunks())
    nodes.start()
    assert storage().completed() == (1,)
    assert storage().load(CheckpointId(1)) == kept
    assert [storage().read(each) for each in handles_of(kept)] == [b"abcde"]
    storage().discard_checkpoint(CheckpointId(2))
    assert storage().files() == before
    storage().reserve(CheckpointId(3), AttemptNumber(1))
    assert storage().read(write(storage(), 3, LONG)) == b"".join(LONG)


@pytest.mark.nightly
def test_a_name_node_that_was_killed_and_is_in_safe_mode_is_waited_for(nodes: HdfsNodes) -> None:
    storage = on_real(nodes, "restarted")
    kept = complete(storage, 1)
    nodes.kill(NAME_NODE)
    nodes.start_node(NAME_NODE)
    assert complete(storage, 2).checkpoint == 2, "it was away, and then in safe mode"
    assert storage.completed() == (1, 2)
    assert storage.load(CheckpointId(1)) == kept
    assert [storage.read(each) for each in handles_of(kept)] == [b"abcde"]


@pytest.mark.nightly
@pytest.mark.spark
def test_a_job_on_spark_recovers_from_hdfs(
    nodes: HdfsNodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(LOCATION, f"{nodes.url}/spark")
    plan = TrialPlan(
        workload=WorkloadPlan(
            "keyed-totals", batches=60, batch_records=50, keys=40, records_per_second=1_000
        ),
        checkpoints=CheckpointPlan(interval_ms=1_000, timeout_ms=20_000, storage="hdfs"),
        faults=(
            ScheduledFault(KillWorker("totals[0]"), After(COMPLETED, nth=1)),
            ScheduledFault(CrashCoordinator(), After(COMPLETED, nth=2)),
        ),
    )
    spark = ReferenceSpark()
    try:
        record = execute(plan, spark, tmp_path).record
    finally:
        spark.close()
    assert record.verdict is Verdict.VALID, record.findings
    assert [each.outcome for each in record.faults] == ["fired", "fired"]


def handles_of(completed: CompletedCheckpoint) -> list[StateHandle]:
    return [
        handle for part in completed.snapshots for operator in part.operators for handle in operator.handles
    ]
