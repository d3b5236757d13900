"""A plan's incremental checkpoints reach its trial: files are used again, also across restores and local copies."""

from __future__ import annotations

from pathlib import Path

import pytest

from barrier_tck.faults.kinds.crash_coordinator import CrashCoordinator
from barrier_tck.faults.kinds.kill_worker import KillWorker
from barrier_tck.faults.vocabulary import After, ProtocolPoint, ScheduledFault
from barrier_tck.harness.oracle.checkers.shared_files import REUSED, SharedFilesKept
from barrier_tck.harness.plan.job_graph import JobPlan
from barrier_tck.harness.plan.trial_plan import CheckpointPlan, SavepointPlan, TrialPlan, WorkloadPlan
from barrier_tck.harness.record.history import History
from barrier_tck.harness.record.operations import Restored, ServedFrom
from barrier_tck.harness.record.records import TrialResult
from barrier_tck.harness.record.verdict import Verdict
from barrier_tck.harness.reference.simulated.simulated_system import ReferenceSimulated
from barrier_tck.harness.trial.trial_run import execute

LONG = WorkloadPlan(batches=60, records_per_second=300, keys=60)
OFTEN = CheckpointPlan(incremental=True, interval_ms=10)
KILLED = ScheduledFault(KillWorker("totals[0]"), After(ProtocolPoint.COMPLETION_NOTIFIED, "sink[0]", 4))
CRASHED = ScheduledFault(CrashCoordinator(), After(ProtocolPoint.CHECKPOINT_COMPLETED, nth=4))


def tried(directory: Path, **changes: object) -> TrialResult:
    plan = TrialPlan(workload=LONG, job=JobPlan("chained"), checkpoints=OFTEN, **changes)  # type: ignore[arg-type]
    trial = execute(plan, ReferenceSimulated(), directory)
    assert trial.record.verdict is Verdict.VALID, trial.record.findings
    return trial


def history_of(trial: TrialResult) -> History:
    assert trial.history is not None
    return trial.history


def reused(trial: TrialResult) -> int:
    (finding,) = [one for one in trial.record.findings if one.checker == SharedFilesKept.name]
    return finding.counts[REUSED]


@pytest.mark.parametrize("backend", ["heap", pytest.param("rocksdb", marks=pytest.mark.long)])
@pytest.mark.parametrize("fault", [KILLED, CRASHED], ids=["a worker is killed", "the coordinator crashes"])
def test_increments_go_on_across_a_failure(tmp_path: Path, backend: str, fault: ScheduledFault) -> None:
    trial = tried(tmp_path, state_backend=backend, faults=(fault,))
    assert trial.record.recoveries > 0 and reused(trial) > 20


@pytest.mark.parametrize("backend", ["heap", pytest.param("rocksdb", marks=pytest.mark.long)])
def test_a_local_copy_of_an_increment_is_whole(tmp_path: Path, backend: str) -> None:
    trial = tried(tmp_path, state_backend=backend, faults=(KILLED,), local_recovery=True)
    assert reused(trial) > 20
    served = [file for told in history_of(trial).of(Restored) for file in told.operation.files]
    assert any("/shared/" in file.path and file.served_by is ServedFrom.SECONDARY for file in served)


def test_a_job_that_starts_from_a_savepoint_begins_with_full_checkpoints(tmp_path: Path) -> None:
    trial = tried(tmp_path, savepoints=(SavepointPlan(after_checkpoints=3, stop=True),))
    assert reused(trial) > 20
    (savepoint,) = [view for view in history_of(trial).checkpoints if view.savepoint is not None]
    first = next(view for view in history_of(trial).checkpoints if view.checkpoint > savepoint.checkpoint)
    older = {
        file.path
        for view in history_of(trial).checkpoints
        if view.checkpoint <= savepoint.checkpoint
        for files in view.files.values()
        for file in files
    }
    named = {file.path for files in first.files.values() for file in files}
    assert named and not named & older
