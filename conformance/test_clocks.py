"""The clocks of hosts differ, and nothing that a job promises depends on it: each waits by its own clock."""

from __future__ import annotations

import msgspec
import pytest

from barrier_tck.conformance.plans import CALM, SINK, kill_worker, varied, with_faults
from barrier_tck.conformance.trials import Trial, Trials, happened, require
from barrier_tck.faults.vocabulary import After, ProtocolPoint
from barrier_tck.harness.plan.job_graph import JobPlan
from barrier_tck.harness.plan.trial_plan import CheckpointPlan, DeploymentPlan, TrialPlan, WorkloadPlan
from barrier_tck.harness.record.operations import CheckpointAborted, CheckpointCompleted, ClockCompared
from barrier_tck.harness.record.reasons import Reason
from barrier_tck.harness.system.system_under_test import Capability
from barrier_tck.harness.workloads.workload_names import job_of

pytestmark = [
    pytest.mark.needs(Capability.CLOCK_SKEW, Capability.CHECKPOINTS),
    pytest.mark.uses("deployment.clock_skew_ms"),
    pytest.mark.nightly_on_clusters,
]

FAR_MS = 600_000
"""Longer than any timeout, and than any trial."""
SKEWED = DeploymentPlan(executors=2, clock_skew_ms=(FAR_MS, -FAR_MS))


def _assert_clocks_differed(trial: Trial) -> None:
    ahead = [line.operation.ahead_ms for line in trial.history.of(ClockCompared)]
    happened(max(ahead) - min(ahead) > FAR_MS, "processes had clocks that differ", trial)


@pytest.mark.clause("BAR-3", "COO-2")
def test_no_checkpoint_expires_by_the_clock_of_another_host(trials: Trials) -> None:
    trial = trials.valid(varied(deployment=SKEWED))
    _assert_clocks_differed(trial)
    happened(any(trial.history.of(CheckpointCompleted)), "a checkpoint completed", trial)
    expired = [
        line
        for line in trial.history.of(CheckpointAborted)
        if line.operation.reason in (Reason.EXPIRED, Reason.DECLINED)
    ]
    require(not expired, f"no checkpoint is given up, but {expired}", trial)


@pytest.mark.needs(Capability.UNALIGNED_CHECKPOINTS)
@pytest.mark.clause("UNA-2")
def test_an_alignment_times_out_by_the_clock_of_the_host_that_waits(trials: Trials) -> None:
    plan = varied(
        deployment=SKEWED, checkpoints=CheckpointPlan(mode="aligned_timeout", alignment_timeout_ms=5)
    )
    _assert_clocks_differed(trials.valid(plan))


@pytest.mark.needs(
    Capability.OPERATOR_TIMERS, Capability.WORKER_KILL, Capability.ATTEMPTS, Capability.SNAPSHOT_INSPECTION
)
@pytest.mark.clause("STA-1", "REC-1")
def test_timers_go_off_by_the_clock_of_their_own_host_also_after_a_restore(trials: Trials) -> None:
    plan: TrialPlan = msgspec.structs.replace(
        CALM,
        job=job_of("lineage", JobPlan("windows", {"windows": 2})),
        workload=WorkloadPlan("lineage", batches=60, batch_records=2, keys=20, records_per_second=400),
        checkpoints=CheckpointPlan(interval_ms=15),
        deployment=msgspec.structs.replace(SKEWED, max_parallelism=6),
    )
    killed = kill_worker(SINK, After(ProtocolPoint.COMPLETION_NOTIFIED, SINK, 2))
    for trial in trials.all_valid(with_faults(killed, plan=plan)):
        _assert_clocks_differed(trial)
        happened(len(trial.record.attempts) > 1, "the job was recovered", trial)
