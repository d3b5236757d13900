"""For how long reports wait until the harness has taken them.

Grain: literal calls at a clock that is set.
"""

from __future__ import annotations

import pytest

from barrier_tck.harness.reference.spark.job_rpc import JobReports
from barrier_tck.harness.reference.spark.reports_timed import ReportsTimed


class Slow(JobReports):
    """Takes its time for each report."""

    def __init__(self) -> None:
        self.now_ms = 100.0
        self.during: list[float] = []
        self.timed = ReportsTimed(self, lambda: self.now_ms)

    def slots_changed(self, slots: int, at_ms: float) -> None:
        self.now_ms += slots
        self.during.append(self.timed.total_ms)
        if slots == 13:
            raise ValueError("no such number")


def test_the_time_that_reports_take_is_added_up_and_that_of_the_present_one_counts() -> None:
    slow = Slow()
    slow.timed.slots_changed(40, 0.0)
    slow.now_ms += 1_000
    assert slow.timed.total_ms == 40, "between two reports nothing waits"
    slow.timed.slots_changed(2, 0.0)
    assert (slow.timed.total_ms, slow.during) == (42, [40, 42])


def test_a_report_that_is_refused_took_its_time_too() -> None:
    slow = Slow()
    with pytest.raises(ValueError, match="no such number"):
        slow.timed.slots_changed(13, 0.0)
    assert slow.timed.total_ms == 13
