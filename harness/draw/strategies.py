"""Hypothesis strategies for trial plans: the configuration is drawn too, not only the faults.

A planned fault that never fires makes a trial UNKNOWN (CAM-3), so aims are drawn from what is sure to happen
in the plan at hand: a job cannot end without a completed checkpoint, so every subtask passes every point of a
checkpoint at least once; a subtask that is killed before it acknowledged passes them again; a restore follows
a kill that came after a completed checkpoint and before the end. Points that a plan may never reach (the
fifth checkpoint of a short job) are not drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import msgspec
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as hypothesis_seed
from hypothesis import strategies as st
from hypothesis.internal.conjecture.providers import AVAILABLE_PROVIDERS, HypothesisProvider

from barrier_tck.faults.catalogue import KINDS, FaultKind
from barrier_tck.faults.drawing import Aim, Plainest
from barrier_tck.faults.fault import Ends
from barrier_tck.faults.targets import COORDINATOR, Peers, TargetKind
from barrier_tck.faults.vocabulary import COORDINATOR_POINTS, After, At, ProtocolPoint, ScheduledFault
from barrier_tck.harness.draw.profiles import Profile, Range
from barrier_tck.harness.plan.job_graph import SINK, SOURCE, JobPlan, VertexPlan, vertex_of
from barrier_tck.harness.plan.trial_plan import (
    CheckpointPlan,
    DeploymentPlan,
    LimitsPlan,
    NetworkPlan,
    RestartPlan,
    TrialPlan,
    WorkloadPlan,
)
from barrier_tck.harness.system.job_view import JobView, Role
from barrier_tck.harness.workloads.barrier_jobs import barrier_view, is_stateful
from barrier_tck.harness.workloads.workload import DrawsJobs
from barrier_tck.harness.workloads.workload_names import filled, workload_named

ViewOf = Callable[[TrialPlan], JobView]
"""Tells what a plan's job would be; a system's ``job``."""

Adjust = Callable[[TrialPlan], TrialPlan]
"""Changes a drawn plan before its faults are drawn: the overrides of a campaign file."""

_Option = TypeVar("_Option")

_SINK_ONLY = frozenset({ProtocolPoint.COMPLETION_NOTIFIED, ProtocolPoint.TRANSACTIONS_COMMITTED})
_RESTORE = frozenset({ProtocolPoint.RESTORE_STARTED, ProtocolPoint.RESTORED})
_BEFORE_ACKNOWLEDGEMENT = frozenset(
    {
        ProtocolPoint.BARRIER_RECEIVED,
        ProtocolPoint.ALIGNMENT_STARTED,
        ProtocolPoint.ALIGNMENT_COMPLETED,
        ProtocolPoint.SNAPSHOT_TAKEN,
        ProtocolPoint.BARRIER_FORWARDED,
        ProtocolPoint.SNAPSHOT_STORED,
    }
)
"""Points at which a kill of the subtask itself fails the checkpoint, so that the point is passed again."""

RESTARTS_PER_FAULT = 5
"""Restart budget for each planned fault, far above what one can use up."""
RESTART_DELAY_MS_MIN = 5
"""Least delay before a restart where a fault lasts, so that attempts cannot fail at one instant of virtual time."""


@dataclass(frozen=True, slots=True)
class _Job:
    """What the drawing of faults must know of a plan's job."""

    plan: TrialPlan
    view: JobView

    @property
    def stateful(self) -> tuple[str, ...]:
        return self.view.in_role(Role.STATEFUL)

    @property
    def sinks(self) -> tuple[str, ...]:
        return self.view.in_role(Role.SINK)

    @property
    def committing(self) -> tuple[str, ...]:
        """Return the subtasks that are told of a checkpoint before they commit what it covers."""
        return self.view.passing(ProtocolPoint.COMPLETION_NOTIFIED)

    @property
    def all(self) -> tuple[str, ...]:
        return self.view.names

    @property
    def batches_per_source(self) -> int:
        """Return how many batches the longest source has."""
        counts = [self.view.times(ProtocolPoint.RECORDS_PROCESSED, name) for name in self.all]
        return max(counts, default=0)

    @property
    def peers(self) -> tuple[Peers, ...]:
        """Return from whom an executor can be partitioned: from other executors only if data passes between them."""
        apart = self.plan.job.shuffles and self.plan.deployment.executors > 1
        return tuple(Peers) if apart else (Peers.COORDINATOR, Peers.EVERYONE)

    def passing(self, point: ProtocolPoint, restores: bool) -> tuple[str, ...]:
        """Return the subtasks that are sure to pass a point at least once."""
        return () if point in _RESTORE and not restores else self.view.passing(point)


def _between(draw: st.DrawFn, bounds: Range) -> int:
    return draw(st.integers(*bounds))


def _chance(draw: st.DrawFn, per_mille: int) -> bool:
    return per_mille > 0 and draw(st.integers(0, 999)) >= 1_000 - per_mille


def _kinds(profile: Profile, allowed: frozenset[str] | None) -> tuple[FaultKind, ...]:
    """Return the fault kinds, each as often as its weight says, of those that the system can suffer."""
    return tuple(
        KINDS[name]
        for name, weight in profile.kinds
        if allowed is None or KINDS[name].fault.needs in allowed
        for _ in range(weight)
    )


@st.composite
def trial_plans(
    draw: st.DrawFn,
    profile: Profile,
    view: ViewOf = barrier_view,
    adjust: Adjust = lambda plan: plan,
    targets: frozenset[str] | None = None,
    kinds: Sequence[str] | None = None,
) -> TrialPlan:
    """Draw a plan from a profile; the restart budget suffices for its faults.

    ``kinds`` names the kind of each fault, one after the other; None means drawn, by the weights of the profile.
    ``targets`` are the kinds of target that the system exposes (``executor``, ``worker``, ``coordinator``);
    None means all. ``adjust`` is applied before faults are drawn, so that their aims fit the adjusted plan.
    """
    plan = _with_job(draw, profile, adjust(_draw_without_faults(draw, profile)))
    network = _draw_network(draw, profile, plan.job)
    # What a campaign says wins over what is drawn, also where that is drawn for the job.
    plan = filled(adjust(msgspec.structs.replace(plan, network=network)))
    if kinds is None:
        weighted = _kinds(profile, targets)
        choices = [weighted] * (_between(draw, profile.faults) if weighted else 0)
    else:
        choices = [(KINDS[name],) for name in kinds]
    job = _Job(plan, view(plan))
    schedule: list[ScheduledFault] = []
    kills = next((index for index, choice in enumerate(choices) if _kills(choice)), None)
    if kills is not None and len(choices) > 1 and job.committing and _chance(draw, profile.restore_per_mille):
        schedule.append(_draw_kill_before_restore(draw, job, _kills(choices.pop(kills))))
    for choice in choices:
        schedule.append(_draw_fault(draw, profile, job, choice, schedule))
    return msgspec.structs.replace(plan, faults=tuple(schedule), restart=_enough_restarts(plan, schedule))


def _kills(kinds: Sequence[FaultKind]) -> tuple[FaultKind, ...]:
    return tuple(kind for kind in kinds if kind.fault.ends is not None)


def _enough_restarts(plan: TrialPlan, schedule: Sequence[ScheduledFault]) -> RestartPlan:
    """Return a restart budget that the faults cannot use up: while one lasts, attempt after attempt may fail."""
    lasting_ms = sum(scheduled.fault.heals_after_ms or 0 for scheduled in schedule)
    delay_ms = max(plan.restart.delay_ms, RESTART_DELAY_MS_MIN if lasting_ms else 0)
    needed = RESTARTS_PER_FAULT * len(schedule) + (lasting_ms // delay_ms if lasting_ms else 0)
    attempts_max = max(plan.restart.attempts_max, needed)
    return msgspec.structs.replace(plan.restart, attempts_max=attempts_max, delay_ms=delay_ms)


def _with_job(draw: st.DrawFn, profile: Profile, plan: TrialPlan) -> TrialPlan:
    """Return the plan with its job drawn, unless the campaign says what it is."""
    if plan.job != JobPlan():
        return filled(plan)
    workload = workload_named(plan.workload.name)
    if isinstance(workload, DrawsJobs) and _chance(draw, profile.drawn_jobs_per_mille):
        job = workload.draw_job(lambda least, most: draw(st.integers(least, most)), profile.subtasks_max)
        return filled(msgspec.structs.replace(plan, job=job))
    shape = draw(st.sampled_from(workload.shapes))
    wished = workload.job(shape, {})
    widths = {vertex.name: _between(draw, _width_of(profile, vertex)) for vertex in wished.vertices}
    if plan.workload.batches * plan.workload.batch_records == 1:  # exactly one record: one source only
        widths |= dict.fromkeys([vertex.name for vertex in wished.sources], 1)
    return filled(msgspec.structs.replace(plan, job=JobPlan(shape, widths)))


def _width_of(profile: Profile, vertex: VertexPlan) -> Range:
    return {SOURCE: profile.sources, SINK: profile.sinks}.get(vertex.kind, profile.keyed)


def _draw_without_faults(draw: st.DrawFn, profile: Profile) -> TrialPlan:
    return TrialPlan(
        seed=draw(st.integers(0, 2**31 - 1)),
        workload=_draw_workload(draw, profile),
        deployment=DeploymentPlan(
            executors=_between(draw, profile.executors), write_through=draw(st.booleans())
        ),
        checkpoints=_draw_checkpoints(draw, profile),
        restart=RestartPlan(delay_ms=_between(draw, profile.restart_delay_ms)),
        limits=LimitsPlan(wall_s=profile.wall_s, progress_ms=profile.progress_ms),
    )


def _draw_workload(draw: st.DrawFn, profile: Profile) -> WorkloadPlan:
    keys = _between(draw, profile.keys)
    name = draw(st.sampled_from(profile.workloads)) if len(profile.workloads) > 1 else profile.workloads[0]
    if _chance(draw, profile.tiny_inputs_per_mille):
        return WorkloadPlan(name, batches=draw(st.integers(0, 1)), batch_records=1, keys=keys)
    batches, batch_records = _between(draw, profile.batches), _between(draw, profile.batch_records)
    offset = min(_between(draw, profile.start_offset), batches * batch_records) if draw(st.booleans()) else 0
    return WorkloadPlan(
        name,
        batches=batches,
        batch_records=batch_records,
        keys=keys,
        start_offset=offset,
        records_per_second=draw(st.sampled_from(profile.records_per_second)),
    )


def _draw_checkpoints(draw: st.DrawFn, profile: Profile) -> CheckpointPlan:
    timeout_ms = draw(st.sampled_from(profile.timeouts_ms))
    async_ms_max = _between(draw, profile.async_ms_max)
    if _chance(draw, profile.late_async_per_mille):
        # A little beyond the timeout: checkpoints expire and are acknowledged late, of many subtasks every second
        # one. The timeout is the shortest, so that not all can expire until progress is demanded.
        timeout_ms = min(profile.timeouts_ms)
        async_ms_max = timeout_ms + timeout_ms // profile.late_async_part
    return CheckpointPlan(
        mode=draw(st.sampled_from(profile.modes)),
        max_concurrent=_between(draw, profile.max_concurrent),
        interval_ms=_between(draw, profile.interval_ms),
        timeout_ms=timeout_ms,
        min_pause_ms=draw(st.sampled_from(profile.min_pause_ms)),
        retained=_between(draw, profile.retained),
        async_ms_max=async_ms_max,
    )


def _draw_network(draw: st.DrawFn, profile: Profile, job: JobPlan) -> NetworkPlan:
    channels = job.channels
    eligible = [
        number
        for number, (_, receiver) in enumerate(channels)
        if not profile.slow_channel_into_keyed or _waits(job, vertex_of(receiver))
    ]
    slow = _chance(draw, profile.slow_channel_per_mille)
    return NetworkPlan(
        latency_ms_max=_between(draw, profile.latency_ms_max),
        slow_channel=draw(st.sampled_from(eligible)) if slow and eligible else None,
        slow_factor=draw(st.sampled_from(profile.slow_factors)),
        channel_capacity=draw(st.sampled_from(profile.channel_capacities)),
    )


def _waits(job: JobPlan, vertex: str) -> bool:
    """Tell whether a vertex keeps state and reads several channels: what is behind a barrier may be counted early."""
    stateful = any(is_stateful(operator.kind) for operator in job.vertex(vertex).operators)
    return stateful and job.channels_into(vertex) > 1


def _draw_fault(
    draw: st.DrawFn,
    profile: Profile,
    job: _Job,
    kinds: Sequence[FaultKind],
    before: Sequence[ScheduledFault],
) -> ScheduledFault:
    kind = draw(st.sampled_from(kinds))
    trigger: At | After
    # A second timed one might come while nothing runs, because the first just struck.
    already_timed = any(isinstance(earlier.trigger, At) for earlier in before)
    possible = _possible_points(profile, job, before)
    if not possible or (_chance(draw, profile.timed_per_mille) and not already_timed):
        earliest, latest = profile.timed_ms
        latest = max(earliest, min(latest, job.plan.checkpoints.interval_ms // 2, job.batches_per_source))
        trigger = At(time_ms=_between(draw, (earliest, latest)))
        standing = None
    else:
        trigger = _draw_aim(draw, possible, job, before)
        standing = trigger.subtask
    # Around the last commit others may be gone already, so there a fault hits the sink itself.
    last = isinstance(trigger, After) and trigger.point in _SINK_ONLY
    own = standing is not None and (last or _chance(draw, profile.own_target_per_mille))
    target = standing if own and standing is not None else draw(st.sampled_from(_hittable(trigger, job)))
    if kind.fault.needs is TargetKind.STORAGE and job.stateful and target not in job.stateful:
        target = draw(st.sampled_from(job.stateful))  # who keeps no state has no copies of it
    return ScheduledFault(kind.fault.drawn(_Draws(draw), _aim(profile, job, kind, target)), trigger)


@dataclass(frozen=True, slots=True)
class _Draws:
    """Hypothesis as the chooser of ``barrier_tck.faults.drawing``."""

    draw: st.DrawFn

    def between(self, bounds: Range) -> int:
        return _between(self.draw, bounds)

    def one_of(self, options: Sequence[_Option]) -> _Option:
        return self.draw(st.sampled_from(options))

    def chance(self, per_mille: int) -> bool:
        return _chance(self.draw, per_mille)


def _aim(profile: Profile, job: _Job, kind: FaultKind, target: str) -> Aim:
    """Return what a fault must know to be drawn: whom it hits, and how hard it may."""
    outlasts = kind.drawn_as.outlasts_heartbeat
    return Aim(
        target,
        receivers=(*job.view.receivers(target), COORDINATOR),
        peers=job.peers,
        outlasts_heartbeat=outlasts,
        duration_ms=profile.zombie_ms if outlasts else profile.duration_ms,
        latency_ms=profile.latency_ms,
        bytes_per_second=profile.bytes_per_second,
        lose_unsynced_per_mille=profile.lose_unsynced_per_mille,
        unreadable_per_mille=profile.unreadable_per_mille,
    )


def _hittable(trigger: At | After, job: _Job) -> tuple[str, ...]:
    """Return the subtasks that are sure to live when the trigger comes: after the last checkpoint, sinks."""
    completed = isinstance(trigger, After) and trigger.point is ProtocolPoint.CHECKPOINT_COMPLETED
    return job.sinks if completed and job.sinks else job.all


def _possible_points(
    profile: Profile, job: _Job, before: Sequence[ScheduledFault]
) -> tuple[ProtocolPoint, ...]:
    """Return the points that are sure to be passed; none in a system that shows none."""
    restores = any(_leads_to_restore(scheduled, job) for scheduled in before)
    return tuple(
        point
        for point in profile.points
        if (job.view.times(point, None) if point in COORDINATOR_POINTS else job.passing(point, restores))
    )


def _draw_aim(
    draw: st.DrawFn, possible: Sequence[ProtocolPoint], job: _Job, before: Sequence[ScheduledFault]
) -> After:
    restores = any(_leads_to_restore(scheduled, job) for scheduled in before)
    point = draw(st.sampled_from(possible))
    if point in COORDINATOR_POINTS:
        return After(point, nth=1 + _repeats(point, None, before))
    subtask = draw(st.sampled_from(job.passing(point, restores)))
    if point is ProtocolPoint.RECORDS_PROCESSED:
        return After(point, subtask, nth=draw(st.integers(1, job.view.times(point, subtask))))
    return After(point, subtask, nth=1 + _repeats(point, subtask, before))


def _draw_kill_before_restore(draw: st.DrawFn, job: _Job, kinds: Sequence[FaultKind]) -> ScheduledFault:
    """Draw a fault between a completed checkpoint and its commit, so that faults in a restore can follow."""
    kind, sink = draw(st.sampled_from(kinds)), draw(st.sampled_from(job.committing))
    return ScheduledFault(
        kind.fault.drawn(Plainest(), Aim(sink)), After(ProtocolPoint.COMPLETION_NOTIFIED, sink)
    )


def _leads_to_restore(scheduled: ScheduledFault, job: _Job) -> bool:
    """Tell whether a completed checkpoint is sure to be restored after this fault.

    It is if a sink, or the coordinator, dies after the checkpoint completed and before the sink's commit is
    known: the job cannot have ended then.
    """
    fault, trigger = scheduled.fault, scheduled.trigger
    if not isinstance(trigger, After) or fault.ends is None:
        return False
    if trigger.point in _SINK_ONLY:
        return fault.ends is Ends.COORDINATOR or fault.subtasks == (trigger.subtask,)
    if trigger.point is ProtocolPoint.CHECKPOINT_COMPLETED:
        return fault.ends is Ends.COORDINATOR or fault.subtasks[0] in job.sinks
    return False


def _repeats(point: ProtocolPoint, subtask: str | None, before: Sequence[ScheduledFault]) -> int:
    """Count the earlier faults after which this very point is sure to be passed once more."""
    return sum(
        _fails_what_it_hits(scheduled, point, subtask)
        for scheduled in before
        if isinstance(scheduled.trigger, After)
        and (scheduled.trigger.point, scheduled.trigger.subtask) == (point, subtask)
    )


def _fails_what_it_hits(scheduled: ScheduledFault, point: ProtocolPoint, subtask: str | None) -> bool:
    if scheduled.fault.ends is Ends.COORDINATOR:
        return point is ProtocolPoint.CHECKPOINT_TRIGGERED or point is ProtocolPoint.ATTEMPT_RUNNING
    if scheduled.fault.ends is None:
        return False  # what lasts may be over before anything fails
    again = point in _BEFORE_ACKNOWLEDGEMENT or point in _RESTORE
    return again and scheduled.fault.subtasks == (subtask,)


# --- drawing many plans -------------------------------------------------------------------------------------


class _PlainProvider(HypothesisProvider):
    """Draws without the constants that Hypothesis collects from whatever modules happen to be loaded.

    With them, the same seed would give other plans on the command line than inside pytest.
    """

    def _maybe_draw_constant(self, *_: object, **__: object) -> None:
        return None


PLAIN_BACKEND = "barrier-tck-plain"
AVAILABLE_PROVIDERS.setdefault(PLAIN_BACKEND, f"{__name__}.{_PlainProvider.__name__}")


def draw_plans(
    seed: int,
    count: int,
    profile: Profile,
    view: ViewOf = barrier_view,
    adjust: Adjust = lambda plan: plan,
    targets: frozenset[str] | None = None,
    kinds: Sequence[str] | None = None,
) -> tuple[TrialPlan, ...]:
    """Draw ``count`` plans; the same arguments give the same plans, under any PYTHONHASHSEED."""
    plans: list[TrialPlan] = []

    @hypothesis_seed(seed)
    @settings(
        max_examples=count,
        phases=(Phase.generate,),
        database=None,
        deadline=None,
        suppress_health_check=tuple(HealthCheck),
        backend=PLAIN_BACKEND,
        derandomize=False,
    )
    @given(trial_plans(profile, view, adjust, targets, kinds))
    def collect(plan: TrialPlan) -> None:
        plans.append(plan)

    if count > 0:
        collect()
    return tuple(plans[:count])


def draw_plan(
    seed: int,
    profile: Profile,
    view: ViewOf = barrier_view,
    adjust: Adjust = lambda plan: plan,
    targets: frozenset[str] | None = None,
    kinds: Sequence[str] | None = None,
) -> TrialPlan:
    """Draw one plan; the same arguments give the same plan. ``kinds`` as in ``trial_plans``."""
    # Hypothesis begins with the simplest example, whatever the seed: the second is the first that is drawn.
    return draw_plans(seed, 2, profile, view, adjust, targets, kinds)[-1]
