"""Draws the savepoints that a trial asks for."""

from __future__ import annotations

import msgspec
from hypothesis import strategies as st

from barrier_tck.harness.draw.choices import between, chance
from barrier_tck.harness.draw.profile import Profile
from barrier_tck.harness.plan.trial_plan import SavepointPlan, TrialPlan


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
