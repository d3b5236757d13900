"""Plans in which savepoints are asked for at moments that chance next to never draws."""

from __future__ import annotations

from pathlib import Path

import pytest

from barrier_tck.faults.vocabulary import After, ProtocolPoint
from barrier_tck.harness.draw.drawn_job import DrawnJob
from tests.harness.draw.test_rare_moments import SYSTEM, drawn, shown_by


def test_savepoints_are_asked_for_around_the_end_of_the_input() -> None:
    for plan in drawn("last_savepoints", "savepoints", 20):
        ends_ms = DrawnJob(plan, SYSTEM.job(plan)).reads_ms
        assert ends_ms is not None and len(plan.savepoints) >= 6 and not plan.faults
        assert not any(asked.stop for asked in plan.savepoints)
        assert all(-1 <= asked.delay_ms - ends_ms <= 20 for asked in plan.savepoints)
        assert plan.checkpoints.async_ms_max >= 30


def test_something_dies_as_a_savepoint_completes_whose_keys_hardly_change() -> None:
    died, again = 0, 0
    for plan in drawn("restored_savepoints", "incremental", 20):
        (asked,) = plan.savepoints
        assert plan.checkpoints.incremental and plan.checkpoints.max_concurrent == 1
        numbers = [
            one.trigger.nth
            for one in plan.faults
            if isinstance(one.trigger, After)
            and one.trigger.point is ProtocolPoint.CHECKPOINT_COMPLETED
            and one.fault.ends is not None
        ]
        died += asked.after_checkpoints + 1 in numbers
        again += len(numbers) > 1
    assert died >= 14 and again >= 4


@pytest.mark.parametrize(
    ("bug_id", "scenario", "profile"),
    [("CO-13", "last_savepoints", "savepoints"), ("SV-23", "restored_savepoints", "incremental")],
)
def test_they_show_what_goes_wrong_then(bug_id: str, scenario: str, profile: str, tmp_path: Path) -> None:
    assert shown_by(bug_id, drawn(scenario, profile, 12), tmp_path)
