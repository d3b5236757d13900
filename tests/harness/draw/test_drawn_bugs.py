"""Planted bugs are caught by drawn plans of a profile alone, within few of them (CER-2)."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from barrier_tck.harness.draw.profiles import profile_named
from barrier_tck.harness.draw.strategies import Circumstances, draw_plan
from barrier_tck.harness.record.verdict import Verdict
from barrier_tck.harness.reference.mutants.mutant_catalogue import MUTANTS
from barrier_tck.harness.reference.simulated.simulated_system import ReferenceSimulated
from barrier_tck.harness.trial.trial_run import run_trial
from tests.test_maps import table
from tests.test_tidy import ROOT

SEEDS = range(7_000_000, 42_000_000, 7_000_000)
"""From each of these on, plans are drawn until the bug is caught."""
WITHIN = 200
"""Most plans until a bug is caught, in the median over the seeds."""
DRAWN = {
    "standard": "CO-02 CO-11 SO-04 SO-05 SI-05 SI-06 SI-07 SI-17 SI-08 "
    "SR-01 SR-02 SR-03 SR-04 SR-05 DU-01 FA-01 FA-02 TF-01 AB-01 AD-01 AD-02 CA-01 CA-02 ID-01 ID-02 RK-02",
    "savepoints": "AL-05",
    "modes": "UC-01 UC-13 UC-04 UC-14 UC-05 UR-01 UR-02 UR-03 UR-04",
    "ends": "FI-01 FI-02 FI-03 FI-04 FI-05",
    "loops": "LP-01",
    "chandy-lamport": "CL-01 CL-02 CL-03 CL-04 CL-05 CL-06 CL-07 CW-01",
    "large-state": "EV-01 EV-02",
    "graphs": "TI-04 TI-05 TI-06 TI-07 TI-08",
    "rescale": "EL-09 RS-13 RS-14",
    "incremental": "IN-01 IN-02 IN-03 IN-05 IN-06 IN-07 IN-09",
}
"""Profile -> the bugs that its plans must show."""
PAIRS = [(profile, bug) for profile, bugs in DRAWN.items() for bug in bugs.split()]


def plans_until_caught(bug: str, profile: str, directory: Path) -> Iterator[int]:
    """Yield for each seed how many plans were drawn until the bug was caught; one more than WITHIN if it was not."""
    system = ReferenceSimulated()
    around = Circumstances(system.job, system.capabilities)
    for seed in SEEDS:
        for number in range(WITHIN):
            plan = draw_plan(seed + number, profile_named(profile), around)
            if profile == "modes" and not plan.checkpoints.overtakes:
                continue  # bugs of records in flight cannot show in it
            record = run_trial(msgspec.structs.replace(plan, mutant=bug), system, directory)
            if record.verdict is Verdict.INVALID:
                yield number + 1
                break
        else:
            yield WITHIN + 1


@pytest.mark.long
@pytest.mark.parametrize(("profile", "bug"), PAIRS)
def test_drawn_plans_catch_a_planted_bug_soon_in_the_median(profile: str, bug: str, tmp_path: Path) -> None:
    enough = len(SEEDS) // 2 + 1
    found: list[int] = []
    for plans in plans_until_caught(bug, profile, tmp_path):
        found.append(plans)
        soon = sum(plans <= WITHIN for plans in found)
        if enough in (soon, len(found) - soon):
            break
    assert soon == enough, f"{bug} was caught after {found} plans of {profile}"


def test_the_page_lists_the_bugs_that_drawn_plans_must_catch() -> None:
    page = (ROOT / "docs" / "mutants.md").read_text()
    listed = table(page, "| drawn from | bug | plans in the median | most |")
    assert [(row[0].strip("`"), row[1]) for row in listed] == PAIRS
    for _, _, median, most in listed:
        assert 1 <= int(median) <= WITHIN
        assert int(median) <= int(most)
    assert re.search(rf"\b{WITHIN} plans\b", page)
    assert {bug for _, bug in PAIRS} <= set(MUTANTS)


def test_the_race_of_recovery_is_found_by_drawn_plans_within_seconds(tmp_path: Path) -> None:
    """UR-01 shows in one interleaving of a keyed and a broadcast edge after a restore."""
    begun = time.process_time()
    found = next(plans_until_caught("UR-01", "modes", tmp_path))
    assert found <= WITHIN
    assert time.process_time() - begun < 10
