"""Copies of failed checkpoints and of subtasks that moved away are looked for. Grain: literal histories."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from barrier_tck.faults.kinds.pause_worker import PauseWorker
from barrier_tck.faults.vocabulary import At, ScheduledFault
from barrier_tck.harness.oracle.checkers.local_recovery import COPIES_GONE, LocalRecovery
from barrier_tck.harness.record.operations import (
    AbortLearned,
    Acknowledged,
    AttemptRunning,
    CopiesSeen,
    CopySeen,
    LocalCopyReported,
    Placed,
)
from barrier_tck.harness.record.verdict import Finding, Verdict
from tests.harness.oracle.oracle_histories import KILL, Book, a_context, a_plan

PAUSE = ScheduledFault(PauseWorker("totals[0]", duration_ms=100), At(5))


def judged(book: Book, **plan: Any) -> Finding:
    plan_of = msgspec.structs.replace(a_plan(**plan), local_recovery=True)
    return LocalRecovery().check(a_context(plan_of, book))


def ack(
    checkpoint: int, *held: int, attempt: int = 1, subtask: str = "totals[0]", confirmed: int | None = None
) -> Acknowledged:
    local = LocalCopyReported(True, confirmed, held, "host-0")
    return Acknowledged(checkpoint, attempt, subtask, local)


# --- of failed checkpoints --------------------------------------------------------------------------------------


def failing(*acks: Acknowledged, learned_by: str = "totals[0]", attempt: int = 1) -> Book:
    """Return a history in which a subtask learns that checkpoint 2 failed, before these acknowledgements."""
    book = Book().attempt(1).triggered(1).triggered(2).triggered(3).tell(ack(2, 2)).aborted(2)
    book.tell(AbortLearned(2, attempt, learned_by))
    for one in acks:
        book.tell(one)
    return book


def test_the_copy_of_a_checkpoint_that_failed_is_gone_when_the_next_one_is_acknowledged() -> None:
    finding = judged(failing(ack(3, 3)))
    assert (finding.verdict, finding.counts[COPIES_GONE]) == (Verdict.VALID, 1)
    finding = judged(failing(ack(3, 2, 3)))
    assert (finding.verdict, finding.broken) == (Verdict.INVALID, "LOC-3")
    assert "totals[0] knew that checkpoint 2 had failed" in finding.summary


@pytest.mark.parametrize(
    "book",
    [
        failing(ack(2, 2)),
        failing(ack(3, 2, 3), learned_by="totals[1]"),
        failing(ack(3, 2, 3), attempt=2),
    ],
    ids=["repeated", "of another subtask", "of another attempt"],
)
def test_who_does_not_know_of_the_failure_may_still_have_the_copy(book: Book) -> None:
    assert judged(book).verdict is Verdict.VALID


# --- of subtasks that moved -------------------------------------------------------------------------------------

OLD, RESTORED = CopySeen("host-0", "totals[1]", 1, 1), CopySeen("host-0", "totals[1]", 2, 1)


def moved(*seen: tuple[CopySeen, ...], confirmed: int | None = None, host: str = "host-0") -> Book:
    """Return a history in which totals[1] moves, and what lies on its old host after each checkpoint of attempt 2.

    totals[0] runs on ``host``, and knows what is confirmed when the second one is acknowledged.
    """
    book = Book().attempt(1).checkpoint(1).checkpoint(2).tell(CopiesSeen((OLD, RESTORED)))
    book.fault().attempt_failed(1).started(2, 2)
    hosts = {"totals[0]": host, "totals[1]": "host-1"}
    book.tell(Placed(2, hosts, {"host-0": 2, "host-1": 2}, {})).tell(AttemptRunning(2))
    for number, copies in enumerate(seen, start=3):
        known = confirmed if number > 3 else None
        book.triggered(number, 2).tell(ack(number, number, attempt=2, confirmed=known))
        book.completed(number, 2).tell(CopiesSeen(copies))
    return book


def test_what_is_older_than_the_restored_checkpoint_is_gone_from_the_old_host_once_the_attempt_runs() -> None:
    finding = judged(moved((RESTORED,)), faults=(KILL,))
    assert (finding.verdict, finding.counts[COPIES_GONE]) == (Verdict.VALID, 1), finding.summary
    finding = judged(moved((OLD, RESTORED)), faults=(KILL,))
    assert (finding.verdict, finding.broken) == (Verdict.INVALID, "LOC-3")
    assert (
        "host-0 still has local files of checkpoint 1 of totals[1], which runs on host-1 now"
        in finding.summary
    )


def test_the_restored_copy_is_gone_once_a_newer_checkpoint_is_known_there_to_be_complete() -> None:
    assert judged(moved((RESTORED,), (), confirmed=3), faults=(KILL,)).verdict is Verdict.VALID
    kept = judged(moved((RESTORED,), (RESTORED,), confirmed=3), faults=(KILL,))
    assert (kept.verdict, kept.broken) == (Verdict.INVALID, "LOC-3")
    assert "local files of checkpoint 2 of totals[1]" in kept.summary


def test_nobody_tidies_up_where_no_subtask_runs_and_a_process_that_was_paused_may_write_late() -> None:
    elsewhere = moved((OLD, RESTORED), host="host-2")
    operations = [
        line
        for line in elsewhere.operations
        if not (isinstance(line.operation, Acknowledged) and line.operation.attempt == 2)
    ]
    elsewhere.operations = operations
    assert judged(elsewhere, faults=(KILL,)).verdict is Verdict.VALID
    assert judged(moved((OLD, RESTORED)), faults=(PAUSE,)).verdict is not Verdict.INVALID
