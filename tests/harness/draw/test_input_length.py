"""Inputs are made long enough for the checkpoints that a plan counts on, and not so long that lists become slow."""

from __future__ import annotations

import pytest

from barrier_tck.harness.draw.input_length import BATCHES_MAX, long_enough, needed_ms
from barrier_tck.harness.plan.job_graph import JobPlan
from barrier_tck.harness.plan.trial_plan import CheckpointPlan, TrialPlan, WorkloadPlan
from barrier_tck.harness.workloads.workload_names import filled

SETTLE_MS = 20


@pytest.mark.parametrize("sources", [1, 4, 15])
@pytest.mark.parametrize(("rate", "batch_records"), [(100, 3), (1_000, 1), (1_000, 7)])
def test_every_source_reads_until_the_last_checkpoint_whatever_the_width(
    sources: int, rate: int, batch_records: int
) -> None:
    plan = filled(
        TrialPlan(
            workload=WorkloadPlan(batches=2, batch_records=batch_records, records_per_second=rate),
            job=JobPlan(widths={"source": sources}),
            checkpoints=CheckpointPlan(interval_ms=20),
        )
    )
    longer = long_enough(plan, SETTLE_MS, 8)
    workload = longer.workload
    assert workload.records_per_second is not None and workload.records_per_second <= rate
    reads_ms = 1_000 * workload.batches * workload.batch_records / workload.records_per_second
    assert reads_ms >= needed_ms(longer, SETTLE_MS, 8)
    assert workload.batches * sources <= BATCHES_MAX


def test_an_input_that_is_longer_already_stays_as_it_is() -> None:
    workload = WorkloadPlan(batches=BATCHES_MAX, batch_records=2, records_per_second=100)
    plan = filled(TrialPlan(workload=workload, job=JobPlan(widths={"source": 2})))
    assert long_enough(plan, SETTLE_MS, 2) == plan
