"""Draws the faults of a plan: only those that its system can suffer, and only at moments that are sure to come.

A planned fault that never fires makes a trial UNKNOWN (CAM-3), so aims are drawn from what is sure to happen according
to the system's view of the job. For instance, a subtask that is killed before it acknowledged passes the points of a
checkpoint again; a restore follows a kill that came after a completed checkpoint and before the end. Points that a plan
may never reach (the fifth checkpoint of a short job) are not drawn, nor are points that the system does not have. If a
system passes no points, its faults are timed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hypothesis import strategies as st

from barrier_tck.faults.catalogue import KINDS, FaultKind
from barrier_tck.faults.drawing import Aim, Plainest
from barrier_tck.faults.fault import Ends
from barrier_tck.faults.vocabulary import COORDINATOR_POINTS, After, At, ProtocolPoint, ScheduledFault
from barrier_tck.harness.draw.chain_plans import draw_chain
from barrier_tck.harness.draw.choices import DrawnChoices, between, chance, numbers
from barrier_tck.harness.draw.drawn_job import DrawnJob
from barrier_tck.harness.draw.profile import Profile, Range
from barrier_tck.harness.draw.storage_faults import (
    can_be_shown,
    draw_dealt_storage_faults,
    draw_storage_faults,
    hits_copies,
    is_long_enough,
)
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.system.exposed_targets import targets_among
from barrier_tck.harness.system.job_view import JobView
from barrier_tck.harness.system.system_under_test import Capability

_SINK_ONLY = frozenset({ProtocolPoint.COMPLETION_NOTIFIED, ProtocolPoint.TRANSACTIONS_COMMITTED})
_BEFORE_UPLOADS = frozenset(
    {
        ProtocolPoint.CHECKPOINT_TRIGGERED,
        ProtocolPoint.BARRIER_RECEIVED,
        ProtocolPoint.ALIGNMENT_STARTED,
        ProtocolPoint.ALIGNMENT_COMPLETED,
        ProtocolPoint.SNAPSHOT_TAKEN,
    }
)
_RESTORE = frozenset({ProtocolPoint.RESTORE_STARTED, ProtocolPoint.RESTORED})


@dataclass(frozen=True, slots=True)
class DrawnFaults:
    """A schedule, and what was asked for but cannot hit the job."""

    schedule: tuple[ScheduledFault, ...]
    left_out: tuple[str, ...]
    """The kinds of faults that were asked for but cannot hit the job."""


def draw_faults(
    draw: st.DrawFn,
    profile: Profile,
    plan: TrialPlan,
    view: JobView,
    capabilities: frozenset[Capability],
    kinds: Sequence[str] | None,
    of_copies: bool = False,
    in_chain: bool = False,
) -> DrawnFaults:
    """Draw the faults of a plan.

    ``kinds`` names the kind of each fault, in order. None means that the kinds are drawn, by the weights of the
    profile, from those that a system with these capabilities can suffer. ``of_copies`` says that the plan was made
    for a fault of copies of state; if its job cannot show one, other faults are drawn. ``in_chain`` says the same of
    the failures of a chain of recoveries and rescales.
    """
    job = DrawnJob(plan, view)
    profile = _bearable(profile, capabilities)
    exposed = targets_among(capabilities)
    schedule: list[ScheduledFault] = []
    left_out: tuple[str, ...] = ()
    if kinds is None:
        weighted = [KINDS[name] for name, weight in profile.kinds for _ in range(weight)]
        possible = [kind for kind in weighted if kind.fault.needs in exposed and job.hit_by(kind)]
        if of_copies and is_long_enough(job, profile.settle_ms):
            around_one = draw_storage_faults(
                draw, job, list(filter(hits_copies, possible)), exposed, *profile.faults
            )
            if around_one:
                return DrawnFaults(around_one, ())
        suffered = tuple(kind for kind in possible if not hits_copies(kind))
        chain = draw_chain(draw, profile, job, suffered) if in_chain else ()
        if chain:
            return DrawnFaults(chain, ())
        choices = [suffered] * (between(draw, profile.faults) if suffered else 0)
    else:
        of_storage = [KINDS[name] for name in kinds if can_be_shown(KINDS[name], job)]
        others = [KINDS[name] for name in kinds if not hits_copies(KINDS[name])]
        choices = [(kind,) for kind in others if job.hit_by(kind)]
        left_out = tuple(
            name for name in kinds if (KINDS[name],) not in choices and KINDS[name] not in of_storage
        )
        schedule += draw_dealt_storage_faults(draw, job, of_storage, exposed)
    kills = next((index for index, choice in enumerate(choices) if _kills(choice)), None)
    if kills is not None and len(choices) > 1 and job.committing and chance(draw, profile.restore_per_mille):
        schedule.append(_draw_kill_before_restore(draw, job, _kills(choices.pop(kills))))
    for choice in choices:
        timed = profile.timed_per_mille and _times(profile, job) is not None
        if timed or _possible_points(profile, job, schedule):
            schedule.append(_draw_fault(draw, profile, job, choice, schedule))
    return DrawnFaults(tuple(schedule), left_out)


def _bearable(profile: Profile, capabilities: frozenset[Capability]) -> Profile:
    """Return the profile without those consequences of a kill that cannot occur in the system."""
    return replace(
        profile,
        lose_unsynced_per_mille=profile.lose_unsynced_per_mille
        if Capability.UNSYNCED_LOSS in capabilities
        else 0,
        unreadable_per_mille=profile.unreadable_per_mille if Capability.STORAGE_OUTAGE in capabilities else 0,
    )


def _kills(kinds: Sequence[FaultKind]) -> tuple[FaultKind, ...]:
    return tuple(kind for kind in kinds if kind.fault.ends is not None)


def _draw_fault(
    draw: st.DrawFn,
    profile: Profile,
    job: DrawnJob,
    kinds: Sequence[FaultKind],
    before: Sequence[ScheduledFault],
) -> ScheduledFault:
    kind = draw(st.sampled_from(kinds))
    trigger: At | After
    # A second timed fault might come while nothing runs, because the first has just struck.
    already_timed = any(isinstance(earlier.trigger, At) for earlier in before)
    possible = _possible_points(profile, job, before)
    if kind.fault.waits_for_upload:
        possible = tuple(point for point in possible if point in _BEFORE_UPLOADS) or possible
    times = _times(profile, job)
    if times and (not possible or (chance(draw, profile.timed_per_mille) and not already_timed)):
        trigger, standing = At(time_ms=between(draw, times)), None
    else:
        trigger = _draw_aim(draw, possible, job, before)
        standing = trigger.subtask
    # Around the last commit other subtasks may have ended already, so a fault there hits the sink itself.
    last = isinstance(trigger, After) and trigger.point in _SINK_ONLY
    own = standing is not None and (last or chance(draw, profile.own_target_per_mille))
    able = job.hit_by(kind)
    if own and standing in able:
        target = standing
    else:
        target = draw(st.sampled_from([name for name in _living(trigger, job) if name in able] or able))
    return ScheduledFault(kind.fault.drawn(DrawnChoices(draw), _aim(profile, job, kind, target)), trigger)


def _times(profile: Profile, job: DrawnJob) -> Range | None:
    """Return when a timed fault may strike: while the job is certain to be at work. That is the first half of the
    time in which its longest source reads. For a source without a rate this time is unknown; if its batches are
    counted, it is at most the first half of the first interval. None: the job may be over before the profile's
    earliest time.
    """
    earliest, latest = profile.timed_ms
    if job.batches is None:
        return earliest, latest
    unpaced_ms = min(job.plan.checkpoints.interval_ms // 2, job.batches)
    sure_ms = unpaced_ms if job.reads_ms is None else job.reads_ms // 2
    return (earliest, min(latest, sure_ms)) if sure_ms >= earliest else None


def _aim(profile: Profile, job: DrawnJob, kind: FaultKind, target: str) -> Aim:
    """Return what is needed to draw a fault: whom it hits, and how hard it may hit."""
    outlasts = kind.drawn_as.outlasts_heartbeat
    return Aim(
        target,
        receivers=job.view.ends_of(target),
        peers=job.peers_of(target),
        directions=job.directions,
        outlasts_heartbeat=outlasts,
        duration_ms=profile.zombie_ms if outlasts else profile.duration_ms,
        latency_ms=profile.latency_ms,
        bytes_per_second=profile.bytes_per_second,
        lose_unsynced_per_mille=profile.lose_unsynced_per_mille,
        unreadable_per_mille=profile.unreadable_per_mille,
    )


def _living(trigger: At | After, job: DrawnJob) -> tuple[str, ...]:
    """Return the subtasks that are sure to be alive when the trigger comes; after the last checkpoint, only sinks."""
    completed = isinstance(trigger, After) and trigger.point is ProtocolPoint.CHECKPOINT_COMPLETED
    return job.sinks if completed and job.sinks else job.view.names


def _possible_points(
    profile: Profile, job: DrawnJob, before: Sequence[ScheduledFault]
) -> tuple[ProtocolPoint, ...]:
    """Return the points that somebody is sure to pass in spite of the earlier faults."""
    return tuple(
        point
        for point in profile.points
        if any(_passes_left(point, one, job, before) for one in _passing(point, job, before))
    )


def _standing(
    point: ProtocolPoint, job: DrawnJob, before: Sequence[ScheduledFault]
) -> tuple[str | None, ...]:
    """Return who is sure to be alive and to pass a point (None: the coordinator)."""
    return tuple(one for one in _passing(point, job, before) if _passes_left(point, one, job, before))


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
    """Tell whether a subtask is sure to pass a point more often than earlier faults end it there."""
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
        return After(point, subtask, nth=draw(numbers(1, times)))
    return After(point, subtask, nth=1 + _repeats(point, subtask, job, before))


def _draw_kill_before_restore(draw: st.DrawFn, job: DrawnJob, kinds: Sequence[FaultKind]) -> ScheduledFault:
    """Draw a fault between a completed checkpoint and its commit, so that faults in a restore can follow."""
    kind, sink = draw(st.sampled_from(kinds)), draw(st.sampled_from(job.committing))
    return ScheduledFault(
        kind.fault.drawn(Plainest(), Aim(sink)), After(ProtocolPoint.COMPLETION_NOTIFIED, sink)
    )


def _leads_to_restore(scheduled: ScheduledFault, job: DrawnJob) -> bool:
    """Tell whether a completed checkpoint is sure to be restored after this fault.

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
