"""The checkpoint life cycle: histories that each break one rule, and right histories that contain failures."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barrier_tck.harness.oracle.checkers.checkpoint_life_cycle import CheckpointLifeCycle
from barrier_tck.harness.plan.trial_plan import CheckpointPlan
from barrier_tck.harness.record import operations as ops
from barrier_tck.harness.record.reasons import Reason
from barrier_tck.harness.record.verdict import Finding, Verdict
from tests.harness.oracle.oracle_histories import CRASH, KILL, SUBTASKS, Book, a_context, a_plan


def judge(book: Book, *faults: object) -> Finding:
    return CheckpointLifeCycle().check(a_context(a_plan(faults=faults), book))


RIGHT = {
    "nothing fails": Book().attempt(1).checkpoint(1).checkpoint(2),
    "an abort in between": Book().attempt(1).checkpoint(1).triggered(2).aborted(2).checkpoint(3),
    "a restart from the latest": Book()
    .attempt(1)
    .checkpoint(1)
    .attempt_failed(1)
    .attempt(2, 1)
    .checkpoint(2, 2),
    "a restart before the first checkpoint": Book().attempt(1).attempt_failed(1).attempt(2).checkpoint(1, 2),
    "an ack after the abort": Book().attempt(1).triggered(1).aborted(1).acknowledged(1),
    "a late ack of an older attempt": (
        Book()
        .attempt(1)
        .triggered(1)
        .attempt_failed(1)
        .aborted(1)
        .attempt(2)
        .acknowledged(1)
        .checkpoint(2, 2)
    ),
    "a duplicate ack": Book().attempt(1).triggered(1).acknowledged(1).acknowledged(1).completed(1),
    "two in flight": (
        Book().attempt(1).triggered(1).triggered(2).acknowledged(1).acknowledged(2).completed(1).completed(2)
    ),
    "a newer one subsumes an older": (
        Book()
        .attempt(1)
        .triggered(1)
        .triggered(2)
        .acknowledged(2)
        .completed(2)
        .tell(ops.CheckpointAborted(1, 1, Reason.SUBSUMED))
    ),
    "what was lost with its attempt": (
        Book()
        .attempt(1)
        .triggered(1)
        .tell(ops.CheckpointAborted(1, 1, Reason.ATTEMPT_FAILED))
        .attempt_failed(1)
        .attempt(2)
        .checkpoint(2, 2)
    ),
    "completion while the attempt is stopped": (
        Book().attempt(1).triggered(1).acknowledged(1).attempt_failed(1).completed(1).attempt(2, 1)
    ),
    "an older one completes after a newer one, but was acknowledged before": (
        Book().attempt(1).triggered(1).triggered(2).acknowledged(1).acknowledged(2).completed(2).completed(1)
    ),
    "a commit finished after a restore": (
        Book().attempt(1).checkpoint(1).attempt_failed(1).attempt(2, 1).committed(1)
    ),
}


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_history_is_valid(name: str) -> None:
    assert judge(RIGHT[name]).verdict is Verdict.VALID, judge(RIGHT[name]).examples


WRONG = {
    "an older one is acknowledged and completes after a newer one": (
        Book().attempt(1).triggered(1).triggered(2).acknowledged(2).completed(2).acknowledged(1).completed(1),
        "COO-4",
    ),
    "a commit before the checkpoint is durable": (
        Book().attempt(1).triggered(1).acknowledged(1).committed(1),
        "was not known to be complete and durable (COO-1)",
    ),
    "an id is reused": (Book().attempt(1).checkpoint(1).triggered(1), "COO-4"),
    "ids go backwards after a restart": (
        Book().attempt(1).checkpoint(5).attempt_failed(1).attempt(2, 5).triggered(3, 2),
        "COO-4",
    ),
    "completion without all acks": (
        Book().attempt(1).triggered(1).acknowledged(1, subtasks=SUBTASKS[1:]).completed(1),
        "source[0]",
    ),
    "completion with an ack of another attempt": (
        Book().attempt(1).triggered(1).acknowledged(1, attempt=9).completed(1),
        "COO-1",
    ),
    "a completion for which a fault forged an acknowledgement": (
        Book()
        .attempt(1)
        .triggered(1)
        .acknowledged(1, subtasks=SUBTASKS[1:])
        .tell(ops.Acknowledged(1, 1, SUBTASKS[0], forged=True))
        .completed(1),
        "source[0]",
    ),
    "completion out of nothing": (Book().attempt(1).completed(7), "without ever being triggered"),
    "completion after abort": (
        Book().attempt(1).triggered(1).acknowledged(1).aborted(1).completed(1),
        "after it had been aborted",
    ),
    "completion twice": (Book().attempt(1).checkpoint(1).completed(1), "after it had been completed"),
    "abort after completion": (Book().attempt(1).checkpoint(1).aborted(1), "aborted after it had completed"),
    "completion of an older attempt's": (
        Book().attempt(1).triggered(1).acknowledged(1).attempt_failed(1).attempt(2).completed(1),
        "REC-2",
    ),
    "completion by another attempt": (
        Book().attempt(1).triggered(1).acknowledged(1).completed(1, attempt=2),
        "REC-2",
    ),
    "trigger for an older attempt": (Book().attempt(1).attempt_failed(1).attempt(2).triggered(1, 1), "REC-2"),
    "an end as subsumed by nothing": (
        Book()
        .attempt(1)
        .checkpoint(1)
        .triggered(2)
        .triggered(3)
        .tell(ops.CheckpointAborted(2, 1, Reason.SUBSUMED)),
        "no newer one had completed",
    ),
    "an end as lost with an attempt that goes on": (
        Book().attempt(1).triggered(1).tell(ops.CheckpointAborted(1, 1, Reason.ATTEMPT_FAILED)).triggered(2),
        "because that attempt had failed",
    ),
    "attempt numbers repeat": (Book().attempt(1).attempt_failed(1).attempt(1), "REC-2"),
    "a stale restore": (
        Book().attempt(1).checkpoint(1).checkpoint(2).attempt_failed(1).attempt(2, 1),
        "although checkpoint 2 had completed",
    ),
    "a restore from nothing": (
        Book().attempt(1).checkpoint(1).attempt_failed(1).attempt(2),
        "from the beginning although",
    ),
    "a restore of a pending checkpoint (CO-10)": (
        Book().attempt(1).checkpoint(1).triggered(2).attempt_failed(1).attempt(2, 2),
        "was not complete",
    ),
    "a restore of an aborted checkpoint (CO-10)": (
        Book().attempt(1).triggered(1).acknowledged(1).aborted(1).attempt_failed(1).attempt(2, 1),
        "had been aborted",
    ),
    "a restore of an unknown checkpoint": (Book().attempt(1, 4), "was never triggered"),
    "a commit before completion": (
        Book().attempt(1).triggered(1).committed(1),
        "sink[0] committed",
    ),
    "a commit of an aborted checkpoint": (
        Book().attempt(1).triggered(1).acknowledged(1).aborted(1).committed(1),
        "had been aborted",
    ),
    "a pending checkpoint outlives its attempt (CO-03)": (
        Book().attempt(1).triggered(1).attempt_failed(1).attempt(2),
        "still pending",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_broken_rule_is_invalid_and_named(name: str) -> None:
    book, words = WRONG[name]
    finding = judge(book)
    assert finding.verdict is Verdict.INVALID
    assert any(words in example for example in finding.examples), finding.examples


def crashed(acknowledged: bool, restored: int | None) -> Book:
    book = Book().attempt(1).checkpoint(1).triggered(2)
    if acknowledged:
        book.acknowledged(2)
    return book.fault().attempt(2, restored).checkpoint(3, 2)


@pytest.mark.parametrize("restored", [1, 2])
def test_a_coordinator_that_dies_while_completing_leaves_both_outcomes_open(restored: int) -> None:
    assert judge(crashed(True, restored), CRASH).verdict is Verdict.VALID


def test_a_checkpoint_that_lacks_acks_is_not_complete_after_a_coordinator_crash_either() -> None:
    assert judge(crashed(False, 1), CRASH).verdict is Verdict.VALID
    assert judge(crashed(False, 2), CRASH).verdict is Verdict.INVALID


def test_a_trigger_may_be_reported_after_the_death_of_the_coordinator_that_triggered() -> None:
    book = Book().attempt(1).checkpoint(1).fault().triggered(2).attempt(2, 1).checkpoint(3, 2)
    assert judge(book, CRASH).verdict is Verdict.VALID
    assert judge(book, KILL).verdict is Verdict.INVALID
    again = (
        Book().attempt(1).checkpoint(1).fault().attempt(2, 1).triggered(2, 2).attempt(3, 1).checkpoint(3, 3)
    )
    assert judge(again, CRASH).verdict is Verdict.INVALID, "nobody crashed in attempt 2"


def test_only_a_crash_of_the_coordinator_excuses_a_checkpoint_that_nobody_aborted() -> None:
    assert judge(crashed(False, 1), CRASH).verdict is Verdict.VALID
    assert judge(crashed(False, 1), KILL).verdict is Verdict.INVALID


def test_a_history_without_any_acknowledgement_is_unknown_and_says_what_to_note() -> None:
    book = Book().attempt(1).triggered(1).completed(1).attempt_failed(1).attempt(2, 1)
    finding = judge(book)
    assert (
        finding.verdict is Verdict.UNKNOWN and "note an Acknowledged (barrier_tck.harness)" in finding.summary
    )
    assert judge(book.triggered(2, 2).acknowledged(2, attempt=2)).verdict is Verdict.INVALID


def test_a_history_without_attempts_is_unknown() -> None:
    assert judge(Book()).verdict is Verdict.UNKNOWN


@given(st.lists(st.sampled_from(["complete", "abort", "fail", "fail pending"]), max_size=12))
def test_every_run_of_a_right_coordinator_is_valid(steps: list[str]) -> None:
    book, attempt, latest = Book().attempt(1), 1, None
    for checkpoint, step in enumerate(steps, start=1):
        match step:
            case "complete":
                book.checkpoint(checkpoint, attempt)
                latest = checkpoint
            case "abort":
                book.triggered(checkpoint, attempt).acknowledged(checkpoint, attempt, SUBTASKS[:2])
                book.aborted(checkpoint, attempt)
            case _:
                if step == "fail pending":
                    book.triggered(checkpoint, attempt).aborted(checkpoint, attempt)
                book.attempt_failed(attempt)
                attempt += 1
                book.attempt(attempt, latest)
    assert judge(book).verdict is Verdict.VALID


def test_ids_that_an_earlier_job_gave_out_are_not_given_out_again() -> None:
    plan = a_plan(checkpoints=CheckpointPlan(first_id=9))
    right = CheckpointLifeCycle().check(a_context(plan, Book().attempt(1).checkpoint(9).checkpoint(10)))
    assert right.verdict is Verdict.VALID
    wrong = CheckpointLifeCycle().check(a_context(plan, Book().attempt(1).checkpoint(8)))
    assert wrong.verdict is Verdict.INVALID and "id 8 was given out after id 8" in wrong.summary
