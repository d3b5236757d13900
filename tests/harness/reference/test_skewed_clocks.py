"""The clocks of hosts differ as a plan says, each process shows by how much, and nothing else changes."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from barrier_tck.harness.draw.constraints import Constraints
from barrier_tck.harness.draw.profiles import profile_named
from barrier_tck.harness.draw.strategies import draw_plans
from barrier_tck.harness.oracle.checkers.faults_fired import FaultsFired
from barrier_tck.harness.plan.trial_plan import DeploymentPlan, TrialPlan, WorkloadPlan
from barrier_tck.harness.record.history import History
from barrier_tck.harness.record.operations import ClockCompared
from barrier_tck.harness.record.verdict import Verdict
from barrier_tck.harness.reference.notes_directory import NotesDirectory
from barrier_tck.harness.reference.simulated.simulated_system import ReferenceSimulated
from barrier_tck.harness.reference.skewed_clocks import ahead_ms_of
from barrier_tck.harness.system.system_under_test import Capability
from barrier_tck.harness.trial.trial_run import execute
from tests.harness.oracle.oracle_histories import Book, a_context, a_plan

PLAN = TrialPlan(
    workload=WorkloadPlan("keyed-totals", batches=10, batch_records=3, keys=9, records_per_second=300)
)


def run(plan: TrialPlan, directory: Path) -> History:
    result = execute(plan, ReferenceSimulated(), directory)
    assert result.record.verdict is Verdict.VALID, result.record.findings
    assert result.history is not None
    return result.history


def test_each_process_shows_the_clock_of_its_host(tmp_path: Path) -> None:
    skewed = msgspec.structs.replace(PLAN, deployment=DeploymentPlan(executors=2, clock_skew_ms=(900, -40)))
    compared = [line.operation for line in run(skewed, tmp_path).of(ClockCompared)]
    assert {each.host: each.ahead_ms for each in compared} == {"host-0": 900, "host-1": -40}
    assert {each.subtask for each in compared} == {
        "source[0]",
        "source[1]",
        "totals[0]",
        "totals[1]",
        "sink[0]",
    }
    assert not list(run(PLAN, tmp_path).of(ClockCompared))


def test_neighbouring_hosts_have_different_clocks_whatever_their_names() -> None:
    assert [ahead_ms_of(f"127.0.0.{number}", (1, 2, 3)) for number in (2, 3, 4)] == [3, 1, 2]
    assert ahead_ms_of("executor-7-memory", (1, 2, 3)) == 2
    assert ahead_ms_of("here", (5,)) == 5


def test_clocks_that_did_not_differ_although_they_should_prove_nothing() -> None:
    plan = a_plan(deployment=DeploymentPlan(clock_skew_ms=(5,)))
    alike = FaultsFired().check(a_context(plan, Book()))
    assert alike.verdict is Verdict.UNKNOWN and "no process had another clock" in alike.summary
    book = Book().tell(ClockCompared("totals[0]", 1, "host-0", 5), "totals[0]")
    assert FaultsFired().check(a_context(plan, book)).verdict is Verdict.VALID


def test_comparisons_pass_from_one_process_to_another(tmp_path: Path) -> None:
    note = ClockCompared("totals[0]", 2, "127.0.0.2", -7)
    NotesDirectory(str(tmp_path))(note)
    assert NotesDirectory(str(tmp_path)).take_all() == (note,)


@pytest.mark.parametrize("able", [True, False])
def test_clocks_differ_in_drawn_plans_if_the_system_can_do_it(able: bool) -> None:
    system = ReferenceSimulated()
    capabilities = system.capabilities - (frozenset() if able else {Capability.CLOCK_SKEW})
    plans = draw_plans(1, 120, profile_named("standard"), Constraints(system.job, capabilities))
    assert any(plan.deployment.clock_skew_ms for plan in plans) is able
