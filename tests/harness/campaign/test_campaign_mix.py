"""The mix of a campaign: its weights are kept exactly, however many plans are drawn; grain: tables and drawn plans."""

from __future__ import annotations

import json
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from barrier_tck.faults.catalogue import KINDS
from barrier_tck.faults.fault import Ends
from barrier_tck.faults.targets import TargetKind
from barrier_tck.faults.vocabulary import After, ProtocolPoint
from barrier_tck.harness.campaign.budget import Budget
from barrier_tck.harness.campaign.configuration import configuration_from
from barrier_tck.harness.campaign.mix import FaultsSection, MixSection, draw_mix
from barrier_tck.harness.campaign.planned_trials import campaign_plans
from barrier_tck.harness.campaign.runner import run_campaign
from barrier_tck.harness.plan.reading import plan_from
from barrier_tck.harness.plan.trial_plan import TrialPlan, to_json
from barrier_tck.harness.reference.simulated.simulated_system import ReferenceSimulated
from barrier_tck.harness.support.errors import UsageProblem
from barrier_tck.harness.support.strict_input import read_json
from barrier_tck.harness.system.system_under_test import Capability
from tests.harness.fake_system import TABLE, FakeSystem

MIX = {
    "workload": {"keyed-totals": 3, "passthrough": 1},
    "mode": {"exactly_once": 3, "at_least_once": 1},
    "state_backend": {"heap": 20, "rocksdb": 10},
    "local_recovery": {"on": 1, "off": 1},
}
KILLS = {"per_trial": [1, 2], "kinds": {"executor": 1, "worker": 1}}


@pytest.mark.long
def test_damage_to_state_is_drawn_for_subtasks_that_keep_state() -> None:
    storage = {kind for kind in KINDS if KINDS[kind].fault.needs is TargetKind.STORAGE}
    plans = plans_of(
        40, local_recovery=True, faults={"per_trial": [1, 3], "kinds": dict.fromkeys(sorted(storage), 1)}
    )
    hits = [
        scheduled.fault.copies_hit
        for plan in plans
        for scheduled in plan.faults
        if scheduled.fault.needs is TargetKind.STORAGE
    ]
    assert len(hits) > 40
    assert {hit.subtask.partition("[")[0] for hit in hits if hit is not None} == {"totals"}


def test_damage_that_is_chosen_brings_along_what_leads_to_a_restore() -> None:
    faults = {"per_trial": [1, 1], "kinds": {"damage-local-copy": 1}}
    for plan in plans_of(8, local_recovery=True, faults=faults):
        kill, damage = plan.faults
        assert kill.fault.ends is Ends.SUBTASKS
        assert damage.trigger == After(ProtocolPoint.ATTEMPT_FAILED)
    for plan in plans_of(4, local_recovery=False, faults=faults):
        assert not plan.faults
        assert "nothing to hit: damage-local-copy" in plan.note, "without local recovery there are no copies"


def plans_of(count: int, **values: Any) -> list[TrialPlan]:
    configuration = configuration_from({"seed": 4} | values, "test")
    return list(islice(campaign_plans(configuration, ReferenceSimulated()), count))


def test_every_round_keeps_to_the_weights_exactly() -> None:
    mixes = list(islice(draw_mix(MixSection(**MIX), None, seed=1), 12))
    assert Counter(mix.workload for mix in mixes) == {"keyed-totals": 9, "passthrough": 3}
    assert Counter(mix.mode for mix in mixes) == {"exactly_once": 9, "at_least_once": 3}
    assert Counter(mix.state_backend for mix in mixes) == {"heap": 8, "rocksdb": 4}


def test_packages_keep_to_their_weights_and_take_their_kinds_in_turn() -> None:
    faults = FaultsSection(per_trial=(2, 2), packages={"kill": 3, "pause": 1})
    chosen = Counter(
        name for mix in islice(draw_mix(MixSection(), faults, 7), 24) for name in mix.kinds or ()
    )
    assert chosen == {"executor": 12, "worker": 12, "coordinator": 12, "pause-worker": 6, "pause-executor": 6}


def test_a_trial_has_as_many_faults_as_its_mix_chose() -> None:
    plans = plans_of(8, faults={"per_trial": [0, 3], "kinds": {"executor": 1}})
    assert Counter(len(plan.faults) for plan in plans) == {0: 2, 1: 2, 2: 2, 3: 2}


def test_the_same_seed_draws_the_same_plans_and_another_others() -> None:
    first = plans_of(12, mix=MIX, faults=KILLS)
    assert plans_of(12, mix=MIX, faults=KILLS) == first
    assert plans_of(12, mix=MIX, faults=KILLS, seed=5) != first


def test_the_first_plans_of_a_seed_do_not_depend_on_how_many_follow() -> None:
    assert plans_of(12, mix=MIX, faults=KILLS)[:5] == plans_of(5, mix=MIX, faults=KILLS)


def test_a_drawn_plan_has_what_its_mix_chose_and_says_so() -> None:
    plans = plans_of(12, mix=MIX, faults=KILLS)
    assert Counter(plan.checkpoints.mode for plan in plans) == {"exactly_once": 9, "at_least_once": 3}
    assert Counter(plan.state_backend for plan in plans) == {"heap": 8, "rocksdb": 4}
    assert Counter(plan.local_recovery for plan in plans) == {True: 6, False: 6}
    for plan in plans:
        assert plan.workload.name in plan.note and plan.checkpoints.mode in plan.note
        tags = {type(fault.fault).__name__ for fault in plan.faults}
        assert tags <= {"KillExecutor", "KillWorker"}
        assert 1 <= len(plan.faults) <= 2


def test_a_drawn_plan_is_complete_json_that_reads_back_as_itself() -> None:
    for plan in plans_of(6, mix=MIX, faults=KILLS):
        assert plan_from(json.loads(to_json(plan)), "test") == plan


def test_listed_trials_come_first_and_drawn_ones_fill_the_budget() -> None:
    values = {"trials": 5, "trial": [{"repeat": 2, "note": "listed"}], "faults": KILLS}
    configuration = configuration_from({"seed": 0} | values, "test")
    plans = list(islice(campaign_plans(configuration, FakeSystem()), 5))
    assert [plan.note == "listed" for plan in plans] == [True, True, False, False, False]
    assert [configuration.is_drawn(number) for number in range(4)] == [False, False, True, True]
    assert configuration.budget_of_trials() == Budget(trials=5)


class OnlyExecutors(FakeSystem):
    """A system in which only executors can be hit."""

    capabilities = frozenset({Capability.EXECUTOR_KILL})


def test_a_package_that_the_system_cannot_suffer_is_refused_before_anything_runs() -> None:
    configuration = configuration_from({"faults": {"packages": {"kill": 1, "host-loss": 1}}}, "test")
    with pytest.raises(UsageProblem, match=r"faults\.packages\.host-loss: fake cannot suffer it"):
        campaign_plans(configuration, OnlyExecutors())


def test_only_kinds_of_a_package_that_the_system_can_suffer_are_chosen() -> None:
    faults = FaultsSection(per_trial=(1, 1), packages={"kill": 1})
    mixes = islice(draw_mix(MixSection(), faults, 3, exposed=("executor", "worker")), 6)
    assert Counter(mix.kinds for mix in mixes) == {("executor",): 3, ("worker",): 3}
    assert set(KINDS) > {"executor", "worker"}


def test_a_mixed_campaign_keeps_its_plans_as_they_ran(tmp_path: Path) -> None:
    configuration = configuration_from({"seed": 0, "trials": 4, "mix": MIX, "faults": KILLS}, "test")
    run_campaign(configuration, FakeSystem(), tmp_path / "run", TABLE)
    expected = list(islice(campaign_plans(configuration, FakeSystem()), 4))
    saved = [
        plan_from(read_json(path), path.name) for path in sorted(tmp_path.glob("run/trials/*/plan.json"))
    ]
    assert saved == expected
