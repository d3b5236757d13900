"""Keyed state is in RocksDB: its files, its restores and its increments are others than those of the heap (STA-3)."""

from __future__ import annotations

import msgspec

from barrier_tck.harness.draw.constraints import Drawing
from barrier_tck.harness.draw.scenario import Scenario
from barrier_tck.harness.plan.trial_plan import TrialPlan


def _job(_: Drawing, plan: TrialPlan) -> TrialPlan:
    return msgspec.structs.replace(plan, state_backend="rocksdb")


SCENARIO = Scenario(per_mille=100, job=_job)
