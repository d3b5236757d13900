"""What an adapter reports is looked at before it is believed; grain: one outcome, and trials of a fake system."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.record import operations as ops
from barrier_tck.harness.record.history import End, History, Recorded, SnapshotView, StateView
from barrier_tck.harness.record.reasons import Reason
from barrier_tck.harness.record.records import AttemptRecord, CheckpointRecord, SnapshotRecord, checkpoints_of
from barrier_tck.harness.record.verdict import Verdict
from barrier_tck.harness.support.errors import OutcomeRefused
from barrier_tck.harness.system.system_under_test import NemesisHooks, TrialOutcome
from barrier_tck.harness.trial.outcome_problems import refuse_what_cannot_be
from barrier_tck.harness.trial.trial_run import run_trial
from tests.harness.fake_system import FakeSystem


def history(*operations: tuple[float, ops.Operation]) -> History:
    lines = tuple(Recorded(i, time_ms, "coordinator", one) for i, (time_ms, one) in enumerate(operations))
    return History(lines, End.FINISHED, Reason.FINISHED, "", ())


def showing(entries: dict[Any, Any]) -> History:
    """Return a history with a checkpoint whose state has these entries."""
    view = SnapshotView(1, 1, {}, (StateView("totals", "totals[0]", "totals", entries),))
    return msgspec.structs.replace(history(), checkpoints=(view,))


COURSE = history(
    (1.0, ops.AttemptStarted(1)),
    (2.0, ops.AttemptRunning(1)),
    (3.0, ops.CheckpointTriggered(4, 1)),
    (5.0, ops.CheckpointCompleted(4)),
    (6.0, ops.CheckpointTriggered(5, 1)),
    (7.0, ops.CheckpointAborted(5, 1, Reason.EXPIRED)),
    (8.0, ops.AttemptEnded(1, Reason.EXPIRED)),
    (9.0, ops.AttemptStarted(2, restored_checkpoint=4)),
    (10.0, ops.CheckpointCompleted(6)),
)
ATTEMPT = AttemptRecord(1, 1.0, 2.0, 8.0, "failed")
SECOND = AttemptRecord(2, 9.0, None, 10.0, "finished", restored_checkpoint=4)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"duration_ms": -1.0}, "duration_ms is -1, but a time, duration or count is never negative"),
        ({"measurements": {"recovery_ms": -5}}, "measurements['recovery_ms'] is -5, but"),
        ({"measurements": {"recovery_ms": float("nan")}}, "measurements['recovery_ms'] is not a number"),
        ({"measurements": {"recovery_ms": "5"}}, "measurements['recovery_ms'] is '5', which is no number"),
        ({"refused_connections": {"crowded_out": -2}}, "refused_connections['crowded_out'] is -2"),
        ({"attempts": (AttemptRecord(1, 1.0, -2.0, 8.0, "failed"),)}, "attempts[0].running_at_ms is -2"),
        ({"attempts": (AttemptRecord(1, 4.0, None, 3.0, "failed"),)}, "attempts[0].ended_at_ms is 3, before"),
        ({"checkpoints": (CheckpointRecord(1, 1, "completed", 3.0, 1.0),)}, "ended_at_ms is 1, before"),
        (
            {"snapshots": (SnapshotRecord(1, 1, "a[0]", 1.0, 1.0, 1, 1.0, 1.0, -7),)},
            "snapshots[0].bytes_written is -7",
        ),
        (
            {"history": history((-3.0, ops.JobFinished()))},
            "history.operations[0].time_ms is -3",
        ),
        (
            {"history": history((3.0, ops.Acknowledged(1, 1, "a[0]", prepared=-1)))},
            "history.operations[0] (Acknowledged).prepared is -1",
        ),
        (
            {"history": showing({"k0": [1, 7]})},
            """history.checkpoints[0].state[0].entries has the key 'k0', which is not the JSON text of a list""",
        ),
        (
            {"history": showing({'["k0"]': 7})},
            """history.checkpoints[0].state[0].entries holds 7 for the key '["k0"]', and must hold a list""",
        ),
        (
            {"history": showing({'["k0"]': {"count": 7}})},
            "and must hold a list",
        ),
        (
            {"history": showing({("k0",): [1]})},
            "history.checkpoints[0].state[0].entries has the key ('k0',), which is not the JSON text of a list",
        ),
        (
            {"history": showing({'{"k": 0}': [1]})},
            "which is not the JSON text of a list",
        ),
    ],
)
def test_a_number_that_cannot_be_is_refused_with_its_field(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(OutcomeRefused) as refused:
        refuse_what_cannot_be(dataclasses.replace(TrialOutcome(history()), **changes))
    assert sentence in str(refused.value)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"attempts": (ATTEMPT,)},
            "TrialOutcome.attempts has the numbers 1, the history's AttemptStarted have 1, 2; leave attempts empty",
        ),
        (
            {"attempts": (ATTEMPT, AttemptRecord(2, 9.0, None, 10.0, "finished", restored_checkpoint=5))},
            "TrialOutcome.attempts says of 2 that restored_checkpoint is 5, the history's operations say 4",
        ),
        (
            {"checkpoints": (*checkpoints_of(COURSE)[:1], CheckpointRecord(5, 1, "completed", 6.0, 7.0))},
            "TrialOutcome.checkpoints has the numbers 4, 5, the history's CheckpointCompleted and Checkp",
        ),
        (
            {
                "checkpoints": (
                    CheckpointRecord(4, 1, "aborted", 3.0, 5.0),
                    *checkpoints_of(COURSE)[1:],
                )
            },
            "TrialOutcome.checkpoints says of 4 that status is 'aborted', the history's operations say 'completed'",
        ),
    ],
)
def test_what_is_given_twice_must_agree(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(OutcomeRefused) as refused:
        refuse_what_cannot_be(dataclasses.replace(TrialOutcome(COURSE), **changes))
    assert sentence in str(refused.value)


def test_what_agrees_is_taken_also_with_times_of_its_own() -> None:
    late = tuple(
        CheckpointRecord(one.checkpoint, one.attempt, one.status, one.triggered_at_ms, one.ended_at_ms + 1)
        for one in checkpoints_of(COURSE)
    )
    skewed = history((3.0, ops.ClockCompared("a[0]", 1, "host", ahead_ms=-4)))
    refuse_what_cannot_be(TrialOutcome(COURSE, attempts=(ATTEMPT, SECOND), checkpoints=late))
    refuse_what_cannot_be(TrialOutcome(skewed, measurements={"recovery_ms": 0.0}))


def test_checkpoints_are_made_of_the_history() -> None:
    assert checkpoints_of(COURSE) == (
        CheckpointRecord(4, 1, "completed", 3.0, 5.0),
        CheckpointRecord(5, 1, "aborted", 6.0, 7.0, "expired"),
        CheckpointRecord(6, 2, "completed", 10.0, 10.0),
    )


class Reporting(FakeSystem):
    """Leaves an outcome with one change."""

    changes: dict[str, Any]

    def run(self, plan: TrialPlan, nemesis: NemesisHooks, directory: Path) -> TrialOutcome:
        return dataclasses.replace(super().run(plan, nemesis, directory), **self.changes)


def test_a_trial_whose_adapter_reports_what_cannot_be_is_unknown_and_says_so(tmp_path: Path) -> None:
    system = Reporting()
    system.changes = {"measurements": {"recovery_ms": -5}}
    record = run_trial(TrialPlan(), system, tmp_path)
    assert record.verdict is Verdict.UNKNOWN
    assert "measurements['recovery_ms'] is -5" in record.findings[0].summary


def test_a_record_has_the_checkpoints_of_the_history(tmp_path: Path) -> None:
    system = Reporting()
    system.changes = {"history": COURSE}
    assert run_trial(TrialPlan(), system, tmp_path).checkpoints == checkpoints_of(COURSE)


def test_what_is_no_outcome_is_refused_in_words() -> None:
    with pytest.raises(OutcomeRefused) as refused:
        refuse_what_cannot_be(cast("Any", None))
    assert str(refused.value) == "run() returned None, and must return a TrialOutcome"
    with pytest.raises(OutcomeRefused) as refused:
        refuse_what_cannot_be(dataclasses.replace(TrialOutcome(COURSE), history=cast("Any", [])))
    assert str(refused.value) == "the history of the outcome is [], and must be a History"
