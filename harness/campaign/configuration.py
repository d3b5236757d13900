"""Campaign files: TOML in, one frozen value out; every mistake is reported with its key and the nearest right key.

A campaign draws its plans from a profile, mixed as ``[mix]`` and ``[faults]`` say, or lists its trials with aimed
faults (``[[trial]]``), or does both; then the listed trials come first. Sections ``[workload]``, ``[job]``,
``[deployment]``, ``[checkpoints]``, ``[restart]``, ``[network]`` and ``[limits]`` override fields of every plan; a
``[[trial]]`` may override them again for its own plans.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol

import msgspec

from barrier_tck.faults.vocabulary import ScheduledFault
from barrier_tck.harness.campaign.budget import TRIALS_MAX, Budget, parse_duration
from barrier_tck.harness.campaign.mix import FaultsSection, MixSection
from barrier_tck.harness.cluster.cluster_config import ClusterConfig, ClusterKind, config_for_trials
from barrier_tck.harness.draw.plug_in_profiles import chosen_profile
from barrier_tck.harness.draw.profile import Profile
from barrier_tck.harness.draw.search.strategies import StrategyName
from barrier_tck.harness.plan.trial_plan import RescalePlan, SavepointPlan, TrialPlan
from barrier_tck.harness.support.bounds import Bounded
from barrier_tck.harness.support.errors import InternalError, UsageProblem
from barrier_tck.harness.support.json_values import problem_of_json
from barrier_tck.harness.support.root_seed import root_seed
from barrier_tck.harness.support.strict_input import convert, read_toml
from barrier_tck.harness.system.system_names import DEFAULT_SYSTEM
from barrier_tck.harness.system.system_under_test import SystemUnderTest
from barrier_tck.harness.workloads.workload_names import workload_named

CONFIGURATION_VERSION = 1

Section = dict[str, Any]
"""Overrides of the fields of one part of a plan."""

SECTIONS = ("workload", "job", "deployment", "checkpoints", "restart", "network", "limits")
"""Parts of a plan that can be overridden field by field."""


NAME_MAX = 100
CampaignName = Annotated[str, msgspec.Meta(min_length=1, max_length=NAME_MAX)]
"""A campaign's name: it becomes part of a directory's name."""


class _HasSections(Protocol):
    """What a campaign and one of its trials have in common."""

    @property
    def workload(self) -> Section: ...
    @property
    def job(self) -> Section: ...
    @property
    def deployment(self) -> Section: ...
    @property
    def checkpoints(self) -> Section: ...
    @property
    def restart(self) -> Section: ...
    @property
    def network(self) -> Section: ...
    @property
    def limits(self) -> Section: ...


class SystemSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``[system]``: which system is tested, and its settings."""

    name: str = DEFAULT_SYSTEM
    """A name in ``barrier_tck.harness.system.system_names``, or ``package.module:Factory``."""
    settings: dict[str, Any] = {}
    """Every other key of the table: settings that only the system understands."""


class AimedTrial(Bounded, frozen=True, forbid_unknown_fields=True):
    """One ``[[trial]]``: a fault schedule, run ``repeat`` times with different seeds."""

    faults: tuple[ScheduledFault, ...] = ()
    repeat: Annotated[int, msgspec.Meta(ge=1, le=TRIALS_MAX)] = 1
    note: str = ""
    state_backend: str = ""
    """Empty: the campaign's."""
    local_recovery: bool | None = None
    """None: the campaign's."""
    on_unreadable: Literal["", "fail", "older"] = ""
    """Empty: the campaign's."""
    savepoints: tuple[SavepointPlan, ...] | None = None
    """None: the campaign's."""
    rescales: tuple[RescalePlan, ...] | None = None
    """None: the campaign's."""
    system: Section = msgspec.field(default_factory=dict)
    """Settings of the system that differ from the campaign's."""
    workload: Section = msgspec.field(default_factory=dict)
    job: Section = msgspec.field(default_factory=dict)
    deployment: Section = msgspec.field(default_factory=dict)
    checkpoints: Section = msgspec.field(default_factory=dict)
    restart: Section = msgspec.field(default_factory=dict)
    network: Section = msgspec.field(default_factory=dict)
    limits: Section = msgspec.field(default_factory=dict)


class ClusterSection(Bounded, frozen=True, forbid_unknown_fields=True):
    """``[cluster]``: the Spark cluster that the campaign starts, for systems that run on one."""

    name: ClusterKind = ClusterKind.LOCAL
    workers: Annotated[int, msgspec.Meta(ge=1, le=100)] = 3
    cores_per_worker: Annotated[int, msgspec.Meta(ge=1, le=1_024)] = 3
    """Slots of each executor; the job should still fit when one executor is dead."""
    executor_memory_mb: Annotated[int, msgspec.Meta(ge=1, le=1_048_576)] = 512
    master_port: Annotated[int, msgspec.Meta(ge=1, le=65_535)] | None = None
    """None: any free port."""
    base_image: str = ""
    """For hosts as containers: the image on which the hosts' image is built. Empty: none; they use this machine's
    system."""
    host_memory_mb: Annotated[int, msgspec.Meta(ge=1, le=1_048_576)] | None = None
    """For hosts as containers: the memory limit of each; None leaves room for Python beside the executor."""

    @property
    def config(self) -> ClusterConfig:
        """The configuration of this cluster; raises UsageError if its shape is impossible."""
        values = msgspec.structs.asdict(self)
        return config_for_trials(values.pop("name"), **values)


class CampaignConfiguration(Bounded, frozen=True, forbid_unknown_fields=True):
    """A whole campaign file, with its defaults filled in. ``read_configuration`` makes it."""

    version: Annotated[int, msgspec.Meta(ge=1, le=CONFIGURATION_VERSION)] = CONFIGURATION_VERSION
    name: CampaignName = "standard"
    system: SystemSection = SystemSection()
    """In a file this is a name, or a table with a name and settings."""
    profile: str = ""
    """The profile from which plans are drawn; empty: the first that the system brings, or else ``standard``."""
    trials: Annotated[int, msgspec.Meta(ge=1, le=TRIALS_MAX)] | None = None
    budget: str | None = None
    """A duration such as ``5m``, to be given instead of ``trials``."""
    seed: Annotated[int, msgspec.Meta(ge=0, le=2**62)] | None = None
    """The seed from which all plans are drawn. None: a new one each time (``seeded``)."""
    timeout: str | None = None
    """Limit of one trial's wall time, such as ``2m``."""
    controls: Annotated[int, msgspec.Meta(ge=0, le=1_000)] | None = None
    """Trials that run again with recovery broken on purpose; None: as many as ``controls_by_default`` says; 0: none."""
    strategy: StrategyName = "uniform"
    """How plans are drawn (``harness.draw.search``)."""
    fail_fast: bool = False
    """Whether the first INVALID trial ends the campaign."""
    shrink: bool = True
    """Whether plans that failed are made smaller when all trials are over."""
    only: tuple[str, ...] = ()
    """Clauses for which trials are judged; the checker of CAM-3 judges, too. With such clauses there are no controls
    unless ``controls`` asks for them. Empty: all."""
    mix: MixSection | None = None
    """The weighted choices from which drawn trials are mixed."""
    faults: FaultsSection | None = None
    """How many faults drawn trials have, and which."""
    state_backend: str = ""
    """``heap``, ``rocksdb``, or any other as ``package.module:Factory``.

    Empty: listed trials have ``heap``, and some of the drawn ones have ``rocksdb``.
    """
    local_recovery: bool | None = None
    """Whether subtasks keep a second copy of their newest state on their own host, and restore from it (LOC-1).

    None: listed trials do not, and some of the drawn ones do.
    """
    on_unreadable: Literal["", "fail", "older"] = ""
    """What to do if no copy of the latest checkpoint can be read: ``fail``, or restore an ``older`` one (REC-4).

    Empty: listed trials fail; of the drawn ones, some fail and some restore an older one.
    """
    savepoints: tuple[SavepointPlan, ...] | None = None
    """Savepoints that every trial asks for (COO-5). None: listed trials ask for none, drawn ones as profiles say."""
    rescales: tuple[RescalePlan, ...] | None = None
    """How parallel the job is after each stop with a savepoint (RSC-2). None: as for savepoints."""
    workload: Section = msgspec.field(default_factory=dict)
    job: Section = msgspec.field(default_factory=dict)
    deployment: Section = msgspec.field(default_factory=dict)
    checkpoints: Section = msgspec.field(default_factory=dict)
    restart: Section = msgspec.field(default_factory=dict)
    network: Section = msgspec.field(default_factory=dict)
    limits: Section = msgspec.field(default_factory=dict)
    cluster: ClusterSection | None = None
    """In a file this is a name, or a table with a name and a shape."""
    trial: tuple[AimedTrial, ...] = ()

    @property
    def listed(self) -> int:
        """Return how many trials the file lists, including repetitions."""
        return sum(trial.repeat for trial in self.trial)

    @property
    def draws(self) -> bool:
        """Whether plans are drawn, perhaps after the listed ones."""
        return not self.trial or self.mix is not None or self.faults is not None

    @property
    def root_seed(self) -> int:
        """The seed of a campaign that was ``seeded``."""
        if self.seed is None:
            raise InternalError("the campaign has no seed yet")
        return self.seed

    def seeded(self) -> CampaignConfiguration:
        """Return the campaign with a seed: its own, or a new one."""
        return msgspec.structs.replace(self, seed=root_seed(self.seed).value)

    def is_drawn(self, number: int) -> bool:
        """Return whether a trial's plan was drawn, not listed; trials are counted from 0."""
        return self.draws and number >= self.listed

    def profile_for(self, system: SystemUnderTest) -> Profile:
        """Return the profile, with as many faults as the campaign says; raises UsageProblem if there is none."""
        workload = workload_named(self.workload.get("name", TrialPlan().workload.name))
        profile = chosen_profile(self.profile, system, workload)
        if self.faults is None:
            return profile
        return replace(profile, faults=replace(profile.faults, number=self.faults.per_trial))

    def controls_wanted(self) -> int | None:
        """Return how many controls are to run: none if only some clauses are judged, as controls may break others."""
        return 0 if self.only and self.controls is None else self.controls

    def budget_of_trials(self) -> Budget:
        """Return the budget: the file's; otherwise every listed trial once; otherwise the default."""
        if self.budget is not None:
            return Budget(trials=None, seconds=parse_duration(self.budget, "budget"))
        if self.trials is not None:
            return Budget(trials=self.trials)
        return Budget(trials=self.listed) if self.trial else Budget()

    def adjusted(self, plan: TrialPlan) -> TrialPlan:
        """Return a plan with the campaign's overrides."""
        changed = _overridden(plan, self)
        if self.timeout is not None:
            seconds = max(1, round(parse_duration(self.timeout, "timeout")))
            changed = msgspec.structs.replace(
                changed, limits=msgspec.structs.replace(changed.limits, wall_s=seconds)
            )
        return msgspec.structs.replace(
            changed,
            system=self.system.settings,
            state_backend=self.state_backend or changed.state_backend,
            local_recovery=changed.local_recovery if self.local_recovery is None else self.local_recovery,
            on_unreadable=self.on_unreadable or changed.on_unreadable,
            savepoints=changed.savepoints if self.savepoints is None else self.savepoints,
            rescales=changed.rescales if self.rescales is None else self.rescales,
        )

    def aimed_plan(self, trial: AimedTrial, seed: int) -> TrialPlan:
        """Return the plan of a listed trial."""
        plan = _overridden(self.adjusted(TrialPlan()), trial)
        return msgspec.structs.replace(
            plan,
            faults=trial.faults,
            system={**plan.system, **trial.system},
            note=trial.note,
            seed=seed,
            state_backend=trial.state_backend or plan.state_backend,
            local_recovery=plan.local_recovery if trial.local_recovery is None else trial.local_recovery,
            on_unreadable=trial.on_unreadable or plan.on_unreadable,
            savepoints=plan.savepoints if trial.savepoints is None else trial.savepoints,
            rescales=plan.rescales if trial.rescales is None else trial.rescales,
        )


def _overridden(plan: TrialPlan, sections: _HasSections) -> TrialPlan:
    changed: dict[str, Any] = {}
    for name in SECTIONS:
        override: Section = getattr(sections, name)
        if override:
            part = getattr(plan, name)
            whole = {} if name == "job" else msgspec.to_builtins(part)
            changed[name] = msgspec.convert({**whole, **override}, type(part))
    return msgspec.structs.replace(plan, **changed) if changed else plan


def configuration_from(value: object, source: str) -> CampaignConfiguration:
    """Turn plain dictionaries into a configuration; raises UsageProblem for the first key or value that is wrong.

    Names are not looked up yet: what they mean may depend on the system (``configuration_checks``).
    """
    if isinstance(value, dict):
        version = value.get("version", CONFIGURATION_VERSION)
        if isinstance(version, int) and version > CONFIGURATION_VERSION:
            raise UsageProblem(
                f"{source}: the campaign has version {version}, this program knows versions up to "
                f"{CONFIGURATION_VERSION}; use the newer barrier-tck that it was written for"
            )
        value = {**value, **_with_settings(value, source)}
    configuration = convert(value, CampaignConfiguration, source)
    check_values(configuration, source)
    return configuration


def _with_settings(value: dict[str, Any], source: str) -> dict[str, Any]:
    """Return ``system`` and ``cluster`` as sections. Each is a name, or a table with a name.

    Everything else in the table of a system is a setting of its own.
    """
    cluster = {"cluster": {"name": named}} if isinstance(named := value.get("cluster"), str) else {}
    return cluster | _system_with_settings(value, source)


def _system_with_settings(value: dict[str, Any], source: str) -> dict[str, Any]:
    given = value.get("system")
    if isinstance(given, str):
        return {"system": {"name": given}}
    if not isinstance(given, dict):
        return {}
    settings = {key: member for key, member in given.items() if key != "name"}
    _check_settings(settings, source, "system")
    return {"system": {"name": given.get("name", DEFAULT_SYSTEM), "settings": settings}}


def _check_settings(settings: dict[str, Any], source: str, path: str) -> None:
    problem = problem_of_json(settings, path)
    if problem is not None:
        raise UsageProblem(f"{source}: {problem}")


def stored_configuration(value: object, source: str) -> CampaignConfiguration:
    """Return the configuration that a record holds with every value filled in; raises UsageProblem."""
    configuration = convert(value, CampaignConfiguration, source, "configuration")
    check_values(configuration, source)
    return configuration


def read_configuration(path: Path) -> CampaignConfiguration:
    """Read a campaign file; raises UsageProblem if it is missing, no TOML, or wrong in any key or value."""
    return configuration_from(read_toml(path), str(path))


def check_values(configuration: CampaignConfiguration, source: str) -> None:
    """Raise UsageProblem for the first value that is impossible for any system; nothing is opened."""
    _check_sections(configuration, source, "")
    for index, trial in enumerate(configuration.trial):
        _check_sections(trial, source, f"trial[{index}].")
        if "name" in trial.system:
            raise UsageProblem(
                f"{source}: trial[{index}].system.name: all trials run on the campaign's system"
            )
        _check_settings(trial.system, source, f"trial[{index}].system")
    _check_amounts(configuration, source)


def _check_amounts(configuration: CampaignConfiguration, source: str) -> None:
    """Raise UsageProblem for the first impossible number, and for two values that contradict each other."""
    if configuration.trials is not None and configuration.budget is not None:
        raise UsageProblem(f"{source}: trials and budget are both given; keep one of the two")
    try:
        configuration.budget_of_trials()
        configuration.adjusted(TrialPlan())
    except UsageProblem as error:
        raise UsageProblem(f"{source}: {error}") from error


def _check_sections(sections: _HasSections, source: str, path: str) -> None:
    """Check keys and types of the overrides as if each section were a whole part of a plan."""
    default = TrialPlan()
    for name in SECTIONS:
        convert(getattr(sections, name), type(getattr(default, name)), source, f"{path}{name}")
