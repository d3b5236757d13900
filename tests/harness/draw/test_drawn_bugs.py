"""Planted bugs are caught by drawn plans of a profile alone, within few of them (CER-2)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from barrier_tck.harness.draw.constraints import Constraints
from barrier_tck.harness.draw.profiles import profile_named
from barrier_tck.harness.draw.strategies import draw_plan
from barrier_tck.harness.record.verdict import Verdict
from barrier_tck.harness.reference.bugs.catalogue import planted_bugs
from barrier_tck.harness.reference.simulated.simulated_system import ReferenceSimulated
from barrier_tck.harness.trial.trial_run import run_trial

SEEDS = range(7_000_000, 42_000_000, 7_000_000)
"""From each of these on, plans are drawn until the bug is caught."""
WITHIN = 200
"""Most plans until a bug is caught, in the median over the seeds."""
PAIRS = sorted(
    (bug.file.drawn.profile, bug.id) for bug in planted_bugs().values() if bug.file.drawn is not None
)
"""Profiles, and the bugs that their plans must show."""
SOON = 4
"""A bug of the default profile whose median is at most this is hunted in long sessions, and others at night."""


def _median(bug: str) -> int:
    drawn = planted_bugs()[bug].file.drawn
    assert drawn is not None
    return drawn.median


def plans_until_caught(bug: str, profile: str, directory: Path, within: int = WITHIN) -> Iterator[int]:
    """Yield for each seed after how many plans the bug was caught; one more than ``within`` if it was not."""
    system = ReferenceSimulated()
    constraints = Constraints(system.job, system.capabilities)
    for seed in SEEDS:
        for number in range(within):
            plan = draw_plan(seed + number, profile_named(profile), constraints)
            if profile == "modes" and not plan.checkpoints.overtakes:
                continue  # bugs of records in flight cannot show in it
            record = run_trial(msgspec.structs.replace(plan, mutant=bug), system, directory)
            if record.verdict is Verdict.INVALID:
                yield number + 1
                break
        else:
            yield within + 1


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("profile", "bug"),
    [
        pytest.param(
            *(profile, bug),
            marks=pytest.mark.long if profile == "standard" and _median(bug) <= SOON else pytest.mark.nightly,
        )
        for profile, bug in PAIRS
    ],
)
def test_drawn_plans_catch_a_planted_bug_soon_in_the_median(profile: str, bug: str, tmp_path: Path) -> None:
    enough = len(SEEDS) // 2 + 1
    found: list[int] = []
    for plans in plans_until_caught(bug, profile, tmp_path):
        found.append(plans)
        soon = sum(plans <= WITHIN for plans in found)
        if enough in (soon, len(found) - soon):
            break
    assert soon == enough, f"{bug} was caught after {found} plans of {profile}"


def test_what_was_measured_keeps_the_promise() -> None:
    assert len(PAIRS) > 60
    for bug in planted_bugs().values():
        drawn = bug.file.drawn
        assert drawn is None or 1 <= drawn.median <= min(WITHIN, drawn.most), bug.id


@pytest.mark.nightly
def test_the_race_of_recovery_is_found_by_drawn_plans_within_seconds(tmp_path: Path) -> None:
    """UR-01 shows in one interleaving of a keyed and a broadcast edge after a restore."""
    begun = time.process_time()
    found = next(plans_until_caught("UR-01", "modes", tmp_path))
    assert found <= WITHIN
    assert time.process_time() - begun < 10
