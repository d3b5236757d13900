"""Draws the faults of a plan: only those that its system can suffer, and only at moments that are sure to come.

A planned fault that never fires makes a trial UNKNOWN (CAM-3), so faults are aimed only at what is sure to happen
according to the system's view of the job. For instance, a subtask that is killed before it acknowledged passes the
points of a checkpoint again; a restore follows a kill that came after a completed checkpoint and before the end. Points
that a plan may never reach (the fifth checkpoint of a short job) are not drawn, nor are points that the system does not
have. If a system has no points at all, its faults are timed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
from hypothesis import strategies as st

from barrier_tck.faults.catalogue import KINDS, FaultKind
from barrier_tck.faults.drawing import Aim, Plainest
from barrier_tck.faults.fault import Ends
from barrier_tck.faults.vocabulary import COORDINATOR_POINTS, After, At, ProtocolPoint, ScheduledFault
from barrier_tck.harness.draw.choices import DrawnChoices, between, chance, numbers
from barrier_tck.harness.draw.constraints import Drawing
from barrier_tck.harness.draw.copy_faults import can_be_shown, draw_storage_faults_of_kinds, hits_copies
from barrier_tck.harness.draw.drawn_job import DrawnJob
from barrier_tck.harness.draw.profile import FaultRanges, Range
from barrier_tck.harness.draw.scenario import DrawFaults
from barrier_tck.harness.draw.stages import Stage, begins
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.system.exposed_targets import targets_among

_SINK_ONLY = frozenset(
    {
        ProtocolPoint.COMPLETION_NOTIFIED,
        ProtocolPoint.COMMIT_STEP,
        ProtocolPoint.TRANSACTIONS_COMMITTED,
    }
)
_BEFORE_UPLOADS = frozenset(
    {
        ProtocolPoint.CHECKPOINT_TRIGGERED,
        ProtocolPoint.BARRIER_RECEIVED,
        ProtocolPoint.ALIGNMENT_STARTED,
        ProtocolPoint.ALIGNMENT_COMPLETED,
        ProtocolPoint.SNAPSHOT_TAKEN,
    }
)
_BEFORE_REQUESTS = _BEFORE_UPLOADS | {ProtocolPoint.ALL_ACKNOWLEDGED}
_REQUESTS = {"hdfs": 2}
"""Storage -> how many modifying requests surely follow a trigger, if several. HDFS makes a directory, then renames."""
_RESTORE = frozenset({ProtocolPoint.RESTORE_STARTED, ProtocolPoint.RESTORED})


def with_faults(
    drawing: Drawing, plan: TrialPlan, kinds: Sequence[str] | None, scenarios: Sequence[DrawFaults]
) -> TrialPlan:
    """Return the plan with faults.

    ``kinds`` names the kind of each fault, in order. Those that cannot hit the job are left out, and the plan's note
    names them. If ``kinds`` is None, the first of ``scenarios`` that draws as many as the profile asks for settles
    them. If none does, kinds are drawn by the weights of the profile, among those that the system can suffer.
    """
    job = DrawnJob(plan, drawing.lasting(plan))
    if kinds is None:
        return msgspec.structs.replace(plan, faults=_drawn(drawing, job, scenarios))
    note = plan.note
    missing = [name for name in kinds if not _can_hit(KINDS[name], job)]
    if missing:
        note = f"{note}; nothing to hit: {', '.join(missing)}".removeprefix("; ")
    return msgspec.structs.replace(plan, faults=_of_kinds(drawing, job, kinds), note=note)


def _drawn(drawing: Drawing, job: DrawnJob, scenarios: Sequence[DrawFaults]) -> tuple[ScheduledFault, ...]:
    exposed = targets_among(drawing.capabilities)
    weighted = [KINDS[name] for name, weight in drawing.profile.faults.kinds for _ in range(weight)]
    possible = [kind for kind in weighted if kind.fault.needs in exposed and job.hit_by(kind)]
    for draw_faults in scenarios:
        faults = tuple(draw_faults(drawing, job, possible))
        if len(faults) >= max(1, drawing.profile.faults.number[0]):
            return faults
    suffered = tuple(kind for kind in possible if not hits_copies(kind))
    number = between(drawing.draw, drawing.profile.faults.number) if suffered else 0
    return tuple(_schedule(drawing, job, [suffered] * number, []))


def _can_hit(kind: FaultKind, job: DrawnJob) -> bool:
    """Return whether a kind of fault can hit the job; a fault of copies of state must also be certain to show."""
    return can_be_shown(kind, job) if hits_copies(kind) else bool(job.hit_by(kind))


def _of_kinds(drawing: Drawing, job: DrawnJob, names: Sequence[str]) -> tuple[ScheduledFault, ...]:
    able = [KINDS[name] for name in names if _can_hit(KINDS[name], job)]
    of_storage = [kind for kind in able if hits_copies(kind)]
    others: list[tuple[FaultKind, ...]] = [(kind,) for kind in able if not hits_copies(kind)]
    exposed = targets_among(drawing.capabilities)
    first = draw_storage_faults_of_kinds(drawing.draw, job, of_storage, exposed)
    return tuple(_schedule(drawing, job, others, first))


def _schedule(
    drawing: Drawing, job: DrawnJob, choices: list[tuple[FaultKind, ...]], first: Sequence[ScheduledFault]
) -> list[ScheduledFault]:
    """Return ``first`` and a fault drawn from each of the choices of kinds, if a moment for it is sure to come."""
    schedule, ranges = list(first), drawing.profile.faults
    kills = next((index for index, choice in enumerate(choices) if _kills(choice)), None)
    if (
        kills is not None
        and len(choices) > 1
        and job.committing
        and chance(drawing.draw, ranges.restore_per_mille)
    ):
        schedule.append(_draw_kill_before_restore(drawing.draw, job, _kills(choices.pop(kills))))
    for choice in choices:
        timed = ranges.timed_per_mille and _times(ranges, job) is not None
        begins(drawing.draw, Stage.FAULTS)
        if timed or _possible_points(ranges, job, schedule):
            schedule.append(_draw_fault(drawing.draw, ranges, job, choice, schedule))
    return schedule


def _kills(kinds: Sequence[FaultKind]) -> tuple[FaultKind, ...]:
    return tuple(kind for kind in kinds if kind.fault.ends is not None)


def _draw_fault(
    draw: st.DrawFn,
    ranges: FaultRanges,
    job: DrawnJob,
    kinds: Sequence[FaultKind],
    before: Sequence[ScheduledFault],
) -> ScheduledFault:
    kind = draw(st.sampled_from(kinds))
    trigger: At | After
    # A second timed fault might come while nothing runs, because the first has just struck.
    already_timed = any(isinstance(earlier.trigger, At) for earlier in before)
    possible = _possible_points(ranges, job, before)
    if kind.fault.waits_for_upload or kind.fault.waits_for_request:
        fitting = _BEFORE_REQUESTS if kind.fault.waits_for_request else _BEFORE_UPLOADS
        possible = tuple(point for point in possible if point in fitting) or possible
    times = _times(ranges, job)
    if times and (not possible or (chance(draw, ranges.timed_per_mille) and not already_timed)):
        trigger, standing = At(time_ms=between(draw, times)), None
    else:
        trigger = _draw_aim(draw, possible, job, before)
        standing = trigger.subtask
    # Around the last commit other subtasks may have ended already, so a fault there hits the sink itself.
    last = isinstance(trigger, After) and trigger.point in _SINK_ONLY
    own = standing is not None and (last or chance(draw, ranges.own_target_per_mille))
    able = job.hit_by(kind)
    if own and standing in able:
        target = standing
    else:
        target = draw(st.sampled_from([name for name in _living(trigger, job) if name in able] or able))
    return ScheduledFault(kind.fault.drawn(DrawnChoices(draw), _aim(ranges, job, kind, target)), trigger)


def _times(ranges: FaultRanges, job: DrawnJob) -> Range | None:
    """Return the part of the profile's range in which the job is certain to run; None if it may end before.

    With a rate, the job is certain to run for half of the time in which its longest source reads; without a rate, for
    the least time that its batches take. If that time is not known, each batch counts as one millisecond, but all of
    them as at most half a checkpoint interval. If batches are not counted, the whole range is returned.
    """
    earliest, latest = ranges.timed_ms
    if job.batches is None:
        return earliest, latest
    if ranges.batch_ms is not None:
        unpaced_ms = job.batches * ranges.batch_ms
    else:
        unpaced_ms = min(job.plan.checkpoints.interval_ms // 2, job.batches)
    sure_ms = unpaced_ms if job.reads_ms is None else job.reads_ms // 2
    return (earliest, min(latest, sure_ms)) if sure_ms >= earliest else None


def _aim(ranges: FaultRanges, job: DrawnJob, kind: FaultKind, target: str) -> Aim:
    """Return what is needed to draw a fault: which subtask it hits, and how hard it may hit."""
    outlasts = kind.drawn_as.outlasts_heartbeat
    return Aim(
        target,
        receivers=job.view.ends_of(target),
        peers=job.peers_of(target),
        directions=job.directions,
        outlasts_heartbeat=outlasts,
        duration_ms=ranges.zombie_ms if outlasts else ranges.duration_ms,
        latency_ms=ranges.latency_ms,
        bytes_per_second=ranges.bytes_per_second,
        lose_unsynced_per_mille=ranges.lose_unsynced_per_mille,
        unreadable_per_mille=ranges.unreadable_per_mille,
        returns_per_mille=ranges.returns_per_mille,
        requests=(1, _REQUESTS.get(job.plan.checkpoints.storage, 1)),
    )


def _living(trigger: At | After, job: DrawnJob) -> tuple[str, ...]:
    """Return the subtasks that are sure to be alive at the trigger.

    When a checkpoint has completed, it may be the last one, and then only sinks are alive.
    """
    completed = isinstance(trigger, After) and trigger.point is ProtocolPoint.CHECKPOINT_COMPLETED
    return job.sinks if completed and job.sinks else job.view.names


def _possible_points(
    ranges: FaultRanges, job: DrawnJob, before: Sequence[ScheduledFault]
) -> tuple[ProtocolPoint, ...]:
    """Return the points that some process is sure to pass in spite of the earlier faults."""
    return tuple(
        point
        for point in ranges.points
        if any(_passes_left(point, subtask, job, before) for subtask in _passing(point, job, before))
    )


def _standing(
    point: ProtocolPoint, job: DrawnJob, before: Sequence[ScheduledFault]
) -> tuple[str | None, ...]:
    """Return the subtasks that are sure to be alive and to pass a point (None: the coordinator)."""
    return tuple(
        subtask for subtask in _passing(point, job, before) if _passes_left(point, subtask, job, before)
    )


def _passing(point: ProtocolPoint, job: DrawnJob, before: Sequence[ScheduledFault]) -> tuple[str | None, ...]:
    """Return the processes that are certain to pass a point if no earlier fault ends them (None: the coordinator)."""
    if point in COORDINATOR_POINTS:
        return (None,) if job.view.times(point, None) else ()
    if point in _RESTORE and not any(_leads_to_restore(scheduled, job) for scheduled in before):
        return ()
    return job.view.passing(point)


def _passes_left(
    point: ProtocolPoint, subtask: str | None, job: DrawnJob, before: Sequence[ScheduledFault]
) -> bool:
    """Return whether a subtask is sure to pass a point once more after all earlier faults that end it there."""
    earlier = _at(point, subtask, before)
    if not earlier:
        return job.view.times(point, subtask) > 0
    ended = [scheduled for scheduled in earlier if scheduled.fault.ends is not None]
    return len(ended) < job.view.times(point, subtask) + _repeats(point, subtask, job, before)


def _draw_aim(
    draw: st.DrawFn, possible: Sequence[ProtocolPoint], job: DrawnJob, before: Sequence[ScheduledFault]
) -> After:
    point = draw(st.sampled_from(possible))
    standing = _standing(point, job, before)
    subtask = None if point in COORDINATOR_POINTS else draw(st.sampled_from(standing))
    times = job.view.times(point, subtask)
    if times > 1 or point is ProtocolPoint.RECORDS_PROCESSED:
        nth = draw(numbers(1, times))
        if point not in job.view.repeats:
            nth = _alive_at(nth, times, _at(point, subtask, before))
        return After(point, subtask, nth)
    return After(point, subtask, nth=1 + _repeats(point, subtask, job, before))


def _alive_at(nth: int, times: int, earlier: Sequence[ScheduledFault]) -> int:
    """Return the latest passing of a point, at or before the nth, at which a fault still meets a living process.

    ``earlier``: faults that are aimed at the same point. Whoever finds the process dead waits for its next passing, and
    one that passes a point so many times, and never again, may have none.
    """
    ended = [
        scheduled.trigger.nth
        for scheduled in earlier
        if scheduled.fault.ends is not None and isinstance(scheduled.trigger, After)
    ]
    return next((one for one in range(nth, 1, -1) if _last_struck([*ended, one]) <= times), 1)


def _last_struck(passings: Iterable[int]) -> int:
    """Return at which passing the last of several faults strikes, each of which ends the process."""
    last = 0
    for passing in sorted(passings):
        last = max(passing, last + 1)
    return last


def _draw_kill_before_restore(draw: st.DrawFn, job: DrawnJob, kinds: Sequence[FaultKind]) -> ScheduledFault:
    """Draw a fault between a completed checkpoint and its commit, so that faults in a restore can follow."""
    kind, sink = draw(st.sampled_from(kinds)), draw(st.sampled_from(job.committing))
    return ScheduledFault(
        kind.fault.drawn(Plainest(), Aim(sink)), After(ProtocolPoint.COMPLETION_NOTIFIED, sink)
    )


def _leads_to_restore(scheduled: ScheduledFault, job: DrawnJob) -> bool:
    """Return whether a completed checkpoint is sure to be restored after this fault.

    It is if a sink or the coordinator dies after the checkpoint completed and before the sink's commit is
    known, because the job cannot have ended then.
    """
    fault, trigger = scheduled.fault, scheduled.trigger
    if not isinstance(trigger, After) or fault.ends is None:
        return False
    if trigger.point in _SINK_ONLY:
        return fault.ends is Ends.COORDINATOR or fault.subtasks == (trigger.subtask,)
    if trigger.point is ProtocolPoint.CHECKPOINT_COMPLETED:
        return fault.ends is Ends.COORDINATOR or fault.subtasks[0] in job.sinks
    return False


def _at(
    point: ProtocolPoint, subtask: str | None, before: Sequence[ScheduledFault]
) -> tuple[ScheduledFault, ...]:
    """Return the earlier faults that are aimed at this point and subtask."""
    return tuple(
        scheduled
        for scheduled in before
        if isinstance(scheduled.trigger, After)
        and (scheduled.trigger.point, scheduled.trigger.subtask) == (point, subtask)
    )


def _repeats(
    point: ProtocolPoint, subtask: str | None, job: DrawnJob, before: Sequence[ScheduledFault]
) -> int:
    """Count the earlier faults after each of which this subtask is sure to pass this point once more."""
    if point not in job.view.repeats:
        return 0
    return sum(_ends_whom_it_waits_for(scheduled, subtask) for scheduled in _at(point, subtask, before))


def _ends_whom_it_waits_for(scheduled: ScheduledFault, subtask: str | None) -> bool:
    match scheduled.fault.ends:
        case Ends.COORDINATOR:
            return subtask is None
        case Ends.SUBTASKS:
            return scheduled.fault.subtasks == (subtask,)
        case _:
            return False  # a fault that lasts may be over before anything fails
