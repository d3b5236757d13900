"""Every record's effect is in the committed output exactly once, whatever is killed, whenever."""

from __future__ import annotations

import pytest

from barrier_tck.conformance.plans import (
    OTHER_STATEFUL,
    SINK,
    SIX_AIMS,
    SOURCE,
    kill_executor,
    kill_worker,
    varied,
    with_faults,
)
from barrier_tck.conformance.trials import Trials, happened, require
from barrier_tck.faults.vocabulary import After, At, ProtocolPoint
from barrier_tck.harness.plan.job_graph import JobPlan
from barrier_tck.harness.plan.trial_plan import WorkloadPlan
from barrier_tck.harness.system.system_under_test import Capability

pytestmark = pytest.mark.clause("SNK-1")

AIMS_BEFORE_A_MERGE = ("during-alignment", "complete-not-committed")
"""The two that are tried on clusters for every merge; every night all six are."""


@pytest.mark.long
@pytest.mark.clause("REC-1", "REC-2", "CAM-3")
def test_a_kill_of_an_executor_at_a_time(trials: Trials) -> None:
    for trial in trials.all_valid(with_faults(kill_executor(OTHER_STATEFUL, At(20)))):
        recovered = trial.record.recoveries >= 1 or not trials.can(Capability.ATTEMPTS)
        happened(recovered, "the job recovered", trial)


@pytest.mark.clause("REC-1", "CAM-3")
@pytest.mark.parametrize(
    "aim",
    [
        pytest.param(aim, marks=() if aim in AIMS_BEFORE_A_MERGE else pytest.mark.nightly_on_clusters)
        for aim in SIX_AIMS
    ],
)
def test_a_kill_at_each_place_of_the_protocol(trials: Trials, aim: str) -> None:
    for trial in trials.all_valid(SIX_AIMS[aim]):
        counts = trial.finding("exactly-once-output").counts
        require(counts["committed"] == counts["expected"] > 0, "all is committed, nothing twice", trial)


@pytest.mark.long_on_clusters
@pytest.mark.clause("REC-1", "REC-2")
def test_a_sink_that_dies_right_after_its_commit_does_not_commit_twice(trials: Trials) -> None:
    committed = After(ProtocolPoint.TRANSACTIONS_COMMITTED, SINK)
    trials.all_valid(with_faults(kill_worker(SINK, committed)))


@pytest.mark.long_on_clusters
@pytest.mark.needs(Capability.ATTEMPTS, Capability.CHECKPOINTS)
@pytest.mark.clause("SRC-1", "REC-1", "REC-2")
def test_a_source_that_dies_reads_on_at_the_restored_position(trials: Trials) -> None:
    completed = After(ProtocolPoint.COMPLETION_NOTIFIED, SOURCE)
    for trial in trials.all_valid(with_faults(kill_worker(SOURCE, completed))):
        restored = [attempt.restored_checkpoint for attempt in trial.record.attempts[1:]]
        happened(restored and None not in restored, "a checkpoint was restored", trial)


@pytest.mark.clause("ALN-1", "ALN-2", "BAR-2", "REC-1")
@pytest.mark.parametrize("shape", ["mixed", "apart"])
def test_records_come_by_every_kind_of_edge_to_every_sink(trials: Trials, shape: str) -> None:
    """A broadcast, two edges between the same vertices, a chain with two states, two sinks; and two jobs in one."""
    plan = varied(
        workload=WorkloadPlan("lineage", batches=12, batch_records=5, keys=3, records_per_second=300),
        job=JobPlan(shape=shape),
    )
    for trial in trials.all_valid(plan):
        require(trial.finding("dataflow").clauses, "the graph was judged", trial)


@pytest.mark.nightly_on_clusters
@pytest.mark.clause("REC-1", "REC-2", "REC-6", "SRC-1", "ALN-1", "ALN-2", "COO-1", "CAM-3")
def test_generated_jobs_and_faults(trials: Trials) -> None:
    trials.generated("standard")
