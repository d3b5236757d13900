"""Which transactions may be visible: those that a completed checkpoint covers, by the attempts that followed."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from barrier_tck.harness.oracle.checkers.committed_transactions import CommittedTransactions
from barrier_tck.harness.plan.job_graph import JobPlan
from barrier_tck.harness.record.history import StorageView, Transaction
from barrier_tck.harness.record.operations import Acknowledged, Committed, StartedFromSavepoint
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.reference.bugs.catalogue import planted_bugs
from barrier_tck.harness.reference.simulated.simulated_system import ReferenceSimulated
from barrier_tck.harness.trial.trial_run import run_trial
from tests.harness.oracle.oracle_histories import Book, a_context, a_plan

RECOVERED = Book().attempt(1).checkpoint(1).triggered(2).attempt_failed(1).attempt(2, 1).checkpoint(3, 2)


def judge(*transactions: tuple[int | None, int | None], book: Book = RECOVERED) -> Finding:
    shown = tuple(Transaction(f"part-{c}-{a}", c, a) for c, a in transactions)
    context = a_context(a_plan(), book, storage=StorageView(transactions=shown))
    return CommittedTransactions().check(context)


def test_what_completed_checkpoints_cover_may_be_visible() -> None:
    assert judge((1, 1), (1, 1), (3, 2)).verdict is Verdict.VALID


@pytest.mark.parametrize(
    ("prepared", "goes_on", "chance"),
    [(2, True, True), (2, False, True), (1, True, False), (None, True, False)],
    ids=["never complete", "never complete, at the end", "complete", "nothing"],
)
def test_it_is_a_chance_if_something_was_prepared_that_must_not_be_visible(
    prepared: int | None, goes_on: bool, chance: bool
) -> None:
    book = Book().attempt(1).triggered(1)
    if prepared == 1:
        book.tell(Acknowledged(1, 1, "sink[0]", prepared=4))
    book.completed(1).triggered(2)
    if prepared == 2:
        book.tell(Acknowledged(2, 1, "sink[0]", prepared=4))
    if goes_on:
        book.attempt_failed(1).attempt(2, 1).checkpoint(3, 2)
    assert judge((1, 1), book=book).clauses == (("SNK-1",) if chance else ())


@pytest.mark.parametrize(
    ("transaction", "why"),
    [
        ((2, 1), "nothing after checkpoint 1 may be visible"),
        ((4, 2), "nothing after checkpoint 3 may be visible"),
        ((1, 9), "attempt 9, which never started"),
        ((None, None), "does not say for which checkpoint it was prepared"),
        ((None, 1), "does not say for which checkpoint it was prepared"),
        ((4, None), "was prepared for checkpoint 4, which was never complete"),
    ],
    ids=[
        "of a failed attempt",
        "of the last attempt",
        "of no attempt",
        "of an unknown name",
        "of no checkpoint",
        "of an unknown attempt",
    ],
)
def test_anything_else_is_invalid(transaction: tuple[int | None, int | None], why: str) -> None:
    finding = judge((1, 1), transaction)
    assert finding.verdict is Verdict.INVALID
    assert why in finding.examples[0]


def test_if_no_attempt_is_known_any_completed_checkpoint_covers_it() -> None:
    assert judge((1, None), (3, None)).verdict is Verdict.VALID


@pytest.mark.parametrize("late", [False, True], ids=["before the next attempt", "during the next attempt"])
def test_the_moment_is_known_if_a_sink_reported_what_it_committed(late: bool) -> None:
    report = Committed("sink[0]", 2, 1)
    book = Book().attempt(1).checkpoint(1)
    book = book if late else book.tell(report)
    book = book.attempt_failed(1).attempt(2, 1)
    started = len(book.operations) - 2
    book = book.tell(report) if late else book
    first = judge((2, 1), book=book).first
    assert first is not None and (first.checkpoint, first.attempt) == (2, 1)
    assert first.operation == (started + 2 if late else started)
    unreported = judge((2, 1)).first
    assert unreported is not None and unreported.operation is None


def test_after_a_start_from_the_beginning_no_earlier_transaction_may_be_visible() -> None:
    anew = Book().attempt(1).attempt_failed(1).attempt(2).checkpoint(1, 2)
    assert judge((1, 2), book=anew).verdict is Verdict.VALID
    assert judge((1, 1), book=anew).verdict is Verdict.INVALID


@pytest.mark.parametrize("prepared_more", [True, False], ids=["never complete", "complete"])
def test_a_job_that_was_started_from_a_savepoint_leaves_what_had_completed_and_nothing_else(
    prepared_more: bool,
) -> None:
    went_back = (
        Book()
        .attempt(1)
        .checkpoint(1)
        .triggered(2)
        .tell(Acknowledged(2, 1, "sink[0]", prepared=4))
        .completed(2)
        .triggered(3)
        .tell(Acknowledged(3, 1, "sink[0]", prepared=4 if prepared_more else 0))
        .tell(StartedFromSavepoint(1, "savepoints/savepoint-1"))
        .attempt_failed(1)
        .attempt(2, 1)
        .checkpoint(4, 2)
    )
    if not prepared_more:
        assert judge((1, 1), (2, 1), (4, 2), book=went_back).clauses == (), (
            "all that was prepared may be visible"
        )
        return
    left = judge((1, 1), (2, 1), (4, 2), book=went_back)
    assert (left.verdict, left.clauses) == (Verdict.VALID, ("SNK-1",))
    assert "1 of them are newer than the restored checkpoint, but attempt 2 went back" in left.summary
    for strange in ((3, 1), (1, 9), (None, None)):
        assert judge((1, 1), (2, 1), strange, book=went_back).verdict is Verdict.INVALID, strange


@pytest.mark.parametrize("sinks", [1, 2])
def test_a_leak_among_allowed_duplicates_is_found(sinks: int, tmp_path: Path) -> None:
    """AO-02 with kills after completed checkpoints, where extra rows alone prove nothing."""
    base = next(planted_bugs()["AO-02"].plans("simulated"))
    caught = 0
    for seed in range(4):
        job = JobPlan(widths={"sink": sinks})
        record = run_trial(msgspec.structs.replace(base, seed=seed, job=job), ReferenceSimulated(), tmp_path)
        caught += any(
            finding.checker == "committed-transactions" and finding.verdict is Verdict.INVALID
            for finding in record.findings
        )
    assert caught > 0
