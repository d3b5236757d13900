"""Several checkpoints are in flight, each at another place, and some are given up (BAR-4, UNA-1, UNA-2, UNA-5, COO-2).

What a subtask holds back, counts or records for one checkpoint must not change what it does for the others, whichever
ends first, and however. By chance that is next to never drawn: a checkpoint is over before the next one begins, or
nothing ends it early. Here barriers leave more often than they arrive, an alignment lasts for some intervals until it
is given up, and one of the channels into a vertex lags behind the others. So one checkpoint is being recorded there
while newer ones are still aligned, or several wait for the same channel, which in some plans ends before their barriers
come. Some checkpoints expire meanwhile, because their barriers take longer on that channel than they may. Others fail:
the synchronous part of a snapshot, its write, or the write of the metadata. Often something dies later, so that a
checkpoint is restored that came through all this.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec
from hypothesis import strategies as st

from barrier_tck.faults.catalogue import KINDS, FaultKind
from barrier_tck.faults.drawing import Aim, Plainest
from barrier_tck.faults.vocabulary import After, ProtocolPoint, ScheduledFault
from barrier_tck.harness.draw.choices import DrawnChoices, chance, numbers
from barrier_tck.harness.draw.constraints import Drawing
from barrier_tck.harness.draw.drawn_job import DrawnJob
from barrier_tck.harness.draw.profile import Profile
from barrier_tck.harness.draw.scenario import Part, Scenario
from barrier_tck.harness.draw.scenarios.early_ends import ended_early, with_early_ends
from barrier_tck.harness.plan.job_graph import Spread
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.system.system_under_test import Capability

_FAIL_CHECKPOINTS = tuple(KINDS[name] for name in ("fail-snapshot", "fail-primary-writes"))
"""What makes a checkpoint fail: before its barrier has left the subtask, or when its parts are written."""
_FAILING = (1, 3)
"""In how many subtasks."""
_FIRST, _LAST = 2, 4
"""The checkpoints with which they fail."""
_WAITS_PER_MILLE = 500
"""How many failures of 1,000 are those of the subtask that waits for the channel that lags."""
_IN_ROW = (1, 2)
"""For how many checkpoints each."""
_BEHIND = 4
"""How many checkpoints come behind these while there is input."""
_PATIENT = "aligned_timeout"
_PATIENCE = (1, 2, 2, 3)
"""How many intervals an alignment lasts until barriers overtake (UNA-2)."""
_LAG = (4, 8)
"""How many intervals what goes over a channel that lags takes at most."""
_ROOM = (4, 8)
"""How many batches are under way on such a channel: with fewer it would take long until the input is read."""
_EXPIRE_PER_MILLE = 600
"""How many plans in 1,000 with such a channel have a timeout that some barriers on it outlast."""
_TENTHS = (6, 10)
"""How many tenths of the channel's longest delay that timeout has, beside what else a checkpoint takes."""
_ALIGNED_PER_MILLE = 700
"""How many plans in 1,000 that have a broadcast edge beside others let it lag, if barriers overtake on these."""
_CUTS = (23, 90)
_OF_SEVERAL = (3, 6)
"""Buffers in bytes that batches of so many records do not fit in."""
_ENDS_EARLY_PER_MILLE = 250
"""How many plans in 1,000 with such a channel have a source that ends early."""
_KILL_PER_MILLE = 400
_COMPLETED = (1, 2)
"""At which completion something dies."""


def _possible(profile: Profile, capabilities: frozenset[Capability]) -> bool:
    fewest, most = profile.faults.number
    able = {Capability.SNAPSHOT_FAULTS, Capability.STORAGE_FAULTS} <= capabilities
    return able and fewest <= 1 and most >= _FAILING[1]


def _profile(_: st.DrawFn, profile: Profile) -> Profile:
    modes = profile.checkpoints.modes
    return replace(
        profile,
        workload=replace(
            profile.workload,
            batches=(8, 16),
            batch_records=(1, 2),
            start_offset=(0, 0),
            records_per_second=(400, 600),
        ),
        job=replace(
            profile.job,
            sources=(2, 2),
            keyed=(1, 2),
            sinks=(1, 2),
            subtasks_max=8,
            # Their many subtasks give more parts of checkpoints than can be judged in time.
            shapes_left_out=(*profile.job.shapes_left_out, "fan-in", "mixed"),
        ),
        checkpoints=replace(
            profile.checkpoints,
            # In the patient mode, more may go on at once.
            modes=(*modes, *(mode for mode in modes * 2 if mode == _PATIENT)),
            interval_ms=(5, 9),
            min_pause_ms=(0,),
            max_concurrent=(_LAST, _LAST + 2),
            timeouts_ms=(max(profile.checkpoints.timeouts_ms),),
            tolerated_failures=(1_000,),
            async_ms_max=(0, 5),
        ),
        network=replace(
            profile.network,
            latency_ms_max=(1, 4),
            slow_channel_per_mille=0,
            channel_capacities=(1, 1, 2),
            buffer_bytes=(None, None, 90),
        ),
        # A strategy that starts a job for ever would get a timeout that suffices.
        restarts=replace(profile.restarts, strategies=("fixed_delay",)),
    )


def _load(drawing: Drawing, plan: TrialPlan) -> TrialPlan:
    """Return the plan with a channel that lags or with crowded queues, and with an input that is long enough."""
    late = _lagging(drawing, plan)
    checkpoints, workload = late.checkpoints, late.workload
    if checkpoints.mode == _PATIENT:
        patience_ms = drawing.draw(st.sampled_from(_PATIENCE)) * checkpoints.interval_ms
        checkpoints = msgspec.structs.replace(checkpoints, alignment_timeout_ms=patience_ms)
    if workload.records_per_second is None:
        return late  # the system under test takes no rate
    records = _needed_ms(late, drawing.profile.limits.settle_ms) * workload.records_per_second // 1_000
    batches = max(workload.batches, 2 + records // workload.batch_records)
    return msgspec.structs.replace(
        late, checkpoints=checkpoints, workload=msgspec.structs.replace(workload, batches=batches)
    )


def _lagging(drawing: Drawing, plan: TrialPlan) -> TrialPlan:
    """Let a channel lag beside others of the same receiver, if there is such a channel; often checkpoints expire."""
    draw = drawing.draw
    job, network, checkpoints = plan.job, plan.network, plan.checkpoints
    ends = [(edge.source, edge.target) for edge in job.edges for _ in job.channels_of(edge)]
    beside = [number for number, (_, name) in enumerate(ends) if job.channels_into(name) > 1]
    if not beside:
        return plan
    sources = [vertex.name for vertex in job.sources]
    first = [number for number in beside if ends[number][0] in sources]
    if first and chance(draw, _ENDS_EARLY_PER_MILLE):
        plan = with_early_ends(drawing, plan)
        first = [number for number in first if job.channels[number][0] in ended_early(plan)] or first
    aligned = [number for number in beside if _is_overtaken_beside(plan, number)]
    if aligned and chance(draw, _ALIGNED_PER_MILLE):
        first = aligned
    lag_ms = draw(numbers(*_LAG)) * checkpoints.interval_ms
    lags = msgspec.structs.replace(
        network,
        slow_channel=draw(st.sampled_from(first or beside)),
        slow_factor=max(2, lag_ms // max(1, network.latency_ms_max)),
        channel_capacity=draw(st.sampled_from(_ROOM)),
    )
    if _is_overtaken_beside(plan, lags.slow_channel):
        # What a barrier cuts in two has a part on either side of it.
        lags = msgspec.structs.replace(lags, buffer_bytes=draw(st.sampled_from(_CUTS)))
        workload = msgspec.structs.replace(plan.workload, batch_records=draw(numbers(*_OF_SEVERAL)))
        plan = msgspec.structs.replace(plan, workload=workload)
    if chance(draw, _EXPIRE_PER_MILLE):
        travels_ms = lag_ms * draw(numbers(*_TENTHS)) // 10 + (2 + job.depth) * network.latency_ms_max // 2
        timeout_ms = max(travels_ms, 2 * checkpoints.async_ms_max)
        checkpoints = msgspec.structs.replace(checkpoints, timeout_ms=timeout_ms)
    return msgspec.structs.replace(plan, network=lags, checkpoints=checkpoints)


def _is_overtaken_beside(plan: TrialPlan, number: int | None) -> bool:
    """Return whether a channel is aligned while barriers overtake on others of its receiver (UNA-4)."""
    if number is None or not plan.checkpoints.overtakes:
        return False
    edges = [edge for edge in plan.job.edges for _ in plan.job.channels_of(edge)]
    edge = edges[number]
    others = plan.job.inputs_of(edge.target)
    return edge.by is Spread.BROADCAST and any(other.by is not Spread.BROADCAST for other in others)


def _behind_the_lag(plan: TrialPlan) -> str | None:
    """Return the subtask that waits for what lags, if a channel does."""
    number = plan.network.slow_channel
    return None if number is None else plan.job.channels[number][1]


def _needed_ms(plan: TrialPlan, settle_ms: int) -> int:
    """Return how long it takes at most until the last of those checkpoints has begun, and some later ones.

    As many may be in flight, so none of them waits for another one.
    """
    times, network = plan.checkpoints, plan.network
    hops = 2 + plan.job.depth + (0 if network.slow_channel is None else network.slow_factor)
    return (_LAST + _BEHIND) * (times.interval_ms + settle_ms) + hops * network.latency_ms_max


def _faults(drawing: Drawing, job: DrawnJob, kinds: Sequence[FaultKind]) -> Sequence[ScheduledFault]:
    """Draw checkpoints that fail, and perhaps something that dies later; nothing if none is certain to follow."""
    draw, plan = drawing.draw, job.plan
    able = [
        (kind, name)
        for kind in _FAIL_CHECKPOINTS
        for name in job.hit_by(kind)
        if name not in ended_early(plan)
    ]
    needed_ms = _needed_ms(plan, drawing.profile.limits.settle_ms)
    if not able or plan.checkpoints.max_concurrent < _LAST or (job.reads_ms or 0) < needed_ms:
        return ()
    failing = draw(numbers(*_FAILING))
    waits = [one for one in able if one[1] == _behind_the_lag(plan)]
    fails = []
    for _ in range(failing):
        among = waits if waits and chance(draw, _WAITS_PER_MILLE) else able
        fails.append(_failing(draw, *draw(st.sampled_from(among))))
    killers = [kind for kind in kinds if kind.fault.ends is not None]
    several = drawing.profile.faults.number[1] > failing
    if not (killers and several and chance(draw, _KILL_PER_MILLE)):
        return fails
    target = Aim(draw(st.sampled_from(job.view.names)))
    dies = draw(st.sampled_from(killers)).fault.drawn(Plainest(), target)
    completed = After(ProtocolPoint.CHECKPOINT_COMPLETED, nth=draw(numbers(*_COMPLETED)))
    return (*fails, ScheduledFault(dies, completed))


def _failing(draw: st.DrawFn, kind: FaultKind, subtask: str) -> ScheduledFault:
    aim = Aim(subtask, checkpoints=draw(numbers(*_IN_ROW)))
    trigger = After(ProtocolPoint.CHECKPOINT_TRIGGERED, nth=draw(numbers(_FIRST, _LAST)))
    return ScheduledFault(kind.fault.drawn(DrawnChoices(draw), aim), trigger)


SCENARIO = Scenario(
    settles=frozenset({Part.INPUT, Part.PACE, Part.SLOW_VERTEX, Part.FAULTS}),
    possible=_possible,
    profile=_profile,
    load=_load,
    faults=_faults,
)
