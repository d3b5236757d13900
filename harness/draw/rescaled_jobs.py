"""How wide the jobs of a trial are: those that are started from savepoints, and those that lose executors (RSC-2)."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from hypothesis import strategies as st

from barrier_tck.harness.draw.choices import between, chance
from barrier_tck.harness.draw.profile import Profile, SavepointRanges
from barrier_tck.harness.plan.job_graph import JobPlan, Spread, VertexPlan
from barrier_tck.harness.plan.trial_plan import RescalePlan, TrialPlan
from barrier_tck.harness.workloads.kind_catalogue import kind_named
from barrier_tck.harness.workloads.kinds.changes import AT_THE_END

_LISTS_RESCALED_PER_MILLE = 800
"""How many vertices in 1,000 that keep lists get another width: few have any, and only that deals them out (RSC-3)."""
_BACK_PER_MILLE = 105
"""How many of them in 1,000 get the width back that they had before the last stop."""
_MANY_TIMES_PER_MILLE = 350
"""How many of them in 1,000 become so wide, if possible, that some subtasks are in the middle of what one had."""
_MANY_TIMES = 3
_MOST_PER_MILLE = 85
"""How many of them in 1,000 become as wide as is possible, if that is not too much."""


def with_rescales(draw: st.DrawFn, profile: Profile, plan: TrialPlan) -> TrialPlan:
    """Return the plan with other widths after its stops, as often as the profile says; its job must be filled in.

    Vertices that are joined by a forward edge stay equally wide, and the receivers of a broadcast stay as they are.
    Every job has the subtasks that the plan names as initiators. Operators that emit at the end of the input stay as
    they are if some subtasks may have emitted and others not: then the job refuses other widths.
    """
    ranges, groups = profile.savepoints, plan.deployment.max_parallelism
    stops = sum(asked.stop for asked in plan.savepoints)
    if not any(chance(draw, ranges.rescale_per_mille) for _ in range(stops)):
        return plan
    together = [names for names in groups_that_change(plan.job) if not _may_have_emitted(plan, names)]
    jobs = [plan.job]
    rescales: list[RescalePlan] = []
    for _ in range(stops):
        widths: dict[str, int] = {}
        for names in together:
            if chance(draw, _chance_of_another_width(ranges, plan.job, names)):
                subtasks_left = _subtasks_left(
                    names, jobs[-1].at_widths(widths), ranges.rescaled_subtasks_max
                )
                before = [job.vertex(names[0]).parallelism for job in jobs]
                least = max(_width_named(plan, plan.job.vertex(name)) for name in names)
                most = max(least, min(groups, subtasks_left, ranges.rescaled_width_max))
                width = _width(draw, before, min(subtasks_left, groups), groups, (least, most))
                widths |= dict.fromkeys(names, width)
        jobs.append(jobs[-1].at_widths(widths))
        rescales.append(RescalePlan(widths))
    return msgspec.structs.replace(plan, rescales=tuple(rescales))


def _chance_of_another_width(ranges: SavepointRanges, job: JobPlan, names: Sequence[str]) -> int:
    """Return how many in 1,000 vertices like these, which stay equally wide, get another width."""
    lists = any(
        kind_named(operator.kind).keeps_lists for name in names for operator in job.vertex(name).operators
    )
    return max(_LISTS_RESCALED_PER_MILLE if lists else 0, ranges.rescaled_vertices_per_mille)


def _may_have_emitted(plan: TrialPlan, names: Sequence[str]) -> bool:
    """Return whether vertices emit at the end of their input, and only some subtasks may have when the job is stopped.

    That is so if barriers overtake that end, or if a stop comes at a time, whatever has completed.
    """
    at_a_time = any(asked.stop and not asked.after_checkpoints for asked in plan.savepoints)
    return (at_a_time or plan.checkpoints.overtakes) and any(
        AT_THE_END in plan.job.vertex(name).parameters for name in names
    )


def can_become_narrower(plan: TrialPlan) -> bool:
    """Return whether the job can go on narrower from each of its checkpoints, so that it may be elastic.

    Under Chandy-Lamport no job is elastic (CHL-2). If only some subtasks of an operator had emitted what it emits at
    the end of its input, the job refuses another parallelism; barriers that overtake may leave it like that.
    """
    emits = any(AT_THE_END in vertex.parameters for vertex in plan.job.vertices)
    return not plan.checkpoints.records_all and not (emits and plan.checkpoints.overtakes)


def _subtasks_left(names: Sequence[str], job: JobPlan, subtasks_max: int) -> int:
    """Return how wide vertices may become together. Where the job has too many subtasks already: 1."""
    others = len(job.subtasks) - sum(job.vertex(name).parallelism for name in names)
    return max(1, (subtasks_max - others) // len(names))


def _width_named(plan: TrialPlan, vertex: VertexPlan) -> int:
    """Return how wide a vertex must be to have each of its subtasks that initiates checkpoints."""
    initiators = {name for group in plan.checkpoints.initiators for name in group}
    return max(
        (index for index, name in enumerate(vertex.subtasks, start=1) if name in initiators), default=1
    )


def _width(
    draw: st.DrawFn, before: Sequence[int], subtasks_left: int, groups: int, allowed: tuple[int, int]
) -> int:
    """Draw a width: that of before the last stop, that of all key groups, several times the present one, or any."""
    most = allowed[1]
    if len(before) > 1 and before[-2] <= subtasks_left and chance(draw, _BACK_PER_MILLE):
        return before[-2]
    if groups <= subtasks_left and chance(draw, _MOST_PER_MILLE):
        return groups
    if before[-1] * _MANY_TIMES <= most and chance(draw, _MANY_TIMES_PER_MILLE):
        return between(draw, (before[-1] * _MANY_TIMES, most))
    return between(draw, allowed)


def jobs_of(plan: TrialPlan) -> list[JobPlan]:
    """Return the job with which a trial starts, and those that are started from its stops."""
    return [plan.after_stops(stops).job for stops in range(len(plan.rescales) + 1)]


def at_narrowest(plan: TrialPlan) -> TrialPlan:
    """Return the plan with only those subtasks that every job of the trial has: faults find them at any time."""
    elastic = plan.deployment.elastic_wait_ms is not None
    if not (plan.rescales or elastic):
        return plan
    jobs = jobs_of(plan)
    widths = {
        vertex.name: min(job.vertex(vertex.name).parallelism for job in jobs) for vertex in plan.job.vertices
    }
    if elastic:
        changing = _changing(plan.job, plan.deployment.fixed_vertices)
        widths |= dict.fromkeys(changing, 1)
    return msgspec.structs.replace(plan, job=plan.job.at_widths(widths), rescales=())


def widths_of_sources(plan: TrialPlan) -> dict[str, tuple[int, ...]]:
    """Return with which widths each source vertex may run, for those that may have several in the trial."""
    jobs = jobs_of(plan)
    elastic = plan.deployment.elastic_wait_ms is not None
    changing = _changing(plan.job, plan.deployment.fixed_vertices) if elastic else ()
    found: dict[str, tuple[int, ...]] = {}
    for vertex in plan.job.sources:
        widths = {job.vertex(vertex.name).parallelism for job in jobs}
        if vertex.name in changing:
            widths |= set(range(1, max(widths)))
        if len(widths) > 1:
            found[vertex.name] = tuple(sorted(widths))
    return found


def least_subtasks(job: JobPlan, fixed: tuple[str, ...]) -> int:
    """Return with how few subtasks an elastic job can go on: one for each vertex that may change."""
    changing = _changing(job, fixed)
    return sum(1 if vertex.name in changing else vertex.parallelism for vertex in job.vertices)


def _changing(job: JobPlan, fixed: tuple[str, ...]) -> list[str]:
    groups = groups_that_change(job)
    return [name for group in groups if not any(other in fixed for other in group) for name in group]


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
