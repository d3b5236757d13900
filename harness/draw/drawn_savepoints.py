"""Draws the savepoints that a trial asks for, and the widths of the jobs that are started from them."""

from __future__ import annotations

from itertools import accumulate

import msgspec
from hypothesis import strategies as st

from barrier_tck.harness.draw.choices import between, chance
from barrier_tck.harness.draw.profile import Profile
from barrier_tck.harness.plan.job_graph import JobPlan, Spread
from barrier_tck.harness.plan.trial_plan import RescalePlan, SavepointPlan, TrialPlan


def with_savepoints(draw: st.DrawFn, profile: Profile, plan: TrialPlan) -> TrialPlan:
    """Return the plan with savepoints, as often as the profile says; a job that takes no checkpoints takes none."""
    if not plan.checkpoints.enabled or not chance(draw, profile.savepoints_per_mille):
        return plan
    drawn = tuple(_savepoint(draw, profile) for _ in range(between(draw, profile.savepoints)))
    if profile.savepoints_in_turn:
        counts = accumulate(asked.after_checkpoints for asked in drawn)
        drawn = tuple(
            msgspec.structs.replace(asked, after_checkpoints=count)
            for asked, count in zip(drawn, counts, strict=True)
        )
    return msgspec.structs.replace(plan, savepoints=drawn)


def _savepoint(draw: st.DrawFn, profile: Profile) -> SavepointPlan:
    after, delay_ms = between(draw, profile.savepoint_after), between(draw, profile.savepoint_delay_ms)
    stop = chance(draw, profile.stop_per_mille)
    return SavepointPlan(after, delay_ms, stop, claim=stop and chance(draw, profile.claim_per_mille))


def with_rescales(draw: st.DrawFn, profile: Profile, plan: TrialPlan) -> TrialPlan:
    """Return the plan with other widths after its stops, as often as the profile says; its job must be filled in.

    Vertices that are joined by a forward edge stay equally wide, and the receivers of a broadcast stay as they are.
    """
    stops = sum(asked.stop for asked in plan.savepoints)
    if not any(chance(draw, profile.rescale_per_mille) for _ in range(stops)):
        return plan
    together = groups_that_change(plan.job)
    jobs = [plan.job]
    rescales: list[RescalePlan] = []
    for _ in range(stops):
        widths: dict[str, int] = {}
        for names in together:
            if chance(draw, _RESCALED_PER_MILLE):
                job = jobs[-1].at_widths(widths)
                width = _width(
                    draw, profile, plan, job, names, [one.vertex(names[0]).parallelism for one in jobs]
                )
                widths |= dict.fromkeys(names, width)
        jobs.append(jobs[-1].at_widths(widths))
        rescales.append(RescalePlan(widths))
    return msgspec.structs.replace(plan, rescales=tuple(rescales))


def at_narrowest(plan: TrialPlan) -> TrialPlan:
    """Return the plan with only those subtasks that every job of the trial has: faults find them at any time."""
    elastic = plan.deployment.elastic_wait_ms is not None
    if not (plan.rescales or elastic):
        return plan
    jobs = [plan.after_stops(stops).job for stops in range(len(plan.rescales) + 1)]
    widths = {one.name: min(job.vertex(one.name).parallelism for job in jobs) for one in plan.job.vertices}
    if elastic:
        fixed = plan.deployment.fixed_vertices
        groups = groups_that_change(plan.job)
        widths |= {name: 1 for group in groups if not any(one in fixed for one in group) for name in group}
    return msgspec.structs.replace(plan, job=plan.job.at_widths(widths), rescales=())


_RESCALED_PER_MILLE = 380
"""How many vertices in 1,000 get another width when a job is rescaled."""
_BACK_PER_MILLE = 105
"""How many of them in 1,000 get the width back that they had before the last stop."""
_MOST_PER_MILLE = 85
"""How many of them in 1,000 become as wide as is possible, if that is not too much."""


def _width(
    draw: st.DrawFn, profile: Profile, plan: TrialPlan, job: JobPlan, names: list[str], before: list[int]
) -> int:
    """Draw a width for vertices of a job: a width of before, the most that is possible, or any.

    The job gets no more subtasks than the profile says; where it has more already, its vertices only become narrower.
    """
    others = len(job.subtasks) - sum(job.vertex(name).parallelism for name in names)
    room = max(1, (profile.rescaled_subtasks_max - others) // len(names))
    groups = plan.deployment.max_parallelism
    if len(before) > 1 and before[-2] <= room and chance(draw, _BACK_PER_MILLE):
        return before[-2]
    if groups <= room and chance(draw, _MOST_PER_MILLE):
        return groups
    return between(draw, (1, min(groups, room, profile.rescaled_width_max)))


def groups_that_change(job: JobPlan) -> list[list[str]]:
    """Return the vertices that may be rescaled, those that must stay equally wide together.

    Receivers of a broadcast stay as they are, and so do the vertices of a loop.
    """
    groups = [[vertex.name] for vertex in job.vertices]
    for edge in job.edges:
        if edge.by is Spread.FORWARD:
            joined = [group for group in groups if edge.source in group or edge.target in group]
            groups = [group for group in groups if group not in joined]
            groups.append([name for group in joined for name in group])
    stay = [edge.target for edge in job.edges if edge.by is Spread.BROADCAST]
    stay += [name for loop in job.loops for name in loop]
    return [group for group in groups if not any(name in stay for name in group)]
