"""When checkpoints may be triggered, must be aborted, and may fail: right histories, and one for each kind of mistake.

Grain: literal histories, one operation per millisecond.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import pytest

from barrier_tck.faults.kinds.fail_primary_writes import FailPrimaryWrites
from barrier_tck.faults.kinds.lose_packets import LosePackets
from barrier_tck.faults.kinds.pause_worker import PauseWorker
from barrier_tck.faults.kinds.repeat_messages import RepeatMessages
from barrier_tck.faults.vocabulary import At, ScheduledFault
from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.oracle.checkers.aborts_obeyed import AbortsObeyed
from barrier_tck.harness.oracle.checkers.checkpoint_admission import AdmittedTriggers
from barrier_tck.harness.oracle.checkers.checkpoint_expiry import CheckpointExpiry
from barrier_tck.harness.oracle.checkers.checkpoints_go_on import BUSY_MS, CheckpointsGoOn
from barrier_tck.harness.oracle.checkers.failures_explained import FailuresExplained
from barrier_tck.harness.oracle.checkers.nothing_held_back import NothingHeldBack
from barrier_tck.harness.oracle.checkers.snapshot_order import SnapshotOrder
from barrier_tck.harness.oracle.checkers.tolerated_failures import ToleratedFailures
from barrier_tck.harness.oracle.evidence.checkpoint_lives import lives_of
from barrier_tck.harness.oracle.evidence.checkpoint_obstacles import (
    NOTICED_MS,
    Backlog,
    BatchesRead,
    longest_ms,
    most_batches_read,
)
from barrier_tck.harness.plan.job_graph import JobPlan
from barrier_tck.harness.plan.trial_plan import (
    CheckpointPlan,
    LimitsPlan,
    NetworkPlan,
    TrialPlan,
    WorkloadPlan,
)
from barrier_tck.harness.record import operations as ops
from barrier_tck.harness.record.reasons import Reason
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.reference.simulated.simulated_system import ReferenceSimulated
from barrier_tck.harness.trial.trial_run import run_trial
from barrier_tck.harness.workloads.workload_names import filled
from tests.harness.oracle.control_histories import a_trial, failed, judge, last
from tests.harness.oracle.oracle_histories import CRASH, KILL, SUBTASKS, Book, a_context, a_plan

VALID, INVALID = Verdict.VALID, Verdict.INVALID
QUICK: dict[str, Any] = {"timeout_ms": 100_000, "async_ms_max": 5}
PAUSE = ScheduledFault(PauseWorker("totals[0]", 5), At(1))


# --- BAR-4 --------------------------------------------------------------------------------------------------


def test_as_many_in_flight_as_configured_are_right_and_one_more_is_not() -> None:
    two = Book().attempt(1).triggered(1).triggered(2)
    assert judge(AdmittedTriggers(), two, max_concurrent=2).verdict is VALID
    found = judge(AdmittedTriggers(), two, max_concurrent=1)
    assert found.verdict is INVALID and "1, 2 were in flight" in found.summary
    assert found.counts == {"triggers": 2, "in_flight_max": 2, "violations": 1}


@pytest.mark.parametrize("end", [Book.completed, Book.aborted])
def test_what_has_ended_is_not_in_flight(end: Any) -> None:
    assert judge(AdmittedTriggers(), end(Book().attempt(1).triggered(1), 1).triggered(2)).verdict is VALID


def test_what_an_older_attempt_left_is_not_in_flight() -> None:
    book = Book().attempt(1).triggered(1).attempt_failed(1).attempt(2).triggered(2, 2)
    assert judge(AdmittedTriggers(), book).verdict is VALID


def test_the_pause_counts_from_the_last_end_whatever_it_was() -> None:
    book = Book().attempt(1).triggered(1).aborted(1).nothing(4).triggered(2)
    assert judge(AdmittedTriggers(), book, min_pause_ms=5).verdict is VALID
    found = judge(AdmittedTriggers(), book, min_pause_ms=6)
    assert found.verdict is INVALID and "5 ms after the last end, but the least pause is 6" in found.summary
    assert judge(AdmittedTriggers(), book, repeatable=False, min_pause_ms=6).verdict is VALID
    assert judge(AdmittedTriggers(), book, repeatable=False, min_pause_ms=60).verdict is INVALID


def test_the_interval_counts_from_the_last_trigger_and_first_from_the_start() -> None:
    book = Book().attempt(1).nothing(4).triggered(1).completed(1).nothing(3).triggered(2)
    assert judge(AdmittedTriggers(), book, interval_ms=5).verdict is VALID
    found = judge(AdmittedTriggers(), book, interval_ms=6)
    assert found.verdict is INVALID and found.counts["violations"] == 2
    assert "checkpoint 1 was triggered 5 ms after the last trigger, but the interval is 6" in found.summary
    assert judge(AdmittedTriggers(), book, repeatable=False, interval_ms=6).verdict is VALID
    assert judge(AdmittedTriggers(), last(book.completed(2), 3), interval_ms=5).verdict is VALID


def test_a_trigger_before_a_second_attempt_of_its_number_came_too_soon_only_when_that_starts() -> None:
    book = Book().attempt(1).nothing(9).triggered(1).attempt_failed(1).attempt(1)
    first = judge(AdmittedTriggers(), book, interval_ms=5).first
    assert first is not None and (first.checkpoint, first.operation) == (1, len(book.operations) - 1)
    kept = ops.CheckpointTriggered(2, 1, savepoint="kept")
    beside = Book().attempt(1).nothing(3).triggered(1).tell(kept).nothing(2).triggered(3)
    assert judge(AdmittedTriggers(), beside, interval_ms=4, max_concurrent=2).verdict is VALID


def test_the_last_checkpoint_need_not_wait_but_must_be_the_last() -> None:
    book = last(Book().attempt(1).triggered(1).completed(1), 2).completed(2)
    assert judge(AdmittedTriggers(), book, min_pause_ms=50).verdict is VALID
    again = last(book, 3)
    found = judge(AdmittedTriggers(), again, min_pause_ms=50)
    assert found.verdict is INVALID and "checkpoint 2, which should have been the last one" in found.summary


def test_a_last_checkpoint_that_failed_is_followed_by_another() -> None:
    book = last(last(Book().attempt(1), 1).aborted(1), 2).completed(2)
    assert judge(AdmittedTriggers(), book, min_pause_ms=50).verdict is VALID


def test_a_system_that_triggered_nothing_has_shown_nothing() -> None:
    for checker in (
        *(AdmittedTriggers(), CheckpointsGoOn(), CheckpointExpiry()),
        *(ToleratedFailures(), AbortsObeyed(), SnapshotOrder()),
    ):
        found = judge(checker, Book().attempt(1))
        assert found.verdict is VALID and found.clauses == ()
    assert judge(FailuresExplained(), Book().attempt(1)).clauses == ()


# --- REC-6: checkpoints go on -------------------------------------------------------------------------------


def test_the_next_checkpoint_is_triggered_when_interval_and_pause_are_over() -> None:
    book = Book().attempt(1).nothing(3).triggered(1).aborted(1).nothing(4).triggered(2)
    found = judge(CheckpointsGoOn(), book, interval_ms=6)
    assert found.verdict is VALID and found.clauses == ("REC-6",)
    late = judge(CheckpointsGoOn(), book, interval_ms=5)
    assert (
        late.verdict is INVALID
        and "due at 10 ms, and checkpoint 2 was triggered only at 11 ms" in late.summary
    )
    assert judge(CheckpointsGoOn(), book, interval_ms=5, min_pause_ms=5).verdict is VALID
    assert judge(CheckpointsGoOn(), book, interval_ms=3).counts == {"triggers": 2, "gaps": 2}


def test_an_attempt_without_another_checkpoint_is_a_finding_however_it_ends() -> None:
    aborted = Book().attempt(1).triggered(1).aborted(1).nothing(9)
    for book in (aborted, aborted.attempt_failed(1).attempt(2)):
        found = judge(CheckpointsGoOn(), book, interval_ms=4)
        assert found.verdict is INVALID and "and no other was triggered" in found.summary
    assert judge(CheckpointsGoOn(), Book().attempt(1).nothing(9), interval_ms=4).verdict is INVALID
    assert judge(CheckpointsGoOn(), Book().started(1).nothing(9), interval_ms=4).verdict is VALID  # never ran


@pytest.mark.parametrize(
    ("between_ms", "after_ms", "verdict"), [(0, 0, VALID), (0, 1, INVALID), (1, 0, INVALID)]
)
def test_nothing_is_due_at_the_very_moment_at_which_another_one_ends_and_a_pause_begins(
    between_ms: int, after_ms: int, verdict: Verdict
) -> None:
    both = failed(Book().attempt(1).triggered(1).triggered(2).nothing(5), 1).nothing(between_ms)
    book = failed(both, 2).nothing(after_ms).triggered(3)
    assert judge(CheckpointsGoOn(), book, max_concurrent=2, min_pause_ms=1).verdict is verdict


def test_as_long_as_one_is_in_flight_nothing_is_due() -> None:
    book = Book().attempt(1).triggered(1).nothing(9)
    assert judge(CheckpointsGoOn(), book, interval_ms=4, max_concurrent=2).verdict is VALID
    ended = book.completed(1).triggered(2)
    assert judge(CheckpointsGoOn(), ended, interval_ms=4, min_pause_ms=1).verdict is VALID


def test_a_second_one_is_due_while_the_first_one_is_in_flight_if_two_may_be() -> None:
    late = Book().attempt(1).nothing(3).triggered(1).nothing(9).completed(1).nothing(2).triggered(2)
    found = judge(CheckpointsGoOn(), late, interval_ms=4, max_concurrent=2)
    assert (
        found.verdict is INVALID and "fewer than 2 were in flight, a checkpoint was due at 9" in found.summary
    )
    assert judge(CheckpointsGoOn(), late, interval_ms=4, min_pause_ms=3).verdict is VALID
    beside = (
        Book().attempt(1).nothing(4).triggered(1).nothing(4).triggered(2).nothing(3).completed(1).triggered(3)
    )
    found = judge(CheckpointsGoOn(), beside, interval_ms=5, max_concurrent=2)
    assert found.verdict is VALID and found.clauses == ("REC-6", "BAR-4")
    assert judge(CheckpointsGoOn(), beside, interval_ms=4, max_concurrent=3).verdict is INVALID


def test_the_last_checkpoint_waits_until_nothing_is_in_flight() -> None:
    book = last(Book().attempt(1).triggered(1).nothing(9).completed(1), 2).completed(2)
    assert judge(CheckpointsGoOn(), book, interval_ms=11, max_concurrent=2).verdict is VALID
    waits = last(Book().attempt(1).triggered(1).nothing(9).completed(1).nothing(3), 2).completed(2)
    assert judge(CheckpointsGoOn(), waits, interval_ms=11, max_concurrent=2).verdict is INVALID


def test_after_the_last_checkpoint_and_after_a_stop_nothing_is_due() -> None:
    begun = Book().attempt(1)
    assert judge(CheckpointsGoOn(), last(begun, 1).completed(1).nothing(9), interval_ms=4).verdict is VALID
    failed_last = last(Book().attempt(1), 1).aborted(1).nothing(9)
    assert judge(CheckpointsGoOn(), failed_last, interval_ms=4).verdict is INVALID
    stop = ops.CheckpointTriggered(1, 1, savepoint="kept", stops=True)
    stopped = Book().attempt(1).tell(stop).completed(1).nothing(9).attempt_failed(1)
    assert judge(CheckpointsGoOn(), stopped.attempt(2, 1).nothing(9), interval_ms=4).verdict is VALID


def test_a_savepoint_takes_no_turn_of_a_checkpoint() -> None:
    kept = ops.CheckpointTriggered(1, 1, savepoint="kept")
    book = Book().attempt(1).tell(kept).completed(1).nothing(4).triggered(2)
    assert judge(CheckpointsGoOn(), book, interval_ms=7).verdict is VALID
    assert judge(CheckpointsGoOn(), book, interval_ms=5).verdict is INVALID


def test_a_real_coordinator_may_be_busy_for_some_time() -> None:
    for waited_ms, verdict in ((BUSY_MS - 10, VALID), (BUSY_MS + 10, INVALID)):
        book = Book().attempt(1).nothing(int(waited_ms))
        assert judge(CheckpointsGoOn(), book, repeatable=False, interval_ms=4).verdict is verdict


MUCH_MS = int(BUSY_MS) + 3_000
HELD_UP = pytest.mark.parametrize(
    ("before", "meanwhile", "verdict"),
    [
        (ops.HeldUp(0), ops.HeldUp(4_000), VALID),
        (ops.HeldUp(0), ops.HeldUp(0, disk_ms=4_000), VALID),
        (ops.HeldUp(0), ops.HeldUp(0, harness_ms=4_000), VALID),
        (ops.HeldUp(0), ops.HeldUp(1_000, disk_ms=2_000, harness_ms=1_000), VALID),
        (ops.HeldUp(0), ops.HeldUp(2_000), INVALID),
        (ops.HeldUp(4_000), ops.HeldUp(4_000), INVALID),
    ],
    ids=["processor", "disk", "harness", "all", "too_short", "before"],
)


@HELD_UP
@pytest.mark.parametrize("noted", ["before_it_is_late", "behind"])
def test_a_real_coordinator_is_not_blamed_for_the_time_for_which_its_machine_held_it_up(
    before: ops.HeldUp, meanwhile: ops.HeldUp, verdict: Verdict, noted: str
) -> None:
    book = Book().tell(before).attempt(1).nothing(MUCH_MS)
    book = (
        book.tell(meanwhile).triggered(1)
        if noted == "before_it_is_late"
        else book.triggered(1).tell(meanwhile)
    )
    assert judge(CheckpointsGoOn(), book, repeatable=False, interval_ms=4).verdict is verdict
    overdue = Book().tell(before).attempt(1).triggered(1).nothing(MUCH_MS).tell(meanwhile).aborted(1)
    assert judge(CheckpointExpiry(), overdue, repeatable=False, timeout_ms=4).verdict is verdict


def test_what_held_the_job_up_later_excuses_nothing_that_was_late_before() -> None:
    book = (
        Book().tell(ops.HeldUp(0)).attempt(1).nothing(MUCH_MS).triggered(1).tell(ops.HeldUp(0)).completed(1)
    )
    book.tell(ops.HeldUp(4_000))
    assert judge(CheckpointsGoOn(), book, repeatable=False, interval_ms=4).verdict is INVALID


def test_a_coordinator_that_makes_an_id_durable_has_begun_with_its_checkpoint() -> None:
    book = Book().attempt(1).nothing(9)
    late = judge(CheckpointsGoOn(), book.triggered(1, reserving_ms=6).completed(1), interval_ms=5)
    assert late.verdict is VALID
    book = Book().attempt(1).nothing(9)
    assert judge(CheckpointsGoOn(), book.triggered(1, reserving_ms=2), interval_ms=5).verdict is INVALID


# --- COO-2: the timeout -------------------------------------------------------------------------------------


def test_a_checkpoint_is_given_up_when_its_time_is_over_and_not_later() -> None:
    in_time = Book().attempt(1).triggered(1).nothing(9).aborted(1).nothing(3)
    assert judge(CheckpointExpiry(), in_time, timeout_ms=10).verdict is VALID
    assert judge(CheckpointExpiry(), in_time, timeout_ms=10).clauses == ("COO-2",)
    late = judge(CheckpointExpiry(), in_time, timeout_ms=9)
    assert late.verdict is INVALID and "more than its 9 ms" in late.summary
    early = judge(CheckpointExpiry(), in_time, timeout_ms=11)
    assert early.verdict is INVALID and "1 ms before its time was over" in early.summary


def test_the_time_of_a_checkpoint_runs_while_its_id_is_made_durable() -> None:
    slow_disk = Book().attempt(1).triggered(1, reserving_ms=6).nothing(3).aborted(1).nothing(3)
    assert judge(CheckpointExpiry(), slow_disk, timeout_ms=10).verdict is VALID
    assert judge(CheckpointExpiry(), slow_disk, timeout_ms=11).verdict is INVALID
    assert judge(CheckpointExpiry(), slow_disk, timeout_ms=8).verdict is INVALID


def test_a_checkpoint_that_nobody_ever_gives_up_is_too_late() -> None:
    book = Book().attempt(1).triggered(1).acknowledged(1, subtasks=SUBTASKS[:4]).nothing(20)
    found = judge(CheckpointExpiry(), book, timeout_ms=10)
    assert found.verdict is INVALID and "4 of 5 acknowledgements had come" in found.summary
    assert judge(CheckpointExpiry(), book, repeatable=False, timeout_ms=10).verdict is VALID


def test_who_has_every_acknowledgement_in_time_may_write_as_long_as_it_takes() -> None:
    book = Book().attempt(1).triggered(1).acknowledged(1).nothing(20).completed(1)
    assert judge(CheckpointExpiry(), book, timeout_ms=10).verdict is VALID
    assert judge(CheckpointExpiry(), book, timeout_ms=4).verdict is INVALID


@pytest.mark.parametrize("over", ["failed", "crashed"])
def test_when_its_attempt_is_over_a_checkpoint_need_not_expire(over: str) -> None:
    book = Book().attempt(1).triggered(1)
    book = book.attempt_failed(1) if over == "failed" else book.fault()
    found = judge(CheckpointExpiry(), book.nothing(20).attempt(2), timeout_ms=10, faults=(CRASH,))
    assert found.verdict is VALID


def test_the_moment_of_a_timeout_that_was_not_kept_is_the_next_line_or_the_abort() -> None:
    book = Book().attempt(1).triggered(1).nothing(20).aborted(1)
    late, early = (judge(CheckpointExpiry(), book, timeout_ms=timeout_ms).first for timeout_ms in (9, 30))
    assert late is not None and early is not None
    assert (late.checkpoint, late.attempt, early.checkpoint, early.attempt) == (1, 1, 1, 1)
    aborted, triggered = len(book.operations) - 1, len(book.operations) - 22
    assert (late.operation, early.operation) == (triggered + 9 + 1, aborted)


# --- COO-2: tolerated failures ------------------------------------------------------------------------------


def three_failures() -> Book:
    book = Book().attempt(1)
    for number in (1, 2, 3):
        book = failed(book.triggered(number), number)
    return book


def gave_up(book: Book) -> Book:
    return book.tell(ops.AttemptEnded(1, Reason.CHECKPOINTS_FAILED))


def test_the_attempt_ends_with_the_first_failure_too_many() -> None:
    right = gave_up(three_failures())
    found = judge(ToleratedFailures(), right, tolerated_failures=2)
    assert found.verdict is VALID and found.counts == {"longest_row": 3, "gave_up": 1, "violations": 0}
    early = judge(ToleratedFailures(), right, tolerated_failures=3)
    assert early.verdict is INVALID and "gave up after 3" in early.summary
    late = judge(ToleratedFailures(), right, tolerated_failures=1)
    assert late.verdict is INVALID and "went on to checkpoint 3 after 2 had failed" in late.summary


def test_a_completed_checkpoint_ends_the_row_and_one_that_was_subsumed_does_not_count() -> None:
    book = failed(failed(Book().attempt(1).triggered(1), 1).triggered(2).completed(2).triggered(3), 3)
    assert judge(ToleratedFailures(), book.triggered(4), tolerated_failures=1).verdict is VALID
    subsumed = failed(Book().attempt(1).triggered(1), 1, Reason.SUBSUMED).triggered(2)
    assert judge(ToleratedFailures(), subsumed, tolerated_failures=0).verdict is VALID


# --- COO-2, SNP-2: aborts -----------------------------------------------------------------------------------


def test_who_learned_of_an_abort_acknowledges_it_no_more() -> None:
    learned = ops.AbortLearned(1, 1, SUBTASKS[2])
    before = Book().attempt(1).triggered(1).acknowledged(1, subtasks=SUBTASKS[2:3]).aborted(1).tell(learned)
    # It is a repetition of the same acknowledgement.
    assert judge(AbortsObeyed(), before.acknowledged(1, subtasks=SUBTASKS[2:3])).verdict is VALID
    after = Book().attempt(1).triggered(1).aborted(1).tell(learned)
    assert judge(AbortsObeyed(), after.acknowledged(1, subtasks=SUBTASKS[3:4])).verdict is VALID
    found = judge(AbortsObeyed(), after.acknowledged(1, subtasks=SUBTASKS[2:3]))
    assert (
        found.verdict is INVALID and f"{SUBTASKS[2]} of attempt 1 acknowledged checkpoint 1" in found.summary
    )


def test_a_forged_acknowledgement_is_not_the_subtasks() -> None:
    learned = Book().attempt(1).triggered(1).aborted(1).tell(ops.AbortLearned(1, 1, SUBTASKS[2]))
    forged = learned.tell(ops.Acknowledged(1, 1, SUBTASKS[2], forged=True))
    assert judge(AbortsObeyed(), forged).verdict is VALID
    # Nor does it make the next one a repetition.
    assert judge(AbortsObeyed(), forged.acknowledged(1, subtasks=SUBTASKS[2:3])).verdict is INVALID


@pytest.mark.parametrize(
    "reason",
    [Reason.EXPIRED, Reason.DECLINED, Reason.STORAGE_FAILED, Reason.SUBSUMED],
    ids=lambda one: str(one.value),
)
def test_every_subtask_learns_of_an_abort_in_time_unless_its_attempt_ends(reason: Reason) -> None:
    within_ms = int(longest_ms(a_plan(checkpoints=CheckpointPlan(**QUICK)), final=True) + NOTICED_MS)
    begun = failed(Book().attempt(1).triggered(1), 1, reason)
    for subtask in SUBTASKS[1:]:
        begun = begun.tell(ops.AbortLearned(1, 1, subtask))
    late = begun.nothing(within_ms + 10)
    found = judge(AbortsObeyed(), late, **QUICK)
    assert found.verdict is INVALID and f"{SUBTASKS[0]} of attempt 1 had not learned" in found.summary
    assert found.counts == {"learned": len(SUBTASKS) - 1, "due": len(SUBTASKS), "violations": 1}
    assert judge(AbortsObeyed(), late, repeatable=False, **QUICK).verdict is VALID
    assert judge(AbortsObeyed(), late.tell(ops.Finished(SUBTASKS[0], 1)), **QUICK).verdict is INVALID


@pytest.mark.parametrize(("every_ms", "left_ms"), [(2, 100 * 4 - 99 * 2), (4, 4), (10, 4)])
def test_checkpoints_that_come_faster_than_their_barriers_are_read_leave_work_behind(
    every_ms: int, left_ms: int
) -> None:
    book = Book().attempt(1)
    for number in range(1, 101):
        book.triggered(number).nothing(every_ms - 1)
    (attempt,) = lives_of(a_context(a_plan(), book))
    backlog, newest_ms = Backlog(a_plan(), attempt), attempt.checkpoints[-1].triggered_ms
    assert (backlog.at(0), backlog.at(newest_ms), backlog.at(newest_ms + 3)) == (0, left_ms, left_ms - 3)
    assert backlog.at(newest_ms + left_ms) == 0


@pytest.mark.long
def test_the_news_of_an_abort_may_come_behind_what_earlier_checkpoints_sent() -> None:
    checkpoints = CheckpointPlan(timeout_ms=1, async_ms_max=0)
    plan = TrialPlan(seed=1, checkpoints=checkpoints, limits=LimitsPlan(virtual_ms=1_100))
    with TemporaryDirectory() as directory:
        record = run_trial(plan, ReferenceSimulated(), Path(directory))
    (found,) = [finding for finding in record.findings if finding.checker == "aborts-obeyed"]
    assert (found.verdict, found.clauses) == (VALID, ("COO-2", "SNP-2")) and found.counts["due"] > 100, (
        found.summary
    )


@pytest.mark.parametrize(
    ("who", "kept", "verdict"),
    [
        (SUBTASKS[2], 3, VALID),
        (SUBTASKS[2], 1, INVALID),  # it was aborted
        (SUBTASKS[2], 2, INVALID),  # the subtask had acknowledged it
        (SUBTASKS[3], 2, VALID),
    ],
)
def test_what_was_recorded_for_a_checkpoint_that_is_over_is_not_kept_in_memory(
    who: str, kept: int, verdict: Verdict
) -> None:
    book = Book().attempt(1).triggered(1).triggered(2).acknowledged(2, subtasks=SUBTASKS[2:3]).aborted(1)
    found = judge(AbortsObeyed(), book.tell(ops.AbortLearned(1, 1, who, recorded=(kept,))))
    assert found.verdict is verdict
    assert verdict is VALID or f"kept records in flight of checkpoint {kept}" in found.summary


@pytest.mark.parametrize(
    ("who", "kept", "verdict"),
    [(SUBTASKS[2], 3, VALID), (SUBTASKS[2], 1, INVALID), (SUBTASKS[2], 2, INVALID), (SUBTASKS[3], 2, VALID)],
)
def test_no_snapshot_is_kept_for_a_checkpoint_that_is_over(who: str, kept: int, verdict: Verdict) -> None:
    book = Book().attempt(1).triggered(1).triggered(2).acknowledged(2, subtasks=SUBTASKS[2:3]).aborted(1)
    found = judge(AbortsObeyed(), book.tell(ops.AbortLearned(1, 1, who, under_way=(kept,))))
    assert found.verdict is verdict and "SNP-2" in found.clauses
    assert verdict is VALID or f"kept a snapshot or an alignment for checkpoint {kept}" in found.summary


def test_who_does_not_say_which_snapshots_are_under_way_shows_nothing_of_what_is_kept() -> None:
    book = Book().attempt(1).triggered(1).aborted(1).tell(ops.AbortLearned(1, 1, SUBTASKS[2]))
    assert "SNP-2" not in judge(AbortsObeyed(), book).clauses


def _all_finished(book: Book) -> Book:
    for subtask in SUBTASKS:
        book.tell(ops.Finished(subtask, 1))
    return book


@pytest.mark.parametrize(
    "excuse",
    [
        lambda book, within_ms: book.aborted(1).nothing(within_ms // 2),
        lambda book, within_ms: book.aborted(1).attempt_failed(1).nothing(within_ms + 10).attempt(2),
        lambda book, within_ms: book.aborted(1).fault().nothing(within_ms + 10),
        lambda book, within_ms: _all_finished(book.aborted(1)).nothing(within_ms + 10),
    ],
)
def test_who_has_no_time_or_is_held_up_need_not_have_learned_of_an_abort(excuse: Any) -> None:
    within_ms = int(longest_ms(a_plan(checkpoints=CheckpointPlan(**QUICK)), final=True) + NOTICED_MS)
    book = excuse(Book().attempt(1).triggered(1), within_ms)
    found = judge(AbortsObeyed(), book, faults=(PAUSE,), **QUICK)
    assert found.verdict is VALID and found.counts["due"] == 0


# --- ALO-1: nothing is held back ----------------------------------------------------------------------------


def held_back(subtask: str, held_bytes: int | None) -> ops.Acknowledged:
    return ops.Acknowledged(1, 1, subtask, held_bytes=held_bytes)


def test_a_channel_that_is_held_back_is_a_finding_and_one_that_is_read_is_none() -> None:
    begun = Book().attempt(1).triggered(1)
    free = judge(NothingHeldBack(), begun.tell(held_back(SUBTASKS[2], 0)))
    assert free.verdict is VALID and free.clauses == ("ALO-1",)
    held = judge(NothingHeldBack(), begun.tell(held_back(SUBTASKS[3], 128)))
    assert held.verdict is INVALID and f"{SUBTASKS[3]} of attempt 1" in held.summary


def test_who_does_not_say_what_was_held_back_has_shown_nothing() -> None:
    silent = judge(NothingHeldBack(), Book().attempt(1).triggered(1).tell(held_back(SUBTASKS[2], None)))
    assert silent.verdict is VALID and not silent.clauses


# --- BAR-3, BAR-6: failures without a cause -----------------------------------------------------------------

UNDISTURBED = Book().attempt(1).triggered(1).acknowledged(1, subtasks=SUBTASKS[:2]).aborted(1).completed(2)


def test_a_checkpoint_that_fails_without_a_cause_is_a_finding_where_time_is_virtual() -> None:
    found = judge(FailuresExplained(), UNDISTURBED, **QUICK)
    assert found.verdict is INVALID and "no acknowledgement of totals[0], totals[1], sink[0]" in found.summary
    external_storage = judge(FailuresExplained(), UNDISTURBED, repeatable=False, **QUICK)
    assert external_storage.verdict is VALID and external_storage.counts["unexplained"] == 1


REFUSED = ScheduledFault(FailPrimaryWrites("totals[0]"), At(1))
UNWRITTEN = ScheduledFault(FailPrimaryWrites("totals[0]", metadata=True), At(1))
REPEATED = ScheduledFault(RepeatMessages("totals[0]", 0, 5), At(1))


@pytest.mark.parametrize(
    ("fault", "reason", "verdict"),
    [
        (PAUSE, Reason.EXPIRED, VALID),
        (PAUSE, Reason.DECLINED, VALID),
        (REFUSED, Reason.DECLINED, VALID),
        (REFUSED, Reason.STORAGE_FAILED, VALID),
        (REFUSED, Reason.EXPIRED, INVALID),
        (UNWRITTEN, Reason.STORAGE_FAILED, VALID),
        (UNWRITTEN, Reason.DECLINED, INVALID),
        (REPEATED, Reason.EXPIRED, INVALID),
        (KILL, Reason.EXPIRED, INVALID),
    ],
)
def test_a_fault_that_lasts_or_refuses_files_is_a_cause_and_others_are_none(
    fault: ScheduledFault, reason: Reason, verdict: Verdict
) -> None:
    book = failed(Book().attempt(1).fault().triggered(1), 1, reason)
    assert judge(FailuresExplained(), book, faults=(fault,), **QUICK).verdict is verdict


def test_a_fault_that_comes_after_a_failure_is_no_cause() -> None:
    later = Book().attempt(1).triggered(1).aborted(1).fault()
    assert judge(FailuresExplained(), later, faults=(PAUSE,), **QUICK).verdict is INVALID


def test_a_fault_that_was_healed_long_ago_is_no_cause() -> None:
    """What it held up has passed, and whoever was silent meanwhile has been noticed."""
    over_ms = int(NOTICED_MS + longest_ms(a_plan(checkpoints=CheckpointPlan(**QUICK)), final=False))
    for waited_ms, verdict in ((over_ms - 10, VALID), (over_ms + 10, INVALID)):
        book = Book().attempt(1).fault().healing().nothing(waited_ms).triggered(1).aborted(1)
        assert judge(FailuresExplained(), book, faults=(PAUSE,), **QUICK).verdict is verdict, waited_ms
    lasting = Book().attempt(1).fault().nothing(over_ms + 10).triggered(1).aborted(1)
    assert judge(FailuresExplained(), lasting, faults=(PAUSE,), **QUICK).verdict is VALID


def test_lost_packets_are_a_cause_until_the_last_message_that_they_held_up_has_arrived() -> None:
    lossy = LosePackets("totals[0]", 100, 80)
    held_ms = longest_ms(a_plan(checkpoints=CheckpointPlan(**QUICK)), final=False)
    over_ms = int(NOTICED_MS + held_ms + lossy.lingers_ms)
    for waited_ms, verdict in ((over_ms - 10, VALID), (over_ms + 10, INVALID)):
        book = Book().attempt(1).fault().healing().nothing(waited_ms).triggered(1).aborted(1)
        found = judge(FailuresExplained(), book, faults=(ScheduledFault(lossy, PAUSE.trigger),), **QUICK)
        assert found.verdict is verdict, waited_ms


def test_refused_files_are_no_cause_where_their_subtask_acknowledged() -> None:
    book = Book().attempt(1).fault().triggered(1).acknowledged(1, subtasks=("totals[0]",))
    found = judge(FailuresExplained(), failed(book, 1, Reason.DECLINED), faults=(REFUSED,), **QUICK)
    assert found.verdict is INVALID


@pytest.mark.parametrize("incremental", [False, True])
@pytest.mark.parametrize("later_ms", [0, 1])
def test_an_incremental_checkpoint_that_fails_with_an_acknowledgement_has_a_part_that_cannot_be_used(
    incremental: bool, later_ms: int
) -> None:
    book = failed(Book().attempt(1).triggered(1).acknowledged(1, subtasks=SUBTASKS[:2]), 1, Reason.DECLINED)
    *before, end = book.operations
    book.operations = [*before, msgspec.structs.replace(end, time_ms=before[-1].time_ms + later_ms)]
    found = judge(FailuresExplained(incremental=incremental), book, incremental=incremental, **QUICK)
    assert found.verdict is INVALID
    assert found.broken == ("SNP-5" if incremental and not later_ms else "BAR-3")


def test_slow_parts_explain_an_expiry_but_no_decline() -> None:
    slow: dict[str, Any] = {"timeout_ms": 50, "async_ms_max": 60}
    assert judge(FailuresExplained(), UNDISTURBED, **slow).verdict is VALID
    declined = failed(Book().attempt(1).triggered(1), 1, Reason.DECLINED)
    assert judge(FailuresExplained(), declined, **slow).verdict is INVALID


def test_the_bound_grows_with_all_that_can_hold_a_barrier_up() -> None:
    plan = a_plan(network=NetworkPlan(latency_ms_max=2))
    least = longest_ms(plan, final=True)
    assert least < longest_ms(plan, final=False)
    for slower in (
        a_plan(network=NetworkPlan(latency_ms_max=3)),
        a_plan(network=NetworkPlan(latency_ms_max=2, slow_channel=0)),
        msgspec.structs.replace(plan, checkpoints=CheckpointPlan(async_ms_max=100)),
    ):
        assert longest_ms(slower, final=True) > least


def in_a_loop(batches: int | None) -> TrialContext:
    """A job with a loop, one of whose checkpoints expires; so many batches are seen to be read."""
    taken = (ops.LocalEvent("taken", "head[0]->again[0]", ("{}",)),)
    events = (ops.LocalEvent("sent", "head[0]->again[0]", ("{}",)), *taken * (batches or 0))
    workload, job = WorkloadPlan("rounds"), JobPlan("loop")
    checkpoints = CheckpointPlan(timeout_ms=20_000)
    plan = filled(TrialPlan(seed=1, workload=workload, job=job, checkpoints=checkpoints))
    book = Book().attempt(1).triggered(1).aborted(1)
    if batches is not None:
        book.tell(ops.MessagesObserved("again[0]", 1, events)).tell(
            ops.MessagesObserved("head[0]", 2, events)
        )
    return a_trial(book, plan)


def test_in_a_loop_a_barrier_may_wait_for_each_batch_that_is_read_and_no_longer() -> None:
    for batches, verdict in ((None, VALID), (10, INVALID), (10_000, VALID)):
        assert FailuresExplained().check(in_a_loop(batches)).verdict is verdict, batches
    few, many = in_a_loop(10), in_a_loop(1_000)
    assert most_batches_read(few) == 10 and most_batches_read(many) == 1_000
    assert longest_ms(few.plan, True, 10) == longest_ms(few.plan, True)
    assert longest_ms(few.plan, False, 10) < longest_ms(few.plan, False, 1_000) < longest_ms(few.plan, False)


def test_only_batches_that_were_read_while_a_checkpoint_was_under_way_can_have_held_it_up() -> None:
    taken, recorded = ops.LocalEvent("taken", "head[0]->again[0]", ("{}",)), ops.LocalEvent("recorded")
    first, second, third = (msgspec.structs.replace(recorded, checkpoint=number) for number in (1, 2, 3))
    read = (*[taken] * 4_000, first, *[taken] * 2, second, *[taken] * 3, third, *[taken] * 4_000)
    book = Book().attempt(1).checkpoint(1).triggered(2).aborted(2).triggered(3).completed(3)
    context = a_trial(book.tell(ops.MessagesObserved("again[0]", 1, read)), in_a_loop(None).plan)
    (attempt,) = lives_of(context)
    batches = BatchesRead(context, attempt)
    assert [batches.during(life) for life in attempt.checkpoints] == [4_002, 5, 4_005]
    assert FailuresExplained().check(context).verdict is INVALID


def test_without_a_loop_no_batch_needs_to_be_counted() -> None:
    context = a_trial(UNDISTURBED, a_plan())
    assert most_batches_read(context) is None
    assert longest_ms(context.plan, False, 5) == longest_ms(context.plan, False)


def test_nobody_passes_a_checkpoint_over_that_a_newer_one_subsumes() -> None:
    def learned(reason: Reason, passed_over_for: int | None) -> Finding:
        book = failed(Book().attempt(1).triggered(1).triggered(2).completed(2), 1, reason)
        return judge(SnapshotOrder(), book.tell(ops.AbortLearned(1, 1, "sink[0]", (), passed_over_for)))

    found = learned(Reason.SUBSUMED, 2)
    assert (
        found.verdict is INVALID
        and "sink[0] of attempt 1" in found.summary
        and "checkpoint 2" in found.summary
    )
    assert learned(Reason.SUBSUMED, None).verdict is VALID
    assert learned(Reason.EXPIRED, 2).verdict is VALID, "a barrier is not forwarded by who knows of the abort"
