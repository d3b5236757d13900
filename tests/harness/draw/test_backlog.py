"""Plans in which what is in flight waits through several restores (``scenarios/backlog``)."""

from __future__ import annotations

import pytest

from barrier_tck.harness.draw.profiles import profile_named
from barrier_tck.harness.draw.strategies import draw_plans
from barrier_tck.harness.plan.job_graph import SOURCE
from barrier_tck.harness.plan.trial_plan import TrialPlan


def drawn(profile: str) -> tuple[TrialPlan, ...]:
    # Hypothesis begins with the simplest plan. Plans that settle more parts have no backlog.
    return draw_plans(3, 21, profile_named(profile).with_shares(backlog=1_000, ends_apart=0))[1:]


@pytest.mark.parametrize("profile", ["rescale", "loops"])
def test_barriers_overtake_what_waits_before_a_slow_vertex(profile: str) -> None:
    slow_ms = sorted(plan.deployment.slow_batch_ms for plan in drawn(profile))
    # A long input has a little less, so that it can be read in the time of a trial.
    assert slow_ms[0] >= 8 and slow_ms[1] >= 12
    for plan in drawn(profile):
        assert plan.checkpoints.overtakes
        assert plan.deployment.slow_vertex is not None
        assert plan.job.vertex(plan.deployment.slow_vertex).kind != SOURCE
        assert plan.workload.keys <= 3


def test_a_job_without_loops_is_stopped_first_and_then_fails_or_stops_again() -> None:
    plans = drawn("rescale")
    for plan in plans:
        assert plan.savepoints[0].stop
        assert plan.savepoints[0].after_checkpoints == 1
        assert plan.checkpoints.max_concurrent == 1
    assert any(plan.rescales for plan in plans)
    assert any(len(plan.savepoints) > 1 for plan in plans)
    assert any(plan.faults for plan in plans)


def test_in_a_job_with_loops_the_slow_vertex_is_in_one_of_them_half_of_the_time() -> None:
    plans = drawn("loops")
    inside = [
        plan.deployment.slow_vertex in {name for loop in plan.job.loops for name in loop} for plan in plans
    ]
    assert 5 <= sum(inside) < len(inside)
