"""Sinks gather few records before they write them, so that a file is written in many steps (SNK-1)."""

from __future__ import annotations

import msgspec
from hypothesis import strategies as st

from barrier_tck.harness.draw.constraints import Drawing
from barrier_tck.harness.draw.scenario import Scenario
from barrier_tck.harness.plan.trial_plan import TrialPlan

_RECORDS = (1, 2, 5)


def _last(drawing: Drawing, plan: TrialPlan) -> TrialPlan:
    gathered = drawing.draw(st.sampled_from(_RECORDS))
    return msgspec.structs.replace(
        plan, deployment=msgspec.structs.replace(plan.deployment, sink_buffer_records=gathered)
    )


SCENARIO = Scenario(per_mille=80, last=_last)
