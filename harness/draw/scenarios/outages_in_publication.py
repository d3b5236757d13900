"""The storage service goes away between two steps of the publication of a savepoint (COO-1, COO-5, STA-2).

A savepoint is published twice: its own metadata is put into its directory, and then the job's note of it. If the second
put fails, the first one must be taken back, and the service may not even answer that. By chance no outage begins just
there, and seldom is a savepoint asked for at all. Here one checkpoint is in flight at a time, so the number of each
step is known. Now and then the savepoint was to stop the job, and another one is asked for later.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec
from hypothesis import strategies as st

from barrier_tck.faults.catalogue import FaultKind
from barrier_tck.faults.drawing import Aim
from barrier_tck.faults.vocabulary import After, ProtocolPoint, ScheduledFault
from barrier_tck.harness.draw.choices import DrawnChoices, between, chance
from barrier_tck.harness.draw.constraints import Drawing
from barrier_tck.harness.draw.counted_checkpoints import one_by_one
from barrier_tck.harness.draw.drawn_job import DrawnJob
from barrier_tck.harness.draw.input_length import is_long_enough, long_enough
from barrier_tck.harness.draw.outages import OUTAGES, has_outages
from barrier_tck.harness.draw.profile import Profile
from barrier_tck.harness.draw.scenario import Part, Scenario
from barrier_tck.harness.plan.trial_plan import SavepointPlan, TrialPlan
from barrier_tck.harness.system.system_under_test import Capability

_AFTER = (0, 2)
"""After how many completed checkpoints the savepoint is asked for."""
_STEPS_OF_A_SAVEPOINT = 4
"""The steps of the savepoint's own metadata come before those of the job's note."""
_STOP_PER_MILLE, _AGAIN_PER_MILLE = 400, 300


def _possible(profile: Profile, capabilities: frozenset[Capability]) -> bool:
    fewest, most = profile.faults.number
    return Capability.SAVEPOINTS in capabilities and fewest <= 1 <= most and has_outages(profile)


def _profile(_: st.DrawFn, profile: Profile) -> Profile:
    counted = one_by_one(profile)
    return replace(counted, savepoints=replace(counted.savepoints, rescale_per_mille=0))


def _savepoints(drawing: Drawing, plan: TrialPlan) -> TrialPlan:
    """Ask for the savepoint, and perhaps for one more."""
    if not plan.checkpoints.enabled:
        return plan
    draw = drawing.draw
    asked = [SavepointPlan(between(draw, _AFTER), stop=chance(draw, _STOP_PER_MILLE))]
    if chance(draw, _AGAIN_PER_MILLE):
        asked.append(SavepointPlan(asked[0].after_checkpoints + 1, stop=chance(draw, _STOP_PER_MILLE)))
    plan = msgspec.structs.replace(plan, savepoints=tuple(asked))
    return long_enough(plan, drawing.profile.limits.settle_ms, _checkpoints(plan))


def _faults(drawing: Drawing, job: DrawnJob, kinds: Sequence[FaultKind]) -> Sequence[ScheduledFault]:
    """Draw the outage; none if the job's checkpoints are in no service, or the savepoint is not certain."""
    draw, plan = drawing.draw, job.plan
    steps = job.view.times(ProtocolPoint.PUBLICATION_STEP, None)
    outages = [kind for kind in kinds if kind.name in OUTAGES]
    counted = plan.checkpoints.max_concurrent == 1 and is_long_enough(
        job, drawing.profile.limits.settle_ms, _checkpoints(plan)
    )
    if not (steps and outages and plan.savepoints and counted):
        return ()
    before = plan.savepoints[0].after_checkpoints * steps
    step = draw(st.sampled_from(range(1, _STEPS_OF_A_SAVEPOINT)))
    aim = Aim("", duration_ms=drawing.profile.faults.duration_ms)
    outage = draw(st.sampled_from(outages)).fault.drawn(DrawnChoices(draw), aim)
    return (ScheduledFault(outage, After(ProtocolPoint.PUBLICATION_STEP, nth=before + step)),)


def _checkpoints(plan: TrialPlan) -> int:
    """Return how many checkpoints must come while there is input: those that are counted, and two to spare."""
    return max((asked.after_checkpoints for asked in plan.savepoints), default=0) + 3


SCENARIO = Scenario(
    settles=frozenset({Part.INPUT, Part.PACE, Part.SAVEPOINTS, Part.FAULTS}),
    per_mille=150,
    possible=_possible,
    profile=_profile,
    savepoints=_savepoints,
    faults=_faults,
)
