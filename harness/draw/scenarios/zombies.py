"""A process of an older attempt goes on when its successor has got somewhere (REC-2, SNK-2).

It has stood still while it opened, took a snapshot, or heard that a checkpoint is complete, until it was given up. What
it does next meets what its successor has prepared and not yet committed. By chance a pause ends before the next attempt
has anything that could be harmed, or strikes in the middle of records. Here the pause is as long as it takes until that
attempt runs, and some checkpoints more. Storage is slow, so that something is prepared most of the time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import strategies as st

from barrier_tck.faults.catalogue import FaultKind
from barrier_tck.faults.drawing import Aim, Plainest
from barrier_tck.faults.fault import Ends
from barrier_tck.faults.targets import TargetKind
from barrier_tck.faults.vocabulary import After, ProtocolPoint, ScheduledFault
from barrier_tck.harness.draw.choices import DrawnChoices, chance
from barrier_tck.harness.draw.constraints import Drawing
from barrier_tck.harness.draw.counted_checkpoints import one_by_one
from barrier_tck.harness.draw.drawn_job import DrawnJob
from barrier_tck.harness.draw.input_length import is_long_enough, long_enough
from barrier_tck.harness.draw.profile import Profile
from barrier_tck.harness.draw.scenario import Part, Scenario
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.system.system_under_test import Capability

_PAUSE = "zombie-paused"
_RESTORE = (ProtocolPoint.RESTORE_STARTED, ProtocolPoint.RESTORED)
"""A process is replaced that has not opened yet; these come after another failure."""
_RUNNING = (
    ProtocolPoint.BARRIER_RECEIVED,
    ProtocolPoint.SNAPSHOT_TAKEN,
    ProtocolPoint.SNAPSHOT_STORED,
    ProtocolPoint.ACKNOWLEDGED,
    *(ProtocolPoint.COMPLETION_NOTIFIED,) * 4,
    ProtocolPoint.COMMIT_STEP,
)
"""Mostly before a commit: what a sink does then has an effect that others see."""
_RESTORE_PER_MILLE = 500
_SINKS_PER_MILLE = 750
"""Of 1,000 of these plans, in how many a sink is the zombie; any subtask may be one."""
_FAULTS = 2
_LATER = (1, 4)
"""How many checkpoints later than its successor runs the process goes on."""
_SURE = _LATER[1] + 4
_INTERVAL_MS = (8, 16)
_SLOW_MS = (25, 40)


def _possible(profile: Profile, capabilities: frozenset[Capability]) -> bool:
    fewest, most = profile.faults.number
    able = {Capability.DETERMINISTIC_REPLAY, Capability.SLOW_SNAPSHOTS} <= capabilities
    return able and fewest <= _FAULTS <= most and _PAUSE in dict(profile.faults.kinds)


def _profile(_: st.DrawFn, profile: Profile) -> Profile:
    counted = one_by_one(profile)
    return replace(
        counted,
        job=replace(counted.job, shapes_left_out=(*counted.job.shapes_left_out, "fan-in")),
        checkpoints=replace(counted.checkpoints, interval_ms=_INTERVAL_MS, async_ms_max=_SLOW_MS),
        restarts=replace(counted.restarts, strategies=("fixed_delay",), delay_ms=(0, 20)),
    )


def _load(drawing: Drawing, plan: TrialPlan) -> TrialPlan:
    return long_enough(plan, drawing.profile.limits.settle_ms, _SURE)


def _faults(drawing: Drawing, job: DrawnJob, kinds: Sequence[FaultKind]) -> Sequence[ScheduledFault]:
    """Draw which process is paused, and where; nothing if it is not known when it is given up."""
    draw, view = drawing.draw, job.view
    pauses = [kind for kind in kinds if kind.name == _PAUSE]
    killers = [
        kind for kind in kinds if kind.fault.ends is Ends.SUBTASKS and kind.fault.needs is TargetKind.WORKER
    ]
    sure = is_long_enough(job, drawing.profile.limits.settle_ms, _SURE)
    if not (pauses and killers and sure and view.silence_noticed_ms is not None):
        return ()
    opening = chance(draw, _RESTORE_PER_MILLE)
    point = draw(st.sampled_from(_RESTORE if opening else _RUNNING))
    passing = view.passing(point)
    sinks = [name for name in passing if name in job.sinks]
    if not passing:
        return ()
    zombie = draw(st.sampled_from(sinks if sinks and chance(draw, _SINKS_PER_MILLE) else passing))
    pause = pauses[0].fault.drawn(
        DrawnChoices(draw), Aim(zombie, outlasts_heartbeat=True, duration_ms=_lasts_ms(job))
    )
    paused = ScheduledFault(pause, After(point, zombie))
    if not opening:
        return (paused,)
    dies = draw(st.sampled_from(killers)).fault.drawn(Plainest(), Aim(draw(st.sampled_from(view.names))))
    return (ScheduledFault(dies, After(ProtocolPoint.CHECKPOINT_COMPLETED)), paused)


def _lasts_ms(job: DrawnJob) -> tuple[int, int]:
    """Return from when until when the next attempt is sure to have run for some checkpoints."""
    plan, checkpoints = job.plan, job.plan.checkpoints
    given_up_ms = int(job.view.silence_noticed_ms or 0)
    runs_ms = given_up_ms + plan.restart.delay_ms + 4 * plan.network.latency_ms_max
    one_ms = checkpoints.interval_ms + checkpoints.min_pause_ms + checkpoints.async_ms_max // 2
    return runs_ms + _LATER[0] * one_ms, runs_ms + _LATER[1] * one_ms


SCENARIO = Scenario(
    per_mille=60,
    settles=frozenset({Part.INPUT, Part.PACE, Part.FAULTS}),
    possible=_possible,
    profile=_profile,
    load=_load,
    faults=_faults,
)
