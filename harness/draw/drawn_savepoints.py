"""Draws the savepoints that a trial asks for, and the widths of the jobs that are started from them."""

from __future__ import annotations

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
    drawn = tuple(
        SavepointPlan(
            between(draw, profile.savepoint_after),
            between(draw, profile.savepoint_delay_ms),
            chance(draw, profile.stop_per_mille),
        )
        for _ in range(between(draw, profile.savepoints))
    )
    return msgspec.structs.replace(plan, savepoints=drawn)


def with_rescales(draw: st.DrawFn, profile: Profile, plan: TrialPlan) -> TrialPlan:
    """Return the plan with other widths after its stops, as often as the profile says; its job must be filled in.

    Vertices that are joined by a forward edge stay equally wide, and the receivers of a broadcast stay as they are.
    """
    stops = sum(asked.stop for asked in plan.savepoints)
    if not any(chance(draw, profile.rescale_per_mille) for _ in range(stops)):
        return plan
    together = _groups(plan.job)
    rescales = tuple(
        RescalePlan(
            {
                name: width
                for names in together
                if chance(draw, _RESCALED_PER_MILLE)
                for width in [_width(draw, plan)]
                for name in names
            }
        )
        for _ in range(stops)
    )
    return msgspec.structs.replace(plan, rescales=rescales)


_RESCALED_PER_MILLE = 600
"""How many vertices in 1,000 get another width when a job is rescaled."""
_WIDTHS_MAX = 7


def _width(draw: st.DrawFn, plan: TrialPlan) -> int:
    """Draw a width: mostly any small one, sometimes 1, and sometimes the most that is possible, if that is not much."""
    most = plan.deployment.max_parallelism
    if most <= 2 * _WIDTHS_MAX and chance(draw, 100):
        return most
    return between(draw, (1, min(most, _WIDTHS_MAX)))


def _groups(job: JobPlan) -> list[list[str]]:
    """Return the vertices that may be rescaled, those that must stay equally wide together."""
    groups = [[vertex.name] for vertex in job.vertices]
    for edge in job.edges:
        if edge.by is Spread.FORWARD:
            joined = [group for group in groups if edge.source in group or edge.target in group]
            groups = [group for group in groups if group not in joined]
            groups.append([name for group in joined for name in group])
    told = [edge.target for edge in job.edges if edge.by is Spread.BROADCAST]
    return [group for group in groups if not any(name in told for name in group)]
