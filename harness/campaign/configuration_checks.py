"""Checks a campaign with its system: the names that it uses, and whether the system can run its plans.

The system is already open, so everything that it brings, or registers when it is imported, is known.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from barrier_tck.harness.campaign.chosen_clauses import require_judged
from barrier_tck.harness.campaign.configuration import CampaignConfiguration
from barrier_tck.harness.campaign.mix import MODES, check_exposed, check_faults, check_mix
from barrier_tck.harness.plan.trial_plan import FilledPlan, TrialPlan, WorkloadPlan
from barrier_tck.harness.reference.checkpoint_storages import require_checkpoint_storage
from barrier_tck.harness.reference.state_backends import require_state_backend
from barrier_tck.harness.support.errors import UsageProblem
from barrier_tck.harness.system.exposed_targets import targets_of
from barrier_tck.harness.system.plan_fields import unused_by
from barrier_tck.harness.system.role_aims import resolved
from barrier_tck.harness.system.system_names import require_system
from barrier_tck.harness.system.system_under_test import SystemUnderTest
from barrier_tck.harness.trial.plan_check import check_plan
from barrier_tck.harness.workloads.workload_names import filled


def import_system(configuration: CampaignConfiguration, source: str) -> None:
    """Import the system, so that everything that it registers is known; raises UsageProblem if it does not exist."""
    try:
        require_system(configuration.system.name)
    except UsageProblem as error:
        raise UsageProblem(f"{source}: {error}") from error


def check_configuration(configuration: CampaignConfiguration, system: SystemUnderTest, source: str) -> None:
    """Raise UsageProblem for the first part of a campaign that the system cannot run; nothing is started or written.

    This includes a listed trial that names a subtask that does not exist, and a fault that is to be drawn but that the
    system cannot suffer.
    """
    try:
        _check_drawing(configuration)
        for name in _state_backends(configuration):
            require_state_backend(name)
        for name in _checkpoint_storages(configuration):
            require_checkpoint_storage(name)
        profile = configuration.profile_for(system)
        _check_mixed_fields(configuration, system)
        if configuration.strategy == "pct" and system.world != "simulated":
            raise UsageProblem(
                f"strategy is 'pct', which decides the simulator's schedule, but {system.name} runs in real time; "
                "choose another strategy"
            )
        if configuration.faults is not None:
            check_exposed(configuration.faults, targets_of(system), system.name)
    except UsageProblem as error:
        raise UsageProblem(f"{source}: {error}") from error
    for workload in profile.workload.names if configuration.draws else ():
        plan = TrialPlan(workload=WorkloadPlan(workload))
        check_plan(configuration.adjusted(plan), system, source)
    if configuration.only:
        try:
            require_judged(configuration.only, _variants(configuration, system), system)
        except UsageProblem as error:
            raise UsageProblem(f"{source}: {error}") from error
    for index, trial in enumerate(configuration.trial):
        where, plan = f"{source}: trial[{index}]", configuration.aimed_plan(trial, 0)
        check_plan(msgspec.structs.replace(plan, faults=()), system, where)
        try:
            plan = resolved(plan, system.job(plan), system.name)
        except UsageProblem as error:
            raise UsageProblem(f"{where}: {error}") from error
        check_plan(plan, system, where)


def _variants(configuration: CampaignConfiguration, system: SystemUnderTest) -> Iterator[FilledPlan]:
    """Yield plans; together they are judged by every checker that can judge a trial of the campaign."""
    plans = [configuration.aimed_plan(trial, 0) for trial in configuration.trial]
    if configuration.draws:
        workloads = (configuration.mix.workload if configuration.mix is not None else ()) or (
            configuration.profile_for(system).workload.names
        )
        drawn = [configuration.adjusted(TrialPlan(workload=WorkloadPlan(name))) for name in workloads]
        for mode in MODES:
            for local in (False, True):
                for plan in drawn:
                    checkpoints = msgspec.structs.replace(plan.checkpoints, mode=mode)
                    plans.append(msgspec.structs.replace(plan, checkpoints=checkpoints, local_recovery=local))
    yield from map(filled, plans)


def _check_drawing(configuration: CampaignConfiguration) -> None:
    """Check ``[mix]`` and ``[faults]``, and that nothing contradicts them."""
    if configuration.faults is not None:
        check_faults(configuration.faults)
    mix = configuration.mix
    if mix is None:
        return
    check_mix(mix)
    default = CampaignConfiguration()
    twice = (
        ("workload", mix.workload, "workload.name", "name" in configuration.workload),
        ("mode", mix.mode, "checkpoints.mode", "mode" in configuration.checkpoints),
        (
            "state_backend",
            mix.state_backend,
            "state_backend",
            configuration.state_backend != default.state_backend,
        ),
        (
            "local_recovery",
            mix.local_recovery,
            "local_recovery",
            configuration.local_recovery is not None,
        ),
    )
    for name, table, other, given in twice:
        if table and given:
            raise UsageProblem(f"mix.{name} and {other} are both given; keep one of the two")


def _check_mixed_fields(configuration: CampaignConfiguration, system: SystemUnderTest) -> None:
    """Raise UsageProblem if ``[mix]`` names a field that the system does not use."""
    mix, unused = configuration.mix, unused_by(system)
    if mix is None:
        return
    tables = (
        ("mode", mix.mode, "checkpoints.mode"),
        ("state_backend", mix.state_backend, "state_backend"),
        ("local_recovery", mix.local_recovery, "local_recovery"),
    )
    for name, table, field in tables:
        if table and field in unused:
            raise UsageProblem(f"mix.{name} is given, but {system.name} does not use {field}; leave it out")


def _state_backends(configuration: CampaignConfiguration) -> tuple[str, ...]:
    mixed = () if configuration.mix is None else tuple(configuration.mix.state_backend)
    return (*([configuration.state_backend] if configuration.state_backend else []), *mixed)


def _checkpoint_storages(configuration: CampaignConfiguration) -> tuple[str, ...]:
    sections = (configuration.checkpoints, *(trial.checkpoints for trial in configuration.trial))
    return tuple(dict.fromkeys(section["storage"] for section in sections if "storage" in section))
