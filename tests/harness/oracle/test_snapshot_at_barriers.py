"""A snapshot is taken when the barrier has come from all inputs: what the checker says, and what is noted."""

from __future__ import annotations

import weakref
from types import SimpleNamespace
from typing import Any, cast

import pytest

from barrier_tck.harness.oracle.checkers.snapshot_at_barriers import SnapshotAtBarriers
from barrier_tck.harness.plan.trial_plan import CheckpointPlan
from barrier_tck.harness.record import operations as ops
from barrier_tck.harness.record.verdict import Verdict
from barrier_tck.harness.reference.observed_barriers import Barriers
from barrier_tck.reference_impl.ids import AttemptNumber, CheckpointId
from barrier_tck.reference_impl.protocol.messages import (
    CheckpointBarrier,
    EndOfChannel,
    NotifyCheckpointAborted,
    NotifyCheckpointComplete,
)
from tests.harness.oracle.oracle_histories import Book, a_context, a_plan

ABORTED = NotifyCheckpointAborted(CheckpointId(3), "expired")
NEWER_ABORTED = NotifyCheckpointAborted(CheckpointId(4), "expired")
COMPLETE = NotifyCheckpointComplete(CheckpointId(4))
EARLY = ops.SnapshotTooEarly("totals[0]", 1, 3, "source[1]->totals[0]")
LEFT_OUT = ops.SnapshotLeftOut("totals[0]", 1, 3)
ENDED = "source[0]->totals[0]"
EARLY_BY_AN_END = ops.SnapshotTooEarly("totals[0]", 1, 3, "source[1]->totals[0]", ENDED)
LEFT_OUT_BY_AN_END = ops.SnapshotLeftOut("totals[0]", 1, 3, "source[1]->totals[0]")


@pytest.mark.parametrize(
    ("mode", "note", "clause"),
    [
        ("exactly_once", EARLY, "BAR-3"),
        ("at_least_once", EARLY, "ALO-1"),
        ("exactly_once", LEFT_OUT, "BAR-3"),
        ("unaligned", LEFT_OUT, "BAR-3"),
        ("at_least_once", EARLY_BY_AN_END, "BAR-6"),
        ("exactly_once", LEFT_OUT_BY_AN_END, "BAR-6"),
    ],
)
def test_each_note_is_invalid(mode: str, note: ops.Operation, clause: str) -> None:
    plan = a_plan(checkpoints=CheckpointPlan(mode=cast("Any", mode)))
    finding = SnapshotAtBarriers().check(a_context(plan, Book().attempt(1).tell(note)))
    assert (finding.verdict, finding.clauses[0]) == (Verdict.INVALID, clause)
    assert "totals[0]" in finding.summary


def test_where_no_snapshot_was_acknowledged_nothing_is_claimed() -> None:
    finding = SnapshotAtBarriers().check(a_context(a_plan(), Book().attempt(1)))
    assert (finding.verdict, finding.clauses) == (Verdict.VALID, ())


class Driver:
    """A driver that takes its snapshot at chosen moments."""

    def __init__(self, barriers: Barriers, takes: dict[int, int]) -> None:
        self.barriers, self.takes, self.steps = barriers, takes, 0

    def on_control(self, channel: int, element: object) -> None:
        self.steps += 1
        if self.steps in self.takes:
            self.barriers.takes(self.takes[self.steps])

    def on_message(self, message: object) -> None: ...


def noted(
    steps: list[tuple[int, object] | object], takes: dict[int, int], in_line: bool = True
) -> list[object]:
    """Return what is noted of a subtask with two inputs: ``takes`` says at which element which snapshot is taken."""
    found: list[object] = []
    deployment = SimpleNamespace(subtask="totals[0]", attempt=AttemptNumber(1))
    names = ("source[0]->totals[0]", "source[1]->totals[0]")
    barriers = Barriers(cast("Any", deployment), names, in_line, found.append)
    driver = cast("Any", Driver(barriers, takes))
    barriers.watch(driver)
    for step in steps:
        if isinstance(step, tuple):
            driver.on_control(*step)
        else:
            driver.on_message(step)
    return found


def barrier(channel: int, checkpoint: int) -> tuple[int, CheckpointBarrier]:
    return channel, CheckpointBarrier(CheckpointId(checkpoint), 0)


def end(channel: int) -> tuple[int, EndOfChannel]:
    return channel, EndOfChannel()


@pytest.mark.parametrize(
    ("steps", "takes", "expected"),
    [
        pytest.param([barrier(0, 3), barrier(1, 3)], {2: 3}, [], id="at the last barrier"),
        pytest.param([barrier(0, 3), barrier(1, 3)], {1: 3}, [EARLY], id="before the last barrier"),
        pytest.param([barrier(0, 3), barrier(1, 3)], {}, [LEFT_OUT], id="never"),
        pytest.param(
            [barrier(0, 3), end(0), barrier(1, 3)],
            {1: 3},
            [EARLY],
            id="before the last barrier, and before an end",
        ),
        pytest.param([barrier(0, 3), end(1)], {2: 3}, [], id="an end counts as a barrier"),
        pytest.param([end(1), barrier(0, 3)], {2: 3}, [], id="an earlier end, too"),
        pytest.param([end(1), barrier(0, 3)], {}, [LEFT_OUT_BY_AN_END], id="never, after an end"),
        pytest.param([barrier(0, 3), end(1)], {}, [LEFT_OUT_BY_AN_END], id="never, at an end"),
        pytest.param(
            [barrier(0, 2), barrier(0, 3), end(1)], {3: 2}, [LEFT_OUT_BY_AN_END], id="two are due at an end"
        ),
        pytest.param(
            [barrier(0, 3), end(0), barrier(1, 3)], {2: 3}, [EARLY_BY_AN_END], id="an end that counts twice"
        ),
        pytest.param(
            [barrier(0, 3), end(0), barrier(1, 3)],
            {},
            [LEFT_OUT],
            id="never, and an end has nothing to do with it",
        ),
        pytest.param([barrier(0, 2), barrier(0, 3), end(1)], {3: 3}, [], id="the newer of two at an end"),
        pytest.param([ABORTED, barrier(0, 3), barrier(1, 3)], {}, [], id="of an aborted one none is due"),
        pytest.param([COMPLETE, barrier(0, 3), barrier(1, 3)], {}, [], id="a newer one is complete"),
        pytest.param([NEWER_ABORTED, barrier(0, 3), barrier(1, 3)], {}, [LEFT_OUT], id="a newer one is over"),
        pytest.param(
            [barrier(0, 4), barrier(1, 4), barrier(0, 3), barrier(1, 3)], {2: 4}, [], id="it is older"
        ),
        pytest.param([barrier(0, 4), end(0), barrier(1, 3)], {}, [], id="a channel skipped it, and ended"),
    ],
)
def test_what_is_noted(
    steps: list[tuple[int, object] | object], takes: dict[int, int], expected: list[object]
) -> None:
    assert noted(steps, takes) == expected


def test_where_barriers_overtake_an_early_snapshot_is_right() -> None:
    assert noted([barrier(0, 3), barrier(1, 3)], {1: 3}, in_line=False) == []
    assert noted([barrier(0, 3), barrier(1, 3)], {}, in_line=False) == [LEFT_OUT]


def test_a_watched_driver_is_not_held_and_what_others_have_put_there_is_called() -> None:
    deployment = SimpleNamespace(subtask="totals[0]", attempt=AttemptNumber(1))
    barriers = Barriers(cast("Any", deployment), ("source[0]->totals[0]",), True, lambda _: None)
    driver = cast("Any", Driver(barriers, {1: 3}))
    seen: list[object] = []
    driver.on_message = seen.append
    barriers.watch(driver)
    driver.on_message("a message")
    driver.on_control(*barrier(0, 3))
    assert (seen, driver.steps) == (["a message"], 1)
    reference = weakref.ref(driver)
    del driver
    assert reference() is None, "it held itself"


def test_one_end_does_not_stand_for_two_barriers_that_have_not_come() -> None:
    found: list[ops.Operation] = []
    deployment = SimpleNamespace(subtask="totals[0]", attempt=AttemptNumber(1))
    names = tuple(f"source[{number}]->totals[0]" for number in range(3))
    barriers = Barriers(cast("Any", deployment), names, True, found.append)
    barriers.closed[0] = None
    barriers.takes(3)
    assert found == [ops.SnapshotTooEarly("totals[0]", 1, 3, ", ".join(names[1:]))]
