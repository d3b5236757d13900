"""What a snapshot costs in files and requests: as much as its files need, however many keys there are (SNP-8)."""

from __future__ import annotations

import pytest

from barrier_tck.conformance.plans import SINK, kill_worker, varied, with_faults
from barrier_tck.conformance.trials import Trials, happened, require
from barrier_tck.faults.vocabulary import After, ProtocolPoint
from barrier_tck.harness.plan.trial_plan import WorkloadPlan
from barrier_tck.harness.record.operations import StorageAsked
from barrier_tck.harness.system.system_under_test import Capability

pytestmark = pytest.mark.needs(Capability.SNAPSHOT_INSPECTION, Capability.REQUEST_LOG)

MANY = varied(
    workload=WorkloadPlan("keyed-totals", batches=40, batch_records=3, keys=60, records_per_second=300)
)
"""Keys of every key group."""


@pytest.mark.clause("SNP-8")
def test_a_snapshot_has_no_more_files_if_a_subtask_has_more_keys(trials: Trials) -> None:
    """The first checkpoints have few of the keys, the last one has all."""
    trial = trials.valid(MANY)
    keys: dict[int, int] = {}
    files: dict[int, int] = {}
    for view in trial.history.checkpoints:
        keys[view.checkpoint] = sum(len(part.entries) for part in view.state)
        files[view.checkpoint] = sum(len(named) for named in view.files.values())
    happened(keys and min(keys.values()) < max(keys.values()), "checkpoints have more and more keys", trial)
    most = max(files[checkpoint] for checkpoint in keys)
    subtasks = max(len(view.files) for view in trial.history.checkpoints)
    require(most <= subtasks, f"{subtasks} subtasks with state write {most} files for a checkpoint", trial)


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
