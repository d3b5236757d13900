"""What a fault sends again says what was so when it was first sent; grain: literal histories."""

from __future__ import annotations

from barrier_tck.harness.oracle.checkers.aborts_obeyed import AbortsObeyed
from barrier_tck.harness.record.operations import AbortLearned
from barrier_tck.harness.record.verdict import Finding, Verdict
from tests.harness.oracle.oracle_histories import SUBTASKS, Book, a_context, a_plan

WHO = SUBTASKS[2]


def judged(book: Book) -> Finding:
    return AbortsObeyed().check(a_context(a_plan(), book))


def test_a_report_of_an_abort_that_comes_again_is_no_report_of_what_is_still_kept() -> None:
    learned = AbortLearned(1, 1, WHO, recorded=(2,))
    book = Book().attempt(1).triggered(1).aborted(1).triggered(2).tell(learned)
    book.acknowledged(2, subtasks=(WHO,)).tell(learned)
    assert judged(book).verdict is Verdict.VALID
    book.triggered(3).aborted(3).tell(AbortLearned(3, 1, WHO, recorded=(2,)))
    assert "still kept records in flight of checkpoint 2" in judged(book).summary
