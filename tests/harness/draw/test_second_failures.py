"""Scenarios of two faults that belong together: both are drawn, and both strike.

Grain: drawn plans, run in the simulator.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from barrier_tck.faults.vocabulary import After, ProtocolPoint
from barrier_tck.harness.draw.catalogue import known_scenarios
from barrier_tck.harness.draw.constraints import Constraints
from barrier_tck.harness.draw.profiles import profile_named
from barrier_tck.harness.draw.strategies import draw_plans
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.record.verdict import Verdict
from barrier_tck.harness.reference.simulated.simulated_system import ReferenceSimulated
from barrier_tck.harness.trial.trial_run import run_trial

PLANS = 24
POINTS = {
    "torn_commits": {ProtocolPoint.COMMIT_STEP, ProtocolPoint.PUBLICATION_STEP},
    "undeployed": {
        ProtocolPoint.COORDINATOR_STARTING,
        ProtocolPoint.ATTEMPT_FAILED,
        ProtocolPoint.ATTEMPT_STARTED,
    },
    "at_once": {
        ProtocolPoint.BARRIER_RECEIVED,
        ProtocolPoint.SNAPSHOT_TAKEN,
        ProtocolPoint.SNAPSHOT_STORED,
        ProtocolPoint.COMPLETION_NOTIFIED,
        ProtocolPoint.COMMIT_STEP,
    },
    "finalisers": {ProtocolPoint.CLOSING},
}
"""Scenario -> points at which it lets faults strike."""


def drawn(scenario: str) -> Sequence[TrialPlan]:
    system, known = ReferenceSimulated(), known_scenarios()
    others = {name: 0 for name, other in known.items() if other.excludes(known[scenario])}
    profile = profile_named("standard").with_shares(**{**others, scenario: 1_000})
    plans = draw_plans(3, PLANS, profile, Constraints(system.job, system.capabilities))
    return [plan for plan in plans if len(plan.faults) == 2]


@pytest.mark.parametrize(
    "scenario",
    [
        pytest.param(name, marks=pytest.mark.long if name == "undeployed" else pytest.mark.nightly)
        for name in POINTS
    ],
)
def test_both_failures_strike_wherever_they_are_aimed_and_the_job_survives(
    scenario: str, tmp_path: Path
) -> None:
    system, plans = ReferenceSimulated(), drawn(scenario)
    triggers = [line.trigger for plan in plans for line in plan.faults]
    assert POINTS[scenario] <= {trigger.point for trigger in triggers if isinstance(trigger, After)}
    if scenario == "at_once":
        moments = [{line.trigger for line in plan.faults} for plan in plans]
        assert [len(both) for both in moments] == [1] * len(plans), "both faults strike at one moment"
    for plan in plans:
        record = run_trial(plan, system, tmp_path)
        assert [fault.outcome for fault in record.faults] == ["fired", "fired"]
        first, second = (fault.fired_at_ms or 0.0 for fault in record.faults)
        assert first <= second, (plan.faults, "the second one is to find what the first one left")
        assert record.verdict is Verdict.VALID, record.findings
