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


def test_a_barrier_that_never_overtakes_in_a_source_is_late(tmp_path: Path) -> None:
    assert shown_by("UN-04", drawn("full_outputs", "modes", 12), tmp_path)


def test_barriers_go_ahead_of_records_in_most_of_these_plans(tmp_path: Path) -> None:
    ahead = 0
    for number, plan in enumerate(drawn("full_outputs", "modes", 12)):
        assert plan.checkpoints.mode in OVERTAKING
        place = tmp_path / str(number)
        place.mkdir()
        record = execute(plan, SYSTEM, place).record
        assert record.verdict is Verdict.VALID, (plan, record.findings)
        ahead += sum(finding.counts.get("ahead", 0) > 0 for finding in record.findings)
    assert ahead >= 7


def test_it_is_drawn_only_where_barriers_overtake_in_virtual_time() -> None:
    able = SYSTEM.capabilities
    assert SCENARIO.possible(profile_named("modes"), able)
    assert not SCENARIO.possible(profile_named("modes"), able - {Capability.DETERMINISTIC_REPLAY})
    assert not SCENARIO.possible(profile_named("graphs"), able)
