"""How long full queues may hold something up: those of loops, and those of batches that are cut into fragments."""

from __future__ import annotations

import pytest

from barrier_tck.harness.plan.trial_plan import NetworkPlan, TrialPlan, WorkloadPlan
from barrier_tck.harness.workloads.input_load import held_up_ms
from barrier_tck.harness.workloads.workload_names import filled


def held_up(buffer_bytes: int | None, workload: str = "lineage") -> float:
    plan = TrialPlan(
        workload=WorkloadPlan(workload, batches=2, batch_records=4),
        network=NetworkPlan(latency_ms_max=5, channel_capacity=1, buffer_bytes=buffer_bytes),
    )
    return held_up_ms(filled(plan))


@pytest.mark.parametrize("buffer_bytes", [None, 400])
def test_whole_batches_hold_nothing_up(buffer_bytes: int | None) -> None:
    assert held_up(buffer_bytes) == 0


def test_fragments_hold_up_the_more_the_smaller_they_are() -> None:
    assert 0 < held_up(90) < held_up(23)


def test_loops_hold_up_whole_batches_and_fragments_all_the_more() -> None:
    assert 0 < held_up(None, "rounds") < held_up(23, "rounds")
