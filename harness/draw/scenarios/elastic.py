"""Elastic jobs: an executor is lost for good, and fewer slots are left than the job has subtasks (RSC-2).

By chance the number of slots is next to never between what the job wants and what it needs. Here it is counted: all
subtasks have room as long as every executor is there, and each vertex has room for one subtask when one is lost.
"""

from __future__ import annotations

from dataclasses import replace

import msgspec
from hypothesis import strategies as st

from barrier_tck.harness.draw.choices import between, chance
from barrier_tck.harness.draw.constraints import Drawing
from barrier_tck.harness.draw.lost_executors import (
    can_lose_executors,
    draw_lost_executor,
    with_crash_while_waiting,
    with_late_replacements,
)
from barrier_tck.harness.draw.profile import Profile
from barrier_tck.harness.draw.rescaled_jobs import (
    can_become_narrower,
    groups_that_change,
    jobs_of,
    least_subtasks,
)
from barrier_tck.harness.draw.scenario import Part, Scenario
from barrier_tck.harness.plan.job_graph import SINK, SOURCE, JobPlan
from barrier_tck.harness.plan.trial_plan import TrialPlan

_EXECUTORS_MIN = 2
_FIXED_PER_MILLE = 330
"""How many elastic jobs in 1,000 have a vertex that is to keep its parallelism, if several can be narrowed."""
_JOINED_PER_MILLE = 600
"""The same, if there is one that is joined to another before it, which then keeps its own, too."""
_MORE_SINKS_PER_MILLE = 400
"""How many elastic jobs in 1,000 have more sinks than other plans, so that some of them are gone after the loss."""
_MORE_SINKS = (3, 5)
_GROUPS_MIN = 2


def _profile(_: st.DrawFn, profile: Profile) -> Profile:
    """Return the profile of the other faults: with the loss there are no more than it says."""
    least, most = profile.faults.number
    return replace(profile, faults=replace(profile.faults, number=(max(0, least - 1), max(0, most - 1))))


def _slots(drawing: Drawing, plan: TrialPlan) -> TrialPlan:
    """Let the job be elastic, with as many slots as this needs."""
    if not can_become_narrower(plan):  # a campaign may prescribe its protocol
        return plan
    draw, profile = drawing.draw, drawing.profile
    plan = _with_more_sinks(draw, plan)
    fixed = _draw_fixed(draw, plan.job)
    executors = max(plan.deployment.executors, _EXECUTORS_MIN)
    needed = max(least_subtasks(job, fixed) for job in jobs_of(plan))
    slots = max(-(-len(plan.job.subtasks) // executors), -(-needed // (executors - 1)))
    deployment = msgspec.structs.replace(
        plan.deployment,
        executors=executors,
        slots_per_executor=slots,
        elastic_wait_ms=between(draw, profile.elastic.wait_ms),
        fixed_vertices=fixed,
    )
    return msgspec.structs.replace(plan, deployment=deployment)


def _draw_fixed(draw: st.DrawFn, job: JobPlan) -> tuple[str, ...]:
    """Draw a vertex that keeps its parallelism, or none. Another one that may give up subtasks is left."""
    groups = [group for group in groups_that_change(job) if job.vertex(group[0]).parallelism > 1]
    joined = [name for group in groups for name in group[1:]]
    names = joined or [name for group in groups for name in group]
    fixes = chance(draw, _JOINED_PER_MILLE if joined else _FIXED_PER_MILLE)
    return (draw(st.sampled_from(names)),) if fixes and len(groups) >= _GROUPS_MIN else ()


def _with_more_sinks(draw: st.DrawFn, plan: TrialPlan) -> TrialPlan:
    """Return the plan with a wide sink, if it is drawn and a sink may change."""
    kinds = {vertex.name: vertex.kind for vertex in plan.job.vertices}
    able = [
        group
        for group in groups_that_change(plan.job)
        if any(kinds[name] == SINK for name in group) and not any(kinds[name] == SOURCE for name in group)
    ]
    if not able or not chance(draw, _MORE_SINKS_PER_MILLE):
        return plan
    width = min(between(draw, _MORE_SINKS), plan.deployment.max_parallelism)
    return msgspec.structs.replace(
        plan, job=plan.job.at_widths(dict.fromkeys(draw(st.sampled_from(able)), width))
    )


def _add_faults(drawing: Drawing, plan: TrialPlan) -> TrialPlan:
    if plan.deployment.elastic_wait_ms is None:
        return plan
    lost = draw_lost_executor(drawing.draw, drawing.lasting(plan), plan.faults)
    plan = with_late_replacements(drawing, msgspec.structs.replace(plan, faults=(*plan.faults, lost)))
    return with_crash_while_waiting(drawing, plan)


SCENARIO = Scenario(
    settles=frozenset({Part.FAULTS}),
    possible=can_lose_executors,
    profile=_profile,
    slots=_slots,
    add_faults=_add_faults,
)
