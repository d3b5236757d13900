"""A process ends in the newest attempt while the coordinator publishes what it has acknowledged (COO-1, REC-2).

Whatever a process still does when it ends, it must leave alone what it has acknowledged: the checkpoint is about to be
complete, and the next attempt starts from it. By chance the moment is short, because nearly all that ends processes
comes at other times. Here one of them dies, or loses a connection, as soon as all have acknowledged, and all others are
told to stop. Storage is slow and messages are quick, so that they have closed before the checkpoint is complete. One
checkpoint is in flight at a time: its number is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import strategies as st

from barrier_tck.faults.catalogue import FaultKind
from barrier_tck.faults.drawing import Aim, Plainest
from barrier_tck.faults.fault import Ends
from barrier_tck.faults.vocabulary import After, ProtocolPoint, ScheduledFault
from barrier_tck.harness.draw.choices import between, chance
from barrier_tck.harness.draw.constraints import Drawing
from barrier_tck.harness.draw.counted_checkpoints import one_by_one
from barrier_tck.harness.draw.drawn_job import DrawnJob
from barrier_tck.harness.draw.input_length import is_long_enough, long_enough
from barrier_tck.harness.draw.profile import Profile
from barrier_tck.harness.draw.scenario import Part, Scenario
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.system.system_under_test import Capability

_PUBLISHED = (1, 3)
"""Which checkpoint is published then."""
_SURE = _PUBLISHED[1] + 2
_SLOW_MS = (25, 40)
"""How long storage takes at the most, a checkpoint's metadata half as long."""
_QUICK_MS = (0, 2)
_BREAKS = ("cut",)
"""The kinds of faults after which a process ends by itself."""
_BREAKS_PER_MILLE = 300
_AGAIN_PER_MILLE = 300
"""Of 1,000 of these plans, in how many the attempt that follows ends in the same way."""
_TWICE = 2


def _possible(profile: Profile, capabilities: frozenset[Capability]) -> bool:
    fewest, most = profile.faults.number
    return Capability.SLOW_SNAPSHOTS in capabilities and fewest <= 1 <= most


def _profile(_: st.DrawFn, profile: Profile) -> Profile:
    counted = one_by_one(profile)
    return replace(
        counted,
        checkpoints=replace(counted.checkpoints, async_ms_max=_SLOW_MS),
        network=replace(counted.network, latency_ms_max=_QUICK_MS),
    )


def _load(drawing: Drawing, plan: TrialPlan) -> TrialPlan:
    return long_enough(plan, drawing.profile.limits.settle_ms, _SURE)


def _faults(drawing: Drawing, job: DrawnJob, kinds: Sequence[FaultKind]) -> Sequence[ScheduledFault]:
    """Draw what ends first, and at which checkpoint; nothing if that checkpoint is not certain to come."""
    draw, view = drawing.draw, job.view
    killers = [kind for kind in kinds if kind.fault.ends is Ends.SUBTASKS]
    breaks = [kind for kind in kinds if kind.name in _BREAKS]
    sure = is_long_enough(job, drawing.profile.limits.settle_ms, _SURE)
    if not (killers and sure and view.times(ProtocolPoint.ALL_ACKNOWLEDGED, None)):
        return ()
    number, faults = between(draw, _PUBLISHED), []
    twice = drawing.profile.faults.number[1] >= _TWICE and chance(draw, _AGAIN_PER_MILLE)
    for nth in range(number, number + 1 + twice):
        target = draw(st.sampled_from(view.names))
        breaking = breaks and view.ends_of(target) and chance(draw, _BREAKS_PER_MILLE)
        kind = draw(st.sampled_from(breaks if breaking else killers))
        aim = Aim(target, receivers=view.ends_of(target))
        faults.append(
            ScheduledFault(kind.fault.drawn(Plainest(), aim), After(ProtocolPoint.ALL_ACKNOWLEDGED, nth=nth))
        )
    return faults


SCENARIO = Scenario(
    per_mille=40,
    settles=frozenset({Part.INPUT, Part.PACE, Part.FAULTS}),
    possible=_possible,
    profile=_profile,
    load=_load,
    faults=_faults,
)
