"""What a restart strategy demands of the attempts: right histories, and one for each kind of mistake.

Grain: literal histories, one operation per millisecond.
"""

from __future__ import annotations

from typing import Any

import pytest

from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.oracle.checkers.restart_strategy import BUSY_MS, RestartStrategyKept
from barrier_tck.harness.plan.trial_plan import NetworkPlan, RestartPlan
from barrier_tck.harness.record import operations as ops
from barrier_tck.harness.record.reasons import Reason
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.system.system_under_test import Capability
from tests.harness.oracle.oracle_histories import CRASH, Book, a_context, a_plan

VALID, INVALID = Verdict.VALID, Verdict.INVALID


def judge(book: Book, restart: RestartPlan, repeatable: bool = True, **changes: Any) -> Finding:
    plan = a_plan(restart=restart, network=NetworkPlan(latency_ms_max=0), **changes)
    context = a_context(plan, book)
    exact = {Capability.DETERMINISTIC_REPLAY.name} if repeatable else set()
    return RestartStrategyKept().check(
        TrialContext(plan, context.history, capabilities=frozenset(context.capabilities | exact))
    )


def failing(*runs: tuple[int, int]) -> Book:
    """Return a history of attempts: how long each runs, and how long after its failure the next one comes."""
    book = Book().attempt(1)
    for number, (ran_ms, waited_ms) in enumerate(runs, 1):
        book.nothing(ran_ms - 1).attempt_failed(number).nothing(waited_ms - 1).attempt(number + 1)
    return book


def given_up(book: Book) -> Book:
    return book.tell(ops.JobFailed(Reason.RESTARTS_USED_UP, "no more"))


def test_without_a_failure_nothing_is_judged() -> None:
    found = judge(Book().attempt(1), RestartPlan())
    assert found.verdict is VALID and found.clauses == () and found.counts["judged"] == 0


def test_a_fixed_delay_is_waited_for_and_not_much_longer() -> None:
    restart = RestartPlan("fixed_delay", delay_ms=10)
    assert judge(failing((5, 10)), restart).clauses == ("REC-3",)
    early = judge(failing((5, 9)), restart)
    assert (
        early.verdict is INVALID
        and "began 9 ms after the failure, before the delay of 10 ms" in early.summary
    )
    late = judge(failing((5, 100)), restart)
    assert late.verdict is INVALID and "began only 100 ms after the failure" in late.summary
    assert judge(failing((5, 9)), restart, repeatable=False).verdict is VALID


def test_a_job_is_given_up_when_no_restart_is_left_and_not_before() -> None:
    once = RestartPlan("fixed_delay", attempts_max=1, delay_ms=1)
    assert judge(given_up(failing((5, 1)).attempt_failed(2)), once).verdict is VALID
    found = judge(given_up(Book().attempt(1).attempt_failed(1)), once)
    assert found.verdict is INVALID and "was given up after 1 failure, which it allows" in found.summary
    found = judge(failing((5, 1), (5, 1)), once)
    assert (
        found.verdict is INVALID
        and "attempt 3 began after 2 failures, which it does not allow" in found.summary
    )
    assert judge(failing((5, 1)), RestartPlan("none")).verdict is INVALID


def test_a_failure_rate_looks_back_so_far_and_no_farther() -> None:
    rate = RestartPlan("failure_rate", attempts_max=1, interval_ms=20, delay_ms=1)
    assert judge(failing((30, 1), (30, 1)), rate).verdict is VALID
    assert judge(given_up(failing((30, 1)).nothing(5).attempt_failed(2)), rate).verdict is VALID
    assert judge(failing((30, 1), (5, 1)), rate).verdict is INVALID
    assert judge(given_up(failing((30, 1)).nothing(30).attempt_failed(2)), rate).verdict is INVALID


@pytest.mark.long
def test_a_growing_delay_grows_up_to_its_bound_and_begins_anew_after_a_long_run() -> None:
    grows = RestartPlan("exponential_delay", delay_ms=4, factor=5, delay_ms_max=50, reset_after_ms=30)
    assert judge(failing((5, 4), (5, 20), (5, 50), (5, 50), (31, 4), (5, 20)), grows).verdict is VALID
    assert judge(failing((5, 4), (5, 19)), grows).verdict is INVALID
    assert judge(failing((5, 4), (5, 20), (5, 49)), grows).verdict is INVALID
    assert judge(failing((5, 4), (5, 20), (31, 50)), grows).verdict is INVALID
    often = RestartPlan("exponential_delay", attempts_max=1, delay_ms=1, delay_ms_max=1, reset_after_ms=30)
    assert judge(given_up(failing((40, 1)).nothing(40).attempt_failed(2)), often).verdict is INVALID
    assert judge(given_up(failing((40, 1)).attempt_failed(2)), often).verdict is VALID


def test_on_a_real_machine_a_run_may_be_taken_for_long_or_short_near_the_bound() -> None:
    grows = RestartPlan("exponential_delay", delay_ms=500, factor=2, delay_ms_max=4_000, reset_after_ms=150)
    assert judge(failing((9, 500), (120, 500)), grows, repeatable=False).verdict is VALID
    assert judge(failing((9, 500), (120, 1_000)), grows, repeatable=False).verdict is VALID
    assert judge(failing((9, 500), (20, 500)), grows, repeatable=False).verdict is INVALID


def test_a_real_machine_is_given_the_time_for_which_it_held_the_job_up() -> None:
    restart = RestartPlan("fixed_delay", delay_ms=10)

    def judged(held_up_ms: int) -> Verdict:
        book = Book().attempt(1).tell(ops.HeldUp(0)).attempt_failed(1)
        book.nothing(int(BUSY_MS) + 3_000).tell(ops.HeldUp(held_up_ms)).attempt(2)
        return judge(book, restart, repeatable=False).verdict

    assert (judged(4_000), judged(2_000)) == (VALID, INVALID)


def test_a_new_coordinator_has_seen_no_failure_and_waits_for_nothing() -> None:
    once = RestartPlan("fixed_delay", attempts_max=1, delay_ms=10)
    book = (
        failing((5, 10))
        .attempt_failed(2)
        .fault()
        .attempt(3)
        .nothing(3)
        .attempt_failed(3)
        .nothing(9)
        .attempt(4)
    )
    assert judge(book, once, faults=(CRASH,)).verdict is VALID
