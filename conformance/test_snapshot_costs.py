"""What a snapshot costs in files, requests and bytes: no more than it holds explains, however many keys (SNP-8)."""

from __future__ import annotations

import pytest

from barrier_tck.conformance.plans import SINK, kill_worker, varied, with_faults
from barrier_tck.conformance.trials import Trials, happened, require
from barrier_tck.faults.targets import COORDINATOR
from barrier_tck.faults.vocabulary import After, ProtocolPoint
from barrier_tck.harness.plan.trial_plan import WorkloadPlan
from barrier_tck.harness.record.operations import StorageAsked
from barrier_tck.harness.record.verdict import Verdict
from barrier_tck.harness.system.system_under_test import Capability

pytestmark = [
    pytest.mark.needs(Capability.SNAPSHOT_INSPECTION, Capability.REQUEST_LOG),
    pytest.mark.nightly_on_clusters,
]

MANY_KEYS, DROPPED = 30, 5
MANY = varied(
    workload=WorkloadPlan("keyed-totals", batches=40, batch_records=3, keys=60, records_per_second=300)
)
"""Keys of every key group."""


@pytest.mark.clause("SNP-8")
def test_a_snapshot_has_no_more_files_if_a_subtask_has_more_keys(trials: Trials) -> None:
    """One file for each subtask with state, however many keys are in it."""
    trial = trials.valid(MANY)
    many = [
        view
        for view in trial.history.checkpoints
        if sum(len(part.entries) for part in view.state) >= MANY_KEYS
    ]
    happened(many, f"a checkpoint has {MANY_KEYS} keys or more", trial)
    for view in many:
        several = {subtask: files for subtask, files in view.files.items() if len(files) > 1}
        require(
            not several, f"checkpoint {view.checkpoint} has one file for each subtask, not {several}", trial
        )


@pytest.mark.needs(Capability.ATTEMPTS, Capability.WORKER_KILL)
@pytest.mark.clause("SNP-8")
def test_requests_to_storage_are_bounded_by_the_files_of_a_snapshot(trials: Trials) -> None:
    """A checkpoint is restored too: each of its files is read once at most."""
    killed = kill_worker(SINK, After(ProtocolPoint.COMPLETION_NOTIFIED, SINK, 2))
    trial = trials.valid_until(
        with_faults(killed, plan=MANY),
        lambda trial: trial.finding("snapshot-costs").counts["files"],
        "subtasks wrote files",
    )
    read = sum(line.operation.requests.get("read", 0) for line in trial.history.of(StorageAsked))
    happened(read, "a subtask restored its state and acknowledged another checkpoint", trial)


@pytest.mark.clause("SNP-8")
def test_the_coordinator_asks_storage_as_often_as_its_checkpoints_need(trials: Trials) -> None:
    """Each checkpoint but the last two is dropped, too."""
    trial = trials.valid(MANY)
    counted = [
        line.operation for line in trial.history.of(StorageAsked) if line.operation.subtask == COORDINATOR
    ]
    happened(len(counted) >= DROPPED + 2, "the coordinator completed several checkpoints", trial)
    happened(counted[-1].requests.get("delete", 0) >= DROPPED, "it dropped older ones", trial)
    require(trial.finding("snapshot-costs").verdict is Verdict.VALID, "its requests are bounded", trial)


@pytest.mark.clause("SNP-8")
def test_a_full_snapshot_is_as_large_as_what_it_holds_explains(trials: Trials) -> None:
    """What its entries take is in its files, and little else."""
    trial = trials.valid(MANY)
    finding = trial.finding("snapshot-sizes")
    happened(finding.counts["snapshots"], "subtasks stored full snapshots that can be measured", trial)
    require(finding.verdict is Verdict.VALID, "none is larger than its entries explain", trial)
