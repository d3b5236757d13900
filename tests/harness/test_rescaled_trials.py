"""Trials in which a job is stopped and goes on with other widths are judged job by job."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from barrier_tck.harness.plan.trial_plan import (
    CheckpointPlan,
    DeploymentPlan,
    RescalePlan,
    SavepointPlan,
    TrialPlan,
    WorkloadPlan,
)
from barrier_tck.harness.record.verdict import Verdict
from barrier_tck.harness.reference.mutants.mutant import SIMULATED
from barrier_tck.harness.reference.simulated.simulated_system import ReferenceSimulated
from barrier_tck.harness.trial.trial_run import run_trial
from barrier_tck.harness.workloads.workload_names import filled

PLAN = filled(
    msgspec.structs.replace(
        SIMULATED,
        workload=WorkloadPlan("keyed-totals", batches=80, records_per_second=600),
        checkpoints=CheckpointPlan(mode="unaligned", interval_ms=10),
        deployment=DeploymentPlan(slow_vertex="totals", slow_batch_ms=4),
        savepoints=tuple(SavepointPlan(after_checkpoints=number, stop=True) for number in (1, 6)),
    )
)


def rescaled(*widths: dict[str, int]) -> TrialPlan:
    return msgspec.structs.replace(PLAN, rescales=tuple(map(RescalePlan, widths)))


@pytest.mark.parametrize("seed", range(2))
def test_a_job_that_goes_on_wider_and_then_narrower_is_valid_and_was_rescaled(
    seed: int, tmp_path: Path
) -> None:
    plan = msgspec.structs.replace(rescaled({"totals": 5, "source": 3}, {"totals": 1, "sink": 3}), seed=seed)
    record = run_trial(plan, ReferenceSimulated(), tmp_path)
    assert record.verdict is Verdict.VALID, record.findings
    parts = [{one.subtask for one in record.snapshots if one.attempt == a.attempt} for a in record.attempts]
    assert ["totals[4]" in taken for taken in parts] == [False, True, False]


@pytest.mark.parametrize(
    ("widths", "match"),
    [
        ({"nobody": 2}, "no vertex 'nobody'"),
        ({"totals": 17}, "above deployment.max_parallelism"),
    ],
)
def test_a_plan_that_rescales_what_cannot_be_rescaled_is_refused(widths: dict[str, int], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        rescaled(widths)
