"""Comparing two trials of one plan: what may differ between two systems, and what may not. Grain: whole trials."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from barrier_tck.conformance.plans import kill_worker, varied, with_faults
from barrier_tck.faults.vocabulary import After, ProtocolPoint
from barrier_tck.harness.campaign.world_comparison import Comparison, compare, compared
from barrier_tck.harness.cli.main import run
from barrier_tck.harness.plan.trial_plan import CheckpointPlan, FilledPlan, TrialPlan, WorkloadPlan, to_json
from barrier_tck.harness.record.history import End, History
from barrier_tck.harness.record.records import TrialResult
from barrier_tck.harness.record.verdict import Verdict
from barrier_tck.harness.reference.simulated.simulated_system import ReferenceSimulated
from barrier_tck.harness.system.system_under_test import NemesisHooks, TrialOutcome
from barrier_tck.harness.trial.trial_run import execute

KILLED = with_faults(kill_worker("totals[0]", After(ProtocolPoint.CHECKPOINT_COMPLETED, nth=2)))
DURING_ALIGNMENT = with_faults(kill_worker("totals[1]", After(ProtocolPoint.ALIGNMENT_STARTED, nth=2)))


class AnotherSchedule(ReferenceSimulated):
    """The simulator with other latencies than the plan says."""

    def run(self, plan: FilledPlan, nemesis: NemesisHooks, directory: Path) -> TrialOutcome:
        network = msgspec.structs.replace(plan.network, latency_ms_max=plan.network.latency_ms_max + 7)
        return super().run(msgspec.structs.replace(plan, network=network), nemesis, directory)


class Planted(ReferenceSimulated):
    """The simulator with a planted bug."""

    def run(self, plan: FilledPlan, nemesis: NemesisHooks, directory: Path) -> TrialOutcome:
        return super().run(msgspec.structs.replace(plan, mutant="SO-02"), nemesis, directory)


@pytest.mark.parametrize("plan", [KILLED, DURING_ALIGNMENT])
def test_two_schedules_of_one_plan_have_no_difference(plan: TrialPlan) -> None:
    found = compared(plan, ReferenceSimulated(), AnotherSchedule(), "plan.json")
    assert found.verdict is Verdict.VALID, found.differences
    assert found.rows > 0
    assert found.faults == 1


def test_checkpoints_at_the_same_positions_are_compared(tmp_path: Path) -> None:
    result = trial(KILLED, tmp_path)
    found = compare(result, result)
    assert found.verdict is Verdict.VALID
    assert found.checkpoints == len(result.history.checkpoints if result.history else ()) > 1


def test_a_bug_in_one_of_them_is_a_difference() -> None:
    found = compared(KILLED, ReferenceSimulated(), Planted(), "plan.json")
    assert found.verdict is Verdict.INVALID
    assert {difference.what for difference in found.differences} >= {"verdict", "output"}


def _without_a_row(history: History) -> History:
    return msgspec.structs.replace(history, output=(history.output or ())[1:])


def _with_a_row_twice(history: History) -> History:
    return msgspec.structs.replace(history, output=(*(history.output or ()), *(history.output or ())[:1]))


def _with_a_key_less(history: History) -> History:
    views = list(history.checkpoints)
    index = next(number for number, view in enumerate(views) if any(part.entries for part in view.state))
    state = tuple(
        msgspec.structs.replace(part, entries=dict(list(part.entries.items())[1:]))
        for part in views[index].state
    )
    views[index] = msgspec.structs.replace(views[index], state=state)
    return msgspec.structs.replace(history, checkpoints=tuple(views))


@pytest.mark.parametrize(
    ("change", "what"),
    [(_without_a_row, "output"), (_with_a_row_twice, "output"), (_with_a_key_less, "checkpoint")],
)
def test_what_only_one_of_them_has_is_named(
    change: Callable[[History], History], what: str, tmp_path: Path
) -> None:
    result = trial(KILLED, tmp_path)
    assert result.history is not None
    found = compare(result, replace(result, history=change(result.history)))
    assert [difference.what for difference in found.differences] == [what]


def test_a_fault_that_struck_in_one_of_them_only_is_named(tmp_path: Path) -> None:
    result = trial(KILLED, tmp_path)
    missed = tuple(msgspec.structs.replace(fault, outcome="not_fired") for fault in result.record.faults)
    other = replace(result, record=msgspec.structs.replace(result.record, faults=missed))
    (difference,) = compare(result, other).differences
    assert difference.what == "fault"
    assert "fired in reference-simulated, not_fired in reference-simulated" in difference.sentence


def test_in_at_least_once_mode_a_record_may_come_twice_in_one_of_them_only(tmp_path: Path) -> None:
    plan = varied(KILLED, checkpoints=CheckpointPlan(mode="at_least_once", interval_ms=20))
    result = trial(plan, tmp_path)
    assert result.history is not None
    twice = compare(result, replace(result, history=_with_a_row_twice(result.history)))
    assert not twice.differences
    less = compare(result, replace(result, history=_once_less(result.history)))
    assert [difference.what for difference in less.differences] == ["output"]


def _once_less(history: History) -> History:
    """Return the history without a record, however often it came."""
    rows = history.output or ()
    return msgspec.structs.replace(history, output=tuple(row for row in rows if row["id"] != rows[0]["id"]))


def test_a_job_that_gave_up_in_one_of_them_as_it_may_is_noted(tmp_path: Path) -> None:
    result = trial(KILLED, tmp_path)
    assert result.history is not None
    failed = msgspec.structs.replace(result.history, end=End.FAILED, detail="no restart is left")
    found = compare(result, replace(result, history=failed))
    assert found.verdict is Verdict.VALID
    assert found.notes == ("the job gave up in reference-simulated, as its plan allows: no restart is left",)
    stuck = compare(result, replace(result, history=msgspec.structs.replace(failed, end=End.STUCK)))
    assert [difference.what for difference in stuck.differences] == ["end"]


def test_a_trial_that_could_not_be_run_shows_nothing(tmp_path: Path) -> None:
    result = trial(KILLED, tmp_path)
    lost = msgspec.structs.replace(
        result.record, verdict=Verdict.UNKNOWN, findings=(unknown(result, "the machine is on fire"),)
    )
    found: Comparison = compare(result, TrialResult(lost, None))
    assert found.verdict is Verdict.UNKNOWN
    assert found.unknown == ("reference-simulated: the machine is on fire",)


def unknown(result: TrialResult, summary: str) -> object:
    return msgspec.structs.replace(result.record.findings[0], verdict=Verdict.UNKNOWN, summary=summary)


def test_the_command_says_what_differs_and_exits_with_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text(to_json(KILLED))
    same = "reference-simulated,reference-simulated"
    assert run(["compare", str(plan), "--systems", same]) == 0
    assert f"{plan}: no difference in" in " ".join(capsys.readouterr().out.split())
    other = f"reference-simulated,{__name__}:Planted"
    assert run(["compare", str(plan), "--systems", other, "--json"]) == 1
    printed = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert printed["verdict"] == "invalid"
    assert printed["compared"][0]["differences"]
    assert run(["compare", str(plan), "--systems", "reference-simulated"]) == 3
    assert "a comparison has two sides" in " ".join(capsys.readouterr().err.split())


def trial(plan: TrialPlan, directory: Path) -> TrialResult:
    result = execute(plan, ReferenceSimulated(), directory)
    assert result.record.verdict is Verdict.VALID, result.record.findings
    return result


def test_a_small_input_is_compared_too() -> None:
    plan = varied(workload=WorkloadPlan(batches=1, batch_records=1))
    assert compared(plan, ReferenceSimulated(), AnotherSchedule(), "plan.json").verdict is Verdict.VALID
