"""Plans in which key groups, at a change of parallelism, are further than their subtask (``watermarks_apart``)."""

from __future__ import annotations

from pathlib import Path

import pytest

from barrier_tck.harness.draw.profiles import profile_named
from barrier_tck.harness.workloads.kind_catalogue import keeps_by_key
from tests.harness.draw.test_rare_moments import drawn, shown_by

SCENARIO, PROFILE = "watermarks_apart", "event-time"


def test_the_profile_of_event_time_has_it_often() -> None:
    assert dict(profile_named(PROFILE).scenarios)[SCENARIO] >= 200


def test_jobs_whose_barriers_overtake_on_a_channel_that_lags_go_on_with_other_widths() -> None:
    several = at_once = slow = 0
    for plan in drawn(SCENARIO, PROFILE, 20):
        assert plan.checkpoints.overtakes
        stops = [asked.after_checkpoints for asked in plan.savepoints]
        assert stops == sorted(stops) and all(asked.stop for asked in plan.savepoints)
        assert len(plan.rescales) == len(stops)
        several += len(stops) > 1
        at_once += len(set(stops)) < len(stops)
        slow += plan.deployment.slow_vertex is not None
        if plan.network.slow_channel is not None:
            _, receiver = plan.job.channels[plan.network.slow_channel]
            vertex = next(one for one in plan.job.vertices if receiver in one.subtasks)
            assert keeps_by_key(vertex)
    assert several >= 5 and at_once >= 1 and slow >= 4


@pytest.mark.parametrize("bug_id", ["ET-20", "ET-23", "ET-26", "ET-31"])
def test_they_show_what_goes_wrong_with_watermarks_then(bug_id: str, tmp_path: Path) -> None:
    assert shown_by(bug_id, drawn(SCENARIO, PROFILE, 30), tmp_path)
