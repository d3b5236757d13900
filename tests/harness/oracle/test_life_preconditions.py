"""A clause about the lives of attempts and checkpoints counts only where something was left over, or came at the wrong
time: each with a trial in which it did, and with one that lacks only that."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.oracle.checkers.aborts_obeyed import AbortsObeyed
from barrier_tck.harness.oracle.checkers.failures_explained import FailuresExplained
from barrier_tck.harness.oracle.checkers.restorability import Restorability
from barrier_tck.harness.oracle.checkers.snapshot_order import SnapshotOrder
from barrier_tck.harness.oracle.evidence import life_preconditions as life
from barrier_tck.harness.oracle.precondition import Precondition
from barrier_tck.harness.plan.trial_plan import CheckpointPlan
from barrier_tck.harness.record import operations as ops
from barrier_tck.harness.record.history import End, NamedFile, SnapshotView
from barrier_tck.harness.record.reasons import Reason
from barrier_tck.harness.record.verdict import Verdict
from barrier_tck.harness.system.system_under_test import Capability
from tests.harness.oracle.oracle_histories import CRASH, SUBTASKS, Book, a_context, a_plan

WRITER, READER = "totals[0]", "source[0]"
FILES: dict[str, tuple[NamedFile, ...]] = {WRITER: (NamedFile("chk-1/state", 9, "crc32:1"),)}


def trial(book: Book, **changes: Any) -> TrialContext:
    plan = a_plan(**changes)
    return a_context(plan, book, views=(SnapshotView(1, 1, {}, files=FILES),))


def begun() -> Book:
    return Book().attempt(1).checkpoint(1)


def failing(reason: Reason, *acknowledged: str) -> Book:
    """A checkpoint that some subtasks acknowledged before it was aborted."""
    book = begun().triggered(2).acknowledged(2, subtasks=acknowledged)
    return book.tell(ops.CheckpointAborted(2, 1, reason))


def crashed(*before: int) -> Book:
    book = Book().attempt(1)
    for checkpoint in before:
        book.checkpoint(checkpoint)
    return book.fault()


LEFT = begun().triggered(2).attempt_failed(1)


@pytest.mark.parametrize(
    ("wanted", "with_it", "without_it"),
    [
        (life.LEFT_BEHIND, LEFT.attempt(2, 1), begun().attempt_failed(1).attempt(2, 1)),
        (life.LEFT_BEHIND, LEFT.attempt(2, 1), begun().triggered(2).attempt_failed(1)),
        (
            life.LEFT_BEHIND,
            failing(Reason.ATTEMPT_FAILED).attempt_failed(1).attempt(2, 1),
            failing(Reason.EXPIRED).attempt_failed(1).attempt(2, 1),
        ),
        (
            life.LEFT_BEHIND,
            begun().attempt_failed(1).attempt(2, 1).acknowledged(1, subtasks=(WRITER,)),
            begun().attempt_failed(1).attempt(2, 1).checkpoint(2, 2),
        ),
        (
            life.LEFT_BEHIND,
            begun().triggered(2).attempt(2, 1),
            begun().triggered(2).tell(ops.JobStopped(1)).attempt(2, 1),
        ),
        *(
            (life.FAILED, failing(reason), failing(Reason.SUBSUMED))
            for reason in (Reason.DECLINED, Reason.EXPIRED, Reason.STORAGE_FAILED)
        ),
        (life.FAILED, failing(Reason.EXPIRED), failing(Reason.ATTEMPT_FAILED)),
        (life.FAILED, failing(Reason.EXPIRED), begun().tell(ops.CheckpointAborted(7, 1, Reason.EXPIRED))),
        (life.ACKNOWLEDGED_WRONGLY, begun().acknowledged(1, subtasks=(WRITER,)), begun()),
        (life.ACKNOWLEDGED_WRONGLY, begun().triggered(2).acknowledged(2).acknowledged(2), begun()),
        (life.ACKNOWLEDGED_WRONGLY, begun().acknowledged(7, subtasks=(WRITER,)), begun()),
        (life.ACKNOWLEDGED_WRONGLY, begun().triggered(2).acknowledged(2, subtasks=("other[0]",)), begun()),
        (life.ACKNOWLEDGED_WRONGLY, begun().triggered(2).acknowledged(2, attempt=9), begun()),
        (
            life.ACKNOWLEDGED_WRONGLY,
            begun().triggered(2).tell(ops.Acknowledged(2, 1, WRITER, forged=True)),
            begun().triggered(2).tell(ops.Acknowledged(2, 1, WRITER)),
        ),
        (
            life.ACKNOWLEDGED_WRONGLY,
            failing(Reason.EXPIRED).acknowledged(2, subtasks=(WRITER,)),
            failing(Reason.EXPIRED, WRITER),
        ),
        (life.STORED_IN_VAIN, failing(Reason.EXPIRED, WRITER), failing(Reason.EXPIRED, READER)),
        (life.STORED_IN_VAIN, failing(Reason.ATTEMPT_FAILED, WRITER), failing(Reason.ATTEMPT_FAILED)),
        (life.STORED_IN_VAIN, begun().triggered(2).acknowledged(2), begun().checkpoint(2)),
        (
            life.STORED_LATE,
            failing(Reason.EXPIRED).acknowledged(2, subtasks=(WRITER,)),
            failing(Reason.EXPIRED).acknowledged(2, subtasks=(READER,)),
        ),
        (
            life.STORED_LATE,
            failing(Reason.EXPIRED).acknowledged(2, subtasks=(WRITER,)),
            failing(Reason.EXPIRED, WRITER),
        ),
        (
            life.STORED_LATE,
            failing(Reason.EXPIRED).tell(ops.Acknowledged(2, 1, "sink[0]", prepared=3)),
            failing(Reason.EXPIRED).tell(ops.Acknowledged(2, 1, WRITER, forged=True)),
        ),
    ],
)
def test_a_trial_counts_if_and_only_if_something_could_have_gone_wrong(
    wanted: Precondition, with_it: Book, without_it: Book
) -> None:
    assert (wanted.holds(trial(with_it)), wanted.holds(trial(without_it))) == (True, False)


@pytest.mark.parametrize(
    ("book", "chance"),
    [
        (crashed(1).attempt(2, 1), True),
        (crashed(1), False),
        (crashed().attempt(2), False),
        (begun().attempt_failed(1).attempt(2, 1), False),
    ],
    ids=["resumed", "never resumed", "nothing complete", "no crash"],
)
def test_a_crash_of_the_coordinator_counts_if_the_job_was_resumed_and_had_something_to_go_on_from(
    book: Book, chance: bool
) -> None:
    assert life.RESUMED_AFTER_A_CRASH.holds(trial(book, faults=(CRASH,))) is chance


# --- what checkers count themselves -----------------------------------------------------------------------------


def learned(book: Book, subtask: str = WRITER) -> Book:
    return book.tell(ops.AbortLearned(2, 1, subtask))


@pytest.mark.parametrize(
    ("book", "mode", "shown"),
    [
        (learned(failing(Reason.EXPIRED)), "exactly_once", ("COO-2",)),
        (learned(failing(Reason.EXPIRED, WRITER)), "exactly_once", ()),
        (learned(failing(Reason.EXPIRED)), "unaligned", ("COO-2", "SNP-2")),
        (learned(failing(Reason.EXPIRED), READER), "unaligned", ("COO-2",)),
        (failing(Reason.EXPIRED), "unaligned", ()),
    ],
    ids=["not acknowledged", "acknowledged before", "records channels", "reads no channel", "nobody learned"],
)
def test_an_abort_counts_for_who_could_still_acknowledge_and_for_who_could_keep_records(
    book: Book, mode: Any, shown: tuple[str, ...]
) -> None:
    finding = AbortsObeyed().check(trial(book, checkpoints=CheckpointPlan(mode=mode)))
    assert (finding.verdict, finding.clauses) == (Verdict.VALID, shown)


def subsumed(*finished: str) -> Book:
    book = Book().attempt(1)
    for subtask in finished:
        book.tell(ops.Finished(subtask, 1), subtask)
    return learned(book.triggered(2).checkpoint(3).tell(ops.CheckpointAborted(2, 1, Reason.SUBSUMED)))


@pytest.mark.parametrize(
    ("finished", "counts"), [((), False), ((READER,), True), (SUBTASKS, False)], ids=["none", "some", "all"]
)
def test_ended_channels_count_if_some_subtasks_had_finished_and_others_had_not(
    finished: tuple[str, ...], counts: bool
) -> None:
    assert ("BAR-6" in SnapshotOrder().check(trial(subsumed(*finished))).clauses) is counts
    context = trial(subsumed(*finished))
    again = frozenset({*context.capabilities, Capability.DETERMINISTIC_REPLAY.name})
    found = FailuresExplained().check(
        TrialContext(context.plan, context.history, subtasks=SUBTASKS, capabilities=again)
    )
    assert ("BAR-6" in found.clauses) is counts


def test_where_time_is_real_no_failure_has_to_be_explained_and_so_none_counts() -> None:
    assert FailuresExplained().check(trial(begun())).clauses == ()


@pytest.mark.parametrize(("prepared", "shown"), [(3, ("REC-1", "SNK-1")), (0, ("REC-1",))])
def test_a_restore_counts_for_sinks_if_the_checkpoint_has_a_transaction(
    prepared: int, shown: tuple[str, ...]
) -> None:
    book = Book().attempt(1).triggered(1).tell(ops.Acknowledged(1, 1, "sink[0]", prepared=prepared))
    finding = Restorability().check(trial(book.completed(1).attempt_failed(1).attempt(2, 1)))
    assert finding.clauses == shown


def test_nothing_counts_in_an_empty_history() -> None:
    empty = a_context(a_plan(), Book(), End.FAILED)
    conditions = [value for value in vars(life).values() if isinstance(value, Precondition)]
    assert len(conditions) > 5 and not any(condition.holds(empty) for condition in conditions)
    assert msgspec.structs.asdict(empty.history)["operations"] == ()
