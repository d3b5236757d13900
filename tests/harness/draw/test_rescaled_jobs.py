"""Widths that are drawn for the jobs after stops: none that the job would refuse."""

from __future__ import annotations

import pytest

from barrier_tck.harness.draw.constraints import Constraints
from barrier_tck.harness.draw.profiles import profile_named
from barrier_tck.harness.draw.rescaled_jobs import groups_that_change
from barrier_tck.harness.draw.strategies import draw_plan, draw_plans
from barrier_tck.harness.reference.simulated.simulated_system import ReferenceSimulated
from barrier_tck.harness.workloads.kinds.changes import AT_THE_END
from tests.harness.draw.test_drawn_stops import only


def test_who_emits_at_the_end_keeps_its_width_behind_a_stop_that_is_aimed_at_the_end() -> None:
    system = ReferenceSimulated()
    profile = profile_named("chandy-lamport").with_shares(stops_at_the_end=1_000, changed_totals=1_000)
    plans = draw_plans(4, 60, profile, Constraints(system.job, system.capabilities))
    seen = 0
    for plan in plans:
        final = [vertex.name for vertex in plan.job.vertices if AT_THE_END in vertex.parameters]
        if any(one.stop and not one.after_checkpoints for one in plan.savepoints):
            seen += bool(final)
            assert not [name for one in plan.rescales for name in final if name in one.widths]
    assert seen > 3


@pytest.mark.long
def test_many_elastic_jobs_have_a_vertex_that_stays_some_within_a_chain_while_another_may_narrow() -> None:
    system = ReferenceSimulated()
    constraints, profile = Constraints(system.job, system.capabilities), only("elastic", "graphs")
    fixed = joined = 0
    for number in range(40):
        plan = draw_plan(40 + number, profile, constraints)
        assert plan.deployment.elastic_wait_ms is not None
        groups = groups_that_change(plan.job)
        for name in plan.deployment.fixed_vertices:
            fixed += 1
            joined += any(name in group[1:] for group in groups)
            others = [group for group in groups if name not in group]
            assert any(plan.job.vertex(group[0]).parallelism > 1 for group in others)
    assert fixed >= 10 and joined >= 4
