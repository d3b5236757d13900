"""Strategies of drawing: what plans they give, and that a trial has the same plan however the campaign is run.

Grain: plans that are drawn and not run; small campaigns of the simulated reference runtime.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import msgspec
import pytest

from barrier_tck.harness.campaign.learning import LEARNED
from barrier_tck.harness.campaign.planned_trials import campaign_plans
from barrier_tck.harness.campaign.runner import resume_campaign, run_campaign
from barrier_tck.harness.campaign.shards import Shard
from barrier_tck.harness.cli import main as cli
from barrier_tck.harness.draw.catalogue import known_scenarios
from barrier_tck.harness.draw.constraints import Constraints
from barrier_tck.harness.draw.plans_alike import PlanSpace, drawn_like, drawn_plan
from barrier_tck.harness.draw.profile import Profile
from barrier_tck.harness.draw.profiles import OF_WORLD, profile_named
from barrier_tck.harness.draw.search import crossed as crossing
from barrier_tck.harness.draw.search.crossed import Crossed, crossed
from barrier_tck.harness.draw.search.guided import GENERATION, Guided
from barrier_tck.harness.draw.search.search import Search
from barrier_tck.harness.draw.search.strategies import STRATEGIES, new_search
from barrier_tck.harness.draw.search.swarm import swarmed
from barrier_tck.harness.draw.stages import Stage
from barrier_tck.harness.plan.trial_plan import FilledPlan
from barrier_tck.harness.record.verdict import Verdict
from barrier_tck.harness.reference.simulated.priorities import Priorities
from barrier_tck.harness.reference.simulated.simulated_system import ReferenceSimulated
from barrier_tck.harness.support.errors import InternalError, UsageProblem
from barrier_tck.harness.trial.plan_check import check_plan
from barrier_tck.harness.trial.trial_run import run_trial
from tests.harness.campaign.test_resuming import (
    Interrupted,
    configuration,
    kept,
    lines,
    without_times,
)
from tests.harness.fake_system import FakeSystem

SYSTEM = ReferenceSimulated()
SPACE = PlanSpace(profile_named("heavy"), Constraints(SYSTEM.job, SYSTEM.capabilities))


# --- plans that are drawn by nearly the same choices --------------------------------------------------------------


def test_the_same_choices_give_the_same_plan_whatever_else_is_drawn() -> None:
    for seed in range(12):
        first = drawn_plan(SPACE, Random(seed))
        assert drawn_like(SPACE, Random(seed + 1_000), first.choices, {}).plan == first.plan


def test_another_seed_of_the_schedule_changes_nothing_else() -> None:
    first = drawn_plan(SPACE, Random(3))
    other = drawn_like(SPACE, Random(4), first.choices, {(Stage.SEED, 0): [0]}).plan
    assert other.seed != first.plan.seed
    assert (other.job, other.checkpoints, other.faults) == (
        first.plan.job,
        first.plan.checkpoints,
        first.plan.faults,
    )


def test_a_changed_choice_of_a_fault_leaves_the_job_as_it_is_and_makes_another_possible_plan() -> None:
    changed = 0
    for seed in range(12):
        first = drawn_plan(SPACE, Random(seed))
        places = [place for place in first.choices if place[0] is Stage.FAULTS]
        for place in places:
            last = len(first.choices[place]) - 1
            other = drawn_like(SPACE, Random(seed), first.choices, {place: [last]}).plan
            check_plan(other, SYSTEM)
            assert (other.seed, other.job, other.network) == (
                first.plan.seed,
                first.plan.job,
                first.plan.network,
            )
            changed += other.faults != first.plan.faults
    assert changed > 12


# --- guided -------------------------------------------------------------------------------------------------------


def plans_of(search: Search, number: int, wanted: str) -> Iterator[FilledPlan]:
    """Yield plans of a strategy that is told whether each plan has a fault of a kind, and nothing else."""
    for trial in range(number):
        plan = search.drawn(trial, SPACE).plan
        yield plan
        search.learn(trial, (wanted,) if has(plan, wanted) else (), promising=True)


def has(plan: FilledPlan, wanted: str) -> bool:
    return any(wanted == type(scheduled.fault).__name__ for scheduled in plan.faults)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", [1, 2])
def test_guided_tries_more_plans_like_those_that_reached_what_others_did_not(seed: int) -> None:
    found: Counter[str] = Counter()
    for strategy in STRATEGIES:
        plans = plans_of(new_search(strategy, seed, seed), 100, "PartitionExecutor")
        found[strategy] = sum(has(plan, "PartitionExecutor") for plan in plans)
    assert found["guided"] > 2 * found["uniform"] > 0


@pytest.mark.long
def test_guided_without_anything_new_draws_each_plan_by_itself() -> None:
    search = Guided(5)
    for trial in range(2 * GENERATION):
        plan = search.drawn(trial, SPACE).plan
        assert plan == drawn_plan(SPACE, Random(f"5/guided/{trial}")).plan
        search.learn(trial, (), promising=True)


@pytest.mark.long
def test_a_plan_that_lost_faults_is_not_tried_again() -> None:
    search = Guided(5)
    for trial in range(2 * GENERATION):
        plan = search.drawn(trial, SPACE).plan
        assert plan == drawn_plan(SPACE, Random(f"5/guided/{trial}")).plan
        search.learn(trial, (f"reached by {trial}",), promising=False)


def test_a_generation_waits_for_all_results_of_those_before() -> None:
    search = Guided(5)
    for trial in range(GENERATION):
        assert not search.waits_before(trial)
        search.drawn(trial, SPACE)
    for trial in range(GENERATION):
        assert search.waits_before(GENERATION)
        search.learn(trial, ("something",), promising=True)
    assert not search.waits_before(GENERATION)
    with pytest.raises(InternalError, match="not known yet"):
        Guided(5).drawn(GENERATION, SPACE)


class Showing(Interrupted):
    """The reference runtime with a user who presses Ctrl-C; it always shows what its protocol came through."""

    def __init__(self, after: int) -> None:
        super().__init__(after)
        self.shows_coverage = True

    def showing_coverage(self) -> ReferenceSimulated:
        return self


@pytest.mark.nightly
def test_a_guided_campaign_is_the_same_in_two_processes_and_after_a_break(tmp_path: Path) -> None:
    wanted = configuration(trials=2 * GENERATION + 10, seed=11, strategy="guided", controls=0)
    whole = run_campaign(wanted, ReferenceSimulated(), tmp_path / "whole")
    two = run_campaign(wanted, ReferenceSimulated(), tmp_path / "two", jobs=2)
    broken = run_campaign(wanted, Showing(after=GENERATION + 7), tmp_path / "broken")
    assert broken.interrupted and GENERATION < broken.trials < 2 * GENERATION
    with (tmp_path / "broken" / LEARNED).open("ab") as file:
        file.write(b'{"trial":')  # as left by a process that was killed while writing
    resumed = resume_campaign(tmp_path / "broken", ReferenceSimulated())
    for other, record in (("two", two), ("broken", resumed)):
        assert without_times(record) == without_times(whole)
        assert lines(tmp_path / other) == lines(tmp_path / "whole")
        assert kept(tmp_path / other) == kept(tmp_path / "whole")
        assert (tmp_path / other / LEARNED).read_bytes() == (tmp_path / "whole" / LEARNED).read_bytes()
    by_themselves = campaign_plans(configuration(trials=60, seed=11), SYSTEM)
    assert {line["seed"] for line in lines(tmp_path / "whole")}.isdisjoint(
        next(by_themselves).seed for _ in range(60)
    )


def test_a_guided_campaign_has_no_shards_and_is_not_spread(tmp_path: Path) -> None:
    wanted = configuration(trials=4, strategy="guided")
    with pytest.raises(UsageProblem, match="which only one process knows"):
        run_campaign(wanted, SYSTEM, tmp_path / "run", shard=Shard(1, 2))
    asked = ["campaign", "--trials", "2", "--strategy", "guided", "--out", str(tmp_path), "--no-store"]
    assert cli.run([*asked, "--on", "local[1]"]) == 3
    assert list(tmp_path.iterdir()) == []


# --- swarm --------------------------------------------------------------------------------------------------------


def test_swarm_leaves_about_half_of_all_features_out_and_keeps_the_purpose_of_a_profile() -> None:
    profile = profile_named("chains")
    purpose = {name for name, share in profile.scenarios if share >= 800}
    assert purpose
    kinds: Counter[str] = Counter()
    scenarios: Counter[str] = Counter()
    for seed in range(200):
        other = swarmed(profile, Random(seed))
        kinds.update(name for name, _ in other.faults.kinds)
        scenarios.update(name for name, share in other.scenarios if share)
        assert other.checkpoints.modes and other.restarts.strategies and other.faults.points
    assert all(scenarios[name] == 200 for name in purpose)
    others = {name for name, scenario in known_scenarios().items() if scenario.per_mille} - purpose
    shares = dict(profile.scenarios)
    assert all(60 < scenarios[name] < 140 for name in others if shares.get(name, 1))
    assert all(60 < kinds[name] < 140 for name, _ in profile.faults.kinds)


@pytest.mark.parametrize("strategy", ["swarm", "crossed"])
def test_the_plans_of_a_shard_are_those_of_the_whole(strategy: str) -> None:
    wanted = configuration(trials=6, seed=4, strategy=strategy)
    whole = campaign_plans(wanted, SYSTEM)
    plans = [next(whole) for _ in range(6)]
    shard = campaign_plans(wanted, SYSTEM, Shard(2, 2).owns)
    assert [next(shard) for _ in range(3)] == plans[1::2]
    assert len({plan.seed for plan in plans}) == 6


# --- crossed ------------------------------------------------------------------------------------------------------


def test_a_crossed_profile_has_the_jobs_of_one_and_parts_and_scenarios_of_both() -> None:
    profile, other = profile_named("loops"), profile_named("incremental")
    seen: Counter[str] = Counter()
    for seed in range(200):
        mixed = crossed(profile, other, Random(seed))
        assert mixed.job == profile.job and mixed.workload.names == profile.workload.names
        assert mixed.checkpoints.modes == profile.checkpoints.modes
        assert mixed.checkpoints.protocol == profile.checkpoints.protocol
        seen["increments"] += mixed.checkpoints.incremental_per_mille == 1_000
        seen["stops"] += mixed.savepoints == profile.savepoints
        shares = dict(mixed.scenarios)
        seen["a scenario of the other"] += shares["merged_increments"] > 0
        seen["a scenario of its own"] += shares["stops_at_the_end"] > 0
        seen["both"] += shares["merged_increments"] > 0 and shares["stops_at_the_end"] > 0
        assert shares["merged_increments"] in (0, 3 * dict(other.scenarios)["merged_increments"])
    assert all(60 < seen[name] < 140 for name in seen if name != "both"), seen
    assert 25 < seen["both"] < 75


def test_a_crossed_profile_keeps_its_purpose_and_what_it_leaves_out() -> None:
    profile = profile_named("chains")
    for seed in range(40):
        shares = dict(crossed(profile, profile_named("rescale"), Random(seed)).scenarios)
        assert shares["conditions"] == 1_000
        assert shares["forms"] == shares["tiny_inputs"] == 0, "chains says that it has none"


def test_no_profile_is_crossed_with_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    others: Counter[str] = Counter()

    def noted(profile: Profile, other: Profile, random: Random) -> Profile:
        others[other.name] += 1
        return profile

    monkeypatch.setattr(crossing, "crossed", noted)
    for number in range(150):
        Crossed(3).drawn(number, SPACE)
    assert set(others) == set(OF_WORLD["simulated"]) - {SPACE.profile.name}


def test_strategies_with_one_seed_draw_different_plans() -> None:
    seeds = {
        strategy: [new_search(strategy, 3, 0).drawn(number, SPACE).plan.seed for number in range(4)]
        for strategy in STRATEGIES
    }
    assert len(set(map(str, seeds.values()))) == len(STRATEGIES)


def test_a_profile_that_is_none_of_the_default_campaigns_is_crossed_with_no_other() -> None:
    faultless = profile_named("faultless")
    for number in range(12):
        drawn = Crossed(3).drawn(number, PlanSpace(faultless))
        assert not drawn.plan.faults
        assert drawn.space.profile.checkpoints == faultless.checkpoints


def test_a_profile_of_real_time_is_crossed_with_such_profiles_only() -> None:
    space = PlanSpace(profile_named("spark-graphs"))
    ranges = {profile_named(name).checkpoints.interval_ms for name in OF_WORLD["spark"]}
    drawn = [Crossed(3).drawn(number, space).space.profile.checkpoints.interval_ms for number in range(30)]
    assert set(drawn) <= ranges


@pytest.mark.long
def test_crossed_plans_are_valid_without_a_bug(tmp_path: Path) -> None:
    """Twelve of each profile of the default campaigns."""
    plans = [
        Crossed(seed).drawn(number, replace(SPACE, profile=profile_named(name))).plan
        for seed, name in enumerate(OF_WORLD["simulated"])
        for number in range(12)
    ]
    verdicts = Counter(run_trial(plan, SYSTEM, tmp_path).verdict for plan in plans)
    assert verdicts == {Verdict.VALID: len(plans)}


# --- priorities of processes --------------------------------------------------------------------------------------


def test_a_process_with_a_low_priority_is_late_until_another_one_is() -> None:
    delays = {name: Priorities(Random(3), 0).of(name).random() for name in ("first",)}
    priorities = Priorities(Random(3), 0)
    processes = {name: priorities.of(name) for name in ("first", "second", "third")}
    assert processes["first"].random() == pytest.approx(delays["first"], abs=0.06)
    for late in processes.values():
        drawn = [late.random() for _ in range(50)]
        assert max(drawn) - min(drawn) <= 0.05
        assert min(drawn) >= 0 and max(drawn) < 1
    changing = Priorities(Random(3), 1).of("first")
    drawn = [changing.random() for _ in range(9_000)]
    change = next(place for place, value in enumerate(drawn) if value >= 0.95)
    assert max(drawn[:change]) < 0.95 <= min(drawn[change:])


@pytest.mark.nightly
def test_priorities_change_the_schedule_and_nothing_else_and_a_trial_of_them_can_be_repeated(
    tmp_path: Path,
) -> None:
    wanted = configuration(trials=12, seed=4, strategy="pct")
    plans = campaign_plans(wanted, SYSTEM)
    changed = 0
    for _ in range(12):
        plan = next(plans)
        assert plan.network.change_points is not None
        usual = msgspec.structs.replace(
            plan, network=msgspec.structs.replace(plan.network, change_points=None)
        )
        records = [run_trial(each, SYSTEM, tmp_path) for each in (plan, plan, usual)]
        assert records[0].verdict is Verdict.VALID
        assert records[0].trace_digest == records[1].trace_digest
        changed += records[0].trace_digest != records[2].trace_digest
    assert changed >= 10


class InRealTime(FakeSystem):
    """A system that is not simulated."""

    world = "real"


def test_priorities_are_for_simulated_systems() -> None:
    with pytest.raises(UsageProblem, match="runs in real time"):
        campaign_plans(configuration(strategy="pct"), InRealTime())


def test_an_unknown_strategy_is_refused_with_the_nearest_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["campaign", "--strategy", "guide", "--out", str(tmp_path)]) == 3
    assert "did you mean 'guided'" in capsys.readouterr().err
