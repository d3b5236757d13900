"""Attempts fail before they run, or soon after, and the delay before the next one grows with each failure (REC-3).

Restarts in a row are counted, and a row is over after a good run. What is a good run shows only next to runs that are
none: an attempt that failed while it was deployed, and one whose deployment took longer than a good run has to. By
chance a deployment is next to never hit a second time, and takes next to no time compared with a good run. Here
messages are slow, so that a deployment takes a while, and a good run is hardly longer than that.
"""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from barrier_tck.harness.draw.choices import numbers
from barrier_tck.harness.draw.constraints import Drawing
from barrier_tck.harness.draw.counted_checkpoints import one_by_one
from barrier_tck.harness.draw.profile import Profile
from barrier_tck.harness.draw.scenario import Part, Scenario
from barrier_tck.harness.draw.scenarios import conditions
from barrier_tck.harness.draw.scenarios.conditions import AGAIN, IN_DEPLOYMENT, Act, Link, chained
from barrier_tck.harness.plan.trial_plan import RestartStrategyName, TrialPlan
from barrier_tck.harness.system.system_under_test import Capability

_STRATEGY: RestartStrategyName = "exponential_delay"
_FIRST = Link(1, Act.SUBTASK_DIES)
"""There is a checkpoint, so that all later attempts restore something."""
_LINKS = (IN_DEPLOYMENT, IN_DEPLOYMENT, AGAIN, Link(1, Act.SUBTASK_DIES), Link(2, Act.SUBTASK_DIES))
_LATER_MAX = 3
"""How many failures follow the first at the most; one at least is in a deployment."""
_LATENCY_MS = (6, 16)
_GOOD_RUN_MS = (2, 24)
_DELAY_MS = (2, 20)


def _possible(profile: Profile, capabilities: frozenset[Capability]) -> bool:
    """Return whether a job's delays grow, times of few milliseconds can be judged, and several faults may strike."""
    able = {Capability.WORKER_KILL, Capability.DETERMINISTIC_REPLAY} <= capabilities
    return able and _STRATEGY in profile.restarts.strategies and profile.faults.number[1] > 1


def _profile(_: st.DrawFn, profile: Profile) -> Profile:
    counted = one_by_one(profile)
    return replace(
        counted,
        job=replace(counted.job, shapes_left_out=(*counted.job.shapes_left_out, "fan-in")),
        checkpoints=replace(counted.checkpoints, interval_ms=(10, 30)),
        network=replace(counted.network, latency_ms_max=_LATENCY_MS),
        restarts=replace(
            counted.restarts,
            strategies=(_STRATEGY,),
            delay_ms=_DELAY_MS,
            counted_ms=_GOOD_RUN_MS,
            longest=(8, 30),
            factors=(2, 3),
        ),
        faults=replace(counted.faults, lose_unsynced_per_mille=0, unreadable_per_mille=0),
    )


def _savepoints(drawing: Drawing, plan: TrialPlan) -> TrialPlan:
    """Draw the failures; the first one comes after a checkpoint."""
    if not plan.checkpoints.enabled:
        return plan
    draw, most = drawing.draw, min(_LATER_MAX, drawing.profile.faults.number[1] - 1)
    later = [draw(st.sampled_from(_LINKS)) for _ in range(draw(numbers(min(1, most - 1), most - 1)))]
    place = draw(numbers(0, len(later)))
    return chained(drawing, plan, [_FIRST, *later[:place], IN_DEPLOYMENT, *later[place:]])


SCENARIO = Scenario(
    per_mille=30,
    settles=frozenset({Part.INPUT, Part.PACE, Part.SAVEPOINTS, Part.FAULTS}),
    possible=_possible,
    profile=_profile,
    savepoints=_savepoints,
    faults=conditions.SCENARIO.faults,
)
