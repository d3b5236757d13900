"""Jobs that are started again from a savepoint, although newer checkpoints are complete."""

from __future__ import annotations

import pytest

from barrier_tck.harness.oracle.checkers.checkpoint_life_cycle import CheckpointLifeCycle
from barrier_tck.harness.oracle.checkers.started_from_savepoint import StartedFrom
from barrier_tck.harness.oracle.evidence.recoveries import fell_back
from barrier_tck.harness.record import operations as ops
from barrier_tck.harness.record.verdict import Finding, Verdict
from tests.harness.oracle.oracle_histories import Book, a_context, a_plan

PLACE = "savepoints/one"


def started_again(newer: int, restored: int | None) -> Book:
    """Return a history with a savepoint as checkpoint 1, ``newer`` more, and a start from the savepoint."""
    book = Book().attempt(1)
    book.tell(ops.CheckpointTriggered(1, 1, savepoint=PLACE)).acknowledged(1).completed(1)
    for checkpoint in range(2, 2 + newer):
        book.checkpoint(checkpoint)
    book.tell(ops.StartedFromSavepoint(1, PLACE))
    return book.attempt(2, restored)


def judged(book: Book) -> Finding:
    return StartedFrom().check(a_context(a_plan(), book))


@pytest.mark.parametrize("newer", [0, 2])
def test_a_job_that_goes_on_from_the_savepoint_is_right_and_shows_something_if_newer_ones_were_complete(
    newer: int,
) -> None:
    book = started_again(newer, restored=1)
    finding = judged(book)
    assert (finding.verdict, finding.counts["starts"]) == (Verdict.VALID, 1)
    assert finding.clauses == (("COO-5",) if newer else ())
    context = a_context(a_plan(), book)
    assert CheckpointLifeCycle().check(context).verdict is Verdict.VALID
    assert (fell_back(context) is not None) == bool(newer)


def test_a_job_goes_on_from_what_it_has_taken_since() -> None:
    book = started_again(2, restored=1)
    book.tell(ops.CheckpointTriggered(4, 2)).acknowledged(4, 2).completed(4, 2).attempt(3, 4)
    assert judged(book).verdict is Verdict.VALID


@pytest.mark.parametrize(
    ("restored", "words"), [(3, "which was complete before"), (None, "from the beginning")]
)
def test_a_job_that_goes_on_from_elsewhere_is_invalid(restored: int | None, words: str) -> None:
    finding = judged(started_again(2, restored))
    assert (finding.verdict, finding.counts["violations"]) == (Verdict.INVALID, 1)
    assert words in finding.summary


def test_a_job_that_goes_back_without_such_a_start_is_not_excused() -> None:
    book = Book().attempt(1).checkpoint(1).checkpoint(2).attempt(2, 1)
    context = a_context(a_plan(), book)
    assert fell_back(context) is None
    assert CheckpointLifeCycle().check(context).verdict is Verdict.INVALID
    assert judged(book).clauses == ()
