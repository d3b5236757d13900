"""A process of an older attempt goes on when its successor has got somewhere (REC-2, SNK-2, SNP-5).

It has stood still while it opened, took a snapshot, or heard that a checkpoint is complete, until it was given up. What
it does next meets what its successor has prepared and not yet committed, or a savepoint that the user has by now. By
chance a pause ends before the next attempt has anything that could be harmed, or strikes in the middle of records. Here
the pause is as long as it takes until that attempt runs, and some checkpoints more. Storage is slow, so that something
is prepared most of the time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec
from hypothesis import strategies as st

from barrier_tck.faults.catalogue import FaultKind
from barrier_tck.faults.drawing import Aim, Plainest
from barrier_tck.faults.fault import Ends, Fault
from barrier_tck.faults.targets import TargetKind
from barrier_tck.faults.vocabulary import After, ProtocolPoint, ScheduledFault
from barrier_tck.harness.draw.choices import DrawnChoices, between, chance, numbers
from barrier_tck.harness.draw.constraints import Drawing
from barrier_tck.harness.draw.counted_checkpoints import one_by_one
from barrier_tck.harness.draw.drawn_job import DrawnJob
from barrier_tck.harness.draw.input_length import is_long_enough, long_enough
from barrier_tck.harness.draw.profile import Profile
from barrier_tck.harness.draw.scenario import Part, Scenario
from barrier_tck.harness.plan.trial_plan import SavepointPlan, TrialPlan
from barrier_tck.harness.system.job_view import Role
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
_SHARED_PER_MILLE = 300
"""How many of these plans have increments."""
_SHARING_PER_MILLE = 750
"""How many plans with increments have a zombie that has written some."""
_SAVED_PER_MILLE = 180
"""How many of the others have a zombie that has acknowledged a savepoint, and never hears that it is complete."""
_RETAINED = (1, 1, 2)
_UNHEARD_PER_MILLE = 800
"""In how many of those the coordinator dies when the checkpoint is complete and nobody has been told."""
_DIES_PER_MILLE = 500
"""How many of those have a failure after the zombie goes on."""
_FAULTS = 2
_LATER = (1, 4)
"""How many checkpoints later than its successor runs the process goes on."""
_ACKNOWLEDGED = (3, 6)
"""The snapshots whose completion a process does not hear of, where its successors share what it has written.

Before these most keys are new: increments are as large as the whole state, and nothing is shared for long.
"""
_KEYS = (24, 60)
"""So many that few of them change from one checkpoint to the next."""
_SURE = _LATER[1] + 4
_INTERVAL_MS = (8, 16)
_SLOW_MS = (25, 40)


def _possible(profile: Profile, capabilities: frozenset[Capability]) -> bool:
    fewest, most = profile.faults.number
    able = {Capability.DETERMINISTIC_REPLAY, Capability.SLOW_SNAPSHOTS} <= capabilities
    return able and fewest <= _FAULTS <= most and _PAUSE in dict(profile.faults.kinds)


def _profile(draw: st.DrawFn, profile: Profile) -> Profile:
    counted = one_by_one(profile)
    if chance(draw, _SHARED_PER_MILLE):
        retained = draw(st.sampled_from(_RETAINED))
        shared = replace(counted.checkpoints, incremental_per_mille=1_000, retained=(retained, retained))
        keys = replace(counted.workload, keys=_KEYS)
        counted = replace(counted, checkpoints=shared, workload=keys)
    return replace(
        counted,
        job=replace(counted.job, shapes_left_out=(*counted.job.shapes_left_out, "fan-in")),
        checkpoints=replace(counted.checkpoints, interval_ms=_INTERVAL_MS, async_ms_max=_SLOW_MS),
        restarts=replace(counted.restarts, strategies=("fixed_delay",), delay_ms=(0, 20)),
    )


def _load(drawing: Drawing, plan: TrialPlan) -> TrialPlan:
    return long_enough(plan, drawing.profile.limits.settle_ms, _sure(plan))


def _sure(plan: TrialPlan) -> int:
    """Return how many checkpoints the job must be certain to complete."""
    counts = plan.checkpoints.incremental or _saved_as(plan) is not None
    return _SURE + (_ACKNOWLEDGED[1] if counts else 0)


def _savepoints(drawing: Drawing, plan: TrialPlan) -> TrialPlan:
    """Ask for one savepoint in some plans: it is the next one that is acknowledged, and that completes."""
    able = Capability.SAVEPOINTS in drawing.capabilities and plan.checkpoints.enabled
    if plan.checkpoints.incremental or not (able and chance(drawing.draw, _SAVED_PER_MILLE)):
        return plan
    asked = SavepointPlan(after_checkpoints=between(drawing.draw, _ACKNOWLEDGED) - 1)
    # Nothing completes beside the savepoint, and the job's own note of it is gone when the process goes on.
    pause_ms = max(plan.checkpoints.min_pause_ms, plan.checkpoints.async_ms_max + 2 * _INTERVAL_MS[0])
    checkpoints = msgspec.structs.replace(plan.checkpoints, retained=1, min_pause_ms=pause_ms)
    plan = msgspec.structs.replace(plan, savepoints=(asked,), checkpoints=checkpoints)
    return long_enough(plan, drawing.profile.limits.settle_ms, _SURE + _ACKNOWLEDGED[1])


def _saved_as(plan: TrialPlan) -> int | None:
    """Return which snapshot of a process is the savepoint that `_savepoints` asks for, counted from 1; None without
    it."""
    if plan.checkpoints.incremental or len(plan.savepoints) != 1:
        return None
    (asked,) = plan.savepoints
    return None if asked.stop or asked.delay_ms else asked.after_checkpoints + 1


def _faults(drawing: Drawing, job: DrawnJob, kinds: Sequence[FaultKind]) -> Sequence[ScheduledFault]:
    """Draw which process is paused, and where; nothing if it is not known when it is given up."""
    draw, view = drawing.draw, job.view
    pauses = [kind for kind in kinds if kind.name == _PAUSE]
    killers = [
        kind for kind in kinds if kind.fault.ends is Ends.SUBTASKS and kind.fault.needs is TargetKind.WORKER
    ]
    sure = is_long_enough(job, drawing.profile.limits.settle_ms, _sure(job.plan))
    if not (pauses and killers and sure and view.silence_noticed_ms is not None):
        return ()
    aim = Aim(draw(st.sampled_from(view.names)))
    dies = draw(st.sampled_from(killers)).fault.drawn(Plainest(), aim)
    if job.plan.checkpoints.incremental and chance(draw, _SHARING_PER_MILLE):
        return _sharing(drawing, job, kinds, pauses[0], dies)
    saved_as = _saved_as(job.plan)
    if saved_as is not None:
        return _unheard(drawing, job, kinds, pauses[0], saved_as)
    opening = chance(draw, _RESTORE_PER_MILLE)
    point = draw(st.sampled_from(_RESTORE if opening else _RUNNING))
    passing = view.passing(point)
    sinks = [name for name in passing if name in job.sinks]
    if not passing:
        return ()
    zombie = draw(st.sampled_from(sinks if sinks and chance(draw, _SINKS_PER_MILLE) else passing))
    paused = _paused(draw, pauses[0], After(point, zombie), _lasts_ms(job))
    if not opening:
        return (paused,)
    return (ScheduledFault(dies, After(ProtocolPoint.CHECKPOINT_COMPLETED)), paused)


def _sharing(
    drawing: Drawing, job: DrawnJob, kinds: Sequence[FaultKind], pause: FaultKind, dies: Fault
) -> Sequence[ScheduledFault]:
    """Draw which process with state is paused that has acknowledged a snapshot, and what dies before and after."""
    draw, passing = drawing.draw, _keeping_state(job)
    if not passing:
        return ()
    nth, zombie, others = (
        draw(numbers(*_ACKNOWLEDGED)),
        draw(st.sampled_from(passing)),
        list[ScheduledFault](),
    )
    crashes = [kind for kind in kinds if kind.fault.ends is Ends.COORDINATOR and job.hit_by(kind)]
    unheard = bool(crashes) and chance(draw, _UNHEARD_PER_MILLE)
    if unheard:
        crash = draw(st.sampled_from(crashes)).fault.drawn(Plainest(), Aim(zombie))
        others.append(ScheduledFault(crash, After(ProtocolPoint.CHECKPOINT_COMPLETED, nth=nth)))
    if len(others) + 1 < drawing.profile.faults.number[1] and chance(draw, _DIES_PER_MILLE):
        later = After(ProtocolPoint.CHECKPOINT_COMPLETED, nth=nth + _LATER[1])
        others.append(ScheduledFault(dies, later))
    lasts_ms = _lasts_ms(job, given_up_ms=_one_ms(job)) if unheard else _lasts_ms(job)
    return (*others, _paused(draw, pause, After(ProtocolPoint.ACKNOWLEDGED, zombie, nth), lasts_ms))


def _unheard(
    drawing: Drawing, job: DrawnJob, kinds: Sequence[FaultKind], pause: FaultKind, nth: int
) -> Sequence[ScheduledFault]:
    """Draw which process with state is paused that has acknowledged a savepoint; the coordinator dies when this is
    complete."""
    draw, passing = drawing.draw, _keeping_state(job)
    crashes = [kind for kind in kinds if kind.fault.ends is Ends.COORDINATOR and job.hit_by(kind)]
    if not (passing and crashes):
        return ()
    zombie = draw(st.sampled_from(passing))
    crash = draw(st.sampled_from(crashes)).fault.drawn(Plainest(), Aim(zombie))
    lasts_ms = _lasts_ms(job, given_up_ms=_one_ms(job))
    return (
        ScheduledFault(crash, After(ProtocolPoint.CHECKPOINT_COMPLETED, nth=nth)),
        _paused(draw, pause, After(ProtocolPoint.ACKNOWLEDGED, zombie, nth), lasts_ms),
    )


def _keeping_state(job: DrawnJob) -> list[str]:
    stateful = job.view.in_role(Role.STATEFUL)
    return [name for name in job.view.passing(ProtocolPoint.ACKNOWLEDGED) if name in stateful]


def _paused(draw: st.DrawFn, pause: FaultKind, when: After, lasts_ms: tuple[int, int]) -> ScheduledFault:
    assert when.subtask is not None, "a process is paused"
    aim = Aim(when.subtask, outlasts_heartbeat=True, duration_ms=lasts_ms)
    return ScheduledFault(pause.fault.drawn(DrawnChoices(draw), aim), when)


def _lasts_ms(job: DrawnJob, given_up_ms: int | None = None) -> tuple[int, int]:
    """Return from when until when the next attempt is sure to have run for some checkpoints.

    ``given_up_ms``: how long it takes until the process is given up; None: until its silence is noticed. A coordinator
    that starts again gives it up sooner: about when the next checkpoint would have come.
    """
    plan = job.plan
    up_ms = int(job.view.silence_noticed_ms or 0) if given_up_ms is None else given_up_ms
    runs_ms = up_ms + plan.restart.delay_ms + 4 * plan.network.latency_ms_max
    return runs_ms + _LATER[0] * _one_ms(job), runs_ms + _LATER[1] * _one_ms(job)


def _one_ms(job: DrawnJob) -> int:
    """Return about how long it takes from one checkpoint to the next."""
    checkpoints = job.plan.checkpoints
    return checkpoints.interval_ms + checkpoints.min_pause_ms + checkpoints.async_ms_max // 2


SCENARIO = Scenario(
    per_mille=80,
    settles=frozenset({Part.INPUT, Part.PACE, Part.SAVEPOINTS, Part.FAULTS}),
    possible=_possible,
    profile=_profile,
    load=_load,
    savepoints=_savepoints,
    faults=_faults,
)
