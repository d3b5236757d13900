"""Progress: what counts as progress after faults, and when a job may give up."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from barrier_tck.faults.kinds.cut_channel import CutChannel
from barrier_tck.faults.kinds.damage_local_copy import DamageLocalCopy
from barrier_tck.faults.kinds.damage_primary import DamagePrimary
from barrier_tck.faults.kinds.pause_worker import PauseWorker
from barrier_tck.faults.targets import Damage
from barrier_tck.faults.vocabulary import At, ScheduledFault
from barrier_tck.harness.oracle.checkers.progress import Progress
from barrier_tck.harness.oracle.checkers.tolerated_failures import ToleratedFailures
from barrier_tck.harness.plan.trial_plan import CheckpointPlan, LimitsPlan
from barrier_tck.harness.record.history import End
from barrier_tck.harness.record.operations import (
    AttemptEnded,
    AttemptRunning,
    CheckpointAborted,
    CheckpointTriggered,
    Crashed,
    HeldUp,
    JobCut,
    JobFinished,
)
from barrier_tck.harness.record.reasons import Reason
from barrier_tck.harness.record.records import FaultRecord
from barrier_tck.harness.record.slow_machine import (
    STARTS_ALLOWED,
    WAITS_ALLOWED,
    allowed_on_a_slow_machine_ms,
    first_start_ms,
)
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.system.system_under_test import Capability
from tests.harness.oracle.oracle_histories import (
    KILL,
    Book,
    a_context,
    a_plan,
    input_of,
    positions_at,
    restarts,
    right_view,
)


def judge(book: Book, end: End = End.FINISHED, pending: tuple[str, ...] = (), **plan: Any) -> Finding:
    described = a_plan(**plan)
    return Progress(input_of(described)).check(a_context(described, book, end, pending=pending))


def test_a_job_that_finishes_with_a_checkpoint_after_its_last_fault_is_valid() -> None:
    book = Book().attempt(1).checkpoint(1).fault().attempt_failed(1).attempt(2, 1).checkpoint(2, 2)
    assert judge(book, faults=(KILL,)).verdict is Verdict.VALID
    assert judge(Book().attempt(1).checkpoint(1)).verdict is Verdict.VALID


def test_a_job_that_gives_up_checkpoints_to_which_nothing_had_happened_breaks_rec_4() -> None:
    plan = a_plan(faults=(KILL,))
    book = Book().attempt(1).checkpoint(1).fault().attempt_failed(1)
    context = a_context(plan, book, End.FAILED, reason=Reason.CHECKPOINT_UNREADABLE)
    finding = Progress(input_of(plan)).check(context)
    assert (finding.verdict, finding.broken, finding.also) == (Verdict.INVALID, "REC-4", ("REC-6",))
    assert judge(book, End.FAILED, faults=(KILL,)).broken == "REC-6"


def test_each_failed_attempt_of_a_repeatable_run_has_its_fault() -> None:
    book = Book().attempt(1).checkpoint(1).fault().attempt_failed(1).attempt(2, 1).checkpoint(2, 2)
    once_more = book.attempt_failed(2).attempt(3, 2).checkpoint(3, 3)

    def judged(*capabilities: str, fault: ScheduledFault = KILL) -> Finding:
        plan = a_plan(faults=(fault,))
        context = replace(a_context(plan, once_more), capabilities=frozenset(capabilities))
        return Progress(input_of(plan)).check(context)

    finding = judged("DETERMINISTIC_REPLAY")
    assert finding.verdict is Verdict.INVALID
    assert "failed attempts that no fault explains: 1" in finding.summary
    external_storage = judged()
    assert external_storage.verdict is Verdict.VALID
    assert "failed attempts that no fault explains: 1" in external_storage.summary
    damaged = ScheduledFault(DamageLocalCopy("totals[0]", Damage.MISSING), At(10))
    assert "explains: 2" in judged(fault=damaged).summary, "a damaged copy fails no attempt"


@pytest.mark.parametrize("reason", [Reason.DECLINED, Reason.EXPIRED, Reason.STORAGE_FAILED])
@pytest.mark.parametrize(
    ("tolerated", "aborted", "verdict"),
    [(0, 1, Verdict.VALID), (1, 2, Verdict.VALID), (1, 1, Verdict.INVALID), (3, 2, Verdict.INVALID)],
)
def test_an_attempt_may_end_because_more_checkpoints_failed_than_are_tolerated_and_not_before(
    tolerated: int, aborted: int, verdict: Verdict, reason: Reason
) -> None:
    book = Book().attempt(1).checkpoint(1)
    for number in range(2, 2 + aborted):
        book = book.triggered(number).tell(CheckpointAborted(number, 1, reason))
    book = book.tell(AttemptEnded(1, Reason.CHECKPOINTS_FAILED)).attempt(2, 1).checkpoint(9, 2)
    plan = a_plan(checkpoints=CheckpointPlan(tolerated_failures=tolerated))
    context = replace(a_context(plan, book), capabilities=frozenset({"DETERMINISTIC_REPLAY"}))
    finding = Progress(input_of(plan)).check(context)
    assert finding.verdict is verdict, finding.summary


def test_a_completed_checkpoint_ends_a_row_of_failed_ones() -> None:
    book = Book().attempt(1).triggered(1).aborted(1).checkpoint(2).triggered(3).aborted(3)
    book = book.tell(AttemptEnded(1, Reason.CHECKPOINTS_FAILED)).attempt(2, 2).checkpoint(4, 2)
    plan = a_plan(checkpoints=CheckpointPlan(tolerated_failures=1))
    context = replace(a_context(plan, book), capabilities=frozenset({"DETERMINISTIC_REPLAY"}))
    assert Progress(input_of(plan)).check(context).verdict is Verdict.INVALID


def test_a_completed_savepoint_ends_no_row_of_failed_checkpoints() -> None:
    book = Book().attempt(1).triggered(1).aborted(1)
    book = (
        book.tell(CheckpointTriggered(2, 1, savepoint="kept"))
        .acknowledged(2)
        .completed(2)
        .triggered(3)
        .aborted(3)
    )
    book = book.tell(AttemptEnded(1, Reason.CHECKPOINTS_FAILED)).attempt(2, 2).checkpoint(4, 2)
    plan = a_plan(checkpoints=CheckpointPlan(tolerated_failures=1))
    context = replace(a_context(plan, book), capabilities=frozenset({"DETERMINISTIC_REPLAY"}))
    assert Progress(input_of(plan)).check(context).verdict is Verdict.VALID
    assert ToleratedFailures().check(context).verdict is Verdict.VALID


def test_no_checkpoint_after_the_last_fault_is_invalid() -> None:
    book = Book().attempt(1).checkpoint(1).fault().attempt_failed(1).attempt(2, 1)
    assert judge(book, faults=(KILL,)).verdict is Verdict.INVALID


def test_a_job_restored_at_the_end_of_its_input_needs_no_further_checkpoint() -> None:
    plan = a_plan(faults=(KILL,))
    book = Book().attempt(1).checkpoint(1).fault().attempt_failed(1).attempt(2, 1)
    context = a_context(plan, book, views=(right_view(plan, 1, positions_at(plan, 1)),))
    assert Progress(input_of(plan)).check(context).verdict is Verdict.VALID
    half = msgspec.structs.replace(
        context.history, checkpoints=(right_view(plan, 1, positions_at(plan, 0.5)),)
    )
    early = a_context(plan, book, views=half.checkpoints)
    assert Progress(input_of(plan)).check(early).verdict is Verdict.INVALID


def test_a_job_that_finished_without_an_attempt_is_invalid_too() -> None:
    assert judge(Book()).verdict is Verdict.INVALID


def test_checkpointing_that_never_worked_is_invalid_unless_it_is_off() -> None:
    assert judge(Book().attempt(1)).verdict is Verdict.INVALID
    off = CheckpointPlan(enabled=False)
    assert judge(Book().attempt(1), checkpoints=off).verdict is Verdict.VALID


def test_a_stuck_job_is_invalid_and_names_what_is_pending() -> None:
    finding = judge(Book().attempt(1), End.STUCK, pending=("ack of totals[1] for checkpoint 3",))
    assert finding.verdict is Verdict.INVALID
    assert "totals[1]" in finding.summary
    assert finding.examples == ("ack of totals[1] for checkpoint 3",)


def test_the_first_thing_that_is_said_of_a_stuck_job_is_what_is_pending_and_not_only_its_state() -> None:
    pending = ("job is running, attempt 3", "checkpoint 7 waits for totals[1]")
    finding = judge(Book().attempt(1), End.STUCK, pending=pending)
    assert finding.first is not None
    assert (finding.broken, finding.first.sentence) == ("REC-6", finding.summary)
    assert "checkpoint 7 waits for totals[1]" in finding.first.sentence
    excused = judge(Book().attempt(1).fault(), End.STUCK, pending=pending, faults=(CUT,))
    assert "checkpoint 7 waits for totals[1]" in excused.summary


@pytest.mark.parametrize(
    ("pending", "able", "verdict"),
    [
        ((), (Capability.ATTEMPTS,), Verdict.INVALID),
        (("checkpoint 3 waits for totals[1]",), (Capability.ATTEMPTS,), Verdict.UNKNOWN),
        ((), (), Verdict.UNKNOWN),
    ],
    ids=["names nothing", "names something", "knows no attempts"],
)
def test_a_job_whose_fault_outlasts_the_trial_names_what_is_pending_too(
    pending: tuple[str, ...], able: tuple[Capability, ...], verdict: Verdict
) -> None:
    plan = a_plan(faults=(CUT,))
    context = a_context(plan, Book().attempt(1).fault(), End.STUCK, pending=pending)
    record = FaultRecord(0, "a fault", "", "", None, "fired", fired_at_ms=10.0, healed_at_ms=100.0)
    names = context.capabilities | {entry.name for entry in able}
    finding = Progress(input_of(plan)).check(replace(context, faults=(record,), capabilities=names))
    assert finding.verdict is verdict, finding.summary


def test_checkpointing_that_never_worked_is_invalid_under_a_healed_fault_too() -> None:
    """A fault after which nothing had to recover excuses a missing checkpoint, but not a run without any checkpoint."""
    book = Book().attempt(1).fault().healing()
    assert judge(book, faults=(KILL,)).verdict is Verdict.INVALID
    assert judge(book.checkpoint(1), faults=(KILL,)).verdict is Verdict.VALID
    # The coordinator may die when a checkpoint is durable, before anybody sees it complete.
    restored = Book().attempt(1).fault().attempt_failed(1).attempt(2, restored=1)
    plan = a_plan(faults=(KILL,))
    context = a_context(plan, restored, views=(right_view(plan, 1, positions_at(plan, 1)),))
    assert Progress(input_of(plan)).check(context).verdict is Verdict.VALID


@pytest.mark.parametrize(
    ("shares", "bound", "verdict"),
    [
        ((0.25, 0.5), True, Verdict.UNKNOWN),
        ((0.5, 0.5), True, Verdict.INVALID),
        ((0.5, 0.25), True, Verdict.INVALID),
        ((0.25, 0.5), False, Verdict.INVALID),
    ],
    ids=["advancing", "standing still", "in circles", "with nothing left to do"],
)
def test_a_job_that_the_bound_cut_off_is_stuck_unless_it_was_still_advancing(
    shares: tuple[float, float], bound: bool, verdict: Verdict
) -> None:
    plan = a_plan()
    book = Book().attempt(1).checkpoint(1)
    book.nothing(20).checkpoint(2)
    book.tell(JobCut(Reason.OUT_OF_TIME if bound else Reason.NOTHING_LEFT))
    views = tuple(right_view(plan, n, positions_at(plan, share)) for n, share in enumerate(shares, 1))
    finding = Progress(input_of(plan)).check(a_context(plan, book, End.STUCK, views=views))
    assert finding.verdict is verdict
    assert ("records were added to checkpoints within the last" in finding.summary) == (
        verdict is Verdict.UNKNOWN
    )


def test_a_job_that_the_harness_could_not_run_is_unknown() -> None:
    assert judge(Book(), End.ERROR).verdict is Verdict.UNKNOWN


def test_a_job_without_restarts_may_give_up_after_a_fault() -> None:
    book = Book().attempt(1).fault().attempt_failed(1)
    assert judge(book, End.FAILED, restart=restarts("none"), faults=(KILL,)).verdict is Verdict.VALID


def test_a_job_may_not_give_up_without_a_fault() -> None:
    book = Book().attempt(1).attempt_failed(1)
    assert judge(book, End.FAILED, restart=restarts("none")).verdict is Verdict.INVALID


def test_a_job_may_not_give_up_while_it_has_restarts_left() -> None:
    book = Book().attempt(1).fault().attempt_failed(1)
    assert judge(book, End.FAILED, faults=(KILL,)).verdict is Verdict.INVALID


def test_a_job_that_gives_up_without_any_fault_is_told_so() -> None:
    alone = judge(Book().attempt(1).attempt_failed(1), End.FAILED)
    hit = judge(Book().attempt(1).fault().attempt_failed(1), End.FAILED, faults=(KILL,))
    assert alone.verdict is hit.verdict is Verdict.INVALID
    assert "no fault had struck" in alone.summary and "no fault had struck" not in hit.summary


def test_a_job_may_give_up_when_as_many_faults_as_restarts_used_the_budget_up() -> None:
    book = Book().attempt(1).fault(0).attempt_failed(1).attempt(2).fault(1).attempt_failed(2)
    once = restarts(attempts_max=1)
    assert judge(book, End.FAILED, restart=once, faults=(KILL, KILL)).verdict is Verdict.VALID


def test_one_fault_that_makes_every_restart_fail_is_invalid() -> None:
    book = (
        Book().attempt(1).fault().attempt_failed(1).attempt(2).attempt_failed(2).attempt(3).attempt_failed(3)
    )
    finding = judge(book, End.FAILED, restart=restarts(attempts_max=2), faults=(KILL,))
    assert finding.verdict is Verdict.INVALID
    assert finding.counts == {"faults_fired": 1, "attempts_failed": 3}


# --- faults that last ---------------------------------------------------------------------------------------

PAUSE = ScheduledFault(PauseWorker("totals[0]", 500), At(10))
CUT = ScheduledFault(CutChannel("source[0]", "totals[0]", 500), At(10))
DAMAGE = ScheduledFault(DamagePrimary("totals[0]"), At(10))
LOCAL_DAMAGE = ScheduledFault(DamageLocalCopy("totals[0]", Damage.MISSING), At(10))


def test_a_job_must_go_on_within_the_bound_after_the_last_healing() -> None:
    book = Book().attempt(1).checkpoint(1).fault().attempt_failed(1).attempt(2, 1).healing()
    book.checkpoint(2, 2).tell(JobFinished())
    assert judge(book, faults=(PAUSE,)).verdict is Verdict.VALID
    tight = a_plan(faults=(PAUSE,), limits=LimitsPlan(progress_ms=3))
    context = replace(a_context(tight, book), capabilities=frozenset({Capability.DETERMINISTIC_REPLAY.name}))
    finding = Progress(input_of(tight)).check(context)
    assert finding.verdict is Verdict.INVALID and "within 3 ms after the last healing" in finding.summary


def test_a_machine_that_was_slow_to_start_the_job_is_given_more_time_for_it_except_where_time_is_virtual() -> (
    None
):
    book = Book().attempt(1).checkpoint(1).fault().healing()
    took_ms = first_start_ms(book.operations)
    assert took_ms
    healed_ms = book.operations[-1].time_ms

    def judged(later_ms: float, *capabilities: str) -> Verdict:
        book_of_it = Book()
        book_of_it.operations = list(book.operations)
        book_of_it.tell(JobFinished())
        last = book_of_it.operations[-1]
        book_of_it.operations[-1] = msgspec.structs.replace(last, time_ms=healed_ms + later_ms)
        plan = a_plan(faults=(PAUSE,), limits=LimitsPlan(progress_ms=10_000))
        context = replace(a_context(plan, book_of_it), capabilities=frozenset(capabilities))
        return Progress(input_of(plan)).check(context).verdict

    allowed_ms = 10_000 + STARTS_ALLOWED * took_ms
    assert judged(allowed_ms) is Verdict.VALID
    assert judged(allowed_ms + 1) is Verdict.INVALID
    assert judged(allowed_ms, Capability.DETERMINISTIC_REPLAY.name) is Verdict.INVALID
    assert judged(10_000, Capability.DETERMINISTIC_REPLAY.name) is Verdict.VALID


def test_a_bound_is_at_most_doubled_and_a_start_that_a_fault_disturbed_measures_nothing() -> None:
    book = Book().attempt(1)
    took_ms = first_start_ms(book.operations)
    assert took_ms
    assert allowed_on_a_slow_machine_ms(book.operations, took_ms) == took_ms
    assert first_start_ms(Book().operations) is None
    disturbed = [
        operation for operation in book.operations if not isinstance(operation.operation, AttemptRunning)
    ]
    assert first_start_ms(disturbed) is None
    assert first_start_ms([*disturbed, *Book().fault().operations, *book.operations]) is None


def test_the_time_in_which_a_job_waited_for_a_processor_does_not_count_from_the_healing_on() -> None:
    def judged(took_ms: int, waited_before_ms: float, waited_ms: float) -> Verdict:
        book = Book().attempt(1).checkpoint(1).fault().tell(HeldUp(waited_before_ms)).healing()
        book.nothing(took_ms - 2).tell(HeldUp(waited_before_ms + waited_ms)).tell(JobFinished())
        return judge(book, faults=(PAUSE,), limits=LimitsPlan(progress_ms=20)).verdict

    assert judged(20, 0, 0) is Verdict.VALID
    assert judged(40, 0, 0) is Verdict.INVALID
    assert judged(40, 0, 20) is Verdict.VALID
    assert judged(40, 100, 10) is Verdict.INVALID, "what it waited before says nothing"
    assert judged(20 * (1 + WAITS_ALLOWED) + 10, 0, 1_000) is Verdict.INVALID, "there is an end to it"


def test_a_job_that_ended_before_the_healing_has_nothing_to_prove() -> None:
    book = Book().attempt(1).fault().checkpoint(1).tell(JobFinished()).healing()
    assert judge(book, faults=(PAUSE,), limits=LimitsPlan(progress_ms=1)).verdict is Verdict.VALID


def test_a_lasting_fault_explains_every_attempt_that_ran_meanwhile_and_no_later_one() -> None:
    book = Book().attempt(1).fault().attempt_failed(1).attempt(2).attempt_failed(2).attempt(3)
    during = Book()
    during.operations = list(book.operations)
    during.healing().attempt_failed(3)
    once = restarts(attempts_max=2)
    assert judge(during, End.FAILED, restart=once, faults=(CUT,)).verdict is Verdict.VALID
    after = Book().attempt(1).fault().attempt_failed(1).healing()
    after.attempt(2).attempt_failed(2).attempt(3).attempt_failed(3)
    assert judge(after, End.FAILED, restart=once, faults=(CUT,)).verdict is Verdict.INVALID


@pytest.mark.parametrize(
    ("fault", "failed_after_ms", "verdict"),
    [
        (KILL, 500, Verdict.INVALID),
        (KILL, 0, Verdict.VALID),  # its effect may be noticed in the next attempt
        (PAUSE, 500, Verdict.INVALID),
        (DAMAGE, 500, Verdict.VALID),  # it is met when it is read
        (LOCAL_DAMAGE, 500, Verdict.INVALID),  # the primary serves
    ],
    ids=["kill", "just-before", "healed", "damage", "local-damage"],
)
def test_a_subtask_that_fails_by_itself_is_a_bug_even_if_faults_are_to_spare(
    fault: ScheduledFault, failed_after_ms: int, verdict: Verdict
) -> None:
    """Two faults and one failed attempt: counted alone, the faults would explain it."""
    book = Book().attempt(1).checkpoint(1).fault(0).fault(1)
    if fault is PAUSE:
        book.healing(0).healing(1)
    book.nothing(failed_after_ms).tell(AttemptEnded(1, Reason.STOPPED)).attempt(2, 1)
    book.tell(AttemptEnded(2, Reason.SUBTASK_FAILED, "it got a record round a loop that had ended"))
    book.attempt(3, 1).checkpoint(2, 3).tell(JobFinished())
    plan = a_plan(faults=(fault, fault))
    context = replace(a_context(plan, book), capabilities=frozenset({"DETERMINISTIC_REPLAY"}))
    finding = Progress(input_of(plan)).check(context)
    assert finding.verdict is verdict, finding.summary
    assert verdict is Verdict.VALID or "a subtask failed by itself in attempt 2: it got" in finding.summary


@pytest.mark.parametrize(("fault", "verdict"), [(CUT, Verdict.UNKNOWN), (PAUSE, Verdict.INVALID)])
def test_a_job_stuck_under_a_fault_is_excused_only_if_the_fault_may_cut_off_the_whole_job(
    fault: ScheduledFault, verdict: Verdict
) -> None:
    plan = a_plan(faults=(fault,))
    context = a_context(plan, Book().attempt(1).fault(), End.STUCK)
    record = FaultRecord(0, "a fault", "", "", None, "fired", fired_at_ms=10.0, healed_at_ms=100.0)
    cut_short = replace(context, faults=(record,))
    assert Progress(input_of(plan)).check(cut_short).verdict is verdict
    lasted = replace(context, faults=(msgspec.structs.replace(record, healed_at_ms=510.0),))
    assert Progress(input_of(plan)).check(lasted).verdict is Verdict.INVALID


@pytest.mark.parametrize(
    ("of_harness", "verdict", "whose"),
    [(False, Verdict.INVALID, "its own"), (True, Verdict.UNKNOWN, "the harness")],
)
def test_an_exception_of_its_own_is_excused_by_no_fault(
    of_harness: bool, verdict: Verdict, whose: str
) -> None:
    book = Book().attempt(1).checkpoint(1).fault()
    book.tell(Crashed("totals[0]", 1, "KeyError: 3", "sinks.py, line 7", of_harness))
    book = book.attempt_failed(1).attempt(2, 1).checkpoint(2, 2)
    finding = judge(book, faults=(KILL,))
    assert finding.verdict is verdict
    assert finding.summary.startswith(
        f"totals[0] died of an exception of {whose}: KeyError: 3 (sinks.py, line 7)"
    )
