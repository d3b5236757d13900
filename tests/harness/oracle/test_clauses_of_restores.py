"""Who compares state or output with the input speaks for increments and savepoints, too. Grain: whole trials."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from barrier_tck.faults.kinds.kill_worker import KillWorker
from barrier_tck.faults.vocabulary import After, ProtocolPoint, ScheduledFault
from barrier_tck.harness.campaign.failures import failed_checker
from barrier_tck.harness.plan.trial_plan import CheckpointPlan, SavepointPlan, TrialPlan, WorkloadPlan
from barrier_tck.harness.record.records import TrialRecord
from barrier_tck.harness.record.verdict import Verdict
from barrier_tck.harness.reference.bugs.catalogue import planted_bugs
from barrier_tck.harness.reference.simulated.simulated_system import ReferenceSimulated
from barrier_tck.harness.trial.trial_run import run_trial

KILL = ScheduledFault(KillWorker("totals[0]"), After(ProtocolPoint.CHECKPOINT_COMPLETED, nth=4))
INCREMENTAL = TrialPlan(
    seed=2,
    workload=WorkloadPlan(batches=40, keys=12, records_per_second=300),
    checkpoints=CheckpointPlan(interval_ms=12, incremental=True),
)
STOPPED = TrialPlan(
    seed=2,
    workload=WorkloadPlan(batches=40, keys=12, records_per_second=300),
    checkpoints=CheckpointPlan(interval_ms=12),
    savepoints=(SavepointPlan(after_checkpoints=2, stop=True),),
)
BY_CONTENT = ("exactly-once-output", "snapshot-formula")


def run(plan: TrialPlan, tmp_path: Path) -> TrialRecord:
    return run_trial(plan, ReferenceSimulated(), tmp_path)


def speaks(record: TrialRecord, clause: str) -> list[bool]:
    return [clause in found.clauses for found in record.findings if found.checker in BY_CONTENT]


@pytest.mark.parametrize(
    ("plan", "clause", "said"),
    [
        (msgspec.structs.replace(INCREMENTAL, faults=(KILL,)), "SNP-5", True),
        (INCREMENTAL, "SNP-5", False),
        (msgspec.structs.replace(INCREMENTAL, faults=(KILL,)), "COO-5", False),
        (STOPPED, "COO-5", True),
        (msgspec.structs.replace(STOPPED, savepoints=(SavepointPlan(after_checkpoints=2),)), "COO-5", False),
        (STOPPED, "SNP-5", False),
    ],
)
def test_a_right_output_says_something_only_after_a_restore_from_one(
    plan: TrialPlan, clause: str, said: bool, tmp_path: Path
) -> None:
    record = run(plan, tmp_path)
    assert record.verdict is Verdict.VALID, record.findings
    assert speaks(record, clause) == [said, said]


@pytest.mark.parametrize(("plan", "clause"), [(INCREMENTAL, "SNP-5"), (STOPPED, "COO-5")])
def test_a_wrong_output_counts_for_a_bug_that_names_the_clause(
    plan: TrialPlan, clause: str, tmp_path: Path
) -> None:
    planted = planted_bugs()["SO-02"].planted_in(msgspec.structs.replace(plan, faults=(KILL,)))
    record = run(planted, tmp_path)
    assert failed_checker(record, clause) is not None, record.findings
