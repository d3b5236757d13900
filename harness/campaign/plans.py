"""The plans of a campaign, in order: listed ones in turn, or drawn from the profile."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

from faults.packages import PACKAGES
from faults.vocabulary import Phase
from harness.campaign.configuration import CampaignConfiguration
from harness.plan import TrialPlan
from harness.plan_io import check_plan
from harness.strategies import draw_plans
from harness.suts.system import Capability, SystemUnderTest

CHUNK = 100
"""Plans are drawn so many at a time, so that the first plans of a seed do not depend on the budget."""

_CHUNK_SEED_STRIDE = 1_000_003

_TARGETS = (
    ("executor", Capability.EXECUTOR_KILL),
    ("worker", Capability.WORKER_KILL),
    ("coordinator", Capability.COORDINATOR_CRASH),
    ("host", Capability.HOST_LOSS),
    ("pause", Capability.PAUSE),
    ("channel", Capability.CHANNEL_FAULTS),
    ("partition", Capability.PARTITION),
)


def targets_of(system: SystemUnderTest) -> frozenset[str]:
    """Return the kinds of target that a system exposes, as ``faults.packages`` calls them."""
    return frozenset(name for name, capability in _TARGETS if capability in system.capabilities)


def fault_kinds_of(system: SystemUnderTest) -> tuple[str, ...]:
    """Return the tags of the faults that a system can suffer, in the order of the packages."""
    exposed = targets_of(system)
    return tuple(kind.tag for package in PACKAGES for kind in package.kinds if kind.needs in exposed)


def fault_phases_of(system: SystemUnderTest) -> tuple[str, ...]:
    """Return the phases in which a fault can strike a system and be told to have done so.

    Without protocol points nothing can be aimed, and what is known of the job is whether it runs.
    """
    aimed = Capability.PROTOCOL_POINTS in system.capabilities
    return tuple(phase.value for phase in Phase if aimed or phase in (Phase.PROCESSING, Phase.RESTORING))


def campaign_plans(configuration: CampaignConfiguration, system: SystemUnderTest) -> Iterator[TrialPlan]:
    """Yield plans without end; the budget ends a campaign.

    Raises UsageProblem, before anything runs, if a listed trial names a subtask that does not exist.
    """
    if configuration.trial:
        for index, trial in enumerate(configuration.trial):
            check_plan(configuration.aimed_plan(trial, 0), system, f"trial[{index}]")
        return _listed(configuration)
    return _drawn(configuration, system)


def _listed(configuration: CampaignConfiguration) -> Iterator[TrialPlan]:
    seeds = count(configuration.seed)
    while True:
        for trial in configuration.trial:
            for _ in range(trial.repeat):
                yield configuration.aimed_plan(trial, next(seeds))


def _drawn(configuration: CampaignConfiguration, system: SystemUnderTest) -> Iterator[TrialPlan]:
    for chunk in count():
        yield from draw_plans(
            configuration.seed * _CHUNK_SEED_STRIDE + chunk,
            CHUNK,
            configuration.the_profile(),
            subtasks=system.subtasks,
            adjust=configuration.adjusted,
            targets=targets_of(system),
        )
