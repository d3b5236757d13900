"""The project's campaign files: they fit their system, and use what they claim to use; grain: text and plans."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from pathlib import Path

import msgspec
import pytest

from barrier_tck.faults.catalogue import PACKAGES
from barrier_tck.faults.fault import tag_of
from barrier_tck.faults.kinds.kill_executor import KillExecutor
from barrier_tck.faults.vocabulary import After
from barrier_tck.harness.campaign.configuration import CampaignConfiguration, read_configuration
from barrier_tck.harness.campaign.planned_trials import campaign_plans
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.system.system_names import open_system
from barrier_tck.harness.trial.plan_check import check_plan
from tests.test_tidy import ROOT

FILES = sorted((ROOT / "campaigns").glob("*.toml"))


def seeded(file: Path, drawn: int, seed: int = 3) -> CampaignConfiguration:
    """Return a campaign of the project with a seed, which its file does not fix: all that it lists, or some trials."""
    configuration = read_configuration(file)
    return msgspec.structs.replace(
        configuration, seed=seed, budget=None, trials=configuration.listed or drawn
    )


def plans_of(path: str, mode: str | None = None) -> list[TrialPlan]:
    """Return the plans of a campaign file, or only those in one mode."""
    configuration = seeded(ROOT / path, 50)
    system = open_system(configuration.system.name)
    plans = islice(campaign_plans(configuration, system), configuration.trials)
    return [plan for plan in plans if mode in (None, plan.checkpoints.mode)]


@pytest.mark.long
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_plan_of_a_campaign_file_can_be_run_on_its_system(file: Path) -> None:
    configuration = seeded(file, 10)
    system = open_system(configuration.system.name)
    for plan in islice(campaign_plans(configuration, system), configuration.trials):
        check_plan(plan, system)


def test_the_main_job_kills_at_each_of_six_points_with_both_backends() -> None:
    kills = Counter(
        (plan.faults[-1].trigger.point.value, plan.state_backend, plan.local_recovery)
        for plan in plans_of("campaigns/flights.toml", "exactly_once")
        if isinstance(plan.faults[-1].fault, KillExecutor) and isinstance(plan.faults[-1].trigger, After)
    )
    points = [point for point, backend, local in kills if (backend, local) == ("heap", False)]
    assert len(points) == 6
    assert kills == Counter(
        {(point, *how): 1 for point in points for how in (("heap", False), ("rocksdb", True))}
    )


def test_the_main_job_runs_in_at_least_once_mode_with_both_backends() -> None:
    plans = plans_of("campaigns/flights.toml", "at_least_once")
    assert {plan.state_backend for plan in plans} == {"heap", "rocksdb"}


def test_the_main_job_uses_every_package_but_damaged_copies() -> None:
    used = {tag_of(fault.fault) for plan in plans_of("campaigns/flights.toml") for fault in plan.faults}
    unused = [name for name, kinds in PACKAGES.items() if not used & {tag_of(kind.fault) for kind in kinds}]
    assert unused == ["capacity", "packets", "storage", "object-store", "writes", "memory"], (
        "checkpoints are in files, the job is no query, and hosts are no containers"
    )


@pytest.mark.long
def test_the_mixed_campaign_draws_every_package_every_mode_and_every_backend() -> None:
    configuration = read_configuration(ROOT / "campaigns" / "ci.toml")
    assert configuration.mix is not None and configuration.faults is not None
    plans = plans_of("campaigns/ci.toml")
    assert {plan.checkpoints.mode for plan in plans} == {"exactly_once", "at_least_once"}
    assert {plan.state_backend for plan in plans} == {"heap", "rocksdb"}
    assert {plan.local_recovery for plan in plans} == {True, False}
    used = {tag_of(fault.fault) for plan in plans for fault in plan.faults}
    assert [
        name for name, kinds in PACKAGES.items() if not used & {tag_of(kind.fault) for kind in kinds}
    ] == ["capacity", "storage", "object-store", "writes", "memory"]
