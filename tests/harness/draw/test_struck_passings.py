"""Faults that end a process are drawn so that each of them meets a living one; grain: functions."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from barrier_tck.faults.fault import Fault
from barrier_tck.faults.kinds.kill_worker import KillWorker
from barrier_tck.faults.kinds.pause_executor import PauseExecutor
from barrier_tck.faults.vocabulary import After, At, ProtocolPoint, ScheduledFault
from barrier_tck.harness.draw.drawn_faults import _alive_at

POINT = ProtocolPoint.TRANSACTIONS_COMMITTED
KILL, PAUSE = KillWorker("a"), PauseExecutor("a", duration_ms=10)


def aimed(fault: Fault, nth: int) -> ScheduledFault:
    return ScheduledFault(fault, After(POINT, "a", nth))


def struck(kills: list[int], times: int) -> bool:
    """Return whether each kill meets a living process, which passes the point so many times: one step at a time."""
    waiting = sorted(kills)
    for passing in range(1, times + 1):
        if waiting and waiting[0] <= passing:
            waiting.pop(0)  # the others find it dead, and wait for the next passing
    return not waiting


@given(st.integers(1, 9), st.data())
def test_there_is_always_a_passing_for_one_more_fault_than_struck_before(
    times: int, data: st.DataObject
) -> None:
    kills: list[int] = []
    for _ in range(times):
        wanted = data.draw(st.integers(1, times))
        nth = _alive_at(wanted, times, [aimed(KILL, one) for one in kills])
        assert 1 <= nth <= wanted
        kills.append(nth)
        assert struck(kills, times), kills


def test_a_passing_is_moved_only_if_it_must_be() -> None:
    assert _alive_at(5, 9, [aimed(KILL, 5), aimed(KILL, 9)]) == 5
    assert _alive_at(9, 9, [aimed(KILL, 9)]) == 8
    assert _alive_at(9, 9, [aimed(PAUSE, 9), ScheduledFault(KILL, At(3))]) == 9
