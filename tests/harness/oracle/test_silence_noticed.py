"""Attempts end in time when one of their subtasks has fallen silent."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from barrier_tck.faults.fault import Fault
from barrier_tck.faults.kinds.black_hole_channel import BlackHoleChannel
from barrier_tck.faults.kinds.crash_coordinator import CrashCoordinator
from barrier_tck.faults.kinds.cut_channel import CutChannel
from barrier_tck.faults.kinds.delay_channel import DelayChannel
from barrier_tck.faults.kinds.lose_packets import LosePackets
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


@pytest.mark.parametrize(
    "before",
    [
        PauseWorker("totals[0]", 400),
        LosePackets("totals[0]", 300, 20),
        CutChannel("totals[0]", COORDINATOR, 20),
    ],
)
def test_what_an_earlier_attempt_went_through_excuses_nothing(before: Fault) -> None:
    earlier = Book().attempt(1).nothing(10).tell(ops.FaultFired(1, "it")).tell(ops.Finished("totals[0]", 1))
    earlier = ended(earlier.nothing(50)).nothing(50).tell(ops.FaultHealed(1))
    again = earlier.attempt(2).nothing(10).tell(ops.FaultFired(0, "it"))
    finding = judged(again.nothing(300).tell(ops.AttemptEnded(2, Reason.PROCESS_LOST)), PAUSED, before)
    assert (finding.verdict, finding.counts["violations"]) == (Verdict.INVALID, 1)


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


LOSSY, LATE = LosePackets("totals[0]", 300, 20), DelayChannel("totals[0]", COORDINATOR, 30, 20)


def _disturbed_before(healed: bool) -> Book:
    """Return a history in which a subtask falls silent after connections were disturbed, or while they are."""
    book = Book().attempt(1).nothing(10).tell(ops.FaultFired(1, "connections")).nothing(20)
    if healed:
        return book.tell(ops.FaultHealed(1)).nothing(5).tell(ops.FaultFired(0, "it"))
    return book.nothing(5).tell(ops.FaultFired(0, "it")).nothing(25).tell(ops.FaultHealed(1))


@pytest.mark.parametrize("healed", [True, False], ids=["over", "lasting"])
@pytest.mark.parametrize("fault", [LOSSY, LATE])
def test_silence_counts_from_when_all_had_arrived_that_was_sent_before(fault: Fault, healed: bool) -> None:
    def ending(after_ms: float) -> Finding:
        book = _disturbed_before(healed)
        (over_ms,) = (line.time_ms for line in book.operations if line.operation == ops.FaultHealed(1))
        noticed_by_ms = over_ms + fault.lingers_ms + 100
        return judged(
            ended(book.nothing(int(noticed_by_ms + after_ms - book.operations[-1].time_ms - 1))),
            PAUSED,
            fault,
        )

    in_time, late = ending(0), ending(1)
    assert (in_time.verdict, in_time.counts["silences"]) == (Verdict.VALID, 1)
    assert late.verdict is Verdict.INVALID


def test_what_is_disturbed_later_changes_nothing_of_a_silence() -> None:
    later = paused().nothing(20).tell(ops.FaultFired(1, "connections")).nothing(20).tell(ops.FaultHealed(1))
    assert judged(ended(later.nothing(61)), PAUSED, LOSSY).verdict is Verdict.INVALID


def test_the_simulated_runtime_promises_it_and_how_soon_depends_on_its_network() -> None:
    quick, slow = (
        ReferenceSimulated().job(TrialPlan(network=NetworkPlan(latency_ms_max=latency_ms))).silence_noticed_ms
        for latency_ms in (1, 11)
    )
    assert quick is not None
    assert slow is not None
    assert 150 < quick < 200
    assert slow == quick + 10
