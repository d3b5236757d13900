"""Bugs that were held out are caught by drawn plans of a default profile alone, within few of them (CER-2)."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from barrier_tck.harness.draw.profiles import profile_named
from barrier_tck.harness.draw.strategies import Circumstances, draw_plan
from barrier_tck.harness.record.verdict import Verdict
from barrier_tck.harness.reference.simulated.simulated_system import ReferenceSimulated
from barrier_tck.harness.trial.trial_run import run_trial

SEED = 5_100_000
PLANS_MAX = 100
"""Most plans until a bug is caught. Medians over many seeds lie between 2 and 20."""


@pytest.mark.parametrize("bug", ["SR-01", "SR-02", "SR-03", "SR-04", "SR-05"])
def test_a_bug_that_was_held_out_is_caught_by_drawn_plans(bug: str, tmp_path: Path) -> None:
    system = ReferenceSimulated()
    around = Circumstances(system.job, system.capabilities)
    for number in range(PLANS_MAX):
        plan = draw_plan(SEED + number, profile_named("standard"), around)
        record = run_trial(msgspec.structs.replace(plan, mutant=bug), system, tmp_path)
        if record.verdict is Verdict.INVALID:
            return
    pytest.fail(f"{bug} survived {PLANS_MAX} drawn plans")
