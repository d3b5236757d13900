"""Hypothesis strategies for trial plans. They draw the configuration as well as the faults."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import msgspec
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as hypothesis_seed
from hypothesis import strategies as st
from hypothesis.internal.conjecture.providers import AVAILABLE_PROVIDERS, HypothesisProvider

from barrier_tck.faults.catalogue import KINDS
from barrier_tck.faults.vocabulary import ScheduledFault
from barrier_tck.harness.draw.chain_plans import can_be_chained, for_chains, with_stops
from barrier_tck.harness.draw.choices import between, chance, numbers
from barrier_tck.harness.draw.drawn_faults import draw_faults
from barrier_tck.harness.draw.drawn_lists import shapes_for, with_lists
from barrier_tck.harness.draw.drawn_network import draw_network
from barrier_tck.harness.draw.drawn_savepoints import at_narrowest, with_rescales, with_savepoints
from barrier_tck.harness.draw.drawn_windows import with_windows
from barrier_tck.harness.draw.elastic_plans import (
    draw_lost_executor,
    for_elastic,
    with_few_slots,
    with_late_replacements,
)
from barrier_tck.harness.draw.loss_plans import LOSSES_MIN, draw_losses, for_losses, with_slots_for_losses
from barrier_tck.harness.draw.profile import Profile, Range
from barrier_tck.harness.draw.recovery_plans import can_recover_in_flight, for_recovery, with_meeting
from barrier_tck.harness.draw.slow_checkpoints import in_time, that_completes
from barrier_tck.harness.draw.stop_plans import for_failing_stops, with_failing_stops, with_short_timeout
from barrier_tck.harness.draw.storage_faults import hits_copies, long_enough
from barrier_tck.harness.draw.storage_profiles import (
    for_storage_faults,
    with_compression,
    with_copies_in_memory,
)
from barrier_tck.harness.plan.job_graph import SINK, SOURCE, JobPlan, Spread, VertexPlan
from barrier_tck.harness.plan.trial_plan import (
    OVERTAKING,
    CheckpointPlan,
    DeploymentPlan,
    LimitsPlan,
    RestartPlan,
    TrialPlan,
    WorkloadPlan,
)
from barrier_tck.harness.support.garbage_collection import no_collection
from barrier_tck.harness.system.job_view import ViewOf
from barrier_tck.harness.system.system_under_test import Capability
from barrier_tck.harness.workloads.barrier_jobs import barrier_view
from barrier_tck.harness.workloads.workload import DrawsJobs
from barrier_tck.harness.workloads.workload_names import filled, workload_named

Adjust = Callable[[TrialPlan], TrialPlan]
"""Changes a plan."""


def _as_it_is(plan: TrialPlan) -> TrialPlan:
    return plan


@dataclass(frozen=True, slots=True)
class Circumstances:
    """For what plans are drawn: what a system can suffer, and what a campaign prescribes for every plan."""

    view: ViewOf = barrier_view
    """Tells what job a system would run for a plan: the system's ``job``."""
    capabilities: frozenset[Capability] = frozenset(Capability)
    """What the system can do. Faults that it cannot suffer are not drawn."""
    adjust: Adjust = _as_it_is
    """Applies a campaign's overrides to a plan before its faults are drawn, so that their aims fit the new plan."""
    fit: Adjust = _as_it_is
    """Removes from a plan what the system does not use."""

    def fitted(self, plan: TrialPlan) -> TrialPlan:
        """Return the final form of a plan, except for its faults."""
        return self.fit(self.adjust(plan))


ANYWHERE = Circumstances()
"""A barrier-based system that can suffer everything, and no campaign."""

RESTARTS_PER_FAULT = 5
"""Restart budget per planned fault, far more than one fault can use up."""
RESTART_DELAY_MS_MIN = 5
"""Least delay before a restart if a fault lasts, so that attempts cannot all fail at one instant of virtual time."""


TOLERATED_MIN = 3
"""How many checkpoints in a row may fail if they are meant to expire, so that not every attempt ends with one."""


@st.composite
def trial_plans(
    draw: st.DrawFn,
    profile: Profile,
    around: Circumstances = ANYWHERE,
    kinds: Sequence[str] | None = None,
) -> TrialPlan:
    """Draw a plan from a profile. Its restart budget suffices for its faults.

    ``kinds`` names the kind of each fault, in order; None means that they are drawn, by the weights of the profile.
    """
    profile = _possible_in(profile, around.capabilities)
    of_copies = kinds is None and chance(draw, profile.storage_per_mille)
    in_recovery = kinds is None and not of_copies and chance(draw, profile.recovery_per_mille)
    if of_copies:
        profile = for_storage_faults(profile)
    elif in_recovery:
        profile = for_recovery(profile)
    in_chain = kinds is None and not (of_copies or in_recovery) and chance(draw, profile.chains_per_mille)
    if in_chain:
        profile = for_chains(profile)
    several = (
        kinds is None
        and not (of_copies or in_recovery or in_chain)
        and chance(draw, profile.losses_per_mille)
    )
    if several:
        profile = for_losses(draw, profile)
    apart = of_copies or in_recovery or in_chain or several
    stops_fail = kinds is None and not apart and chance(draw, profile.failing_stops_per_mille)
    if stops_fail:
        profile = for_failing_stops(profile)
    plan = _with_job(draw, profile, around.fitted(_draw_without_faults(draw, profile)))
    if in_recovery:
        plan = with_meeting(draw, profile, plan)
    plan = msgspec.structs.replace(
        plan,
        network=draw_network(draw, profile, plan),
        # A system that does not use the job runs the workload's own, which may be wider.
        deployment=_with_key_groups(draw, profile, plan, filled(around.fitted(plan))),
    )
    if not of_copies:  # whose faults need subtasks that still write
        plan = _with_early_ends(draw, profile, plan)
    plan = _with_initiators(draw, profile, _with_slow_vertex(draw, profile, plan))
    if of_copies:
        plan = long_enough(plan, profile.settle_ms)
    # What a campaign prescribes wins over what is drawn, also where the job decides what is drawn.
    plan = filled(around.fitted(with_short_timeout(draw, plan) if stops_fail else that_completes(plan)))
    if Capability.SAVEPOINTS in around.capabilities:
        asked = with_stops if in_chain else with_failing_stops if stops_fail else with_savepoints
        plan = filled(around.fitted(asked(draw, profile, plan)))
        if profile.rescale_per_mille and Capability.RESCALING in around.capabilities:
            plan = filled(around.fitted(with_rescales(draw, profile, plan)))
    elastic = (
        kinds is None
        and not (of_copies or in_recovery or in_chain)
        and _can_be_elastic(plan, around.capabilities)
        and chance(draw, profile.elastic_per_mille)
    )
    if elastic:
        profile = for_elastic(profile)
        with_slots = with_slots_for_losses if several else with_few_slots
        plan = filled(around.fitted(with_slots(draw, profile, plan)))
    plan = filled(around.fitted(in_time(plan)))  # its later jobs, and those that are elastic, may be wider
    lasting = around.view(at_narrowest(plan))
    drawn = draw_faults(draw, profile, plan, lasting, around.capabilities, kinds, of_copies, in_chain)
    if drawn.left_out:
        note = f"{plan.note}; nothing to hit: {', '.join(drawn.left_out)}"
        plan = msgspec.structs.replace(plan, note=note.removeprefix("; "))
    schedule = drawn.schedule
    if elastic:
        lost = (
            draw_losses(draw, profile, plan, around.view(plan), lasting)
            if several
            else (draw_lost_executor(draw, lasting, schedule),)
        )
        plan, schedule = with_late_replacements(draw, profile, plan, (*schedule, *lost))
    restart = _enough_restarts(plan, schedule)
    # The budget may be a large one now, after which the job needs time.
    plan = in_time(msgspec.structs.replace(plan, faults=schedule, restart=restart))
    # Drawn last, because what else is drawn does not depend on it.
    stored = with_compression(draw, profile, with_copies_in_memory(draw, profile, plan))
    prescribed = around.adjust(stored)
    plan = msgspec.structs.replace(plan, checkpoints=prescribed.checkpoints, deployment=prescribed.deployment)
    plan = _with_settings(draw, profile, plan)
    # Faults that hit copies need subtasks that have written state by then.
    return filled(around.fit(plan if in_recovery or of_copies else with_windows(draw, profile, plan)))


_ELASTIC = frozenset({Capability.ELASTIC, Capability.EXECUTOR_LOSS})


def _can_be_elastic(plan: TrialPlan, capabilities: frozenset[Capability]) -> bool:
    """Tell whether an executor can be lost for good under an elastic job."""
    return capabilities >= _ELASTIC and not plan.checkpoints.records_all


def _enough_restarts(plan: TrialPlan, schedule: Sequence[ScheduledFault]) -> RestartPlan:
    """Return a restart budget that the faults cannot use up: while a fault lasts, many attempts may fail in a row."""
    lasting_ms = sum(scheduled.fault.heals_after_ms or 0 for scheduled in schedule)
    delay_ms = max(plan.restart.delay_ms, RESTART_DELAY_MS_MIN if lasting_ms else 0)
    needed = RESTARTS_PER_FAULT * len(schedule) + (lasting_ms // delay_ms if lasting_ms else 0)
    attempts_max = max(plan.restart.attempts_max, needed)
    return msgspec.structs.replace(plan.restart, attempts_max=attempts_max, delay_ms=delay_ms)


def _with_settings(draw: st.DrawFn, profile: Profile, plan: TrialPlan) -> TrialPlan:
    """Return the plan with drawn settings of the system, except for those that the campaign gives."""
    ended = {scheduled.fault.ends for scheduled in plan.faults}
    drawn = {
        setting.name: draw(st.sampled_from(setting.values))
        for setting in profile.settings
        if (setting.matters_after is None or setting.matters_after in ended)
        and chance(draw, setting.per_mille)
    }
    new = {name: value for name, value in drawn.items() if name not in plan.system}
    return msgspec.structs.replace(plan, system={**plan.system, **new}) if new else plan


def _possible_in(profile: Profile, capabilities: frozenset[Capability]) -> Profile:
    """Return the profile without the parts that a system with these capabilities lacks."""
    copies = Capability.LOCAL_RECOVERY in capabilities
    damaged = Capability.STORAGE_FAULTS in capabilities and profile.faults[1] > 0
    overtaking = Capability.UNALIGNED_CHECKPOINTS in capabilities
    of_copies = any(hits_copies(KINDS[name]) for name, _ in profile.kinds)
    chained = {Capability.SAVEPOINTS, Capability.RESCALING} <= capabilities
    elastic = capabilities >= _ELASTIC
    profile = replace(
        profile,
        modes=tuple(mode for mode in profile.modes if overtaking or mode not in OVERTAKING)
        or ("exactly_once",),
    )
    return replace(
        profile,
        local_recovery_per_mille=profile.local_recovery_per_mille if copies else 0,
        on_unreadable=profile.on_unreadable if damaged else (TrialPlan().on_unreadable,),
        storage_per_mille=profile.storage_per_mille if damaged and of_copies else 0,
        recovery_per_mille=profile.recovery_per_mille if can_recover_in_flight(profile) else 0,
        windows_per_mille=profile.windows_per_mille if Capability.OPERATOR_TIMERS in capabilities else 0,
        lists_per_mille=profile.lists_per_mille if Capability.OPERATOR_LISTS in capabilities else 0,
        chains_per_mille=profile.chains_per_mille if chained and can_be_chained(profile) else 0,
        losses_per_mille=profile.losses_per_mille if elastic and profile.faults[1] >= LOSSES_MIN else 0,
        failing_stops_per_mille=profile.failing_stops_per_mille
        if Capability.SAVEPOINTS in capabilities
        else 0,
    )


def _with_key_groups(draw: st.DrawFn, profile: Profile, *plans: TrialPlan) -> DeploymentPlan:
    """Return the deployment with a drawn number of key groups; no vertex of any of the plans is wider (RSC-1)."""
    plan = plans[0]
    widest = max((vertex.parallelism for one in plans for vertex in one.job.vertices), default=1)
    groups = max(widest, draw(st.sampled_from(profile.max_parallelism)))
    return msgspec.structs.replace(plan.deployment, max_parallelism=groups)


def _with_job(draw: st.DrawFn, profile: Profile, plan: TrialPlan) -> TrialPlan:
    """Return the plan with a drawn job, unless the campaign prescribes the job."""
    if plan.job != JobPlan():
        return filled(plan)
    workload = workload_named(plan.workload.name)
    if isinstance(workload, DrawsJobs) and chance(draw, profile.drawn_jobs_per_mille):
        job = workload.draw_job(lambda least, most: draw(numbers(least, most)), profile.subtasks_max)
        return filled(msgspec.structs.replace(plan, job=with_lists(draw, profile, job)))
    shape = draw(st.sampled_from(shapes_for(draw, profile, workload)))
    wished = workload.job(shape, {})
    widths = {vertex.name: between(draw, _width_of(profile, vertex)) for vertex in wished.vertices}
    if plan.workload.batches * plan.workload.batch_records == 1:  # exactly one record: one source only
        widths |= dict.fromkeys([vertex.name for vertex in wished.sources], 1)
    return filled(msgspec.structs.replace(plan, job=JobPlan(shape, widths)))


def _width_of(profile: Profile, vertex: VertexPlan) -> Range:
    return {SOURCE: profile.sources, SINK: profile.sinks}.get(vertex.kind, profile.keyed)


def _draw_without_faults(draw: st.DrawFn, profile: Profile) -> TrialPlan:
    return TrialPlan(
        seed=draw(numbers(0, 2**31 - 1)),
        workload=_draw_workload(draw, profile),
        deployment=DeploymentPlan(
            executors=between(draw, profile.executors),
            write_through=draw(st.booleans()),
            cached_keys=draw(st.sampled_from(profile.cached_keys)) if profile.cached_keys else None,
        ),
        checkpoints=_draw_checkpoints(draw, profile),
        restart=_draw_restart(draw, profile),
        limits=LimitsPlan(wall_s=profile.wall_s, progress_ms=profile.progress_ms),
        local_recovery=chance(draw, profile.local_recovery_per_mille),
        on_unreadable=draw(st.sampled_from(profile.on_unreadable)),
    )


def _draw_restart(draw: st.DrawFn, profile: Profile) -> RestartPlan:
    delay_ms, counted_ms = between(draw, profile.restart_delay_ms), between(draw, profile.failures_counted_ms)
    match draw(st.sampled_from(profile.restarts)):
        case "failure_rate":
            return RestartPlan("failure_rate", delay_ms=delay_ms, interval_ms=counted_ms)
        case "exponential_delay":
            longest_ms, factor = delay_ms * draw(st.sampled_from((2, 8))), draw(st.sampled_from((2, 3, 1)))
            return RestartPlan(
                "exponential_delay",
                delay_ms=delay_ms,
                delay_ms_max=longest_ms,
                factor=factor,
                reset_after_ms=counted_ms,
            )
        case other:
            return RestartPlan(other, delay_ms=delay_ms)


def _with_slow_vertex(draw: st.DrawFn, profile: Profile, plan: TrialPlan) -> TrialPlan:
    """Return the plan with a vertex that is slower than the others, if it is to have one: every second time a sink."""
    if not chance(draw, profile.slow_vertex_per_mille):
        return plan
    receivers = [vertex.name for vertex in plan.job.vertices if vertex.kind != SOURCE]
    sinks = [vertex.name for vertex in plan.job.sinks]
    behind = _behind_early_ends(plan) if chance(draw, profile.slow_behind_ends_per_mille) else []
    deployment = msgspec.structs.replace(
        plan.deployment,
        slow_vertex=draw(st.sampled_from(behind or (sinks if draw(st.booleans()) else receivers))),
        slow_batch_ms=draw(st.sampled_from(profile.slow_batch_ms)),
    )
    return msgspec.structs.replace(plan, deployment=deployment)


def _behind_early_ends(plan: TrialPlan) -> list[str]:
    """Return the vertices of which some subtasks read nothing but what ends early: they get no barrier then."""
    if not plan.workload.early_ends:
        return []
    sources = [vertex.name for vertex in plan.job.sources]
    edges = [edge for edge in plan.job.edges if edge.source in sources and edge.by is Spread.FORWARD]
    return [edge.target for edge in edges]


def _with_early_ends(draw: st.DrawFn, profile: Profile, plan: TrialPlan) -> TrialPlan:
    """Return the plan with sources that end long before the others, if it is to have some and has several (BAR-6)."""
    sources = sum(vertex.parallelism for vertex in plan.job.sources)
    if not profile.early_ends_per_mille or sources < 2 or not chance(draw, profile.early_ends_per_mille):
        return plan
    workload = msgspec.structs.replace(plan.workload, early_ends=draw(numbers(1, sources - 1)))
    return msgspec.structs.replace(plan, workload=workload)


def _draw_workload(draw: st.DrawFn, profile: Profile) -> WorkloadPlan:
    keys = between(draw, profile.keys)
    name = draw(st.sampled_from(profile.workloads)) if len(profile.workloads) > 1 else profile.workloads[0]
    if chance(draw, profile.tiny_inputs_per_mille):
        return WorkloadPlan(name, batches=draw(numbers(0, 1)), batch_records=1, keys=keys)
    batches, batch_records = between(draw, profile.batches), between(draw, profile.batch_records)
    offset = min(between(draw, profile.start_offset), batches * batch_records) if draw(st.booleans()) else 0
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
    async_ms_max = between(draw, profile.async_ms_max)
    tolerated = draw(st.sampled_from(profile.tolerated_failures))
    if chance(draw, profile.late_async_per_mille):
        # A little beyond the timeout: checkpoints expire and are acknowledged late, of many subtasks every second
        # one. The timeout is the shortest, so that not all can expire until progress is demanded.
        timeout_ms = min(profile.timeouts_ms)
        async_ms_max = timeout_ms + timeout_ms // profile.late_async_part
        tolerated = max(tolerated, TOLERATED_MIN)
    mode = draw(st.sampled_from(profile.modes))
    timeout = CheckpointPlan().alignment_timeout_ms
    if mode == "aligned_timeout":
        timeout = draw(st.sampled_from(profile.alignment_timeouts_ms))
    return CheckpointPlan(
        protocol=profile.protocol,
        mode=mode,
        alignment_timeout_ms=timeout,
        max_concurrent=between(draw, profile.max_concurrent),
        interval_ms=between(draw, profile.interval_ms),
        timeout_ms=timeout_ms,
        min_pause_ms=draw(st.sampled_from(profile.min_pause_ms)),
        retained=between(draw, profile.retained),
        first_id=draw(st.sampled_from(profile.first_ids)),
        tolerated_failures=tolerated,
        async_ms_max=async_ms_max,
        incremental=profile.incremental_per_mille > 0 and chance(draw, profile.incremental_per_mille),
    )


def _with_initiators(draw: st.DrawFn, profile: Profile, plan: TrialPlan) -> TrialPlan:
    """Return the plan with drawn initiators of up to three snapshots in turn, or with none: then all sources begin."""
    if profile.protocol == "barriers" or not chance(draw, 500):
        return plan
    subtasks = st.sampled_from(plan.job.subtasks)
    groups = [tuple(draw(subtasks) for _ in range(draw(numbers(1, 2)))) for _ in range(draw(numbers(1, 3)))]
    initiators = tuple(tuple(dict.fromkeys(group)) for group in groups if not plan.job.unreached_by(group))
    checkpoints = msgspec.structs.replace(plan.checkpoints, initiators=initiators)
    return msgspec.structs.replace(plan, checkpoints=checkpoints)


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
    around: Circumstances = ANYWHERE,
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
    @given(trial_plans(profile, around, kinds))
    def collect(plan: TrialPlan) -> None:
        plans.append(plan)

    if count > 0:
        with no_collection():  # nothing that was drawn is garbage yet
            collect()
    return tuple(plans[:count])


def draw_plan(
    seed: int,
    profile: Profile,
    around: Circumstances = ANYWHERE,
    kinds: Sequence[str] | None = None,
) -> TrialPlan:
    """Draw one plan; the same arguments give the same plan. ``kinds`` as in ``trial_plans``."""
    # Hypothesis begins with the simplest example, whatever the seed: the second is the first that is drawn.
    return draw_plans(seed, 2, profile, around, kinds)[-1]
