"""Skewed keys of generated records in event time: how often they come, and that jobs with them are drawn."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest

from barrier_tck.harness.draw.constraints import Constraints
from barrier_tck.harness.draw.profiles import profile_named
from barrier_tck.harness.draw.strategies import draw_plans
from barrier_tck.harness.plan.job_graph import JobPlan
from barrier_tck.harness.plan.trial_plan import FilledPlan, TrialPlan, WorkloadPlan
from barrier_tck.harness.reference.simulated.simulated_system import ReferenceSimulated
from barrier_tck.harness.workloads.event_time import EventTime
from barrier_tck.harness.workloads.event_time_parameters import SKEW
from barrier_tck.harness.workloads.workload_names import filled


def job_of(**skew: int) -> JobPlan:
    job = EventTime().job("tumbling", {})
    vertices = tuple(
        msgspec.structs.replace(one, parameters={**one.parameters, **skew}) if one.name == "read" else one
        for one in job.vertices
    )
    return msgspec.structs.replace(job, vertices=vertices)


def plan_of(**skew: int) -> FilledPlan:
    workload = WorkloadPlan("event-time", batches=200, batch_records=10, keys=5)
    return filled(TrialPlan(seed=3, workload=workload, job=job_of(**skew)))


def shares(plan: FilledPlan) -> list[float]:
    keys = Counter(row["key"] for split in EventTime().splits(plan) for row in split.input)
    return [keys[f"k{rank}"] / keys.total() for rank in range(5)]


@pytest.mark.parametrize("skew", [1, 2])
def test_the_key_of_a_rank_comes_as_often_as_the_skew_says(skew: int) -> None:
    first, *others = shares(plan_of(skew=skew))
    assert [share / first for share in others] == pytest.approx(
        [rank**-skew for rank in (2, 3, 4, 5)], rel=0.25
    )


def test_without_a_skew_all_keys_come_as_often() -> None:
    assert shares(plan_of()) == pytest.approx([0.2] * 5, rel=0.15)


def test_a_skew_of_nothing_is_refused() -> None:
    assert "a whole number from 1" in str(EventTime().problem_of(job_of(skew=0)))


def test_some_drawn_jobs_have_skewed_keys_and_most_have_not() -> None:
    system = ReferenceSimulated()
    plans = draw_plans(3, 60, profile_named("event-time"), Constraints(system.job, system.capabilities))
    skewed = [any(SKEW in vertex.parameters for vertex in plan.job.sources) for plan in plans]
    assert 6 <= sum(skewed) <= 30
