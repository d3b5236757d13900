"""What checkers excuse because nobody could reach the storage of checkpoints, and no more than that.

Grain: literal histories, one operation per millisecond.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec

from barrier_tck.faults.kinds.delay_object_store import DelayObjectStore
from barrier_tck.faults.kinds.kill_object_store import KillObjectStore
from barrier_tck.faults.vocabulary import At, ScheduledFault
from barrier_tck.harness.oracle.checkers.checkpoints_go_on import BUSY_MS, STORAGE_MS, CheckpointsGoOn
from barrier_tck.harness.oracle.checkers.no_garbage import NoGarbage
from barrier_tck.harness.oracle.checkers.restart_strategy import RestartStrategyKept
from barrier_tck.harness.oracle.evidence.explained_failures import attempts_failed, declined_cleanly
from barrier_tck.harness.plan.trial_plan import CheckpointPlan, NetworkPlan, RestartPlan
from barrier_tck.harness.record import operations as ops
from barrier_tck.harness.record.history import End, StorageView
from barrier_tck.harness.record.reasons import Reason
from barrier_tck.harness.record.verdict import Verdict
from barrier_tck.harness.system.system_under_test import Capability
from tests.harness.oracle.oracle_histories import KILL, Book, a_context, a_plan, restarts

VALID, INVALID = Verdict.VALID, Verdict.INVALID
OUTAGE = ScheduledFault(KillObjectStore(20), At(1))
LEFT = StorageView(retained=(4,), orphans=("chk-2/state-1",))


def left_after(book: Book, *faults: ScheduledFault) -> Verdict:
    context = a_context(a_plan(faults=faults), book, storage=LEFT)
    return NoGarbage().check(context).verdict


def test_what_is_left_is_not_judged_if_nobody_could_reach_storage_when_the_job_finished() -> None:
    finished = ops.JobFinished()
    assert left_after(Book().attempt(1).fault().tell(finished).healing(), OUTAGE) is VALID
    assert left_after(Book().attempt(1).fault().tell(finished), OUTAGE) is VALID
    assert left_after(Book().attempt(1).fault().healing().nothing(1).tell(finished), OUTAGE) is INVALID
    assert left_after(Book().attempt(1).tell(finished).fault(), OUTAGE) is INVALID
    assert left_after(Book().attempt(1).fault().tell(finished), KILL) is INVALID, "it hits no storage"


def late(by_ms: float, *faults: ScheduledFault) -> Verdict:
    """Judge a real machine on which the second checkpoint is triggered so late."""
    book = Book().attempt(1).triggered(1).completed(1).fault().healing()
    book.triggered(2).completed(2)
    *before, trigger, completion = book.operations
    delayed = [msgspec.structs.replace(one, time_ms=one.time_ms + by_ms) for one in (trigger, completion)]
    book.operations = [*before, *delayed]
    plan = a_plan(faults=faults, checkpoints=CheckpointPlan(interval_ms=1))
    return CheckpointsGoOn().check(a_context(plan, book)).verdict


def test_a_coordinator_may_wait_for_storage_before_it_triggers_a_checkpoint() -> None:
    assert late(BUSY_MS - 10, KILL) is VALID and late(BUSY_MS + 10, KILL) is INVALID
    assert late(BUSY_MS + STORAGE_MS - 10, OUTAGE) is VALID
    assert late(BUSY_MS + STORAGE_MS + 10, OUTAGE) is INVALID


def restarted_after(waited_ms: int, *faults: ScheduledFault) -> Verdict:
    plan = a_plan(
        restart=RestartPlan("fixed_delay", delay_ms=10), network=NetworkPlan(latency_ms_max=0), faults=faults
    )
    book = Book().attempt(1).attempt_failed(1).nothing(waited_ms - 1).attempt(2)
    context = a_context(plan, book)
    exact = context.capabilities | {Capability.DETERMINISTIC_REPLAY.name}
    return RestartStrategyKept().check(replace(context, capabilities=exact)).verdict


def test_the_end_of_an_attempt_may_take_as_long_as_its_requests_are_late() -> None:
    slow = ScheduledFault(DelayObjectStore(5, 1), At(1))
    assert restarted_after(100) is INVALID
    assert restarted_after(100, slow) is VALID
    assert restarted_after(140, slow) is INVALID


def not_reserved(number: int) -> ops.AttemptEnded:
    return ops.AttemptEnded(number, Reason.STORAGE_FAILED, "its number could not be made durable")


def given_up(book: Book, **changes: Any) -> bool:
    plan = a_plan(faults=(OUTAGE,), restart=restarts(attempts_max=1), **changes)
    context = a_context(plan, book, End.FAILED, reason=Reason.RESTARTS_USED_UP)
    assert attempts_failed(context) == 2
    return declined_cleanly(context)


def test_an_attempt_whose_number_could_not_be_reserved_has_failed_and_the_outage_explains_it() -> None:
    book = Book().attempt(1).fault().attempt_failed(1).tell(not_reserved(2))
    assert given_up(book.healing())
    book = Book().attempt(1).fault().attempt_failed(1).healing().nothing(1).tell(not_reserved(2))
    assert not given_up(book), "it had been over when the second one was to start"
