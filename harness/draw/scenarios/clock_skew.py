"""The clocks of hosts differ: each is ahead of the coordinator's, or behind it (BAR-4, UNA-2, STA-1).

Next to nothing that the job promises depends on it, because no time of one host is compared with that of another.
What a subtask waits for, it waits for by its own clock. Only state with a time to live knows by the clock of one host
when it was used last, and is over by that of the host where its subtask runs now (EVT-5).
"""

from __future__ import annotations

import msgspec
from hypothesis import strategies as st

from barrier_tck.harness.draw.choices import between
from barrier_tck.harness.draw.constraints import Drawing
from barrier_tck.harness.draw.profile import Profile
from barrier_tck.harness.draw.scenario import Scenario
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.system.system_under_test import Capability

_FURTHEST_MS = (20, 500, 5_000, 600_000)
"""How far a clock is off at most: less than a checkpoint takes, more than its interval, its timeout, or anything."""


def _possible(_: Profile, capabilities: frozenset[Capability]) -> bool:
    return Capability.CLOCK_SKEW in capabilities


def _skewed(drawing: Drawing, plan: TrialPlan) -> TrialPlan:
    draw = drawing.draw
    furthest_ms = draw(st.sampled_from(_FURTHEST_MS))
    ahead = tuple(
        between(draw, (1, furthest_ms)) * (1 if draw(st.booleans()) else -1)
        for _ in range(max(2, plan.deployment.executors))
    )
    deployment = msgspec.structs.replace(plan.deployment, clock_skew_ms=ahead)
    return msgspec.structs.replace(plan, deployment=deployment)


SCENARIO = Scenario(per_mille=60, possible=_possible, last=_skewed)
