"""Drawn plans in which reports of an attempt come when the next one runs."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from barrier_tck.harness.draw.constraints import Constraints
from barrier_tck.harness.draw.strategies import draw_plan
from barrier_tck.harness.record.verdict import Verdict
from barrier_tck.harness.reference.simulated.simulated_system import ReferenceSimulated
from barrier_tck.harness.trial.trial_run import execute
from barrier_tck.reference_impl.protocol import coordinator
from barrier_tck.reference_impl.protocol.coordinator import CoordinatorMachine
from barrier_tck.reference_impl.protocol.messages import InputConsumed, SubtaskRunning
from tests.harness.draw.test_drawn_stops import only

PLANS = 16


@pytest.mark.long
def test_reports_of_an_attempt_that_is_over_come_amid_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handled = CoordinatorMachine.handle
    late: Counter[type] = Counter()

    def noted(machine: CoordinatorMachine, event: Any, now_ms: float) -> Any:
        if isinstance(event, (InputConsumed, SubtaskRunning)) and event.attempt < machine.attempt:
            late[type(event)] += 1
        return handled(machine, event, now_ms)

    monkeypatch.setattr(CoordinatorMachine, "handle", noted)
    assert set(_verdicts(tmp_path)) == {Verdict.VALID}
    assert late[InputConsumed] >= 4 and late[SubtaskRunning] >= 1


@pytest.mark.long
def test_a_coordinator_that_takes_such_a_report_for_one_of_its_attempt_is_invalid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fenced = tuple(kind for kind in coordinator.FENCED if kind is not InputConsumed)
    monkeypatch.setattr(coordinator, "FENCED", fenced)
    assert Verdict.INVALID in _verdicts(tmp_path)


def _verdicts(directory: Path) -> list[Verdict]:
    system = ReferenceSimulated()
    constraints, profile = Constraints(system.job, system.capabilities), only("late_reports", "graphs")
    verdicts = []
    for number in range(PLANS):
        into = directory / str(number)
        into.mkdir()
        verdicts.append(execute(draw_plan(900 + number, profile, constraints), system, into).record.verdict)
    return verdicts
