"""Crashes between the steps of the whole example find planted bugs of event time, and not with a plan made for them."""

from __future__ import annotations

from pathlib import Path

import pytest

from barrier_tck.conformance import test_whole_example as whole
from barrier_tck.conformance.meta_tests.test_planted_bugs import Planted
from barrier_tck.conformance.trials import ClausesBroken, Trials, assert_valid
from barrier_tck.harness.plan.trial_plan import CheckpointingMode
from barrier_tck.harness.system.system_names import open_system


@pytest.mark.long
@pytest.mark.parametrize(
    ("bug", "mode"),
    [
        ("ET-12", "exactly_once"),
        ("ET-13", "exactly_once"),
        ("ET-35", "unaligned"),
        ("ET-36", "unaligned"),
        ("ET-37", "unaligned"),
    ],
)
def test_a_bug_that_only_a_restore_shows_is_found(bug: str, mode: CheckpointingMode, tmp_path: Path) -> None:
    trials = Trials(Planted(open_system("reference-simulated"), bug), tmp_path)
    assert_valid(trials.run(whole.undisturbed_example(mode)))
    with pytest.raises(ClausesBroken):
        whole.test_the_example_is_right_if_a_process_crashes_between_any_two_steps(
            trials, mode, whole.FIRST["running"]
        )
