"""A clause about checkpoints counts only where an opened one could have been wrong: each with a trial in which it
could, and with one that lacks only that."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from barrier_tck.harness.oracle.catalogue import standard_checkers
from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.oracle.evidence import cut_preconditions as cut
from barrier_tck.harness.oracle.evidence.preconditions import SHOWN
from barrier_tck.harness.oracle.precondition import Precondition
from barrier_tck.harness.plan.job_graph import SINK, EdgePlan, JobPlan, Spread, VertexPlan
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.record import operations as ops
from barrier_tck.harness.record.history import InFlight, SnapshotView, StateView
from barrier_tck.harness.record.operations import Operation
from barrier_tck.harness.workloads.lineage import source
from tests.harness.oracle.oracle_histories import Book, a_context, a_plan

ROW, OTHER = {"id": 1}, {"id": 2}
FORWARD = EdgePlan("read", "step", Spread.REBALANCE)
ON = EdgePlan("step", "out", Spread.REBALANCE)


def job(*edges: EdgePlan, wide: int = 2) -> JobPlan:
    vertices = (source("read", 1), VertexPlan("step", "union", wide), VertexPlan("out", SINK, 1))
    return JobPlan(vertices=vertices, edges=edges)


STRAIGHT = job(FORWARD, ON)
MERGED = job(FORWARD, ON)
ONE_CHANNEL = job(FORWARD, ON, wide=1)
LOOP = job(FORWARD, EdgePlan("step", "step", Spread.REBALANCE, feedback=True), ON)
BROADCAST = job(EdgePlan("read", "step", Spread.BROADCAST), ON)
ONE_RECEIVER = job(EdgePlan("read", "step", Spread.BROADCAST), ON, wide=1)


def view(
    checkpoint: int,
    *flying: tuple[str, str, dict[str, int]],
    attempt: int = 1,
    at: int = 0,
    held: dict[str, list[Any]] | None = None,
    finished: tuple[str, ...] = (),
) -> SnapshotView:
    moving = tuple(InFlight(sender, receiver, 0, (row,)) for sender, receiver, row in flying)
    state = (StateView("step", "step[0]", "kept", held),) if held is not None else ()
    return SnapshotView(checkpoint, attempt, {"read": at}, state, in_flight=moving, finished=finished)


def trial(
    *views: SnapshotView, of: JobPlan = STRAIGHT, book: Book | None = None, **given: Any
) -> TrialContext:
    plan: TrialPlan = msgspec.structs.replace(a_plan(), job=of)
    return a_context(plan, book, views=views, **given)


AHEAD = ("read[0]", "step[0]", ROW)
BEHIND = ("step[0]", "out[0]", ROW)
ROUND = ("step[0]", "step[1]", ROW)
RESTORED = Book().attempt(1).checkpoint(1).attempt_failed(1).attempt(2, 1).checkpoint(2, 2)


@pytest.mark.parametrize(
    ("wanted", "with_it", "without_it"),
    [
        (cut.SEVERAL_BARRIERS, trial(view(1, at=3), of=MERGED), trial(view(1, at=3), of=ONE_CHANNEL)),
        (cut.SEVERAL_BARRIERS, trial(view(1, at=3), of=MERGED), trial(view(1, at=0), of=MERGED)),
        (cut.STATE_HELD, trial(view(1, held={"k": [1]})), trial(view(1, held={}))),
        (
            cut.STATE_CHANGED,
            trial(view(1, held={"k": [1]}), view(2, held={"k": [2]})),
            trial(view(1, held={"k": [1]}), view(2, held={"k": [1]})),
        ),
        (
            cut.STATE_CHANGED,
            trial(view(1, held={}), view(2, held={"k": [2]})),
            trial(view(1, held={"k": [1]}), view(2, held={"k": [2]}, attempt=2)),
        ),
        (cut.OVERTAKEN, trial(view(1, AHEAD)), trial(view(1))),
        (cut.OVERTAKEN, trial(view(1, AHEAD), of=LOOP), trial(view(1, ROUND), of=LOOP)),
        (cut.IN_A_LOOP, trial(view(1, ROUND), of=LOOP), trial(view(1, AHEAD, BEHIND), of=LOOP)),
        (cut.RECORDED, trial(view(1, AHEAD)), trial(view(1))),
        (cut.RECORDED, trial(view(1, at=3), view(2, at=4)), trial(view(1, at=4), view(2, at=4))),
        (cut.RECORDED, trial(view(1, at=3), view(2, at=4)), trial(view(1, at=0), view(2, at=4))),
        (
            cut.STILL_REPLAYED,
            trial(view(1, AHEAD), view(2, AHEAD, attempt=2), book=RESTORED),
            trial(view(1, AHEAD), view(2, attempt=2), book=RESTORED),
        ),
        (
            cut.STILL_REPLAYED,
            trial(view(1, AHEAD), view(2, AHEAD, attempt=2), book=RESTORED),
            trial(view(1, AHEAD), view(2, BEHIND, attempt=2), book=RESTORED),
        ),
        (
            cut.STILL_REPLAYED,
            trial(view(1, AHEAD), view(2, AHEAD, attempt=2), book=RESTORED),
            trial(view(1, AHEAD), view(2, ("read[0]", "step[0]", OTHER), attempt=2), book=RESTORED),
        ),
        (
            cut.STILL_REPLAYED,
            trial(view(1, AHEAD), view(2, AHEAD, attempt=2), book=RESTORED),
            trial(view(1, AHEAD), view(2, AHEAD), book=Book().attempt(1).checkpoint(1).checkpoint(2)),
        ),
        (
            cut.OVERTAKEN_BESIDE_A_BROADCAST,
            trial(view(1, BEHIND), of=BROADCAST),
            trial(view(1), of=BROADCAST),
        ),
        (
            cut.OVERTAKEN_BESIDE_A_BROADCAST,
            trial(view(1, BEHIND), of=BROADCAST),
            trial(view(1, BEHIND), of=ONE_RECEIVER),
        ),
        (SHOWN, trial(output=[ROW]), trial(output=[])),
    ],
)
def test_a_trial_counts_if_and_only_if_an_opened_checkpoint_could_have_been_wrong(
    wanted: Precondition, with_it: TrialContext, without_it: TrialContext
) -> None:
    assert (wanted.holds(with_it), wanted.holds(without_it)) == (True, False)


def test_what_a_finished_subtask_leaves_out_is_no_change_of_state() -> None:
    held = view(1, held={"k": [1]})
    assert cut.STATE_CHANGED.holds(trial(held, view(2)))
    assert not cut.STATE_CHANGED.holds(trial(held, view(2, finished=("step[0]",))))


# --- alignment ------------------------------------------------------------------------------------------------


def aligned(held: int | None, end: Callable[[Book], Book], restored: int | None = None) -> TrialContext:
    book = Book().attempt(1).triggered(1)
    told: Operation = ops.Acknowledged(1, 1, "step[0]", held_bytes=held)
    book = end(book.tell(told)).attempt_failed(1)
    return trial(book=book.attempt(2, restored), of=job(EdgePlan("read", "step", Spread.REBALANCE), ON))


def complete(book: Book) -> Book:
    return book.completed(1)


def aborted(book: Book) -> Book:
    return book.aborted(1)


@pytest.mark.parametrize(
    ("held", "end", "restored", "in_checkpoints", "in_output"),
    [
        (8, complete, 1, True, True),
        (8, complete, None, True, False),
        (8, aborted, None, False, False),
        (0, complete, 1, False, False),
        (None, complete, 1, True, True),
    ],
    ids=["restored", "not restored", "failed", "nothing came", "not reported"],
)
def test_alignment_counts_if_something_came_on_a_channel_that_was_held_back(
    held: int | None,
    end: Callable[[Book], Book],
    restored: int | None,
    in_checkpoints: bool,
    in_output: bool,
) -> None:
    context = aligned(held, end, restored)
    assert cut.HELD_BACK.holds(context) is in_checkpoints
    assert cut.HELD_BACK_AND_RESTORED.holds(context) is in_output


def test_where_no_subtask_reads_several_channels_nothing_can_be_held_back() -> None:
    book = Book().attempt(1).checkpoint(1)
    assert not cut.HELD_BACK.holds(trial(book=book, of=job(FORWARD, ON, wide=1)))


# --- who asks -------------------------------------------------------------------------------------------------

ASKED = {
    "STA-1": {cut.STATE_HELD},
    "SNP-1": {cut.STATE_CHANGED},
    "UNA-1": {cut.OVERTAKEN},
    "UNA-4": {cut.STILL_REPLAYED},
    "UNA-5": {cut.OVERTAKEN_BESIDE_A_BROADCAST},
    "CHL-5": {cut.IN_A_LOOP},
    "ALN-1": {cut.HELD_BACK, cut.HELD_BACK_AND_RESTORED},
}


@pytest.mark.parametrize("clause", ASKED)
def test_every_checker_that_reads_checkpoints_asks_for_it(clause: str) -> None:
    own_count = {"timers"}
    asked = {
        each.covers[clause]
        for each in standard_checkers()
        if clause in each.covers and each.name not in own_count
    }
    assert asked == ASKED[clause]
