"""Plans of the scenario ``full_outputs``: barriers meet full output buffers of sources, and go ahead of them."""

from __future__ import annotations

from pathlib import Path

from barrier_tck.harness.draw.profiles import profile_named
from barrier_tck.harness.draw.scenarios.full_outputs import SCENARIO
from barrier_tck.harness.plan.trial_plan import OVERTAKING
from barrier_tck.harness.record.verdict import Verdict
from barrier_tck.harness.system.system_under_test import Capability
from barrier_tck.harness.trial.trial_run import execute
from tests.harness.draw.test_rare_moments import SYSTEM, drawn, shown_by

_MUCH = 4
"""Batches in one output buffer; a short channel has room for one or two."""


def test_a_barrier_that_never_overtakes_in_a_source_is_late(tmp_path: Path) -> None:
    assert shown_by("UN-04", drawn("full_outputs", "modes", 12), tmp_path)


def test_much_waits_in_the_sources_of_most_of_these_plans_when_a_barrier_goes_ahead(tmp_path: Path) -> None:
    full = 0
    for number, plan in enumerate(drawn("full_outputs", "modes", 12)):
        assert plan.checkpoints.mode in OVERTAKING
        sources = {subtask for vertex in plan.job.sources for subtask in vertex.subtasks}
        place = tmp_path / str(number)
        place.mkdir()
        trial = execute(plan, SYSTEM, place)
        assert trial.record.verdict is Verdict.VALID, (plan, trial.record.findings)
        assert trial.history is not None
        waiting = (
            channel.at_sender
            for view in trial.history.checkpoints
            for channel in view.in_flight
            if channel.sender in sources
        )
        full += max(waiting, default=0) >= _MUCH
    assert full >= 7


def test_it_is_drawn_only_where_barriers_overtake_in_virtual_time() -> None:
    able = SYSTEM.capabilities
    assert SCENARIO.possible(profile_named("modes"), able)
    assert not SCENARIO.possible(profile_named("modes"), able - {Capability.DETERMINISTIC_REPLAY})
    assert not SCENARIO.possible(profile_named("graphs"), able)
