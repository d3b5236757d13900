"""The plans of a campaign, in order: the listed ones in turn, then those drawn from the profile, mixed or not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain, count, islice

from barrier_tck.harness.campaign.configuration import CampaignConfiguration
from barrier_tck.harness.campaign.configuration_checks import check_configuration
from barrier_tck.harness.campaign.mix import MixSection, TrialMix, draw_mix
from barrier_tck.harness.draw.constraints import Adjust, Constraints
from barrier_tck.harness.draw.strategies import draw_plan, draw_plans
from barrier_tck.harness.plan.trial_plan import FilledPlan, TrialPlan
from barrier_tck.harness.system.exposed_targets import targets_of
from barrier_tck.harness.system.plan_fields import unused_by, without
from barrier_tck.harness.system.role_aims import resolved
from barrier_tck.harness.system.system_under_test import SystemUnderTest
from barrier_tck.harness.system.taken_settings import takes_settings
from barrier_tck.harness.workloads.workload_names import filled

CHUNK = 100
"""How many plans are drawn at a time, so that the first plans of a seed do not depend on the budget."""

FEW = 10
"""How many of them are drawn before the first trial, if a campaign has a time and not a number of trials."""

_CHUNK_SEED_STRIDE = 1_000_003


def _all(_number: int) -> bool:
    return True


def campaign_plans(
    configuration: CampaignConfiguration, system: SystemUnderTest, wanted: Callable[[int], bool] = _all
) -> Iterator[FilledPlan]:
    """Yield plans without end, of those trials that are ``wanted`` by their numbers; the budget ends a campaign.

    Raises UsageProblem, before anything runs, for a mistake that ``check_configuration`` finds.
    """
    check_configuration(configuration, system, "the campaign")
    listed = _listed(configuration, system)
    if not configuration.draws:
        return _only(wanted, listed)
    drawn = _drawn(configuration, system, lambda number: wanted(configuration.listed + number))
    return _only(wanted, chain(islice(listed, configuration.listed), drawn))


def _only(wanted: Callable[[int], bool], plans: Iterator[FilledPlan | None]) -> Iterator[FilledPlan]:
    return (plan for number, plan in enumerate(plans) if wanted(number) and plan is not None)


def _listed(configuration: CampaignConfiguration, system: SystemUnderTest) -> Iterator[FilledPlan]:
    """Yield the listed trials over and over, each time with other seeds; nothing if there are none."""
    seeds = count(configuration.root_seed)
    while configuration.trial:
        for trial in configuration.trial:
            for _ in range(trial.repeat):
                plan = configuration.aimed_plan(trial, next(seeds))
                yield filled(resolved(plan, system.job(plan), system.name))


def _drawn(
    configuration: CampaignConfiguration, system: SystemUnderTest, wanted: Callable[[int], bool]
) -> Iterator[FilledPlan | None]:
    """Yield drawn plans; instead of one that is not wanted None may come, if it need not be drawn."""
    if configuration.mix is None and configuration.faults is None:
        return _from_profile(configuration, system)
    return _from_mix(configuration, system, wanted)


def _constraints(system: SystemUnderTest, adjust: Adjust) -> Constraints:
    unused = unused_by(system)
    return Constraints(
        system.job,
        system.capabilities,
        adjust,
        lambda plan: without(plan, unused),
        partial(takes_settings, system),
    )


def _from_profile(configuration: CampaignConfiguration, system: SystemUnderTest) -> Iterator[FilledPlan]:
    for chunk in count():
        draw = partial(
            draw_plans,
            configuration.root_seed * _CHUNK_SEED_STRIDE + chunk,
            CHUNK,
            configuration.profile_for(system),
            _constraints(system, configuration.adjusted),
        )
        begun = 0
        # A short campaign does not wait for plans that it will not run.
        for number in _needed(configuration) if chunk == 0 else (CHUNK,):
            yield from draw(first=number)[begun:]
            begun = number


def _needed(configuration: CampaignConfiguration) -> tuple[int, ...]:
    """Return how many plans of the first chunk to draw, and how many if that was not enough."""
    trials = configuration.budget_of_trials().trials
    return (FEW, CHUNK) if trials is None else (min(max(trials - configuration.listed, 1), CHUNK), CHUNK)


def _from_mix(
    configuration: CampaignConfiguration, system: SystemUnderTest, wanted: Callable[[int], bool]
) -> Iterator[FilledPlan | None]:
    """Draw each plan from the profile that its mix asks for, with the faults of the mix."""
    profile = configuration.profile_for(system)
    mixes = draw_mix(
        configuration.mix or MixSection(), configuration.faults, configuration.root_seed, targets_of(system)
    )
    for number, mix in enumerate(mixes):
        if not wanted(number):
            yield None
            continue

        def adjust(plan: TrialPlan, mix: TrialMix = mix) -> TrialPlan:
            return mix.adjusted(configuration.adjusted(plan))

        yield draw_plan(
            configuration.root_seed * _CHUNK_SEED_STRIDE + number,
            mix.profile(profile),
            _constraints(system, adjust),
            kinds=mix.kinds,
        )
