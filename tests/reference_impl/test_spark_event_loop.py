"""The coordinator's loop: order, timers, crashes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

from barrier_tck.reference_impl.spark.event_loop import EventLoop, LoopBackground, MonotonicClock
from tests.waiting import PATIENCE_S


def run(schedule: Callable[[EventLoop, MonotonicClock, list[str]], None], wanted: int) -> list[str]:
    """Run a loop until the wanted number of notes was made, and return the notes."""
    clock, seen, enough = MonotonicClock(), list[str](), threading.Event()

    def after_each() -> None:
        if len(seen) >= wanted:
            enough.set()

    def crashed(error: BaseException) -> None:
        seen.append(repr(error))
        after_each()

    loop = EventLoop(clock, after_each, crashed)
    loop.post(lambda: schedule(loop, clock, seen))
    loop.start()
    assert enough.wait(PATIENCE_S), seen
    assert loop.stop(5.0)
    return seen


def test_calls_are_made_in_the_order_of_posting_on_one_thread() -> None:
    def note(seen: list[str], number: int) -> None:
        seen.append(f"{number} on {threading.current_thread().name}")

    def schedule(loop: EventLoop, _: MonotonicClock, seen: list[str]) -> None:
        for i in range(3):
            loop.post(partial(note, seen, i))

    assert run(schedule, 3) == [f"{i} on coordinator" for i in range(3)]


def test_timers_fire_in_the_order_of_their_times_and_a_name_counts_once() -> None:
    def schedule(loop: EventLoop, clock: MonotonicClock, seen: list[str]) -> None:
        now = clock.now_ms()
        loop.set_timer("late", now + 30, lambda: seen.append("late"))
        loop.set_timer("early", now + 10, lambda: seen.append("early"))
        loop.set_timer("moved", now + 5, lambda: seen.append("moved, old time"))
        loop.set_timer("moved", now + 20, lambda: seen.append("moved"))

    assert run(schedule, 3) == ["early", "moved", "late"]


def test_a_flood_of_calls_does_not_starve_a_timer() -> None:
    def schedule(loop: EventLoop, clock: MonotonicClock, seen: list[str]) -> None:
        def again() -> None:
            if not seen:
                loop.post(again)

        loop.set_timer("due", clock.now_ms() + 5, lambda: seen.append("due"))
        loop.post(again)

    assert run(schedule, 1) == ["due"]


def test_a_call_that_raises_is_reported_and_the_loop_goes_on() -> None:
    def fail() -> None:
        raise ValueError("broken")

    def schedule(loop: EventLoop, _: MonotonicClock, seen: list[str]) -> None:
        loop.post(fail)
        loop.post(lambda: seen.append("next"))

    assert run(schedule, 2) == ["ValueError('broken')", "next"]


def test_the_outcome_of_a_background_task_arrives_on_the_loops_thread() -> None:
    def fail() -> int:
        raise OSError("disk")

    def schedule(loop: EventLoop, _: MonotonicClock, seen: list[str]) -> None:
        background = LoopBackground(loop.post, 1, "test")

        def note(result: object, error: BaseException | None) -> None:
            seen.append(f"{result} {error} on {threading.current_thread().name}")

        background.submit(lambda: 42, note)
        background.submit(fail, note)

    assert run(schedule, 2) == ["42 None on coordinator", "None disk on coordinator"]


def test_a_call_that_does_not_end_delays_the_stop_of_the_loop_only_for_a_time() -> None:
    loop = EventLoop(MonotonicClock(), lambda: None, lambda _error: None)
    goes_on, begun = threading.Event(), threading.Event()

    def stand_still() -> None:
        begun.set()
        goes_on.wait()

    loop.post(stand_still)
    loop.start()
    assert begun.wait(PATIENCE_S)
    assert not loop.stop(0.05)
    goes_on.set()
    assert loop.stop(5.0)
