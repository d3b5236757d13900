"""Local copies that a process of an older attempt writes behind its successor: what is late, and what is a leak."""

from __future__ import annotations

from typing import Literal

import msgspec
import pytest

from barrier_tck.harness.oracle.checkers.local_recovery import LocalRecovery
from barrier_tck.harness.record.operations import Acknowledged, LocalCopyReported
from barrier_tck.harness.record.verdict import Finding, Verdict
from tests.harness.oracle.oracle_histories import Book, a_context, a_plan

WHO = "totals[0]"
Heard = Literal["never", "in time", "before 3 is complete", "after 3 is complete", "forged"]
"""When the coordinator hears of the copy of checkpoint 2."""


def told(
    checkpoint: int, attempt: int, confirmed: int | None, held: tuple[int, ...], forged: bool = False
) -> Acknowledged:
    report = LocalCopyReported(True, confirmed, held, "host-0")
    return Acknowledged(checkpoint, attempt, WHO, report, forged=forged)


def judged(held: tuple[bool, ...], heard: Heard = "never", taken_by: int = 1) -> Finding:
    """Judge attempt 2, which follows an attempt that failed before checkpoint 2, or began none.

    Attempt 2 takes checkpoints 3, 4 and so on. Each is complete before the next is acknowledged, and then the subtask
    knows it. ``held`` says for each acknowledgement whether files of checkpoint 2 are still there.
    """
    book = Book().attempt(1).triggered(1).tell(told(1, 1, None, (1,))).completed(1)
    if taken_by == 1:
        book.triggered(2)
    if heard in ("in time", "forged"):
        book.tell(told(2, 1, 1, (1, 2), forged=heard == "forged"))
    book.attempt_failed(1).attempt(2, restored=1)
    if taken_by == 2:
        book.triggered(2, 2)
    for number, there in enumerate(held, start=3):
        newest = number - 1 if number > 3 else None
        files = sorted({newest or 1, number, *((2,) if there else ())})
        book.triggered(number, 2)
        book.tell(told(number, 2, newest, tuple(files)))
        if number == 3 and heard == "before 3 is complete":
            book.tell(told(2, 1, 1, (2, 3)))
        book.completed(number, 2)
        if number == 3 and heard == "after 3 is complete":
            book.tell(told(2, 1, 1, (2, 3)))
    plan = msgspec.structs.replace(a_plan(), local_recovery=True)
    return LocalRecovery().check(a_context(plan, book))


@pytest.mark.parametrize("heard", ["never", "after 3 is complete", "forged"])
def test_a_copy_that_was_written_behind_the_successor_is_no_leak(heard: Heard) -> None:
    found = judged((False, True, False), heard)
    assert found.verdict is Verdict.VALID and "LOC-3" in found.clauses, found.summary


def test_a_copy_of_which_nobody_heard_may_be_written_in_two_parts() -> None:
    found = judged((False, True, True, False))
    assert found.verdict is Verdict.VALID, found.summary


@pytest.mark.parametrize("held", [(False, True, True, True), (False, True, False, True, True)])
def test_a_copy_that_outlasts_every_completion_is_a_leak_though_nobody_heard_of_it(
    held: tuple[bool, ...],
) -> None:
    found = judged(held)
    assert found.verdict is Verdict.INVALID and "LOC-3" in found.summary, found.summary
    assert "still had local files of checkpoint 2" in found.summary


@pytest.mark.parametrize("heard", ["in time", "before 3 is complete"])
def test_a_copy_that_was_there_before_the_completion_is_a_leak(heard: Heard) -> None:
    found = judged((False, True, False), heard)
    assert found.verdict is Verdict.INVALID and "LOC-3" in found.summary, found.summary


@pytest.mark.parametrize("taken_by", [2, 0], ids=["its own attempt's", "no attempt's"])
def test_a_copy_of_no_older_attempt_is_a_leak(taken_by: int) -> None:
    found = judged((False, True, False), taken_by=taken_by)
    assert found.verdict is Verdict.INVALID and "LOC-3" in found.summary, found.summary


@pytest.mark.parametrize(("attempt", "verdict"), [(1, Verdict.VALID), (2, Verdict.INVALID)])
def test_a_replaced_process_may_find_its_copy_gone_and_the_newest_one_may_not(
    attempt: int, verdict: Verdict
) -> None:
    book = Book().attempt(1).triggered(1).tell(told(1, 1, None, (1,))).completed(1).triggered(2)
    book.attempt_failed(1).attempt(2, restored=1).triggered(3, 2).tell(told(3, 2, None, (1, 3))).completed(
        3, 2
    )
    book.triggered(4, 2).tell(told(4, 2, 3, (3, 4)))
    # Its successor on that host has removed what is older than checkpoint 3.
    book.tell(told(2 if attempt == 1 else 4, attempt, 1 if attempt == 1 else 3, (3,)))
    plan = msgspec.structs.replace(a_plan(), local_recovery=True)
    found = LocalRecovery().check(a_context(plan, book))
    assert found.verdict is verdict, found.summary
