"""The plans of a campaign, in order: listed ones in turn, then those drawn from the profile, mixed or not."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, count, islice

from barrier_tck.faults.catalogue import FAULTS
from barrier_tck.faults.fault import tag_of
from barrier_tck.faults.targets import TargetKind
from barrier_tck.faults.vocabulary import Phase
from barrier_tck.harness.campaign.configuration import CampaignConfiguration
from barrier_tck.harness.campaign.mix import Hand, MixSection, check_suffered, deal
from barrier_tck.harness.draw.strategies import draw_plan, draw_plans
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.system.plan_check import check_plan
from barrier_tck.harness.system.system_under_test import Capability, SystemUnderTest

CHUNK = 100
"""Plans are drawn so many at a time, so that the first plans of a seed do not depend on the budget."""

_CHUNK_SEED_STRIDE = 1_000_003

_TARGETS = (
    (TargetKind.EXECUTOR, Capability.EXECUTOR_KILL),
    (TargetKind.WORKER, Capability.WORKER_KILL),
    (TargetKind.COORDINATOR, Capability.COORDINATOR_CRASH),
    (TargetKind.HOST, Capability.HOST_LOSS),
    (TargetKind.PAUSE, Capability.PAUSE),
    (TargetKind.CHANNEL, Capability.CHANNEL_FAULTS),
    (TargetKind.PARTITION, Capability.PARTITION),
    (TargetKind.STORAGE, Capability.STORAGE_FAULTS),
)


def targets_of(system: SystemUnderTest) -> frozenset[str]:
    """Return the kinds of target that a system exposes, as ``barrier_tck.faults.targets`` calls them."""
    return frozenset(name for name, capability in _TARGETS if capability in system.capabilities)


def fault_kinds_of(system: SystemUnderTest) -> tuple[str, ...]:
    """Return the tags of the faults that a system can suffer, in the order of the catalogue."""
    exposed = targets_of(system)
    return tuple(tag_of(fault) for fault in FAULTS if fault.needs in exposed)


def fault_phases_of(system: SystemUnderTest) -> tuple[str, ...]:
    """Return the phases in which a fault can strike a system and be told to have done so.

    Without protocol points nothing can be aimed, and what is known of the job is whether it runs.
    """
    aimed = Capability.PROTOCOL_POINTS in system.capabilities
    return tuple(phase.value for phase in Phase if aimed or phase in (Phase.PROCESSING, Phase.RESTORING))


def campaign_plans(configuration: CampaignConfiguration, system: SystemUnderTest) -> Iterator[TrialPlan]:
    """Yield plans without end; the budget ends a campaign.

    Raises UsageProblem, before anything runs, if a listed trial names a subtask that does not exist, or faults are
    to be drawn that the system cannot suffer.
    """
    for index, trial in enumerate(configuration.trial):
        check_plan(configuration.aimed_plan(trial, 0), system, f"trial[{index}]")
    if not configuration.draws:
        return _listed(configuration)
    if configuration.faults is not None:
        check_suffered(configuration.faults, targets_of(system), system.name)
    return chain(islice(_listed(configuration), configuration.listed), _drawn(configuration, system))


def _listed(configuration: CampaignConfiguration) -> Iterator[TrialPlan]:
    """Yield the listed trials over and over, each time with other seeds; nothing if there are none."""
    seeds = count(configuration.seed)
    while configuration.trial:
        for trial in configuration.trial:
            for _ in range(trial.repeat):
                yield configuration.aimed_plan(trial, next(seeds))


def _drawn(configuration: CampaignConfiguration, system: SystemUnderTest) -> Iterator[TrialPlan]:
    if configuration.mix is None and configuration.faults is None:
        return _from_profile(configuration, system)
    return _from_mix(configuration, system)


def _from_profile(configuration: CampaignConfiguration, system: SystemUnderTest) -> Iterator[TrialPlan]:
    for chunk in count():
        yield from draw_plans(
            configuration.seed * _CHUNK_SEED_STRIDE + chunk,
            CHUNK,
            configuration.the_profile(),
            view=system.job,
            adjust=configuration.adjusted,
            targets=targets_of(system),
        )


def _from_mix(configuration: CampaignConfiguration, system: SystemUnderTest) -> Iterator[TrialPlan]:
    """Draw each plan from the profile that its hand asks for, with the faults that it holds."""
    profile = configuration.the_profile()
    hands = deal(
        configuration.mix or MixSection(), configuration.faults, configuration.seed, targets_of(system)
    )
    for number, hand in enumerate(hands):

        def adjust(plan: TrialPlan, hand: Hand = hand) -> TrialPlan:
            return hand.adjusted(configuration.adjusted(plan))

        yield draw_plan(
            configuration.seed * _CHUNK_SEED_STRIDE + number,
            hand.profile(profile),
            view=system.job,
            adjust=adjust,
            targets=targets_of(system),
            kinds=hand.kinds,
        )
