"""Bugs that were held out are caught by drawn plans of a default profile alone, within few of them (CER-2)."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec
import pytest

from barrier_tck.harness.draw.profiles import profile_named
from barrier_tck.harness.draw.strategies import Circumstances, draw_plan
from barrier_tck.harness.record.verdict import Verdict
from barrier_tck.harness.reference.mutants.mutant_catalogue import MUTANTS
from barrier_tck.harness.reference.simulated.simulated_system import ReferenceSimulated
from barrier_tck.harness.trial.trial_run import run_trial

SEED = 5_100_000
PLANS_MAX = 500
"""Most plans until a bug is caught. Medians over many seeds lie between 2 and 20, for FA-02 near 90."""


@pytest.mark.parametrize("bug", ["SR-01", "SR-02", "SR-03", "SR-04", "SR-05", "FA-01", "FA-02"])
def test_a_bug_that_was_held_out_is_caught_by_drawn_plans(bug: str, tmp_path: Path) -> None:
    assert_caught(bug, "standard", tmp_path)


@pytest.mark.parametrize(
    "bug", ["AL-04", "AL-14", "CO-05", "CO-09", "SI-01", "SI-03", "SV-01", "SV-02", "SV-03", "SV-04"]
)
def test_a_bug_of_savepoints_and_stops_is_caught_by_drawn_plans(bug: str, tmp_path: Path) -> None:
    assert_caught(bug, "savepoints", tmp_path)


def assert_caught(bug: str, profile: str, tmp_path: Path) -> None:
    system = ReferenceSimulated()
    around = Circumstances(system.job, system.capabilities)
    for number in range(PLANS_MAX):
        plan = draw_plan(SEED + number, profile_named(profile), around)
        record = run_trial(msgspec.structs.replace(plan, mutant=bug), system, tmp_path)
        if record.verdict is Verdict.INVALID:
            return
    pytest.fail(f"{bug} survived {PLANS_MAX} drawn plans")


def test_the_race_of_recovery_is_found_by_drawn_schedules_within_seconds(tmp_path: Path) -> None:
    """UR-01 shows in one interleaving of a keyed and a broadcast edge after a restore; its plan draws schedules."""
    mutant, system = MUTANTS["UR-01"], ReferenceSimulated()
    begun = time.process_time()
    for plan in mutant.plans("simulated"):
        if run_trial(plan, system, tmp_path).verdict is Verdict.INVALID:
            break
    else:
        pytest.fail("no schedule showed the race")
    assert time.process_time() - begun < 10


@pytest.mark.parametrize("bug", ["UC-01", "UC-13", "UC-04", "UC-05", "UR-02", "UR-04"])
def test_a_bug_of_records_in_flight_is_caught_by_drawn_plans(bug: str, tmp_path: Path) -> None:
    """UR-01 and UR-03 are not among them: drawn graphs seldom have what they need, so they have plans of their own."""
    system = ReferenceSimulated()
    around = Circumstances(system.job, system.capabilities)
    for number in range(PLANS_MAX):
        plan = draw_plan(SEED + number, profile_named("modes"), around)
        if plan.checkpoints.overtakes:
            record = run_trial(msgspec.structs.replace(plan, mutant=bug), system, tmp_path)
            if record.verdict is Verdict.INVALID:
                return
    pytest.fail(f"{bug} survived {PLANS_MAX} drawn plans")
