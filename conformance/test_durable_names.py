"""A name that is not synced is lost with its host, and an answer that is lost says nothing of what was done.

A predecessor that died in the middle of a commit or a publication leaves names behind that were not made durable. Its
successor must make them durable first, or do without them.
"""

from __future__ import annotations

import msgspec
import pytest

from barrier_tck.conformance.plans import CALM, SINK, crash_coordinator, kill_worker, varied, with_faults
from barrier_tck.conformance.trials import Trials, happened, require
from barrier_tck.faults.kinds.fail_request import FailRequest
from barrier_tck.faults.kinds.lose_host import LoseHost
from barrier_tck.faults.vocabulary import After, ProtocolPoint, ScheduledFault
from barrier_tck.harness.plan.job_graph import JobPlan
from barrier_tck.harness.plan.trial_plan import (
    CheckpointPlan,
    DeploymentPlan,
    SavepointPlan,
    WorkloadPlan,
)
from barrier_tck.harness.system.system_under_test import Capability

LONGER = varied(workload=WorkloadPlan(batches=40, records_per_second=600))
IN_A_COMMIT = After(ProtocolPoint.COMMIT_STEP, SINK)
DIED_PUBLISHING = crash_coordinator(After(ProtocolPoint.PUBLICATION_STEP))
"""A coordinator that has given a file its name, and has not made the name durable."""


@pytest.mark.nightly_on_clusters
@pytest.mark.needs(Capability.UNSYNCED_LOSS, Capability.CHECKPOINTS)
@pytest.mark.clause("SNK-1")
def test_what_a_sink_had_moved_when_it_died_is_durable_before_it_counts_as_committed(trials: Trials) -> None:
    plan = varied(workload=WorkloadPlan(batches=4), deployment=DeploymentPlan(executors=1))
    lost = ScheduledFault(LoseHost(SINK), After(ProtocolPoint.CHECKPOINT_COMPLETED, nth=2))
    for trial in trials.all_valid(with_faults(kill_worker(SINK, IN_A_COMMIT), lost, plan=plan)):
        happened(trial.record.recoveries >= 2, "the sink died, and then its host was lost", trial)


@pytest.mark.nightly_on_clusters
@pytest.mark.needs(Capability.UNSYNCED_LOSS, Capability.CHECKPOINTS)
@pytest.mark.clause("SNK-1")
def test_a_job_does_not_end_with_a_commit_that_its_sink_had_only_begun(trials: Trials) -> None:
    """The only sink commits once, at the end of the input, and its host is lost meanwhile."""
    plan = varied(
        workload=WorkloadPlan(batches=3),
        job=JobPlan("line", {"sink": 1}),
        deployment=DeploymentPlan(executors=1),
        checkpoints=CheckpointPlan(interval_ms=60_000, timeout_ms=60_000),
    )
    plan = msgspec.structs.replace(plan, network=msgspec.structs.replace(plan.network, latency_ms_max=0))
    for trial in trials.all_valid(with_faults(ScheduledFault(LoseHost(SINK), IN_A_COMMIT), plan=plan)):
        happened(len(trial.record.faults) == 1, "the host was lost", trial)
        require(trial.record.recoveries == 1, "the job has not ended before the commit", trial)


@pytest.mark.nightly_on_clusters
@pytest.mark.needs(Capability.UNSYNCED_LOSS, Capability.CHECKPOINTS, Capability.SNAPSHOT_INSPECTION)
@pytest.mark.clause("COO-1", "SNK-1", "STA-3")
def test_a_coordinator_makes_the_checkpoint_durable_on_which_it_builds(trials: Trials) -> None:
    again = crash_coordinator(IN_A_COMMIT, lose_unsynced=True)
    for trial in trials.all_valid(with_faults(DIED_PUBLISHING, again, plan=LONGER)):
        happened(len(trial.record.faults) == 2, "two coordinators died", trial)


@pytest.mark.nightly_on_clusters
@pytest.mark.needs(Capability.UNSYNCED_LOSS, Capability.SAVEPOINTS, Capability.SNAPSHOT_INSPECTION)
@pytest.mark.clause("COO-3", "STA-3")
def test_a_savepoint_that_a_coordinator_takes_over_is_durable_before_its_note_goes(trials: Trials) -> None:
    again = crash_coordinator(After(ProtocolPoint.ATTEMPT_RUNNING, nth=2), lose_unsynced=True)
    plan = msgspec.structs.replace(LONGER, savepoints=(SavepointPlan(after_checkpoints=0),))
    for trial in trials.all_valid(with_faults(DIED_PUBLISHING, again, plan=plan)):
        storage = trial.history.storage
        require(
            storage is not None and not storage.orphans, "storage was read, and holds no orphaned file", trial
        )


@pytest.mark.nightly_on_clusters
@pytest.mark.uses("checkpoints.storage")
@pytest.mark.clause("STA-2")
@pytest.mark.parametrize(("storage", "nth"), [("hdfs", 2), ("s3", 1)])
def test_a_request_whose_answer_was_lost_is_no_failure_of_its_checkpoint(
    trials: Trials, storage: str, nth: int
) -> None:
    """It is the one that publishes the checkpoint: the rename of its metadata, or the put on a condition."""
    plan = varied(
        workload=WorkloadPlan(batches=20, records_per_second=600),
        checkpoints=CheckpointPlan(interval_ms=CALM.checkpoints.interval_ms, storage=storage),
    )
    lost = ScheduledFault(FailRequest(nth=nth, carried_out=True), After(ProtocolPoint.ALL_ACKNOWLEDGED))
    for trial in trials.all_valid(with_faults(lost, plan=plan)):
        (record,) = trial.record.faults
        happened(record.outcome == "fired", "an answer was lost", trial)
