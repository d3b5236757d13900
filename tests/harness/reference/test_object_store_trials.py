"""Trials with checkpoints in the model of an object store: right as they are, wrong if listings are trusted."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from barrier_tck.faults.kinds.crash_coordinator import CrashCoordinator
from barrier_tck.faults.kinds.kill_worker import KillWorker
from barrier_tck.faults.vocabulary import After, ProtocolPoint, ScheduledFault
from barrier_tck.harness.plan.trial_plan import CheckpointPlan, TrialPlan, WorkloadPlan
from barrier_tck.harness.record import operations as ops
from barrier_tck.harness.record.history import History
from barrier_tck.harness.record.verdict import Verdict
from barrier_tck.harness.reference import checkpoint_storages
from barrier_tck.harness.reference.object_store_model import PART_BYTES, ModelObjectStorage
from barrier_tck.harness.reference.simulated.file_system import SimulatedDisk
from barrier_tck.harness.reference.simulated.simulated_system import ReferenceSimulated
from barrier_tck.harness.trial.trial_run import execute, run_trial
from barrier_tck.reference_impl.ids import CheckpointId
from barrier_tck.reference_impl.runtime_errors import StorageError
from barrier_tck.reference_impl.storage.checkpoint_storage import MediumCheckpointStorage
from barrier_tck.reference_impl.storage.filesystem import FileSystem

PLAN = TrialPlan(
    workload=WorkloadPlan("keyed-totals", batches=120, keys=20),
    checkpoints=CheckpointPlan(interval_ms=15, storage="s3"),
    faults=(
        ScheduledFault(CrashCoordinator(), After(ProtocolPoint.CHECKPOINT_COMPLETED, nth=2)),
        ScheduledFault(KillWorker("totals[0]"), After(ProtocolPoint.CHECKPOINT_COMPLETED, nth=3)),
    ),
)


class TrustsListings(ModelObjectStorage):
    """Takes for complete what is listed, as on a file system."""

    def completed(self) -> tuple[CheckpointId, ...]:
        """Ask for nothing."""
        return MediumCheckpointStorage.completed(self)


def run(directory: Path) -> tuple[Verdict, History]:
    result = execute(PLAN, ReferenceSimulated(), directory)
    assert result.history is not None
    return result.record.verdict, result.history


def test_jobs_recover_from_an_object_store_whose_listings_are_late(tmp_path: Path) -> None:
    verdict, history = run(tmp_path)
    assert verdict is Verdict.VALID
    operations = [recorded.operation for recorded in history.operations]
    started = [each.restored_checkpoint for each in operations if isinstance(each, ops.AttemptStarted)]
    assert started == [None, 2, 3]


def test_a_storage_that_trusts_listings_loses_checkpoints_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(checkpoint_storages.MODELS, "s3", TrustsListings)
    assert run(tmp_path)[0] is Verdict.INVALID


class LeavesUploads(ModelObjectStorage):
    """Aborts no upload that others have begun."""

    def __init__(self, files: FileSystem, job: str, root: str = "checkpoints") -> None:
        """Take what the model takes."""
        super().__init__(files, job, root)
        self._object_files.abort_uploads = lambda directory: None  # type: ignore[method-assign]


KILLED = msgspec.structs.replace(
    PLAN,
    checkpoints=CheckpointPlan(interval_ms=15, async_ms_max=60, storage="s3"),
    faults=tuple(
        ScheduledFault(KillWorker("totals[0]"), After(ProtocolPoint.SNAPSHOT_TAKEN, "sink[0]", nth=nth))
        for nth in (3, 6)
    ),
)


@pytest.mark.parametrize("storage", [ModelObjectStorage, LeavesUploads])
def test_who_is_killed_while_it_uploads_leaves_a_part_and_the_job_aborts_that_upload(
    storage: type[ModelObjectStorage], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(checkpoint_storages.MODELS, "s3", storage)
    record = run_trial(KILLED, ReferenceSimulated(), tmp_path)
    wrong = [finding.checker for finding in record.findings if finding.verdict is Verdict.INVALID]
    assert wrong == ([] if storage is ModelObjectStorage else ["no-garbage"])


def test_nothing_comes_from_a_process_that_died_in_an_upload() -> None:
    files = SimulatedDisk().host()
    storage = ModelObjectStorage(files, "job")

    def upload() -> None:
        storage.medium.write("checkpoints/job/chk-1/state", [b"x" * (3 * PART_BYTES)])

    storage.die_in(upload)
    assert files.list_files("checkpoints") == ["checkpoints/job/chk-1/state;000001"]
    storage.die_in(lambda: storage.medium.delete_tree("checkpoints"))
    storage.die_in(lambda: storage.medium.put("checkpoints/job/chk-1/other", b"x"))
    assert files.list_files("checkpoints") == ["checkpoints/job/chk-1/state;000001"]
    # A world closes what a dead process left open.
    for late in (upload, lambda: storage.medium.delete_tree("checkpoints")):
        with pytest.raises(StorageError, match="is dead"):
            late()
    assert files.list_files("checkpoints") == ["checkpoints/job/chk-1/state;000001"]
    ModelObjectStorage(files, "job").medium.delete_tree("checkpoints/job/chk-1")
    assert files.list_files("checkpoints") == []
