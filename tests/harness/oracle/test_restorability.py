"""Restorability: which failed attempts a checkpoint is to blame for, and which an injected fault."""

from __future__ import annotations

from typing import Any

from barrier_tck.faults.kinds.pause_executor import PauseExecutor
from barrier_tck.faults.vocabulary import At, ScheduledFault
from barrier_tck.harness.oracle.checkers.restorability import Restorability
from barrier_tck.harness.record.operations import AttemptEnded, Crashed
from barrier_tck.harness.record.reasons import Reason
from barrier_tck.harness.record.verdict import Finding, Verdict
from tests.harness.oracle.oracle_histories import KILL, Book, a_context, a_plan

PAUSE = ScheduledFault(PauseExecutor("sink[0]", 500), At(10))


def judge(book: Book, **plan: Any) -> Finding:
    return Restorability().check(a_context(a_plan(**plan), book))


def failing(book: Book, *numbers: int, restored: int | None = 1) -> Book:
    """Add attempts that end before they run."""
    for number in numbers:
        book.started(number, restored)
        book.tell(AttemptEnded(number, Reason.SUBTASK_FAILED, "the transaction is lost"))
    return book


def of_harness(book: Book, *numbers: int, of_harness: bool = True) -> Book:
    """Add attempts that end before they run, because of an exception."""
    for number in numbers:
        book.started(number, 1)
        book.tell(Crashed("source[0]", number, "ValueError: zip", "observed_inputs.py, line 71", of_harness))
        book.tell(AttemptEnded(number, Reason.SUBTASK_FAILED, "source[0]: ValueError: zip"))
    return book


def started() -> Book:
    return Book().attempt(1).checkpoint(1).fault().attempt_failed(1)


def test_a_checkpoint_that_no_attempt_survives_is_invalid_and_says_why() -> None:
    finding = judge(failing(started(), 2, 3, 4), faults=(KILL,))
    assert finding.verdict is Verdict.INVALID
    assert "attempts 2 to 4" in finding.summary and "checkpoint 1" in finding.summary
    assert "the transaction is lost" in finding.summary


def test_an_accident_or_two_are_forgiven() -> None:
    book = failing(started(), 2, 3).attempt(4, 1).attempt_failed(4)
    assert judge(failing(book, 5, 6).attempt(7, 1), faults=(KILL,)).verdict is Verdict.VALID


def test_attempts_from_different_checkpoints_or_from_none_are_not_in_a_row() -> None:
    book = failing(failing(started(), 2, 3), 4, 5, restored=2)
    assert judge(book, faults=(KILL,)).verdict is Verdict.VALID
    assert judge(failing(Book(), 1, 2, 3, 4, restored=None)).verdict is Verdict.VALID


def test_attempts_that_fail_while_a_fault_lasts_are_blamed_on_the_fault() -> None:
    book = failing(started(), 2, 3, 4, 5)
    assert judge(book, faults=(PAUSE,)).verdict is Verdict.VALID
    healed = started().healing()
    assert judge(failing(healed, 2, 3, 4, 5), faults=(PAUSE,)).verdict is Verdict.INVALID


def test_a_trial_without_a_restore_says_nothing_of_the_clauses() -> None:
    finding = judge(Book().attempt(1).checkpoint(1))
    assert (finding.verdict, finding.clauses) == (Verdict.VALID, ())


def test_attempts_that_an_exception_of_the_harness_ended_are_unknown_with_its_text() -> None:
    finding = judge(of_harness(started(), 2, 3, 4), faults=(KILL,))
    assert finding.verdict is Verdict.UNKNOWN
    assert "source[0] died of an exception of the harness: ValueError: zip" in finding.summary
    assert "observed_inputs.py, line 71" in finding.summary
    assert judge(of_harness(failing(started(), 2, 3), 4), faults=(KILL,)).verdict is Verdict.UNKNOWN
    assert judge(of_harness(started(), 2, 3), faults=(KILL,)).verdict is Verdict.VALID


def test_an_exception_of_the_system_stays_a_violation_beside_those_of_the_harness() -> None:
    own = of_harness(started(), 2, 3, 4, of_harness=False)
    assert judge(own, faults=(KILL,)).verdict is Verdict.INVALID
    both = failing(of_harness(failing(started(), 2), 3), 4, 5)
    assert judge(both, faults=(KILL,)).verdict is Verdict.INVALID
