"""Plans of chains: recover, checkpoint, rescale, recover again (REC-5).

By chance they are next to never drawn: each step must come after the one before, while there is still input. Here the
steps are counted. Each job but the last one recovers from its first checkpoint, completes another one, and is stopped
with a savepoint. The last one fails while it starts from its savepoint, when it has started, or after its own first
checkpoint. One checkpoint is in flight at a time, so their numbers are certain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec
from hypothesis import strategies as st

from barrier_tck.faults.catalogue import FaultKind
from barrier_tck.faults.drawing import Aim
from barrier_tck.faults.fault import Ends
from barrier_tck.faults.vocabulary import After, ProtocolPoint, ScheduledFault
from barrier_tck.harness.draw.choices import DrawnChoices, numbers
from barrier_tck.harness.draw.drawn_job import DrawnJob
from barrier_tck.harness.draw.profile import Profile
from barrier_tck.harness.draw.storage_faults import is_long_enough, long_enough
from barrier_tck.harness.plan.trial_plan import SavepointPlan, TrialPlan

_FAULTS_MIN = 2
_OF_EACH_JOB = 3
"""How many checkpoints each job but the last completes: it recovers from one, adds one, and is stopped with one."""
_STOPS_MAX = 2


def for_chains(profile: Profile) -> Profile:
    """Return the profile of such plans: checkpoints come one by one, and no source ends before the others."""
    return replace(
        profile,
        tiny_inputs_per_mille=0,
        early_ends_per_mille=0,
        start_offset=(0, 0),
        records_per_second=(min((rate for rate in profile.records_per_second if rate), default=None),),
        max_concurrent=(1, 1),
        # The stop is asked for before the next checkpoint can begin.
        min_pause_ms=(5, 10),
        timeouts_ms=(max(profile.timeouts_ms),),
        tolerated_failures=(max(profile.tolerated_failures),),
        late_async_per_mille=0,
        async_ms_max=(profile.async_ms_max[0], profile.async_ms_max[1] // 2),
        latency_ms_max=(profile.latency_ms_max[0], profile.latency_ms_max[1] // 2),
        slow_channel_per_mille=0,
        slow_batch_ms=(min(profile.slow_batch_ms),),
        channel_capacities=(1, 2),
        rescale_per_mille=1_000,
    )


def can_be_chained(profile: Profile) -> bool:
    """Tell whether such plans can be drawn from a profile: jobs are rescaled, and several faults may strike."""
    return profile.rescale_per_mille > 0 and profile.faults[1] >= _FAULTS_MIN


def with_stops(draw: st.DrawFn, profile: Profile, plan: TrialPlan) -> TrialPlan:
    """Return the plan with one or two stops, and enough input for all that is to happen."""
    most = min(_STOPS_MAX, profile.faults[1] - 1)
    least = min(most, max(1, profile.faults[0] - 1))
    plan = msgspec.structs.replace(plan, savepoints=_stops(draw(numbers(least, most))))
    return long_enough(plan, profile.settle_ms, _checkpoints(plan))


def draw_chain(
    draw: st.DrawFn, profile: Profile, job: DrawnJob, kinds: Sequence[FaultKind]
) -> tuple[ScheduledFault, ...]:
    """Draw the failures of a chain; none if a campaign changed its stops, or its input is too short."""
    plan = job.plan
    stops = len(plan.savepoints)
    killers = [kind for kind in kinds if kind.fault.ends is not None]
    fits = plan.savepoints == _stops(stops) and len(plan.rescales) == stops > 0
    one_by_one = plan.checkpoints.max_concurrent == 1
    if not (killers and fits and one_by_one and is_long_enough(job, profile.settle_ms, _checkpoints(plan))):
        return ()
    recovered = [
        After(ProtocolPoint.CHECKPOINT_COMPLETED, nth=_OF_EACH_JOB * number + 1) for number in range(stops)
    ]
    again = _of_the_last_job(draw, job, stops)
    return tuple(_failure(draw, profile, job, killers, trigger) for trigger in (*recovered, again))


def _stops(number: int) -> tuple[SavepointPlan, ...]:
    return tuple(
        SavepointPlan(after_checkpoints=_OF_EACH_JOB * stop + _OF_EACH_JOB - 1, stop=True)
        for stop in range(number)
    )


def _checkpoints(plan: TrialPlan) -> int:
    """Return how many checkpoints must come while there is input: those of the chain, and two to spare."""
    return _OF_EACH_JOB * len(plan.savepoints) + 3


def _of_the_last_job(draw: st.DrawFn, job: DrawnJob, stops: int) -> After:
    """Draw when the last job fails. Each job before it had two attempts, and each attempt but the first a restore."""
    point = draw(
        st.sampled_from(
            (
                ProtocolPoint.CHECKPOINT_COMPLETED,
                ProtocolPoint.RESTORE_STARTED,
                ProtocolPoint.RESTORED,
                ProtocolPoint.ATTEMPT_RUNNING,
            )
        )
    )
    if point is ProtocolPoint.CHECKPOINT_COMPLETED:
        return After(point, nth=_OF_EACH_JOB * stops + 1)
    if point is ProtocolPoint.ATTEMPT_RUNNING:
        return After(point, nth=2 * stops + 1)
    return After(point, draw(st.sampled_from(job.view.passing(point))), nth=2 * stops)


def _failure(
    draw: st.DrawFn, profile: Profile, job: DrawnJob, killers: Sequence[FaultKind], trigger: After
) -> ScheduledFault:
    """Draw what fails: the subtask that stands at the point, or any while the coordinator stands there."""
    kind = draw(st.sampled_from(killers))
    standing = trigger.subtask or draw(st.sampled_from(job.view.names))
    aim = Aim(
        standing,
        lose_unsynced_per_mille=profile.lose_unsynced_per_mille,
        unreadable_per_mille=profile.unreadable_per_mille,
    )
    assert kind.fault.ends in (Ends.SUBTASKS, Ends.COORDINATOR)
    return ScheduledFault(kind.fault.drawn(DrawnChoices(draw), aim), trigger)
