"""At level chaos a failure names first the promise of the backend that was broken; grain: trials in the simulator.

Each planted bug is of stores that have no threads of their own, which simulated trials always ask for.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from barrier_tck.harness.certify.backend import wire
from barrier_tck.harness.certify.backend.candidate.trials import close_systems, judge_trial
from barrier_tck.harness.certify.backend.chaos import SIMULATED
from barrier_tck.harness.certify.engine.levels import DEFAULT_SEED, seed_of
from barrier_tck.harness.draw.profiles import profile_named
from barrier_tck.harness.draw.strategies import draw_plans
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.reference.mutants import bugs_in_calls
from barrier_tck.reference_impl.state.heap import HeapStateBackend

TRIALS = 8


@pytest.fixture(scope="module")
def plans() -> tuple[TrialPlan, ...]:
    """The first plans of a certificate."""
    return tuple(draw_plans(seed_of(DEFAULT_SEED, SIMULATED), TRIALS, profile_named("heavy")))


def judged(backend: type[HeapStateBackend], plans: tuple[TrialPlan, ...], directory: Path) -> wire.Judged:
    """Return what the first trial says that is not valid, or the last trial."""
    try:
        for number, plan in enumerate(plans):
            place = directory / str(number)
            found = judge_trial(
                wire.TrialRequest("reference-simulated", msgspec.json.encode(plan), str(place)), backend
            )
            if found.verdict != "valid":
                break
        return found
    finally:
        close_systems()


@pytest.mark.parametrize(
    ("backend", "clause", "told"),
    [
        (
            bugs_in_calls.MergesUnderASnapshot,
            "SNP-1",
            "restored as written after the snapshot had been taken",
        ),
        (bugs_in_calls.DropsWritesDuringASnapshot, "BCK-1", "is not what was written"),
        (bugs_in_calls.LosesTheEndOfTheFile, "STA-3", "STA-3"),
        (bugs_in_calls.ForgetsAGroupWhenRestored, "BCK-2", "restored otherwise than the store held them"),
    ],
)
def test_a_failure_at_level_chaos_names_first_the_promise_that_was_broken(
    backend: type[HeapStateBackend], clause: str, told: str, plans: tuple[TrialPlan, ...], tmp_path: Path
) -> None:
    found = judged(backend, plans, tmp_path)
    assert (found.verdict, found.broken) == ("invalid", clause)
    assert told in found.problems[0]
    assert len(found.problems) >= 1


def test_nothing_is_said_of_a_right_backend(plans: tuple[TrialPlan, ...], tmp_path: Path) -> None:
    found = judged(HeapStateBackend, plans, tmp_path)
    assert (found.verdict, found.broken, found.problems) == ("valid", "", ())
