"""What subtasks must know of the checkpoints that are complete, on literal histories in virtual time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from barrier_tck.faults.kinds.pause_worker import PauseWorker
from barrier_tck.faults.targets import COORDINATOR
from barrier_tck.faults.vocabulary import At, ScheduledFault
from barrier_tck.harness.oracle.checkers.completions_learned import CompletionsLearned
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.record.operations import StorageAsked
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.system.system_under_test import Capability
from tests.harness.oracle.oracle_histories import Book, a_context, a_plan

WHO = "totals[0]"
LONG_MS = 1_000
"""More than any notice takes in the plans here."""
PAUSED = a_plan(faults=(ScheduledFault(PauseWorker(WHO, duration_ms=20), At(1)),))


def judged(
    completed: int | None,
    after_ms: int = LONG_MS,
    attempt: int = 1,
    subtask: str = WHO,
    plan: TrialPlan | None = None,
    fired: bool = False,
    aborted: bool = False,
) -> Finding:
    """Judge an acknowledgement of checkpoint 2, triggered some time after the end of checkpoint 1."""
    book = Book().attempt(1)
    book = book.triggered(1).aborted(1) if aborted else book.checkpoint(1)
    if fired:
        book.fault().healing()
    book.nothing(after_ms)
    if attempt == 2:
        book.attempt_failed(1).attempt(2, 1)
    book.triggered(2, attempt)
    book.tell(StorageAsked(subtask, attempt, 2, {}, completed=completed), "storage").nothing(LONG_MS)
    context = a_context(plan or a_plan(), book)
    virtual = context.capabilities | {Capability.DETERMINISTIC_REPLAY.name}
    return CompletionsLearned().check(replace(context, capabilities=virtual))


def test_a_subtask_that_knows_of_the_completion_is_right() -> None:
    finding = judged(completed=1)
    assert (finding.verdict, finding.clauses, finding.counts["judged"]) == (Verdict.VALID, ("COO-1",), 1)


def test_one_that_does_not_is_wrong() -> None:
    finding = judged(completed=0)
    assert (
        finding.verdict is Verdict.INVALID
        and "did not know that checkpoint 1 was complete" in finding.summary
    )
    assert [evidence.clause for evidence in finding.evidence] == ["COO-1"]


@pytest.mark.parametrize(
    "finding",
    [
        judged(completed=0, after_ms=1),
        judged(completed=0, attempt=2),
        judged(completed=None),
        judged(completed=None, subtask=COORDINATOR),
        judged(completed=0, plan=PAUSED, fired=True),
        judged(completed=0, aborted=True),
    ],
    ids=[
        "the notice may be on its way",
        "another attempt",
        "not reported",
        "coordinator",
        "paused",
        "aborted",
    ],
)
def test_nothing_is_said_where_it_need_not_know(finding: Finding) -> None:
    assert (finding.verdict, finding.clauses, finding.counts["judged"]) == (Verdict.VALID, (), 0)
