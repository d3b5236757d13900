"""State with a time to live is drawn, and ends before, in and after what stops the job (EVT-5)."""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path
from typing import get_args

import pytest

from barrier_tck.harness.draw.constraints import Constraints
from barrier_tck.harness.draw.profiles import profile_named
from barrier_tck.harness.draw.strategies import draw_plans
from barrier_tck.harness.plan.job_graph import OperatorPlan
from barrier_tck.harness.plan.trial_plan import CheckpointingMode, TrialPlan
from barrier_tck.harness.record.elements import ReadClock, SubtaskElements
from barrier_tck.harness.record.history import History
from barrier_tck.harness.reference.simulated.simulated_system import ReferenceSimulated
from barrier_tck.harness.trial.trial_run import execute
from barrier_tck.harness.workloads.kinds.expiring import COUNTED, FORMS, REFRESHED_BY

SYSTEM = ReferenceSimulated()


@cache
def drawn(profile: str, number: int) -> tuple[TrialPlan, ...]:
    constraints = Constraints(SYSTEM.job, SYSTEM.capabilities)
    return tuple(draw_plans(5, number, profile_named(profile), constraints))


def limited(plan: TrialPlan) -> list[OperatorPlan]:
    return [one for vertex in plan.job.vertices for one in vertex.operators if one.kind == "expiring"]


def test_it_is_drawn_in_every_mode_with_every_option_and_also_behind_another_operator() -> None:
    plans = [plan for plan in drawn("event-time", 500) if limited(plan)]
    assert len(plans) > 50
    assert {plan.checkpoints.mode for plan in plans} == set(get_args(CheckpointingMode))
    operators = [one for plan in plans for one in limited(plan)]
    assert {one.parameters.get("form", "value") for one in operators} == set(FORMS)
    assert {one.parameters.get("refreshed_by", "writing") for one in operators} == set(REFRESHED_BY)
    for parameter in ("clear_every", "look_every"):
        assert 0 < sum(parameter in one.parameters for one in operators) < len(operators)
    chained = [one for one in operators if one.name.endswith(".then")]
    assert chained and len({one.parameters["ttl_ms"] for one in operators}) >= 4
    assert sum(bool(plan.rescales) for plan in plans) >= 5
    assert any(any(plan.deployment.clock_skew_ms) for plan in plans)


@pytest.mark.parametrize("profile", ["modes", "chains", "spark-event-time"])
def test_other_profiles_whose_jobs_may_know_event_time_have_it_too(profile: str) -> None:
    assert any(limited(plan) for plan in drawn(profile, 150))


def ends(plan: TrialPlan, history: History) -> Counter[str]:
    """Count when state with a time to live was over: before, in or after what stopped the job, or never."""
    counts: Counter[str] = Counter()
    lives_ms = {one.name: one.parameters["ttl_ms"] for one in limited(plan)}
    held = {
        (view.checkpoint, part.subtask, part.operator, key): used_ms + lives_ms[part.operator]
        for view in history.checkpoints
        for part in view.state
        if part.name == COUNTED and part.operator in lives_ms
        for key, (used_ms, _) in part.entries.items()
    }
    begins: dict[tuple[int | None, str], int] = {}
    latest = 0
    for one in history.elements or ():
        latest = max([latest, *_times(one)])
        if one.restored is not None and _times(one):
            begins.setdefault((one.restored, one.subtask), _times(one)[0])
    for (checkpoint, subtask, operator, key), over_ms in held.items():
        later = held.get((checkpoint + 1, subtask, operator, key))
        counts["before"] += later is None and over_ms <= latest
        begin_ms = begins.get((checkpoint, subtask))
        if begin_ms is not None:
            counts["in"] += over_ms <= begin_ms
            counts["after"] += begin_ms < over_ms <= latest
            counts["never"] += latest < over_ms
    return counts


def _times(one: SubtaskElements) -> list[int]:
    return [entry.at_ms for entry in one.entries if isinstance(entry, ReadClock)]


def test_it_ends_before_in_and_after_an_outage_and_not_at_all(tmp_path: Path) -> None:
    counts: Counter[str] = Counter()
    plans = [plan for plan in drawn("event-time", 500) if limited(plan) and (plan.faults or plan.rescales)]
    for plan in plans[:40]:
        history = execute(plan, SYSTEM, tmp_path, ()).history
        assert history is not None
        counts += ends(plan, history)
    assert min(counts[when] for when in ("before", "in", "after", "never")) >= 5, counts
