"""Attempts end in time when one of their subtasks has fallen silent."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from barrier_tck.faults.fault import Fault
from barrier_tck.faults.kinds.black_hole_channel import BlackHoleChannel
from barrier_tck.faults.kinds.crash_coordinator import CrashCoordinator
from barrier_tck.faults.kinds.pause_executor import PauseExecutor
from barrier_tck.faults.kinds.pause_worker import PauseWorker
from barrier_tck.faults.targets import COORDINATOR, Direction
from barrier_tck.faults.vocabulary import At, ScheduledFault
from barrier_tck.harness.oracle.checkers.silence_noticed import SilenceNoticed
from barrier_tck.harness.plan.trial_plan import NetworkPlan, TrialPlan
from barrier_tck.harness.record import operations as ops
from barrier_tck.harness.record.reasons import Reason
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.reference.simulated.simulated_system import ReferenceSimulated
from tests.harness.oracle.oracle_histories import Book, a_context, a_plan

PAUSED = PauseWorker("totals[0]", 400)


def judged(book: Book, *faults: Fault, promised_ms: float | None = 100.0) -> Finding:
    plan = a_plan(faults=tuple(ScheduledFault(fault, At(5)) for fault in faults or (PAUSED,)))
    context = a_context(plan, book)
    job = msgspec.structs.replace(ReferenceSimulated().job(plan), silence_noticed_ms=promised_ms)
    return SilenceNoticed().check(replace(context, job=job))


def paused(fault: int = 0) -> Book:
    return Book().attempt(1).nothing(10).tell(ops.FaultFired(fault, "it"))


def ended(book: Book) -> Book:
    return book.tell(ops.AttemptEnded(1, Reason.PROCESS_LOST))


def test_an_attempt_that_ends_in_time_is_right() -> None:
    finding = judged(ended(paused().nothing(99)))
    assert (finding.verdict, finding.counts["silences"], finding.clauses) == (Verdict.VALID, 1, ("REC-1",))


def test_an_attempt_that_ends_too_late_is_invalid() -> None:
    finding = judged(ended(paused().nothing(100)))
    assert (finding.verdict, finding.counts["violations"]) == (Verdict.INVALID, 1)
    assert "totals[0] of attempt 1" in finding.summary


def test_an_attempt_that_goes_on_with_a_subtask_that_comes_back_is_invalid() -> None:
    assert judged(paused().nothing(400).tell(ops.FaultHealed(0))).verdict is Verdict.INVALID


@pytest.mark.parametrize("shorter", [PauseWorker("totals[0]", 50), PauseExecutor("totals[0]", 50)])
def test_who_is_paused_twice_stays_silent_when_the_shorter_pause_ends(shorter: Fault) -> None:
    twice = paused().tell(ops.FaultFired(1, "it")).nothing(50).tell(ops.FaultHealed(1))
    assert judged(ended(twice.nothing(200)), PAUSED, shorter).verdict is Verdict.INVALID
    twice = paused().tell(ops.FaultFired(1, "it")).nothing(50).tell(ops.FaultHealed(1))
    assert judged(ended(twice.nothing(40)), PAUSED, shorter).verdict is Verdict.VALID


@pytest.mark.parametrize(
    "fault",
    [
        PauseExecutor("totals[0]", 400),
        BlackHoleChannel("totals[0]", COORDINATOR, 400),
    ],
)
def test_so_is_whatever_else_lets_nothing_be_heard_of_a_subtask(fault: Fault) -> None:
    assert judged(ended(paused().nothing(100)), fault).verdict is Verdict.INVALID


@pytest.mark.parametrize(
    ("book", "faults", "promised_ms"),
    [
        (ended(paused().nothing(300)), (PauseWorker("totals[0]", 90),), 100.0),
        (ended(paused().nothing(300)), (BlackHoleChannel("totals[0]", "sink[0]", 400),), 100.0),
        (
            ended(paused().nothing(300)),
            (BlackHoleChannel("totals[0]", COORDINATOR, 400, Direction.BACKWARD),),
            100.0,
        ),
        (ended(paused().nothing(300)), (PAUSED,), None),
        (ended(Book().started(1).tell(ops.FaultFired(0, "it")).nothing(300)), (PAUSED,), 100.0),
        (paused().tell(ops.Finished("totals[0]", 1)).nothing(300).tell(ops.JobFinished()), (PAUSED,), 100.0),
        (
            ended(paused().nothing(50).tell(ops.FaultFired(1, "it")).nothing(300)),
            (PAUSED, CrashCoordinator()),
            100.0,
        ),
        (paused(), (PAUSED,), 100.0),
    ],
    ids=[
        "too short",
        "another connection",
        "still heard",
        "nothing promised",
        "not yet running",
        "it finishes",
        "the coordinator dies",
        "the history ends",
    ],
)
def test_nothing_is_said_where_nothing_had_to_be_noticed(
    book: Book, faults: tuple[Fault, ...], promised_ms: float | None
) -> None:
    finding = judged(book, *faults, promised_ms=promised_ms)
    assert (finding.verdict, finding.counts["silences"], finding.clauses) == (Verdict.VALID, 0, ())


def test_the_simulated_runtime_promises_it_and_how_soon_depends_on_its_network() -> None:
    quick, slow = (
        ReferenceSimulated().job(TrialPlan(network=NetworkPlan(latency_ms_max=latency_ms))).silence_noticed_ms
        for latency_ms in (1, 11)
    )
    assert quick is not None
    assert slow is not None
    assert 150 < quick < 200
    assert slow == quick + 10
