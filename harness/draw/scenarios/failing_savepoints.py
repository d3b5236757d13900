"""A savepoint fails while other requests wait for it to end (COO-5).

A stop waits for every checkpoint in flight, and where markers may cross so does a savepoint. What is asked for must be
triggered or refused, whatever becomes of that which it waits for. By chance a savepoint fails next to never just when
something waits for it. Here its number is known, one of its parts cannot be taken, and more is asked for
while it is pending.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec
from hypothesis import strategies as st

from barrier_tck.faults.catalogue import KINDS, FaultKind
from barrier_tck.faults.drawing import Aim, Plainest
from barrier_tck.faults.targets import TargetKind
from barrier_tck.faults.vocabulary import After, ProtocolPoint, ScheduledFault
from barrier_tck.harness.draw.choices import between, chance
from barrier_tck.harness.draw.constraints import Drawing
from barrier_tck.harness.draw.counted_checkpoints import one_by_one
from barrier_tck.harness.draw.drawn_job import DrawnJob
from barrier_tck.harness.draw.input_length import is_long_enough, long_enough
from barrier_tck.harness.draw.profile import Profile
from barrier_tck.harness.draw.scenario import Part, Scenario
from barrier_tck.harness.plan.trial_plan import SavepointPlan, TrialPlan
from barrier_tck.harness.system.system_under_test import Capability

_FAILS = next(kind for kind in KINDS.values() if kind.fault.needs is TargetKind.SNAPSHOTS)
"""What makes a savepoint fail. Faults of storage hit what checkpoints keep, and savepoints are elsewhere."""
_AFTER = (0, 3)
"""After how many completed checkpoints the savepoint is asked for."""
_LATENCY_MS = (3, 5)
"""How long messages take at the most, so that the savepoint is still pending when more is asked for."""
_LATER_MS = (1, 3)
"""How much later each further request comes."""
_MORE = (1, 2)
_STOP_PER_MILLE = 750
_SURE = _AFTER[1] + 3


def _possible(profile: Profile, capabilities: frozenset[Capability]) -> bool:
    fewest, most = profile.faults.number
    able = {Capability.SAVEPOINTS, Capability.SNAPSHOT_FAULTS} <= capabilities
    return able and fewest <= 1 <= most


def _profile(_: st.DrawFn, profile: Profile) -> Profile:
    counted = one_by_one(profile)
    return replace(
        counted,
        network=replace(counted.network, latency_ms_max=_LATENCY_MS),
    )


def _savepoints(drawing: Drawing, plan: TrialPlan) -> TrialPlan:
    """Ask for the savepoint that is to fail, and for more a moment later."""
    if not plan.checkpoints.enabled:
        return plan
    draw, after, delay_ms = drawing.draw, between(drawing.draw, _AFTER), 0
    asked = [SavepointPlan(after)]
    for _ in range(between(draw, _MORE)):
        delay_ms += between(draw, _LATER_MS)
        asked.append(SavepointPlan(after, delay_ms, stop=chance(draw, _STOP_PER_MILLE)))
    plan = msgspec.structs.replace(plan, savepoints=tuple(asked))
    return long_enough(plan, drawing.profile.limits.settle_ms, _SURE)


def _faults(drawing: Drawing, job: DrawnJob, _: Sequence[FaultKind]) -> Sequence[ScheduledFault]:
    """Draw what fails in the savepoint; nothing if its number is not certain."""
    plan, draw = job.plan, drawing.draw
    counted = plan.checkpoints.max_concurrent == 1 and is_long_enough(
        job, drawing.profile.limits.settle_ms, _SURE
    )
    able = job.hit_by(_FAILS)
    if not (plan.savepoints and counted and able):
        return ()
    return (
        ScheduledFault(
            _FAILS.fault.drawn(Plainest(), Aim(draw(st.sampled_from(able)))),
            After(ProtocolPoint.CHECKPOINT_TRIGGERED, nth=plan.savepoints[0].after_checkpoints + 1),
        ),
    )


SCENARIO = Scenario(
    per_mille=20,
    settles=frozenset({Part.INPUT, Part.PACE, Part.SAVEPOINTS, Part.FAULTS}),
    possible=_possible,
    profile=_profile,
    savepoints=_savepoints,
    faults=_faults,
)
