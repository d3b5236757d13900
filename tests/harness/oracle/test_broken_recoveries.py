"""Which broken recoveries a trial would have shown; grain: scripted histories, then the effect of a break."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import msgspec
import pytest

from barrier_tck.faults.kinds.kill_worker import KillWorker
from barrier_tck.faults.vocabulary import After, ProtocolPoint, ScheduledFault
from barrier_tck.harness.oracle.broken_recoveries import vacuity_reasons
from barrier_tck.harness.plan.trial_plan import CheckpointingMode, CheckpointPlan, TrialPlan, WorkloadPlan
from barrier_tck.harness.record import operations as ops
from barrier_tck.harness.record.history import SnapshotView
from barrier_tck.harness.record.reasons import Reason
from barrier_tck.harness.record.records import FaultRecord
from barrier_tck.harness.record.verdict import EXERCISED, Finding, Verdict
from barrier_tck.harness.reference.simulated.simulated_system import ReferenceSimulated
from barrier_tck.harness.system.broken_recovery import BrokenRecovery, Vacuity
from barrier_tck.harness.trial.trial_run import run_trial
from barrier_tck.harness.workloads.keyed_totals import KeyedTotals
from barrier_tck.harness.workloads.payments import OPENING
from tests.harness.oracle.oracle_histories import CRASH, Book, a_context, a_plan, right_view

PLAN = a_plan()
SPLITS = [split.name for split in KeyedTotals().splits(PLAN)]
JUDGED = (Finding("all", ("REC-1", "REC-2", "SRC-1", "SNK-1"), Verdict.VALID, ""),)
RESTORING = (BrokenRecovery.READ_AGAIN, BrokenRecovery.STATE_DROPPED)


def view(checkpoint: int, read: int, attempt: int = 1) -> SnapshotView:
    """Return a right checkpoint, a number of records into the first split."""
    at = dict.fromkeys(SPLITS, 0) | {SPLITS[0]: read}
    return msgspec.structs.replace(right_view(PLAN, checkpoint, at), attempt=attempt)


def chances(book: Book, *views: SnapshotView, judged: Any = JUDGED, **changes: Any) -> dict[str, str]:
    context = a_context(msgspec.structs.replace(PLAN, **changes), book, views=views)
    return vacuity_reasons(context, judged)


def recovered(restored: int | None = 1) -> Book:
    book = Book().attempt(1).checkpoint(1).attempt_failed(1)
    return book.attempt(2, restored).checkpoint(2, 2)


def test_a_restore_in_the_midst_of_the_input_shows_what_is_restored_wrongly() -> None:
    shown = chances(recovered(), view(1, read=2), view(2, read=4, attempt=2))
    assert [shown[how] for how in RESTORING] == ["", ""]


@pytest.mark.parametrize(
    ("book", "views", "why"),
    [
        (Book().attempt(1).checkpoint(1), (view(1, 2),), Vacuity.NOT_RECOVERED),
        (
            Book().attempt(1).checkpoint(1).attempt_failed(1).started(2, 1),
            (view(1, 2),),
            Vacuity.NOT_RECOVERED,
        ),
        (recovered(None), (view(2, 4, 2),), Vacuity.TOO_EARLY),
        (recovered(), (view(1, 0), view(2, 4, 2)), Vacuity.TOO_EARLY),
        (recovered(), (view(1, 4), view(2, 4, 2)), Vacuity.INPUT_WAS_READ),
        (recovered(), (view(1, 2),), Vacuity.NOT_COMPARED),
        (recovered(), (view(1, 2), view(2, 4, attempt=1)), Vacuity.NOT_COMPARED),
        (recovered(), (), Vacuity.NOT_COMPARED),
    ],
    ids=[
        "no failure",
        "an attempt that never ran",
        "began again at the beginning",
        "restored from before the first record",
        "nothing left to read",
        "no later checkpoint",
        "a later checkpoint of the attempt before",
        "no checkpoint was opened",
    ],
)
def test_a_trial_says_why_it_would_not_have_shown_it(
    book: Book, views: tuple[SnapshotView, ...], why: Vacuity
) -> None:
    shown = chances(book, *views)
    assert [shown[how] for how in RESTORING] == [why.value, why.value]


def test_without_state_only_what_is_read_again_shows() -> None:
    bare = msgspec.structs.replace(view(1, 2), state=())
    shown = chances(recovered(), bare, view(2, 4, 2))
    assert [shown[how] for how in RESTORING] == ["", Vacuity.NOTHING_KEPT.value]


@pytest.mark.parametrize(("balance", "shows"), [(OPENING, False), (OPENING - 1, True)])
def test_an_account_with_the_balance_of_a_new_one_is_not_missed(balance: int, shows: bool) -> None:
    (part, *_) = view(1, 2).state
    kept = (msgspec.structs.replace(part, entries={'["bank/0"]': [balance]}),)
    bank = msgspec.structs.replace(PLAN.workload, name="money")
    shown = chances(
        recovered(), msgspec.structs.replace(view(1, 2), state=kept), view(2, 4, 2), workload=bank
    )
    assert shown[BrokenRecovery.READ_AGAIN] == ""
    assert shown[BrokenRecovery.STATE_DROPPED] == ("" if shows else Vacuity.NOTHING_KEPT)


def test_dropped_keyed_state_does_not_show_where_only_lists_are_kept() -> None:
    lists = tuple(msgspec.structs.replace(part, keyed=False) for part in view(1, 2).state)
    assert any(part.entries for part in lists)
    shown = chances(recovered(), msgspec.structs.replace(view(1, 2), state=lists), view(2, 4, 2))
    assert [shown[how] for how in RESTORING] == ["", Vacuity.NOTHING_KEPT.value]


def test_what_no_checker_speaks_for_does_not_show() -> None:
    of_rec_2 = (Finding("one", ("REC-2",), Verdict.VALID, ""),)
    shown = chances(recovered(), view(1, 2), view(2, 4, 2), judged=of_rec_2)
    assert {shown[how] for how in RESTORING} == {Vacuity.NOT_COMPARED.value}


@pytest.mark.parametrize(("counted", "why"), [(0, Vacuity.NOT_COMPARED.value), (2, "")])
def test_a_checker_that_says_itself_that_nothing_could_have_been_wrong_shows_nothing(
    counted: int, why: str
) -> None:
    """As of a sink that had been given no rows of what ran again: a kill alone is no chance."""
    itself = (Finding("one", ("SNK-1",), Verdict.VALID, "", {EXERCISED: counted}),)
    shown = chances(pending(GIVEN_UP, prepared=3), judged=itself)
    assert shown[BrokenRecovery.COMMITTED_EARLY] == why


def pending(ends: ops.Operation | None = None, prepared: int = 0) -> Book:
    """Return a history in which the sink has acknowledged checkpoint 2 when attempt 1 fails."""
    book = Book().attempt(1).checkpoint(1).triggered(2)
    book.tell(ops.Acknowledged(2, 1, "sink[0]", prepared=prepared))
    if ends is not None:
        book.tell(ends)
    return book.attempt_failed(1).attempt(2, 1).checkpoint(3, 2)


GIVEN_UP = ops.CheckpointAborted(2, 1, Reason.ATTEMPT_FAILED)


def test_what_was_pending_when_its_attempt_failed_shows_a_missing_fence() -> None:
    how = BrokenRecovery.UNFENCED
    assert chances(pending(GIVEN_UP))[how] == ""
    assert chances(pending(ops.CheckpointAborted(2, 1, Reason.EXPIRED)))[how] == Vacuity.NOTHING_PENDING
    assert chances(recovered())[how] == Vacuity.NOTHING_PENDING


def test_a_crashed_coordinator_could_tell_nobody_what_it_gave_up() -> None:
    context = a_context(msgspec.structs.replace(PLAN, faults=(CRASH,)), pending())
    fired = FaultRecord(0, "crash", "crash_coordinator", "at 10 ms", None, "fired")
    crashed = dataclasses.replace(context, faults=(fired,))
    assert vacuity_reasons(crashed, JUDGED)[BrokenRecovery.UNFENCED] == Vacuity.NOTHING_PENDING


def test_of_a_system_that_does_not_show_what_it_restores_the_output_and_its_faults_decide() -> None:
    kill = ScheduledFault(KillWorker("source[0]"), After(ProtocolPoint.CHECKPOINT_COMPLETED))
    book = Book().attempt(1).checkpoint(1).fault().attempt_failed(1).attempt(2, 1).checkpoint(2)
    context = a_context(msgspec.structs.replace(PLAN, faults=(kill,)), book)
    assert vacuity_reasons(context, JUDGED)[BrokenRecovery.READ_AGAIN] == Vacuity.NOT_COMPARED
    closed = dataclasses.replace(context, capabilities=frozenset({"CHECKPOINTS", "ATTEMPTS"}))
    reasons = vacuity_reasons(closed, JUDGED)
    assert reasons[BrokenRecovery.READ_AGAIN] == reasons[BrokenRecovery.COMMITTED_EARLY] == ""
    assert reasons[BrokenRecovery.STATE_DROPPED] == Vacuity.NOT_REPORTED
    assert reasons[BrokenRecovery.UNFENCED] == Vacuity.NOT_REPORTED
    opened = dataclasses.replace(closed, capabilities=frozenset({"CHECKPOINTS", "SNAPSHOT_INSPECTION"}))
    of_opened = vacuity_reasons(opened, JUDGED)
    assert of_opened[BrokenRecovery.COMMITTED_EARLY] == "", "what was prepared is known with barriers only"
    assert of_opened[BrokenRecovery.READ_AGAIN] == Vacuity.NOT_COMPARED, "what was restored was not opened"


def test_prepared_output_of_a_checkpoint_that_never_completed_shows_an_early_commit() -> None:
    how = BrokenRecovery.COMMITTED_EARLY
    assert chances(pending(GIVEN_UP, prepared=3))[how] == ""
    assert chances(pending(GIVEN_UP))[how] == Vacuity.NOTHING_PREPARED
    completed = ops.CheckpointCompleted(2, 1)
    assert chances(pending(completed, prepared=3))[how] == Vacuity.NOTHING_PREPARED


@pytest.mark.parametrize(
    ("mode", "started_from", "reason"),
    [
        ("at_least_once", 1, Vacuity.EXCUSED.value),
        ("at_least_once", None, ""),
        ("exactly_once", 1, ""),
    ],
)
def test_an_early_commit_behind_what_was_rightly_committed_twice_does_not_show_at_least_once(
    mode: CheckpointingMode, started_from: int | None, reason: str
) -> None:
    book = Book().attempt(1).checkpoint(1).checkpoint(2).triggered(3)
    book.tell(ops.Acknowledged(3, 1, "sink[0]", prepared=3)).attempt_failed(1)
    if started_from is not None:
        book.tell(ops.StartedFromSavepoint(started_from, "savepoint-1"))
    book.attempt(2, started_from or 2).checkpoint(4, 2)
    checkpoints = msgspec.structs.replace(PLAN.checkpoints, mode=mode)
    assert chances(book, checkpoints=checkpoints)[BrokenRecovery.COMMITTED_EARLY] == reason


# --- what a break does to a trial ---------------------------------------------------------------------------


def killed(point: ProtocolPoint, nth: int = 1, subtask: str = "keep[0]") -> ScheduledFault:
    return ScheduledFault(KillWorker("keep[0]"), After(point, subtask, nth))


TWICE = TrialPlan(
    seed=2,
    workload=WorkloadPlan("lineage", batches=8, batch_records=3, records_per_second=300),
    checkpoints=CheckpointPlan(mode="at_least_once", interval_ms=15),
    faults=(
        killed(ProtocolPoint.RECORDS_PROCESSED),
        killed(ProtocolPoint.COMPLETION_NOTIFIED, subtask="out[0]"),
    ),
)
"""Lineage in at-least-once mode; the first recovery starts from the beginning, the second restores a checkpoint."""


def test_a_recovery_from_the_beginning_does_not_excuse_records_that_are_read_again(tmp_path: Path) -> None:
    system = ReferenceSimulated()
    record = run_trial(TWICE, system, tmp_path)
    assert record.verdict is Verdict.VALID, record.findings
    restored = [attempt.restored_checkpoint for attempt in record.attempts]
    assert restored[:2] == [None, None] and restored[2] is not None
    assert record.vacuity_reasons[BrokenRecovery.READ_AGAIN] == ""
    broken = system.broken(TWICE, BrokenRecovery.READ_AGAIN)
    assert broken is not None
    control = run_trial(broken, system, tmp_path)
    (finding,) = [one for one in control.findings if one.checker == "dataflow"]
    assert finding.verdict is Verdict.INVALID
