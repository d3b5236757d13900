"""A job has finished only when its sinks have committed for the last checkpoint."""

from __future__ import annotations

from dataclasses import replace

import pytest

from barrier_tck.harness.oracle.checkers.commits_before_end import CommitsBeforeEnd
from barrier_tck.harness.record import operations as ops
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.workloads.barrier_jobs import barrier_view
from tests.harness.oracle.oracle_histories import Book, a_context, a_plan

SINK = "sink[0]"
FIRST, LAST = ops.CheckpointCompleted(1, 1), ops.CheckpointCompleted(2, 1)
OF_FIRST, OF_LAST = ops.Committed(SINK, 1, 1), ops.Committed(SINK, 2, 1)
END = ops.JobFinished()
PLAN = a_plan()


def found(book: Book) -> Finding:
    return CommitsBeforeEnd().check(replace(a_context(PLAN, book), job=barrier_view(PLAN)))


@pytest.mark.parametrize(
    ("told", "verdict", "claimed"),
    [
        pytest.param([FIRST, OF_FIRST, LAST, OF_LAST, END], Verdict.VALID, True, id="all is committed"),
        pytest.param(
            [FIRST, LAST, OF_LAST, OF_FIRST, END], Verdict.VALID, True, id="reports overtake each other"
        ),
        pytest.param(
            [FIRST, LAST, OF_FIRST, END, OF_LAST], Verdict.INVALID, True, id="the last commit comes later"
        ),
        pytest.param(
            [FIRST, OF_FIRST, ops.Finished(SINK, 1), LAST, END], Verdict.VALID, True, id="it had finished"
        ),
        pytest.param([FIRST, LAST, END], Verdict.VALID, False, id="sinks that report nothing"),
        pytest.param([FIRST, OF_FIRST, LAST], Verdict.VALID, False, id="the job goes on"),
    ],
)
def test_what_sinks_reported_before_the_end(
    told: list[ops.Operation], verdict: Verdict, claimed: bool
) -> None:
    book = Book().attempt(1)
    for operation in told:
        book = book.tell(operation)
    finding = found(book)
    assert (finding.verdict, bool(finding.clauses)) == (verdict, claimed), finding.summary


@pytest.mark.parametrize(
    "before", [(OF_FIRST,), (OF_LAST,), (OF_FIRST, ops.Finished(SINK, 1))], ids=["older", "same", "finished"]
)
def test_what_sinks_reported_in_an_earlier_attempt_counts_for_nothing(
    before: tuple[ops.Operation, ...],
) -> None:
    book = Book().attempt(1).tell(FIRST)
    for operation in before:
        book = book.tell(operation)
    finding = found(book.attempt(2).tell(LAST).tell(END))
    assert finding.verdict is Verdict.INVALID
    assert SINK in finding.summary
