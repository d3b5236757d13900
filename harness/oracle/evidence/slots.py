"""How many slots there were in a trial, and which attempts of an elastic job had no room in them (RSC-2).

A job that has fewer slots than it needs at its narrowest has to wait for more, and is not to blame for attempts that
wait in vain. How many it needs is counted here anew: a vertex that may change needs one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.plan.job_graph import JobPlan, Spread
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.record.operations import AttemptRunning, AttemptStarted, SlotsChanged
from barrier_tck.harness.system.system_under_test import Capability


@dataclass(frozen=True, slots=True)
class Seen:
    """So many slots were there at a time."""

    index: int
    """The line that reports it; -1 if the plan says it."""
    time_ms: float
    slots: int


def slots_at_first(context: TrialContext) -> int:
    """Return how many slots the plan's executors have; 0 if that is not known for sure."""
    planned = context.plan.deployment
    exact = Capability.DETERMINISTIC_REPLAY.name in context.capabilities
    return planned.executors * (planned.slots_per_executor or 0) if exact else 0


def slots_seen(context: TrialContext) -> Sequence[Seen]:
    """Return the numbers of slots in their order; empty if they were not observed, or they never changed."""
    at_first = slots_at_first(context)
    seen = [
        Seen(line.index, line.time_ms - line.operation.seen_ms_ago, line.operation.slots)
        for line in context.history.of(SlotsChanged)
    ]
    return [Seen(-1, 0.0, at_first), *seen] if at_first and seen else seen


def attempts_without_capacity(context: TrialContext) -> Sequence[int]:
    """Return the attempts of an elastic job that never ran, and for which there was no room when they began."""
    if context.plan.deployment.elastic_wait_ms is None:
        return ()
    seen, jobs = slots_seen(context), context.jobs
    ran = [line.operation.attempt for line in context.history.of(AttemptRunning)]
    found = []
    for line in context.history.of(AttemptStarted):
        attempt, before = (
            line.operation.attempt,
            [sighting for sighting in seen if sighting.index < line.index],
        )
        needed = least_subtasks(jobs.plan_of(jobs.of[attempt]))
        if attempt not in ran and before and before[-1].slots < needed:
            found.append(attempt)
    return found


def without_capacity_at_the_end(context: TrialContext) -> str | None:
    """Say that an elastic job has no room in the slots that are there at last; None if it has, or they were not
    observed.
    """
    seen, jobs = slots_seen(context), context.jobs
    needed = least_subtasks(jobs.plan_of(len(jobs.jobs) - 1))
    if context.plan.deployment.elastic_wait_ms is None or not seen or seen[-1].slots >= needed:
        return None
    return f"it needs {needed} slots at least, and there are {seen[-1].slots}"


def least_subtasks(plan: TrialPlan) -> int:
    """Return with how few subtasks a plan's job can go on; its job must be filled in."""
    planned = {vertex.name: vertex.parallelism for vertex in plan.job.vertices}
    fixed = fixed_vertices(plan)
    return sum(
        sum(planned[name] for name in names) if any(name in fixed for name in names) else len(names)
        for names in equally_wide(plan.job)
    )


def fixed_vertices(plan: TrialPlan) -> tuple[str, ...]:
    """Return the vertices that keep their parallelism."""
    broadcast_to = [edge.target for edge in plan.job.edges if edge.by is Spread.BROADCAST]
    return (
        *plan.deployment.fixed_vertices,
        *broadcast_to,
        *(name for loop in plan.job.loops for name in loop),
    )


def equally_wide(job: JobPlan) -> list[list[str]]:
    """Return the vertices, those that are connected by forward edges together."""
    leader = {vertex.name: vertex.name for vertex in job.vertices}
    for edge in job.edges:
        if edge.by is Spread.FORWARD:
            old, new = leader[edge.target], leader[edge.source]
            leader = {name: new if of == old else of for name, of in leader.items()}
    found: Mapping[str, list[str]] = {of: [] for of in leader.values()}
    for name, of in leader.items():
        found[of].append(name)
    return list(found.values())
