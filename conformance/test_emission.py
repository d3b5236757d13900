"""What an operator emits when it changes, not for each record, comes ahead of the next barrier: once, and none is lost.

A row that waits to be emitted is neither in the output nor in the state that a restore brings back. So it must leave
the operator before its part of the snapshot is taken, also to a sink that is chained to it.
"""

from __future__ import annotations

import msgspec
import pytest

from barrier_tck.conformance.plans import CALM, STATEFUL, kill_worker, with_faults
from barrier_tck.conformance.trials import Trials, happened, require
from barrier_tck.faults.vocabulary import After, ProtocolPoint
from barrier_tck.harness.plan.job_graph import JobPlan
from barrier_tck.harness.plan.trial_plan import DeploymentPlan, TrialPlan, WorkloadPlan
from barrier_tck.harness.system.system_under_test import Capability

pytestmark = pytest.mark.needs(Capability.ATTEMPTS, Capability.CHECKPOINTS)

PLAN = msgspec.structs.replace(
    CALM,
    workload=WorkloadPlan("changed-totals", batches=30, batch_records=3, keys=12, records_per_second=300),
)


def _killed_late(plan: TrialPlan) -> TrialPlan:
    """Let a keyed subtask die when it has emitted rows of several checkpoints."""
    return with_faults(kill_worker(STATEFUL, After(ProtocolPoint.CHECKPOINT_COMPLETED, nth=3)), plan=plan)


@pytest.mark.clause("SNK-1", "BAR-2", "ALN-2", "REC-1")
@pytest.mark.parametrize("shape", ["plain", pytest.param("chained", marks=pytest.mark.nightly_on_clusters)])
def test_what_was_emitted_ahead_of_a_barrier_is_in_the_output_once(trials: Trials, shape: str) -> None:
    plan = PLAN if shape == "plain" else msgspec.structs.replace(PLAN, job=JobPlan(shape))
    for trial in trials.all_valid(_killed_late(plan)):
        happened(trial.record.recoveries >= 1, "the job recovered", trial)
        require(trial.finding("changed-totals").clauses, "what changed was judged", trial)


@pytest.mark.nightly_on_clusters
@pytest.mark.clause("SNK-1", "BAR-2")
def test_a_key_that_left_memory_before_it_was_emitted_is_emitted_all_the_same(trials: Trials) -> None:
    plan = msgspec.structs.replace(PLAN, deployment=DeploymentPlan(cached_keys=2))
    for trial in trials.all_valid(plan):
        require(trial.finding("changed-totals").clauses, "what changed was judged", trial)
