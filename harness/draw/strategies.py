"""Hypothesis strategies for trial plans. They draw the configuration as well as the faults.

The scenarios of which a plan is part are picked first. They are applied as the plan comes into being: to its profile,
its job, its load, its savepoints, its slots and its faults.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

import msgspec
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as hypothesis_seed
from hypothesis import strategies as st
from hypothesis.internal.conjecture.providers import AVAILABLE_PROVIDERS, HypothesisProvider

from barrier_tck.faults.targets import TargetKind
from barrier_tck.faults.vocabulary import ScheduledFault
from barrier_tck.harness.draw.catalogue import known_scenarios
from barrier_tck.harness.draw.choices import chance
from barrier_tck.harness.draw.constraints import ANYWHERE, Constraints, Drawing
from barrier_tck.harness.draw.drawn_configuration import draw_configuration, with_initiators, with_key_groups
from barrier_tck.harness.draw.drawn_faults import with_faults
from barrier_tck.harness.draw.drawn_graph import with_job
from barrier_tck.harness.draw.drawn_network import draw_network
from barrier_tck.harness.draw.input_length import short_enough, with_few_checkpoints
from barrier_tck.harness.draw.profile import Profile
from barrier_tck.harness.draw.rescaled_jobs import with_rescales
from barrier_tck.harness.draw.scenario import Change, Part, Scenario, pick, shares_of
from barrier_tck.harness.draw.slow_checkpoints import in_time, that_completes
from barrier_tck.harness.draw.stages import Stage, begins
from barrier_tck.harness.plan.trial_plan import OVERTAKING, FilledPlan, RestartPlan, TrialPlan
from barrier_tck.harness.support.garbage_collection import no_collection
from barrier_tck.harness.system.exposed_targets import targets_among
from barrier_tck.harness.system.system_under_test import Capability
from barrier_tck.harness.workloads.workload_names import filled

RESTARTS_PER_FAULT = 5
"""Restart budget per planned fault, far more than one fault can use up."""
RESTART_DELAY_MS_MIN = 5
"""Least delay before a restart if a fault lasts, so that attempts cannot all fail at one instant of virtual time."""


@st.composite
def trial_plans(
    draw: st.DrawFn,
    profile: Profile,
    constraints: Constraints = ANYWHERE,
    kinds: Sequence[str] | None = None,
) -> FilledPlan:
    """Draw a plan from a profile. Its restart budget suffices for its faults.

    ``kinds`` names the kind of each fault, in order; None means that they are drawn, by the weights of the profile.
    """
    profile = _possible_in(profile, constraints)
    begins(draw, Stage.SCENARIOS)
    picked = _picked(draw, profile, constraints.capabilities, kinds)
    for scenario in picked:
        profile = scenario.profile(draw, profile)
    drawing = Drawing(draw, profile, constraints)
    plan = _with_job(drawing, picked)
    begins(draw, Stage.LOAD)
    plan = _with_load(drawing, picked, plan)
    begins(draw, Stage.LATER_JOBS)
    plan = _with_jobs_to_come(drawing, picked, plan)
    begins(draw, Stage.FAULTS)
    plan = with_faults(drawing, plan, kinds, [scenario.faults for scenario in picked])
    plan = _applied(drawing, [scenario.add_faults for scenario in picked], plan)
    # The budget may be a large one now, after which the job needs time.
    plan = in_time(msgspec.structs.replace(plan, restart=_enough_restarts(plan.restart, plan.faults)))
    begins(draw, Stage.REST)
    return _completed(drawing, picked, plan)


def _picked(
    draw: st.DrawFn, profile: Profile, capabilities: frozenset[Capability], kinds: Sequence[str] | None
) -> tuple[Scenario, ...]:
    known = known_scenarios()
    settled = frozenset[Part]() if kinds is None else frozenset({Part.FAULTS})
    return pick(draw, shares_of(profile, capabilities, known), known, settled)


def _with_room(plan: TrialPlan) -> TrialPlan:
    """Return a plan whose job has room: a campaign may prescribe fewer executors than a scenario counts on.

    Then slots are not counted, and the job is not elastic.
    """
    deployment = plan.deployment
    slots = deployment.slots_per_executor
    if slots is None or slots * deployment.executors >= len(plan.job.subtasks):
        return plan
    uncounted = msgspec.structs.replace(
        deployment, slots_per_executor=None, elastic_wait_ms=None, replaced_after_ms=0
    )
    return msgspec.structs.replace(plan, deployment=uncounted)


def _applied(drawing: Drawing, changes: Sequence[Change], plan: TrialPlan) -> TrialPlan:
    for change in changes:
        plan = change(drawing, plan)
    return plan


def _with_job(drawing: Drawing, picked: Sequence[Scenario]) -> TrialPlan:
    """Return a plan with a job, without a network and without faults."""
    # Filled without the campaign's overrides, as a prescribed width may need key groups that are not drawn yet.
    without_job = drawing.constraints.fitted(draw_configuration(drawing))
    begins(drawing.draw, Stage.JOB)
    plan = filled(with_job(drawing, without_job))
    return _applied(drawing, [scenario.job for scenario in picked], plan)


def _with_load(drawing: Drawing, picked: Sequence[Scenario], plan: TrialPlan) -> TrialPlan:
    """Return the plan with a network, and with all that decides how long its checkpoints take."""
    # A system that does not use the job runs the workload's own, which may be wider.
    groups = with_key_groups(drawing, plan, drawing.filled(plan))
    network = draw_network(drawing.draw, drawing.profile, plan)
    plan = msgspec.structs.replace(plan, network=network, deployment=groups)
    plan = with_few_checkpoints(short_enough(_applied(drawing, [scenario.load for scenario in picked], plan)))
    # What a campaign prescribes wins over what is drawn, also where the job decides what is drawn.
    return drawing.filled(that_completes(with_initiators(drawing, plan)))


def _with_jobs_to_come(drawing: Drawing, picked: Sequence[Scenario], plan: TrialPlan) -> TrialPlan:
    """Return the plan with its savepoints, with the jobs that are started from them, and with slots for all jobs."""
    plan = drawing.filled(_applied(drawing, [scenario.savepoints for scenario in picked], plan))
    if Capability.RESCALING in drawing.capabilities:
        plan = drawing.filled(with_rescales(drawing.draw, drawing.profile, plan))
    drawn = _applied(drawing, [scenario.slots for scenario in picked], plan)
    plan = drawing.filled(drawn)
    if plan.deployment.executors < drawn.deployment.executors:
        plan = drawing.filled(_with_room(plan))
    return drawing.filled(in_time(plan))  # its later jobs, and those that are elastic, may be wider


def _completed(drawing: Drawing, picked: Sequence[Scenario], plan: TrialPlan) -> FilledPlan:
    """Return the plan with what nothing else depends on."""
    plan = _with_settings(drawing, plan)
    plan = _applied(drawing, [scenario.last for scenario in picked], plan)
    prescribed = drawing.constraints.adjust(plan)
    plan = msgspec.structs.replace(plan, checkpoints=prescribed.checkpoints, deployment=prescribed.deployment)
    return filled(drawing.constraints.fit(plan))


def _enough_restarts(restart: RestartPlan, faults: Sequence[ScheduledFault]) -> RestartPlan:
    """Return a restart budget that the faults cannot use up: while a fault lasts, many attempts may fail in a row."""
    lasting_ms = sum(scheduled.fault.heals_after_ms or 0 for scheduled in faults)
    delay_ms = max(restart.delay_ms, RESTART_DELAY_MS_MIN if lasting_ms else 0)
    needed = RESTARTS_PER_FAULT * len(faults) + (lasting_ms // delay_ms if lasting_ms else 0)
    attempts_max = max(restart.attempts_max, needed)
    return msgspec.structs.replace(restart, attempts_max=attempts_max, delay_ms=delay_ms)


def _with_settings(drawing: Drawing, plan: TrialPlan) -> TrialPlan:
    """Return the plan with drawn settings that the system takes, except for those that the campaign gives."""
    ended = {scheduled.fault.ends for scheduled in plan.faults}
    drawn = {
        setting.name: drawing.draw(st.sampled_from(setting.values))
        for setting in drawing.profile.settings
        if (setting.matters_after is None or setting.matters_after in ended)
        and chance(drawing.draw, setting.per_mille)
    }
    new = {
        name: value
        for name, value in drawn.items()
        if name not in plan.system and drawing.constraints.takes({**plan.system, name: value})
    }
    return msgspec.structs.replace(plan, system={**plan.system, **new}) if new else plan


def _possible_in(profile: Profile, constraints: Constraints) -> Profile:
    """Return the profile without what the system lacks, and with the protocol that the campaign prescribes."""
    able = constraints.capabilities
    checkpoints, storage, faults = profile.checkpoints, profile.storage, profile.faults
    if Capability.UNALIGNED_CHECKPOINTS not in able:
        modes = tuple(mode for mode in checkpoints.modes if mode not in OVERTAKING)
        checkpoints = replace(checkpoints, modes=modes or ("exactly_once",))
    if Capability.LOCAL_RECOVERY not in able:
        storage = replace(storage, local_recovery_per_mille=0)
    if TargetKind.OBJECT_STORE not in targets_among(able):
        checkpoints = replace(checkpoints, storages=(TrialPlan().checkpoints.storage,))
    if Capability.STORAGE_FAULTS not in able or faults.number[1] == 0:
        storage = replace(storage, on_unreadable=(TrialPlan().on_unreadable,))
    if Capability.UNSYNCED_LOSS not in able:
        faults = replace(faults, lose_unsynced_per_mille=0)
    if Capability.HOST_RETURN not in able:
        faults = replace(faults, returns_per_mille=0)
    if Capability.STORAGE_OUTAGE not in able:
        faults = replace(faults, unreadable_per_mille=0)
    return replace(profile, checkpoints=checkpoints, storage=storage, faults=faults)


# --- drawing many plans -------------------------------------------------------------------------------------


class PlainProvider(HypothesisProvider):
    """Draws without the constants that Hypothesis collects from whatever modules happen to be loaded.

    With them, the same seed would give other plans on the command line than inside pytest.
    """

    def _maybe_draw_constant(self, *_: object, **__: object) -> None:
        return None


PLAIN_BACKEND = "barrier-tck-plain"
AVAILABLE_PROVIDERS.setdefault(PLAIN_BACKEND, f"{__name__}.{PlainProvider.__name__}")


class _Enough(BaseException):
    """Ends the drawing. Hypothesis takes any ``Exception`` for a failing example, but passes this one on."""


def draw_plans(
    seed: int,
    count: int,
    profile: Profile,
    constraints: Constraints = ANYWHERE,
    kinds: Sequence[str] | None = None,
    *,
    first: int | None = None,
) -> tuple[FilledPlan, ...]:
    """Draw ``count`` plans; the same arguments give the same plans, under any PYTHONHASHSEED.

    With ``first``, only so many of them are drawn. These are not the plans of a smaller ``count``.
    """
    plans: list[FilledPlan] = []
    wanted = count if first is None else min(first, count)

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
    @given(trial_plans(profile, constraints, kinds))
    def collect(plan: FilledPlan) -> None:
        plans.append(plan)
        if len(plans) == wanted:
            raise _Enough

    if wanted > 0:
        with no_collection(), suppress(_Enough):  # nothing that was drawn is garbage yet
            collect()
    return tuple(plans)


def draw_plan(
    seed: int,
    profile: Profile,
    constraints: Constraints = ANYWHERE,
    kinds: Sequence[str] | None = None,
) -> FilledPlan:
    """Draw one plan; the same arguments give the same plan. ``kinds`` as in ``trial_plans``."""
    # Hypothesis begins with the simplest example, whatever the seed: the second is the first that is drawn.
    return draw_plans(seed, 2, profile, constraints, kinds)[-1]
