"""The basics: without faults, inputs of no record, of one and of several come out exactly.

If one of these fails, the tests that follow show nothing.
"""

from __future__ import annotations

import pytest

from barrier_tck.conformance.plans import (
    CALM,
    varied,
)
from barrier_tck.conformance.trials import Trial, Trials, happened, require
from barrier_tck.harness.plan.job_graph import JobPlan
from barrier_tck.harness.plan.trial_plan import CheckpointPlan, WorkloadPlan
from barrier_tck.harness.system.system_under_test import Capability


def _finished(trials: Trials, trial: Trial, records: int) -> None:
    """Require an exact output, and a checkpoint of a system that takes any.

    Without a record, only one with barriers must take one.
    """
    require(trial.record.end == "finished", "the job finishes", trial)
    if trials.can(Capability.CHECKPOINTS) and (records or trials.can(Capability.BARRIERS)):
        happened(trial.record.checkpoints_completed >= 1, "at least one checkpoint completes", trial)
    committed = trial.finding("exactly-once-output").counts
    require(committed["expected"] == records, f"the input has {records} records", trial)
    require(committed["committed"] == records, f"{records} rows are committed", trial)


@pytest.mark.clause("REC-6", "SNK-1")
def test_an_input_without_records_ends_with_a_checkpoint_and_no_output(trials: Trials) -> None:
    plan = varied(workload=WorkloadPlan(batches=0))
    _finished(trials, trials.valid(plan), records=0)


@pytest.mark.clause("REC-6", "SNK-1", "ALN-2")
def test_exactly_one_record_is_committed_once(trials: Trials) -> None:
    plan = varied(workload=WorkloadPlan(batches=1, batch_records=1), job=JobPlan(widths={"source": 1}))
    _finished(trials, trials.valid(plan), records=1)


@pytest.mark.clause("REC-6", "SNK-1", "ALN-2", "BAR-1", "COO-1")
def test_a_small_job_is_checkpointed_and_its_output_is_exact(trials: Trials) -> None:
    trial = trials.valid(CALM)
    workload, job = trial.record.plan.workload, trial.record.plan.job
    records = workload.batches * workload.batch_records * sum(v.parallelism for v in job.sources)
    _finished(trials, trial, records)
    require(trial.record.recoveries == 0, "without a fault nothing recovers", trial)
    require(len(trial.record.attempts) <= 1, "without a fault nothing is deployed twice", trial)


@pytest.mark.needs(Capability.CHECKPOINTS)
@pytest.mark.uses("checkpoints.enabled")
@pytest.mark.clause("COO-7")
@pytest.mark.parametrize(
    "enabled",
    [
        pytest.param(None, id="not-configured"),
        pytest.param(False, id="switched-off", marks=pytest.mark.nightly_on_clusters),
    ],
)
def test_without_checkpointing_no_checkpoint_is_taken_and_the_output_is_exact(
    trials: Trials, enabled: bool | None
) -> None:
    trial = trials.valid(varied(checkpoints=CheckpointPlan(enabled=enabled)))
    require(trial.record.end == "finished", "the job finishes", trial)
    require(not trial.record.checkpoints, "no checkpoint is taken", trial)
    require(not trial.history.checkpoints, "no checkpoint is kept", trial)
    counts = trial.finding("exactly-once-output").counts
    require(counts["committed"] == counts["expected"] > 0, "the output is complete", trial)
