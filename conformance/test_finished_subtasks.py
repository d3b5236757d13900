"""Subtasks finish before the job does: ended channels count as aligned, and checkpoints go on without them (BAR-6)."""

from __future__ import annotations

import msgspec
import pytest

from barrier_tck.conformance.plans import OTHER_SOURCE, SINK, kill_worker, varied, with_faults
from barrier_tck.conformance.trials import Trial, Trials, happened
from barrier_tck.faults.vocabulary import After, ProtocolPoint
from barrier_tck.harness.plan.job_graph import JobPlan
from barrier_tck.harness.plan.trial_plan import CheckpointingMode, CheckpointPlan, TrialPlan, WorkloadPlan
from barrier_tck.harness.system.system_under_test import Capability

finishes = pytest.mark.needs(Capability.EARLY_FINISH, Capability.SNAPSHOT_INSPECTION)
recovers = pytest.mark.needs(
    Capability.EARLY_FINISH, Capability.SNAPSHOT_INSPECTION, Capability.ATTEMPTS, Capability.WORKER_KILL
)
overtakes = pytest.mark.needs(
    Capability.EARLY_FINISH, Capability.SNAPSHOT_INSPECTION, Capability.UNALIGNED_CHECKPOINTS
)

EARLY: TrialPlan = varied(
    workload=WorkloadPlan(
        "lineage", batches=24, batch_records=3, keys=5, records_per_second=300, early_ends=1
    ),
    job=JobPlan("joined"),
    checkpoints=CheckpointPlan(interval_ms=15),
)
"""One source subtask has hardly any input; it finishes while the others have most of theirs before them."""


def _after_a_finish(trial: Trial) -> int:
    """Return how many checkpoints completed after some of their subtasks, but not all, had finished."""
    return trial.finding("finished-subtasks").counts["after_finish"]


def _in_mode(mode: CheckpointingMode) -> TrialPlan:
    return msgspec.structs.replace(
        EARLY, checkpoints=msgspec.structs.replace(EARLY.checkpoints, mode=mode, max_concurrent=2)
    )


@finishes
@pytest.mark.clause("BAR-6", "SNK-1")
def test_checkpoints_complete_after_a_subtask_has_finished(trials: Trials) -> None:
    for trial in trials.all_valid(EARLY):
        happened(_after_a_finish(trial) >= 2, "checkpoints completed without a subtask", trial)


@pytest.mark.long
@pytest.mark.nightly_on_clusters
@finishes
@pytest.mark.clause("BAR-6", "ALO-1")
def test_an_ended_channel_counts_as_having_delivered_barriers_that_hold_nothing_back(trials: Trials) -> None:
    for trial in trials.all_valid(_in_mode("at_least_once")):
        happened(_after_a_finish(trial) >= 2, "checkpoints completed without a subtask", trial)


@pytest.mark.long
@overtakes
@pytest.mark.clause("BAR-6", "UNA-1")
@pytest.mark.parametrize(
    "mode",
    [pytest.param(mode, marks=pytest.mark.nightly_on_clusters) for mode in ("unaligned", "aligned_timeout")],
)
def test_an_ended_channel_counts_as_overtaken(trials: Trials, mode: CheckpointingMode) -> None:
    for trial in trials.all_valid(_in_mode(mode)):
        happened(_after_a_finish(trial) >= 2, "checkpoints completed without a subtask", trial)


@pytest.mark.nightly_on_clusters
@pytest.mark.long
@recovers
@pytest.mark.clause("BAR-6", "REC-1")
@pytest.mark.parametrize("killed", [pytest.param(SINK, marks=pytest.mark.nightly_on_clusters), OTHER_SOURCE])
def test_a_restore_knows_which_subtasks_had_finished(trials: Trials, killed: str) -> None:
    plan = with_faults(kill_worker(killed, After(ProtocolPoint.COMPLETION_NOTIFIED, SINK, 5)), plan=EARLY)
    for trial in trials.all_valid(plan):
        counts = trial.finding("finished-subtasks").counts
        happened(trial.record.recoveries >= 1, "the job recovered", trial)
        happened(counts["restored_after_finish"] >= 1, "a checkpoint without a subtask was restored", trial)
