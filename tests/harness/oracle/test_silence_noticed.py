"""Attempts end in time when one of their subtasks has fallen silent."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import permutations

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
from barrier_tck.harness.record.history import Recorded
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


LINGER_MS = (25, 80, 130)
"""How late messages may be after each of three faults."""
HEALED_AT = ((40, 40, 40), (40, 50, 60), (40, 50, 50), (12, 15, 60), (11, 15, 19), (15, 15, 15))
"""When they are healed, one after the other; a subtask is silent from 20 ms on."""


def _overlapping(
    linger_ms: Sequence[int], fired: Iterable[int], heals: list[tuple[int, int]]
) -> float | None:
    """Return the last millisecond at which the attempt of a silent subtask may end; None if there is no such bound.

    Connections are disturbed from 10 ms on by faults after which messages are late by ``linger_ms``. They fire in the
    order of ``fired``, and ``heals`` are the times at which they are over, and their numbers, in the order in which
    that is told.
    """
    late = [DelayChannel("totals[0]", COORDINATOR, latency_ms=most, duration_ms=20) for most in linger_ms]
    told: list[tuple[int, ops.Operation]] = [(1, ops.AttemptStarted(1, None)), (2, ops.AttemptRunning(1))]
    told += [(10, ops.FaultFired(number, "connections")) for number in fired]
    told += [(at_ms, ops.FaultHealed(number)) for at_ms, number in heals if at_ms < 20]
    told += [(20, ops.FaultFired(len(late), "it"))]
    told += [(at_ms, ops.FaultHealed(number)) for at_ms, number in heals if at_ms >= 20]

    def in_time(end_ms: int) -> bool:
        book = Book()
        for at_ms, operation in (*told, (end_ms, ops.AttemptEnded(1, Reason.PROCESS_LOST))):
            book.operations.append(Recorded(len(book.operations), float(at_ms), "coordinator", operation))
        finding = judged(book, *late, PAUSED)
        assert finding.counts["silences"] == 1
        return finding.verdict is Verdict.VALID

    first_late = bisect_left(range(1_000), True, lo=61, key=lambda end_ms: not in_time(end_ms))
    return first_late - 1 if first_late < 1_000 else None


@pytest.mark.parametrize("at", HEALED_AT, ids=str)
@pytest.mark.parametrize("linger_ms", [*permutations(LINGER_MS)], ids=str)
def test_of_overlapping_faults_the_one_counts_after_which_messages_come_last(
    linger_ms: tuple[int, ...], at: tuple[int, ...]
) -> None:
    """In whatever order they begin, and are over, and in whatever order that is told of those that end together."""
    last_ms = max(20, *(at_ms + most for most, at_ms in zip(linger_ms, at, strict=True)))
    for heals in permutations(zip(at, range(3), strict=True)):
        if [at_ms for at_ms, _ in heals] == [*at]:
            for fired in permutations(range(3)):
                assert _overlapping(linger_ms, fired, [*heals]) == last_ms + 100


def test_silence_is_excused_for_as_long_as_one_of_several_faults_lasts() -> None:
    for lasting in range(3):
        heals = [(40, number) for number in range(3) if number != lasting]
        assert _overlapping(LINGER_MS, range(3), heals) is None


@pytest.mark.parametrize("longer", range(3))
def test_messages_that_may_be_later_make_nothing_invalid(longer: int) -> None:
    for at in HEALED_AT:
        bounds = []
        for more_ms in (0, 1, 40, 200):
            linger_ms = [most + more_ms * (number == longer) for number, most in enumerate(LINGER_MS)]
            bounds.append(_overlapping(linger_ms, range(3), [*zip(at, range(3), strict=True)]) or 0)
        assert bounds == sorted(bounds) and bounds[0] < bounds[-1]


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
