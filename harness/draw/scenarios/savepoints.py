"""Savepoints are asked for amid checkpoints, and some of them stop the job (COO-5)."""

from __future__ import annotations

from itertools import accumulate

import msgspec

from barrier_tck.harness.draw.choices import between, chance
from barrier_tck.harness.draw.constraints import Drawing
from barrier_tck.harness.draw.profile import Profile
from barrier_tck.harness.draw.scenario import Part, Scenario
from barrier_tck.harness.plan.trial_plan import SavepointPlan, TrialPlan
from barrier_tck.harness.system.system_under_test import Capability


def _possible(_: Profile, capabilities: frozenset[Capability]) -> bool:
    return Capability.SAVEPOINTS in capabilities


def _savepoints(drawing: Drawing, plan: TrialPlan) -> TrialPlan:
    """Ask for savepoints; a job that takes no checkpoints takes none."""
    if not plan.checkpoints.enabled:
        return plan
    ranges = drawing.profile.savepoints
    drawn = tuple(_savepoint(drawing) for _ in range(between(drawing.draw, ranges.number)))
    if ranges.in_turn:
        counts = accumulate(asked.after_checkpoints for asked in drawn)
        drawn = tuple(
            msgspec.structs.replace(asked, after_checkpoints=count)
            for asked, count in zip(drawn, counts, strict=True)
        )
    return msgspec.structs.replace(plan, savepoints=drawn)


def _savepoint(drawing: Drawing) -> SavepointPlan:
    draw, ranges = drawing.draw, drawing.profile.savepoints
    after, delay_ms = between(draw, ranges.after), between(draw, ranges.delay_ms)
    stop = chance(draw, ranges.stop_per_mille)
    return SavepointPlan(after, delay_ms, stop, claim=stop and chance(draw, ranges.claim_per_mille))


SCENARIO = Scenario(settles=frozenset({Part.SAVEPOINTS}), possible=_possible, savepoints=_savepoints)
