"""The newest completed checkpoints are in storage whenever another one has become complete."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from barrier_tck.harness.oracle.applicable import checkers_for
from barrier_tck.harness.oracle.checkers.checkpoints_retained import CheckpointsRetained
from barrier_tck.harness.record import operations as ops
from barrier_tck.harness.record.history import SnapshotView, StorageView
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.system.system_under_test import Capability
from barrier_tck.harness.workloads.workload_names import filled
from tests.harness.oracle.oracle_histories import Book, a_context, a_plan


def judged(book: Book, there: dict[int, tuple[int, ...]], retained: int = 2, **changes: Any) -> Finding:
    plan = a_plan(**changes)
    plan = msgspec.structs.replace(
        plan, checkpoints=msgspec.structs.replace(plan.checkpoints, retained=retained)
    )
    views = tuple(SnapshotView(number, 1, {}, retained=found) for number, found in there.items())
    return CheckpointsRetained().check(a_context(plan, book, views=views))


def completed(book: Book, *numbers: int) -> Book:
    for number in numbers:
        book.tell(ops.CheckpointTriggered(number, 1)).tell(ops.CheckpointCompleted(number, 1))
    return book


def saved(book: Book, number: int) -> Book:
    return book.tell(ops.CheckpointTriggered(number, 1, savepoint="s")).tell(
        ops.CheckpointCompleted(number, 1)
    )


def test_each_completion_finds_those_that_are_to_be_retained() -> None:
    there = {1: (1,), 2: (1, 2), 3: (1, 2, 3), 4: (2, 3, 4)}
    finding = judged(completed(Book().attempt(1), 1, 2, 3, 4), there)
    assert (finding.verdict, finding.clauses) == (Verdict.VALID, ("COO-4",))
    assert finding.counts == {"looks": 3, "beside_savepoints": 0, "violations": 0}


def test_one_that_is_gone_too_early_is_missed_though_a_later_one_takes_its_place() -> None:
    finding = judged(completed(Book().attempt(1), 1, 2, 3, 4), {1: (1,), 2: (1, 2), 3: (2, 3), 4: (2, 3, 4)})
    assert (finding.verdict, finding.counts["violations"]) == (Verdict.INVALID, 1)
    assert "when checkpoint 3 became complete, checkpoint 1 was gone" in finding.summary


def test_a_savepoint_takes_the_place_of_none() -> None:
    book = completed(saved(completed(Book().attempt(1), 1, 2), 3), 4)
    right = {1: (1,), 2: (1, 2), 3: (1, 2, 3), 4: (1, 2, 3, 4)}
    finding = judged(book, right)
    assert (finding.verdict, finding.counts["beside_savepoints"]) == (Verdict.VALID, 2)
    assert judged(book, right | {4: (2, 3, 4)}).verdict is Verdict.INVALID
    assert judged(book, right | {4: (3, 4)}, retained=1).verdict is Verdict.INVALID


def test_one_that_completed_before_its_coordinator_died_counts_as_well() -> None:
    book = completed(Book().attempt(1), 1, 2)
    book.tell(ops.CheckpointTriggered(3, 1)).attempt(2, 3)
    assert judged(completed(book, 4), {1: (1,), 2: (1, 2), 4: (2, 3, 4)}).verdict is Verdict.VALID


@pytest.mark.parametrize("start", [ops.StartedFromSavepoint(1, "s"), ops.AttemptStarted(2, 1)])
def test_what_was_given_up_for_an_older_one_need_not_be_kept(start: ops.Operation) -> None:
    book = completed(completed(Book().attempt(1), 1, 2, 3).tell(start), 4)
    assert judged(book, {2: (1, 2), 3: (1, 2, 3), 4: (1, 4)}).verdict is Verdict.VALID


def test_nothing_is_said_where_nobody_looked() -> None:
    assert judged(completed(Book().attempt(1), 1, 2, 3), {}).clauses == ()


@pytest.mark.parametrize("unused", [False, True])
def test_a_system_that_ignores_how_many_are_retained_is_not_asked(unused: bool) -> None:
    plan = filled(a_plan())
    fields = ("checkpoints.retained",) if unused else ()
    judges = {each.name: each for each in checkers_for(plan, frozenset(Capability), unused=fields)}
    assert (CheckpointsRetained.name not in judges) is unused
    book = completed(Book().attempt(1), 1, 2, 3, 4).tell(ops.JobFinished())
    kept = StorageView(retained=(1, 2, 3, 4))
    many = judges["no-garbage"].check(a_context(plan, book, storage=kept))
    assert many.verdict is (Verdict.VALID if unused else Verdict.INVALID)
    assert ("COO-4" in many.clauses) is not unused
    few = judges["no-garbage"].check(a_context(plan, book, storage=StorageView(retained=(4,))))
    assert few.verdict is (Verdict.VALID if unused else Verdict.INVALID)
