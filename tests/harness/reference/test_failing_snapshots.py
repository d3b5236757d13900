"""Synchronous parts that fail: who is told, in one process and through a directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from barrier_tck.faults.kinds.fail_snapshot import FailSnapshot
from barrier_tck.faults.vocabulary import After, ProtocolPoint, ScheduledFault
from barrier_tck.harness.plan.trial_plan import CheckpointPlan, TrialPlan, WorkloadPlan
from barrier_tck.harness.record.operations import AttemptStarted, CheckpointAborted, CheckpointCompleted
from barrier_tck.harness.record.reasons import Reason
from barrier_tck.harness.record.verdict import Verdict
from barrier_tck.harness.reference.failing_snapshots import (
    FailingSnapshots,
    Failures,
    FailuresDirectory,
    FailuresInMemory,
)
from barrier_tck.harness.reference.simulated.simulated_system import ReferenceSimulated
from barrier_tck.harness.trial.trial_run import execute


@pytest.mark.parametrize("in_memory", [True, False], ids=["in memory", "in a directory"])
def test_as_many_snapshots_fail_as_were_asked_for_and_of_that_subtask_only(
    in_memory: bool, tmp_path: Path
) -> None:
    failures: Failures = FailuresInMemory() if in_memory else FailuresDirectory(str(tmp_path))
    has_failed = FailingSnapshots(failures, "totals[0]").fail(2)
    assert not failures.take("totals[1]") and not has_failed()
    assert [failures.take("totals[0]") for _ in range(3)] == [True, True, False]
    assert has_failed() and failures.taken("totals[0]") == 2
    once_more = FailingSnapshots(failures, "totals[0]").fail(1)
    assert not once_more()
    assert failures.take("totals[0]") and once_more() and not failures.take("totals[0]")


@pytest.mark.parametrize(("tolerated", "attempts"), [(2, 1), (1, 2)])
def test_snapshots_that_fail_count_as_failures_and_later_ones_complete(
    tolerated: int, attempts: int, tmp_path: Path
) -> None:
    plan = TrialPlan(
        workload=WorkloadPlan(batches=30, records_per_second=600),
        checkpoints=CheckpointPlan(interval_ms=10, tolerated_failures=tolerated),
        faults=(
            ScheduledFault(FailSnapshot("totals[0]", 2), After(ProtocolPoint.CHECKPOINT_TRIGGERED, nth=2)),
        ),
    )
    result = execute(plan, ReferenceSimulated(), tmp_path)
    history = result.history
    assert history is not None and result.record.verdict is Verdict.VALID, result.record.findings
    aborted = [line.operation for line in history.of(CheckpointAborted)]
    assert [one.checkpoint for one in aborted if one.reason is Reason.DECLINED] == [2, 3]
    assert max(line.operation.checkpoint for line in history.of(CheckpointCompleted)) > 3
    assert len(list(history.of(AttemptStarted))) == attempts
