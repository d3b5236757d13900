"""Trials with checkpoints in the model of an object store: right as they are, wrong if listings are trusted."""

from __future__ import annotations

from pathlib import Path

import pytest

from barrier_tck.faults.kinds.crash_coordinator import CrashCoordinator
from barrier_tck.faults.kinds.kill_worker import KillWorker
from barrier_tck.faults.vocabulary import After, ProtocolPoint, ScheduledFault
from barrier_tck.harness.plan.trial_plan import CheckpointPlan, TrialPlan, WorkloadPlan
from barrier_tck.harness.record import operations as told
from barrier_tck.harness.record.history import History
from barrier_tck.harness.record.verdict import Verdict
from barrier_tck.harness.reference.mutants import mutant_catalogue
from barrier_tck.harness.reference.object_store_model import ModelObjectStorage
from barrier_tck.harness.reference.simulated.simulated_system import ReferenceSimulated
from barrier_tck.harness.support.errors import UsageProblem
from barrier_tck.harness.trial.trial_run import execute
from barrier_tck.reference_impl.ids import CheckpointId
from barrier_tck.reference_impl.storage.checkpoint_storage import MediumCheckpointStorage

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
    started = [each.restored_checkpoint for each in operations if isinstance(each, told.AttemptStarted)]
    assert started == [None, 2, 3]


def test_a_storage_that_trusts_listings_loses_checkpoints_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mutant_catalogue, "ModelObjectStorage", TrustsListings)
    assert run(tmp_path)[0] is Verdict.INVALID


def test_a_planted_bug_of_files_is_not_mixed_with_an_object_store() -> None:
    plan = TrialPlan(mutant="MD-01", checkpoints=CheckpointPlan(storage="s3"))
    with pytest.raises(UsageProblem, match=r"leave checkpoints\.storage at 'files'"):
        mutant_catalogue.components_of(plan)
