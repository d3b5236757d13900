"""The plans of a campaign, in order: the listed ones in turn, then those drawn from the profile, mixed or not, as the
campaign's strategy says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain, count, islice, repeat

from barrier_tck.harness.campaign.configuration import CampaignConfiguration
from barrier_tck.harness.campaign.configuration_checks import check_configuration
from barrier_tck.harness.campaign.mix import MixSection, TrialMix, draw_mix
from barrier_tck.harness.draw.constraints import Adjust, Constraints
from barrier_tck.harness.draw.plans_alike import PlanSpace
from barrier_tck.harness.draw.search.search import Search
from barrier_tck.harness.draw.search.strategies import new_search
from barrier_tck.harness.draw.strategies import draw_plans
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


def search_of(configuration: CampaignConfiguration) -> Search:
    """Return the strategy of a campaign that begins."""
    return new_search(
        configuration.strategy, configuration.root_seed, configuration.root_seed * _CHUNK_SEED_STRIDE
    )


def campaign_plans(
    configuration: CampaignConfiguration,
    system: SystemUnderTest,
    wanted: Callable[[int], bool] = _all,
    search: Search | None = None,
) -> Iterator[FilledPlan]:
    """Yield plans without end, of those trials that are ``wanted`` by their numbers; the budget ends a campaign.

    ``search`` is the campaign's strategy, if it learns from what trials reached; None: one that does not learn.
    Raises UsageProblem, before anything runs, for a mistake that ``check_configuration`` finds.
    """
    check_configuration(configuration, system, "the campaign")
    listed = _listed(configuration, system)
    if not configuration.draws:
        return _only(wanted, listed)
    search = search or search_of(configuration)
    drawn = _drawn(configuration, system, lambda number: wanted(configuration.listed + number), search)
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
    configuration: CampaignConfiguration,
    system: SystemUnderTest,
    wanted: Callable[[int], bool],
    search: Search,
) -> Iterator[FilledPlan | None]:
    """Yield drawn plans; instead of one that is not wanted None may come, if it need not be drawn."""
    if configuration.strategy == "uniform" and configuration.mix is None and configuration.faults is None:
        return _many_at_once(configuration, system)
    spaces = enumerate(_spaces(configuration, system))
    return (search.drawn(number, space).plan if wanted(number) else None for number, space in spaces)


def _constraints(system: SystemUnderTest, adjust: Adjust) -> Constraints:
    unused = unused_by(system)
    return Constraints(
        system.job,
        system.capabilities,
        adjust,
        lambda plan: without(plan, unused),
        partial(takes_settings, system),
    )


def _many_at_once(configuration: CampaignConfiguration, system: SystemUnderTest) -> Iterator[FilledPlan]:
    """Draw plans of the profile in chunks, which takes less time than one by one."""
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


def _spaces(configuration: CampaignConfiguration, system: SystemUnderTest) -> Iterator[PlanSpace]:
    """Yield from what each plan is drawn: the profile, or the one that its mix asks for, with the faults of the mix."""
    profile = configuration.profile_for(system)
    if configuration.mix is None and configuration.faults is None:
        yield from repeat(PlanSpace(profile, _constraints(system, configuration.adjusted)))
    mixes = draw_mix(
        configuration.mix or MixSection(), configuration.faults, configuration.root_seed, targets_of(system)
    )
    for mix in mixes:

        def adjust(plan: TrialPlan, mix: TrialMix = mix) -> TrialPlan:
            return mix.adjusted(configuration.adjusted(plan))

        yield PlanSpace(mix.profile(profile), _constraints(system, adjust), mix.kinds)
