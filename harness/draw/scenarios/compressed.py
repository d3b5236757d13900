"""Snapshots are compressed (SNP-6)."""

from __future__ import annotations

import msgspec

from barrier_tck.harness.draw.constraints import Drawing
from barrier_tck.harness.draw.scenario import Scenario
from barrier_tck.harness.plan.trial_plan import TrialPlan


def _last(_: Drawing, plan: TrialPlan) -> TrialPlan:
    checkpoints = msgspec.structs.replace(plan.checkpoints, compression="zstd")
    return msgspec.structs.replace(plan, checkpoints=checkpoints)


SCENARIO = Scenario(per_mille=60, last=_last)
