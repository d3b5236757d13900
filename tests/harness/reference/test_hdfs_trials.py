"""Simulated trials in whose storage services servers die, refuse, are slow and are cut off; and the model of HDFS."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from barrier_tck.faults.fault import Fault
from barrier_tck.faults.injectors.connections import Closure
from barrier_tck.faults.kinds.crash_coordinator import CrashCoordinator
from barrier_tck.faults.kinds.cut_object_store import CutObjectStore
from barrier_tck.faults.kinds.delay_object_store import DelayObjectStore
from barrier_tck.faults.kinds.kill_object_store import KillObjectStore
from barrier_tck.faults.kinds.kill_worker import KillWorker
from barrier_tck.faults.kinds.throttle_object_store import ThrottleObjectStore
from barrier_tck.faults.upload_moment import UploadMoment
from barrier_tck.faults.vocabulary import After, ProtocolPoint, ScheduledFault
from barrier_tck.harness.plan.trial_plan import CheckpointPlan, TrialPlan, WorkloadPlan
from barrier_tck.harness.record.verdict import Verdict
from barrier_tck.harness.reference.hdfs_model import HdfsService, ModelHdfsStorage
from barrier_tck.harness.reference.simulated.file_system import SimulatedDisk
from barrier_tck.harness.reference.simulated.simulated_system import ReferenceSimulated
from barrier_tck.harness.reference.storage_service import ServiceTarget, ThroughService
from barrier_tck.harness.trial.trial_run import execute
from barrier_tck.reference_impl.runtime_errors import StorageError

COMPLETED = ProtocolPoint.CHECKPOINT_COMPLETED
CUT = Closure()
RECOVERS = (
    ScheduledFault(KillWorker("totals[0]"), After(COMPLETED, nth=3)),
    ScheduledFault(CrashCoordinator(), After(COMPLETED, nth=4)),
)


def plan(storage: str, *faults: Fault, seed: int = 0) -> TrialPlan:
    """Return a plan whose service suffers these, before a worker and later the coordinator die."""
    struck = tuple(
        ScheduledFault(fault, After(ProtocolPoint.SNAPSHOT_TAKEN, "totals[1]", nth=2)) for fault in faults
    )
    return TrialPlan(
        seed=seed,
        workload=WorkloadPlan("keyed-totals", batches=120, keys=20),
        checkpoints=CheckpointPlan(interval_ms=15, storage=storage),
        faults=(*struck, *RECOVERS),
    )


@pytest.mark.long
@pytest.mark.parametrize("storage", ["s3", "hdfs"])
@pytest.mark.parametrize(
    "fault",
    [
        *(KillObjectStore(30, moment) for moment in UploadMoment),
        ThrottleObjectStore(30),
        CutObjectStore(30),
        DelayObjectStore(5, 60),
    ],
    ids=lambda fault: fault.description(),
)
def test_jobs_recover_from_what_their_storage_service_suffers(
    fault: Fault, storage: str, tmp_path: Path
) -> None:
    record = execute(plan(storage, fault), ReferenceSimulated(), tmp_path).record
    assert record.verdict is Verdict.VALID, record.findings
    assert [one.outcome for one in record.faults] == ["fired"] * 3
    assert record.faults[0].healed_at_ms is not None


@pytest.mark.long
def test_the_same_plan_gives_the_same_trace_whatever_hdfs_suffers(tmp_path: Path) -> None:
    faults = (KillObjectStore(30, UploadMoment.ANSWER), CutObjectStore(10), DelayObjectStore(3, 50))
    digests = [
        execute(plan("hdfs", *faults, seed=seed), ReferenceSimulated(), tmp_path / name).record.trace_digest
        for seed, name in ((4, "once"), (4, "again"), (5, "other"))
    ]
    assert digests[0] == digests[1] != digests[2]


def test_a_service_that_is_slow_delays_acknowledgements_and_not_the_job(tmp_path: Path) -> None:
    ended = []
    for name, latency_ms in (("quick", 1), ("slow", 40)):
        delayed = ScheduledFault(DelayObjectStore(latency_ms, 5_000), After(ProtocolPoint.ATTEMPT_RUNNING))
        slow = msgspec.structs.replace(plan("hdfs"), faults=(delayed,))
        record = execute(slow, ReferenceSimulated(), tmp_path / name).record
        assert record.verdict is Verdict.VALID, record.findings
        ended.append(record.checkpoints[0].ended_at_ms)
    assert ended[1] > ended[0] + 100, "each request of the upload and of the publication was late"


def test_a_fault_after_which_nothing_is_stored_did_not_fire(tmp_path: Path) -> None:
    last = ScheduledFault(KillObjectStore(30), After(ProtocolPoint.TRANSACTIONS_COMMITTED, "sink[0]", nth=2))
    quiet = msgspec.structs.replace(
        plan("hdfs"),
        workload=WorkloadPlan("keyed-totals", batches=2, keys=2),
        checkpoints=CheckpointPlan(interval_ms=15, storage="hdfs"),
        faults=(msgspec.structs.replace(last, trigger=After(ProtocolPoint.TRANSACTIONS_COMMITTED)),),
    )
    record = execute(quiet, ReferenceSimulated(), tmp_path).record
    assert [one.outcome for one in record.faults] == ["not_fired"] and record.verdict is Verdict.UNKNOWN


# --- the model --------------------------------------------------------------------------------------------

STATE = "checkpoints/job/chk-1/state"
COUNTERS = "checkpoints/job/counters"
SENT = b"x" * 100


@pytest.fixture
def nodes() -> HdfsService:
    return HdfsService(SimulatedDisk().host(), random.Random(0))


def on(nodes: HdfsService) -> ModelHdfsStorage:
    return ModelHdfsStorage(ThroughService(SimulatedDisk().host(), nodes), "job")


def killed(nodes: HdfsService, moment: UploadMoment) -> ServiceTarget:
    target = ServiceTarget(nodes)
    target.kill_in_upload(moment)
    return target


def chunks() -> Iterator[bytes]:
    yield SENT[:60]
    yield SENT[60:]


def test_a_data_node_that_dies_leaves_half_a_file_and_the_writer_deletes_it(nodes: HdfsService) -> None:
    target = killed(nodes, UploadMoment.PART)
    seen: list[int] = []
    delete = nodes.files.delete

    def deleted(path: str) -> None:
        seen.append(nodes.files.size(path))
        delete(path)

    nodes.files.delete = deleted  # type: ignore[method-assign]
    with pytest.raises(StorageError, match="has died"):
        on(nodes).medium.write(STATE, chunks())
    assert target.is_dead() and seen == [len(SENT) // 2] and not on(nodes).medium.exists(STATE)


def test_a_host_that_is_lost_takes_no_name_with_it_that_a_name_node_has_logged() -> None:
    disk = SimulatedDisk()
    host = disk.host()
    nodes = HdfsService(host, random.Random(0))
    storage = ModelHdfsStorage(ThroughService(host, nodes), "job")
    storage.medium.write(STATE, chunks())
    storage.medium.put(COUNTERS, SENT)
    host.lose_unsynced()
    assert disk.host().read(STATE) == disk.host().read(COUNTERS) == SENT


def test_small_files_are_sent_to_another_data_node(nodes: HdfsService) -> None:
    target = killed(nodes, UploadMoment.PART)
    on(nodes).medium.put(COUNTERS, SENT)
    assert target.is_dead() and on(nodes).medium.read(COUNTERS) == SENT


def test_what_a_dead_data_node_has_cannot_be_read_until_it_is_back(nodes: HdfsService) -> None:
    paths = [f"{STATE}-{number}" for number in range(4)]
    for path in paths:
        on(nodes).medium.write(path, chunks())
    target = killed(nodes, UploadMoment.PART)
    with pytest.raises(StorageError):
        on(nodes).medium.write(STATE, chunks())
    readable = [path for path in paths if can_be_read(nodes, path)]
    assert 0 < len(readable) < len(paths)
    target.start_again()
    assert all(on(nodes).medium.read(path) == SENT for path in paths)


def can_be_read(nodes: HdfsService, path: str) -> bool:
    try:
        return on(nodes).medium.read(path) == SENT
    except StorageError:
        return False


@pytest.mark.parametrize("moment", [UploadMoment.COMPLETION, UploadMoment.ANSWER])
def test_a_rename_over_which_a_name_node_dies_is_carried_out_or_fails_and_it_is_known_which(
    moment: UploadMoment,
) -> None:
    outcomes: dict[str, None] = {}
    for seed in range(12):
        nodes = HdfsService(SimulatedDisk().host(), random.Random(seed))
        target = killed(nodes, moment)
        try:
            put = on(nodes).medium.put_new(COUNTERS, SENT)
        except StorageError:
            outcomes["failed"] = None
            assert not on_again(nodes, target).medium.exists(COUNTERS) or moment is UploadMoment.ANSWER
        else:
            outcomes["put"] = None
            assert put, "its own rename is not taken for another's"
            assert on(nodes).medium.read(COUNTERS) == SENT and target.is_dead()
    assert sorted(outcomes) == ["failed", "put"], "the other name node took over, or did not"


def on_again(nodes: HdfsService, target: ServiceTarget) -> ModelHdfsStorage:
    target.start_again()
    return on(nodes)


def test_a_put_that_failed_leaves_nothing_beside_once_the_next_one_succeeds() -> None:
    for seed in range(12):
        nodes = HdfsService(SimulatedDisk().host(), random.Random(seed))
        storage = on(nodes)
        storage.medium.put(COUNTERS, b"first")
        target = killed(nodes, UploadMoment.COMPLETION)
        try:
            storage.medium.put(COUNTERS, b"second")
        except StorageError:
            target.start_again()
            assert [path for path in storage.medium.list_files("checkpoints") if ".tmp-" in path]
            storage.medium.put(COUNTERS, b"third")
            assert storage.medium.list_files("checkpoints") == [COUNTERS]
            return
    raise AssertionError("the other name node always took over")


def test_a_throttled_name_node_refuses_and_a_cut_one_is_silent(nodes: HdfsService) -> None:
    target = ServiceTarget(nodes)
    target.throttle()
    with pytest.raises(StorageError, match=r"too busy|standby"):
        on(nodes).medium.put(COUNTERS, SENT)
    assert target.has_throttled() and not nodes.files.list_files("")
    target.stop_throttling()
    cut = ServiceTarget(nodes).link
    cut.impair(CUT)
    with pytest.raises(StorageError, match="does not answer"):
        on(nodes).medium.read(COUNTERS)
    cut.heal()
    on(nodes).medium.put(COUNTERS, SENT)


def test_a_process_that_dies_leaves_half_of_what_it_sent_and_nothing_more_comes_from_it(
    nodes: HdfsService,
) -> None:
    storage = on(nodes)
    storage.die_in(lambda: storage.medium.write(STATE, chunks()))
    assert nodes.files.size(STATE) == len(SENT) // 2
    storage.die_in(lambda: storage.medium.delete(STATE))
    storage.die_in(lambda: storage.medium.put(COUNTERS, SENT))
    # A world closes what a dead process left open.
    with pytest.raises(StorageError, match="is dead"):
        storage.medium.delete(STATE)
    with pytest.raises(StorageError, match="is dead"):
        storage.medium.put(COUNTERS, SENT)
    left = [path for path in nodes.files.list_files("checkpoints") if ".tmp-" not in path]
    assert left == [STATE], "what it wrote beside has no name that anybody looks for"


def test_judges_read_what_hdfs_has_stored_also_while_nobody_answers(nodes: HdfsService) -> None:
    on(nodes).medium.put(COUNTERS, SENT)
    ServiceTarget(nodes).link.impair(CUT)
    assert ModelHdfsStorage(nodes.files, "job").medium.read(COUNTERS) == SENT
