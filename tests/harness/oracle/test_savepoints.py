"""The checkers of savepoints and of stops: right histories, and one wrong history for each kind of mistake."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from barrier_tck.faults.fault import Fault
from barrier_tck.faults.kinds.crash_coordinator import CrashCoordinator
from barrier_tck.faults.kinds.cut_object_store import CutObjectStore
from barrier_tck.faults.kinds.delay_object_store import DelayObjectStore
from barrier_tck.faults.kinds.pause_worker import PauseWorker
from barrier_tck.faults.vocabulary import At, ScheduledFault
from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.oracle.checkers.savepoints import Savepoints
from barrier_tck.harness.oracle.checkers.savepoints_answered import SavepointsAnswered
from barrier_tck.harness.oracle.checkers.stop_with_savepoint import StopWithSavepoint
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.record import operations as ops
from barrier_tck.harness.record.history import End, NamedFile, SnapshotView, StorageView
from barrier_tck.harness.record.operations import Operation
from barrier_tck.harness.record.reasons import Reason
from barrier_tck.harness.record.stored import (
    StoredCheckpoint,
    StoredFile,
    StoredOperator,
    StoredPart,
    StoredSavepoint,
)
from barrier_tck.harness.record.verdict import Finding, Verdict
from tests.harness.oracle.oracle_histories import SUBTASKS, Book, a_context, a_plan

PLACE = "savepoints/one"
FILE = StoredFile("totals-0-state", 5, "crc32:1", 5, "crc32:1")
AT = {"split-0-0": 4, "split-0-1": 6}


def savepoint(book: Book, checkpoint: int, stops: bool = False) -> Book:
    book.tell(ops.CheckpointTriggered(checkpoint, 1, savepoint=PLACE, stops=stops))
    return book.acknowledged(checkpoint).completed(checkpoint)


def a_view(checkpoint: int = 2) -> SnapshotView:
    files: dict[str, tuple[NamedFile, ...]] = {
        "totals[0]": (NamedFile(f"{PLACE}/{FILE.path}", FILE.size, FILE.checksum),)
    }
    return SnapshotView(checkpoint, 1, AT, subtasks=SUBTASKS, files=files, savepoint=PLACE)


def stored(**changes: Any) -> StoredSavepoint:
    parts = [StoredPart(subtask) for subtask in SUBTASKS if subtask not in ("source[0]", "totals[0]")]
    source = StoredPart("source[0]", (StoredOperator("source", AT),))
    totals = StoredPart("totals[0]", (StoredOperator("totals", {}, changes.pop("files", (FILE,))),))
    parts = [part for part in (source, totals, *parts) if part.subtask != changes.get("without")]
    changes.pop("without", None)
    contents = msgspec.structs.replace(StoredCheckpoint(2, tuple(parts)), **changes.pop("contents", {}))
    return msgspec.structs.replace(StoredSavepoint(PLACE, contents), **changes)


# --- savepoints ---------------------------------------------------------------------------------------------


def kept(*there: StoredSavepoint, book: Book | None = None) -> Finding:
    story = book or savepoint(Book().attempt(1).checkpoint(1), 2).checkpoint(3)
    storage = StorageView(retained=(3,), savepoints=there)
    return Savepoints().check(a_context(a_plan(), story, views=(a_view(),), storage=storage))


def test_a_savepoint_that_is_there_and_whole_is_valid() -> None:
    finding = kept(stored())
    assert (finding.verdict, finding.clauses) == (Verdict.VALID, ("COO-5",))
    assert kept(book=Book().attempt(1).checkpoint(1)).clauses == (), "without any savepoint nothing is shown"


@pytest.mark.parametrize(
    ("there", "why"),
    [
        ((), "is not there any more"),
        ((stored(contents={"problem": Reason.MISSING}),), "its metadata is missing"),
        ((stored(contents={"checkpoint": 1}),), "that of checkpoint 1"),
        ((stored(outside=("job/chk-1/f",)),), "outside its directory"),
        ((stored(unnamed=(f"{PLACE}/left",)),), "nothing names it"),
        ((stored(without="sink[0]"),), "no part of sink[0]"),
        ((stored(without="source[0]"),), "its positions are"),
        ((stored(files=(msgspec.structs.replace(FILE, found_size=None),)),), "cannot be read"),
        (
            (stored(files=(msgspec.structs.replace(FILE, found_checksum="crc32:2"),)),),
            "not what the metadata",
        ),
        ((stored(files=()),), "was among its files when it completed"),
    ],
)
def test_a_savepoint_that_is_not_what_it_was_is_invalid(there: tuple[StoredSavepoint, ...], why: str) -> None:
    finding = kept(*there)
    assert finding.verdict is Verdict.INVALID
    assert any(why in example for example in finding.examples), finding.examples


def test_a_savepoint_that_was_subsumed_or_failed_and_looks_complete_is_invalid() -> None:
    begun = Book().attempt(1).tell(ops.CheckpointTriggered(2, 1, savepoint=PLACE))
    subsumed = begun.checkpoint(3).tell(ops.CheckpointAborted(2, 1, Reason.SUBSUMED))
    assert "not subsumed" in kept(book=subsumed).examples[0]
    failed = Book().attempt(1).tell(ops.CheckpointTriggered(2, 1, savepoint=PLACE))
    failed.tell(ops.CheckpointAborted(2, 1, Reason.EXPIRED)).checkpoint(3)
    assert "looks complete" in kept(stored(), book=failed).examples[0]
    assert kept(book=failed).verdict is Verdict.VALID


@pytest.mark.parametrize(
    ("fault", "begins_first", "heals_first", "verdict"),
    [
        (CutObjectStore(100), True, False, Verdict.VALID),
        (CutObjectStore(100), True, True, Verdict.INVALID),
        (CutObjectStore(100), False, False, Verdict.INVALID),
        (DelayObjectStore(20, 100), True, False, Verdict.INVALID),
        (PauseWorker("totals[0]", 100), True, False, Verdict.INVALID),
    ],
    ids=["refuses to the end", "heals before", "begins later", "is only slow", "is elsewhere"],
)
def test_a_failed_savepoint_may_look_complete_only_if_it_could_not_be_taken_back(
    fault: Fault, begins_first: bool, heals_first: bool, verdict: Verdict
) -> None:
    book = Book().attempt(1).checkpoint(1).tell(ops.CheckpointTriggered(2, 1, savepoint=PLACE))
    if begins_first:
        book.fault()
    book.tell(ops.CheckpointAborted(2, 1, Reason.STORAGE_FAILED))
    if not begins_first:
        book.fault()
    if heals_first:
        book.healing()
    book.tell(ops.JobFailed(Reason.RESTARTS_USED_UP, "all restarts are used up"))
    if not heals_first:
        book.healing()
    plan = a_plan(faults=(ScheduledFault(fault, At(1)),))
    storage = StorageView(retained=(1,), savepoints=(stored(),))
    context = a_context(plan, book, End.FAILED, views=(a_view(),), storage=storage)
    assert Savepoints().check(context).verdict is verdict


# --- stops --------------------------------------------------------------------------------------------------


def stopped(before: Callable[[Book], Book] = lambda book: book) -> Book:
    """Tell a stop with checkpoint 2; ``before`` adds something between its completion and the stop."""
    book = savepoint(Book().attempt(1).checkpoint(1), 2, stops=True)
    return before(book.committed(2)).tell(ops.JobStopped(2))


def judged(book: Book) -> Finding:
    context = a_context(a_plan(), book, views=(a_view(),))
    return StopWithSavepoint().check(_with_job(context))


def _with_job(context: TrialContext) -> TrialContext:
    from dataclasses import replace

    from barrier_tck.harness.workloads.barrier_jobs import barrier_view

    return replace(context, job=barrier_view(context.plan))


def left(offset: int, attempt: int = 1) -> ops.InputLeft:
    return ops.InputLeft("source[0]", attempt, "split-0-0", offset)


def test_a_stop_behind_which_nothing_happens_is_valid() -> None:
    finding = judged(stopped().tell(left(4)).attempt(2, 2).checkpoint(3, 2).tell(ops.JobFinished()))
    assert (finding.verdict, finding.clauses) == (Verdict.VALID, ("COO-5",))
    assert judged(Book().attempt(1).checkpoint(1)).clauses == (), "without any stop nothing is shown"


def test_a_job_that_goes_on_after_its_savepoint_failed_is_valid() -> None:
    book = Book().attempt(1).tell(ops.CheckpointTriggered(2, 1, savepoint=PLACE, stops=True)).aborted(2)
    book.tell(ops.ReadBehindStop("totals[0]", 1, 2)).checkpoint(3).tell(left(8))
    assert judged(book).verdict is Verdict.VALID


def test_commits_may_be_finished_by_another_attempt() -> None:
    book = savepoint(Book().attempt(1), 2, stops=True).attempt_failed(1).attempt(2, 2).committed(2)
    assert judged(book.tell(ops.JobStopped(2))).verdict is Verdict.VALID


@pytest.mark.parametrize(
    ("book", "why"),
    [
        (stopped().tell(left(5)), "up to record 5, and the barrier lies before record 4"),
        (stopped(lambda b: b.tell(ops.ReadBehindStop("totals[0]", 1, 2))), "behind the terminal barrier"),
        (stopped(lambda b: b.triggered(3)), "checkpoint 3 was triggered although"),
        (stopped().attempt(2, 1), "the second job began with checkpoint 1"),
        (
            savepoint(Book().attempt(1), 2, stops=True).tell(ops.JobStopped(2)),
            "before sink[0] had committed",
        ),
        (Book().attempt(1).checkpoint(1).tell(ops.JobStopped()), "had not completed"),
        (savepoint(Book().attempt(1), 2, stops=True).checkpoint(3), "the job finished instead of stopping"),
        (
            savepoint(Book().attempt(1), 2, stops=True)
            .attempt_failed(1)
            .attempt(2, 2)
            .tell(ops.InputRead("source[0]", 2, "split-0-0", 4))
            .tell(ops.JobStopped(2)),
            "had only commits to finish",
        ),
    ],
)
def test_anything_behind_the_barrier_is_invalid(book: Book, why: str) -> None:
    finding = judged(book)
    assert finding.verdict is Verdict.INVALID
    assert any(why in example for example in finding.examples), finding.examples


# --- answers ------------------------------------------------------------------------------------------------


def asked(stops: bool = False) -> Book:
    return Book().attempt(1).tell(ops.SavepointRequested(PLACE, stops))


def answered(book: Book, plan: TrialPlan | None = None) -> Finding:
    return SavepointsAnswered().check(a_context(plan or a_plan(), book))


@pytest.mark.parametrize(
    ("book", "chance"),
    [
        (savepoint(asked(), 2).tell(ops.JobFinished()), True),
        (asked(stops=True).checkpoint(1).tell(ops.SavepointRefused(PLACE, True)).attempt_failed(1), True),
        (asked(stops=True).tell(ops.JobCut(Reason.OUT_OF_TIME)), False),
        (savepoint(asked(), 2), False),
    ],
    ids=["taken", "refused", "cut", "taken and cut"],
)
def test_a_savepoint_that_was_triggered_or_refused_is_answered_and_an_open_end_proves_nothing(
    book: Book, chance: bool
) -> None:
    finding = answered(book)
    assert (finding.verdict, finding.counts["asked"]) == (Verdict.VALID, 1)
    assert finding.clauses == (("COO-5",) if chance else ())


def test_without_a_request_nothing_is_shown() -> None:
    assert answered(Book().attempt(1).tell(ops.JobFinished())).clauses == ()


@pytest.mark.parametrize(
    "end", [ops.JobFinished(), ops.JobStopped(3), ops.JobFailed(Reason.RESTARTS_USED_UP)]
)
def test_a_request_that_is_forgotten_when_the_job_ends_is_invalid(end: Operation) -> None:
    for book in (asked(), asked(stops=True)):
        finding = answered(book.checkpoint(3).tell(end))
        assert finding.verdict is Verdict.INVALID and "neither triggered nor refused" in finding.summary


def test_a_request_that_is_forgotten_when_the_attempt_fails_is_invalid() -> None:
    assert answered(asked(stops=True).attempt_failed(1)).verdict is Verdict.INVALID


@pytest.mark.parametrize("end", [ops.JobFinished(), ops.JobStopped(3)])
def test_a_savepoint_that_neither_completes_nor_fails_before_the_job_ends_is_invalid(end: Operation) -> None:
    begun = ops.CheckpointTriggered(2, 1, savepoint=PLACE)
    finding = answered(asked().tell(begun).checkpoint(3).tell(end))
    assert finding.verdict is Verdict.INVALID and "before it was complete or had failed" in finding.summary
    assert answered(asked().tell(begun).checkpoint(3).aborted(2).tell(end)).verdict is Verdict.VALID
    assert answered(asked().tell(begun).tell(ops.JobCut(Reason.OUT_OF_TIME))).verdict is Verdict.VALID
    plan = a_plan(faults=(ScheduledFault(CrashCoordinator(), At(5)),))
    assert answered(asked().tell(begun).fault(0).checkpoint(3).tell(end), plan).verdict is Verdict.VALID


def test_a_coordinator_that_dies_may_forget_what_it_was_asked_for_and_only_that() -> None:
    plan = a_plan(faults=(ScheduledFault(CrashCoordinator(), At(5)),))
    assert answered(asked().fault(0).attempt_failed(1), plan).verdict is Verdict.VALID
    later = Book().attempt(1).fault(0).nothing(5).tell(ops.SavepointRequested(PLACE)).attempt_failed(1)
    assert answered(later, plan).verdict is Verdict.INVALID


# --- claims -------------------------------------------------------------------------------------------------


def claim(
    *there: StoredSavepoint, newer: bool = True, claimed: bool = True, finished: bool = True
) -> Finding:
    """Judge a trial whose savepoint 2 was claimed, or not, by a second job."""
    book = savepoint(Book().attempt(1).checkpoint(1), 2, stops=True).tell(ops.JobStopped(2, claimed))
    book.attempt(2, restored=2)
    if newer:
        book.checkpoint(3)
    storage = StorageView(retained=(3,), savepoints=there)
    end = End.FINISHED if finished else End.FAILED
    context = a_context(a_plan(), book, views=(a_view(),), storage=storage, end=end)
    return Savepoints().check(context)


def test_a_claimed_savepoint_is_gone_once_a_newer_checkpoint_is_complete() -> None:
    finding = claim()
    assert finding.verdict is Verdict.VALID, finding.summary
    assert (finding.counts["claimed"], finding.counts["deleted"], finding.clauses) == (1, 1, ("COO-5",))
    assert claim(finished=False).clauses == (), "a job that failed may or may not have deleted it"


@pytest.mark.parametrize(
    ("finding", "why"),
    [
        (lambda: claim(stored()), "it is still there"),
        (lambda: claim(newer=False), "is not there any more"),
        (lambda: claim(claimed=False), "is not there any more"),
    ],
    ids=["left behind", "deleted too early", "deleted unclaimed"],
)
def test_a_claim_that_is_not_kept_is_invalid(finding: Callable[[], Finding], why: str) -> None:
    found = finding()
    assert found.verdict is Verdict.INVALID
    assert why in found.summary


def test_a_job_that_failed_may_have_been_in_the_middle_of_tidying_up() -> None:
    assert claim(stored(), finished=False).verdict is Verdict.VALID
    assert claim(finished=False).verdict is Verdict.VALID


def test_a_checkpoint_that_refers_to_a_file_of_a_savepoint_is_invalid() -> None:
    story = savepoint(Book().attempt(1).checkpoint(1), 2).checkpoint(3)
    later = msgspec.structs.replace(a_view(3), savepoint=None)
    storage = StorageView(retained=(3,), savepoints=(stored(),))
    finding = Savepoints().check(a_context(a_plan(), story, views=(a_view(), later), storage=storage))
    assert finding.verdict is Verdict.INVALID
    assert "checkpoint 3 refers to its" in finding.summary
