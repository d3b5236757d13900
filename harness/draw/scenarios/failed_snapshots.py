"""The synchronous part of a snapshot fails on one subtask (COO-2, SNP-2).

The checkpoint is declined before its barrier has left the subtask, nothing of it may be kept, and the subtask goes on.
By chance no snapshot of a drawn plan fails there: what fails is written later, in the asynchronous part. Here it fails
for one checkpoint or for several in a row, as many as are tolerated or one more, one by one or while others are in
flight. Often something dies when a later checkpoint is complete, so that what it holds is restored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import strategies as st

from barrier_tck.faults.catalogue import KINDS, FaultKind
from barrier_tck.faults.drawing import Aim, Plainest
from barrier_tck.faults.targets import TargetKind
from barrier_tck.faults.vocabulary import After, ProtocolPoint, ScheduledFault
from barrier_tck.harness.draw.choices import DrawnChoices, chance, numbers
from barrier_tck.harness.draw.constraints import Drawing
from barrier_tck.harness.draw.counted_checkpoints import one_by_one
from barrier_tck.harness.draw.drawn_job import DrawnJob
from barrier_tck.harness.draw.input_length import is_long_enough, long_enough
from barrier_tck.harness.draw.profile import Profile
from barrier_tck.harness.draw.scenario import Part, Scenario
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.system.system_under_test import Capability

_FAILS = next(kind for kind in KINDS.values() if kind.fault.needs is TargetKind.SNAPSHOTS)
_FIRST = (1, 2)
"""Which checkpoint fails first."""
_FAILING_MAX = 2
"""How many fail in a row."""
_SURE = _FIRST[1] + _FAILING_MAX + 2
"""Checkpoints that are certain to come: those that fail, those before, and two later ones."""
_BATCHES_MAX = 60
"""Batches of all sources together: what matters is when they come, and some operators emit all they keep for each."""
_TOLERATED = (0, 1, 1, 2, 2, 1_000)
_OVERLAPPING_PER_MILLE = 350
_KILL_PER_MILLE = 600


def _possible(profile: Profile, capabilities: frozenset[Capability]) -> bool:
    return (
        Capability.SNAPSHOT_FAULTS in capabilities
        and profile.faults.number[0] <= 1 <= profile.faults.number[1]
    )


def _profile(draw: st.DrawFn, profile: Profile) -> Profile:
    counted = one_by_one(profile)
    overlapping = profile.checkpoints.max_concurrent[1] > 1 and chance(draw, _OVERLAPPING_PER_MILLE)
    in_flight, pause_ms = ((2, 3), (0,)) if overlapping else ((1, 1), counted.checkpoints.min_pause_ms)
    shortest_ms, longest_ms = profile.checkpoints.interval_ms
    paced = replace(
        counted.checkpoints,
        interval_ms=(shortest_ms, shortest_ms + (longest_ms - shortest_ms) // 3),
        max_concurrent=in_flight,
        min_pause_ms=pause_ms,
        tolerated_failures=_TOLERATED,
    )
    return replace(counted, checkpoints=paced)


def _load(drawing: Drawing, plan: TrialPlan) -> TrialPlan:
    return long_enough(plan, drawing.profile.limits.settle_ms, _SURE, _BATCHES_MAX)


def _faults(drawing: Drawing, job: DrawnJob, kinds: Sequence[FaultKind]) -> Sequence[ScheduledFault]:
    """Draw what fails, and perhaps something that dies; nothing if no snapshot is certain to follow."""
    draw, able = drawing.draw, job.hit_by(_FAILS)
    if not able or not is_long_enough(job, drawing.profile.limits.settle_ms, _SURE):
        return ()
    first, failing = draw(numbers(*_FIRST)), draw(numbers(1, _FAILING_MAX))
    aim = Aim(draw(st.sampled_from(able)), checkpoints=failing)
    fails = ScheduledFault(
        _FAILS.fault.drawn(DrawnChoices(draw), aim), After(ProtocolPoint.CHECKPOINT_TRIGGERED, nth=first)
    )
    killers = [kind for kind in kinds if kind.fault.ends is not None]
    several = drawing.profile.faults.number[1] > 1
    if not (killers and several and chance(draw, _KILL_PER_MILLE)):
        return (fails,)
    killed = draw(st.sampled_from(killers)).fault.drawn(
        Plainest(), Aim(draw(st.sampled_from(job.view.names)))
    )
    completed = After(ProtocolPoint.CHECKPOINT_COMPLETED, nth=first + draw(numbers(0, 1)))
    return (fails, ScheduledFault(killed, completed))


SCENARIO = Scenario(
    per_mille=25,
    settles=frozenset({Part.INPUT, Part.PACE, Part.FAULTS}),
    possible=_possible,
    profile=_profile,
    load=_load,
    faults=_faults,
)
