"""Copies on hosts are compressed in another way than the primary (LOC-7)."""

from __future__ import annotations

import msgspec
from hypothesis import strategies as st

from barrier_tck.harness.draw.constraints import Drawing
from barrier_tck.harness.draw.scenario import Scenario
from barrier_tck.harness.plan.trial_plan import TrialPlan


def _last(drawing: Drawing, plan: TrialPlan) -> TrialPlan:
    if not plan.local_recovery:
        return plan
    second = drawing.draw(st.sampled_from(("zstd", "none")))
    checkpoints = msgspec.structs.replace(plan.checkpoints, local_compression=second)
    return msgspec.structs.replace(plan, checkpoints=checkpoints)


SCENARIO = Scenario(per_mille=250, last=_last)
