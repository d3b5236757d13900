"""Timers: when they go off, what keeps them, and what a job may not do with them."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barrier_tck.harness.reference.simulated.named_timers import LATE_MS_MAX, NamedTimers
from barrier_tck.harness.reference.simulated.scheduler import Scheduler
from barrier_tck.harness.reference.slow_vertex import slowed_down
from barrier_tck.reference_impl.ids import CheckpointId, KeyGroupRange
from barrier_tck.reference_impl.operators import timed_process
from barrier_tck.reference_impl.operators.api import DataPlane
from barrier_tck.reference_impl.operators.encoding import decode_key
from barrier_tck.reference_impl.operators.functions import Row
from barrier_tck.reference_impl.operators.graph import JobGraph
from barrier_tck.reference_impl.operators.job import Stream, StreamJob
from barrier_tck.reference_impl.operators.keyed_process import KeyedProcess
from barrier_tck.reference_impl.operators.rows import RowPlane
from barrier_tck.reference_impl.operators.sinks import FileSink
from barrier_tck.reference_impl.operators.sources import CollectionSource
from barrier_tck.reference_impl.operators.timed_process import (
    HasTimers,
    KeyedTimers,
    TimedProcess,
)
from barrier_tck.reference_impl.runtime.components import Components
from barrier_tck.reference_impl.runtime.subtask_timers import AT_ONCE_MAX, OF_OPERATORS, SubtaskTimers
from barrier_tck.reference_impl.runtime_errors import JobUsageError, ProtocolError
from barrier_tck.reference_impl.state.keyed import KeyedStates, ListCell, NamedState
from tests.reference_impl.opened_operators import GROUPS, PLANES, Storage, listed, opened
from tests.test_tidy import ROOT


class Delay:
    """Emits every record at the time that it names; its key is told by the timer."""

    def open(self, states: KeyedStates, timers: KeyedTimers) -> None:
        self.timers = timers
        self.waiting: NamedState[ListCell[int]] = states.list("waiting", int)

    def process(self, group: int, key: bytes, row: Row, number: int) -> Iterable[Row]:
        self.waiting.of(group, key).add(row["at"])
        self.timers.set(group, key, row["at"])
        if row["at"] < 0:
            self.timers.delete(group, key, row["at"])
        return ()

    def on_timer(self, group: int, key: bytes, at_ms: int) -> Iterable[Row]:
        left = self.waiting.of(group, key).get()
        self.waiting.of(group, key).set([one for one in left if one != at_ms])
        return [{"k": decode_key(key)[0], "at": at_ms} for one in left if one == at_ms]


DELAY = TimedProcess("op", (("k",),), Delay)


def fired(operator: Any, until_ms: float) -> list[Row]:
    rows: list[Row] = []
    while (payloads := operator.fire_timer(until_ms)) is not None:
        rows += [row for payload in payloads for row in listed(payload)]
    return rows


@pytest.mark.parametrize("plane", PLANES, ids=["rows", "arrow"])
def test_timers_go_off_in_the_order_of_their_times_once_and_not_before(plane: DataPlane) -> None:
    operator = opened(DELAY, plane)
    assert operator.next_timer_ms() is None and fired(operator, 10**6) == []
    rows = [{"k": "a", "at": 30}, {"k": "b", "at": 10}, {"k": "a", "at": 20}, {"k": "a", "at": 20}]
    assert operator.process(plane.from_rows(rows)) is None
    assert operator.next_timer_ms() == 10
    assert fired(operator, 9) == []
    assert fired(operator, 20) == [{"k": "b", "at": 10}, {"k": "a", "at": 20}, {"k": "a", "at": 20}]
    assert operator.next_timer_ms() == 30
    assert fired(operator, 29.9) == [] and fired(operator, 30) == [{"k": "a", "at": 30}]
    assert operator.next_timer_ms() is None


def test_a_timer_that_was_deleted_does_not_go_off_and_may_be_set_again() -> None:
    operator = opened(DELAY, RowPlane())
    operator.process([{"k": "a", "at": -1}])
    assert operator.next_timer_ms() is None and fired(operator, 5) == []
    operator.process([{"k": "a", "at": 5}])
    operator._function.timers.delete(*operator._key_of({"k": "a"}, ("k",)), 7)  # there is none
    assert fired(operator, 5) == [{"k": "a", "at": 5}]


keys_and_times = st.lists(st.tuples(st.sampled_from("abcdefgh"), st.integers(0, 40)), max_size=30)


@given(keys_and_times, st.integers(0, 40), st.integers(1, 4))
def test_a_restore_at_any_width_has_each_timer_in_the_subtask_that_owns_its_key(
    records: list[tuple[str, int]], until_ms: int, width: int
) -> None:
    storage = Storage()
    operator = opened(DELAY, RowPlane(), storage)
    if records:
        operator.process([{"k": key, "at": at_ms} for key, at_ms in records])
    early = fired(operator, until_ms)
    part = operator.snapshot(CheckpointId(1)).run()
    restored = opened(DELAY, RowPlane(), storage, part)
    assert restored.next_timer_ms() == operator.next_timer_ms()
    late = fired(restored, 40)
    as_given = [{"k": key, "at": at_ms} for key, at_ms in records]
    assert sorted(map(str, early + late)) == sorted(map(str, as_given))
    store = operator._opened()[1]
    for index in range(width):
        groups = KeyGroupRange(index * GROUPS // width, (index + 1) * GROUPS // width)
        timers = KeyedTimers(store, groups, lambda: 0.0)
        mine = []
        while (due := timers.take(None)) is not None:
            mine.append(due)
        assert mine == sorted(mine) and all(group in groups for _, group, _ in mine)
    assert KeyedTimers(store, KeyGroupRange(0, GROUPS), lambda: 0.0).next_ms() is None, "all were taken"


def test_at_the_end_of_the_input_every_timer_goes_off_also_those_that_are_set_then() -> None:
    class Twice(Delay):
        def on_timer(self, group: int, key: bytes, at_ms: int) -> Iterable[Row]:
            if at_ms < 10**9:
                assert self.timers.ended
                self.timers.set(group, key, 10**9)
            return ({"at": at_ms},)

    operator = opened(TimedProcess("op", (("k",),), Twice), RowPlane())
    operator.process([{"k": "a", "at": 50}, {"k": "a", "at": 40}])
    assert not operator._function.timers.ended
    rows = [row["at"] for payload in operator.end_of_input() for row in payload]
    assert rows == [40, 50, 10**9]


def test_timers_that_never_end_are_an_error_that_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timed_process, "AT_THE_END_MAX", 50)

    class Ever(Delay):
        gone_off = 0

        def on_timer(self, group: int, key: bytes, at_ms: int) -> Iterable[Row]:
            self.gone_off += 1
            self.timers.set(group, key, at_ms + 1)
            return ()

    operator = opened(TimedProcess("op", (("k",),), Ever), RowPlane())
    operator.process(
        [{"k": "a", "at": at_ms} for at_ms in range(200)]
    )  # those that are set before may be many
    with pytest.raises(JobUsageError, match=r"'op' has ended.*timers\.ended"):
        list(operator.end_of_input())
    assert 50 < operator._function.gone_off < 300
    many = opened(DELAY, RowPlane())
    many.process([{"k": "a", "at": at_ms} for at_ms in range(200)])
    assert sum(len(payload) for payload in many.end_of_input()) == 200


def test_what_is_in_memory_does_not_grow_with_timers_that_were_deleted() -> None:
    operator = opened(DELAY, RowPlane())
    key = operator._key_of({"k": "a"}, ("k",))
    timers = operator._function.timers
    for at_ms in range(5_000):
        timers.set(*key, 10_000 + at_ms)
        timers.delete(*key, 10_000 + at_ms)
        timers.set(*key, 10_000)
        timers.delete(*key, 10_000)
    timers.set(*key, 10_000)
    assert len(timers._queue) <= 1_002
    assert timers.take(None) == (10_000, *key) and timers.take(None) is None


def test_several_inputs_share_the_timers_of_a_key() -> None:
    operator = opened(TimedProcess("op", (("k",), ("other",)), Delay), RowPlane())
    operator.process_input([{"k": "a", "at": 3}], 0)
    operator.process_input([{"other": "a", "at": 2}], 1)
    assert fired(operator, 3) == [{"k": "a", "at": 2}, {"k": "a", "at": 3}]
    with pytest.raises(JobUsageError, match="equally many key columns"):
        TimedProcess("op", (("k",), ("k", "l")), Delay)


def test_an_operator_that_is_not_open_has_no_timers() -> None:
    with pytest.raises(ProtocolError, match="before it was opened"):
        DELAY.build(RowPlane()).next_timer_ms()


def test_the_name_of_the_timers_is_reserved() -> None:
    class Taken(Delay):
        def open(self, states: KeyedStates, timers: KeyedTimers) -> None:
            states.list("~timers", int)

    with pytest.raises(JobUsageError, match="begins with '~', which is reserved"):
        opened(TimedProcess("op", (("k",),), Taken), RowPlane())


def test_timers_that_nobody_would_let_go_off_are_refused() -> None:
    class Plain:
        def open(self, states: KeyedStates) -> None:
            pass

        def process(self, group: int, key: bytes, row: Row) -> Iterable[Row]:
            return ()

    storage = Storage()
    operator = opened(DELAY, RowPlane(), storage)
    operator.process([{"k": "a", "at": 5}])
    waits = operator.snapshot(CheckpointId(1)).run()
    with pytest.raises(JobUsageError, match="'op' has timers in the checkpoint and none in the job"):
        opened(KeyedProcess("op", ("k",), Plain), RowPlane(), storage, waits)
    assert fired(operator, 5)
    opened(KeyedProcess("op", ("k",), Plain), RowPlane(), storage, operator.snapshot(CheckpointId(2)).run())


# --- in a job -----------------------------------------------------------------------------------------------


def timed(stream: Stream) -> Stream:
    return stream.key_by("k").process(Delay, name="delay", timers=True)


def read() -> Stream:
    return StreamJob("job", GROUPS).source(CollectionSource((), 1), name="read")


def test_a_job_has_timers_where_it_asks_for_them() -> None:
    chained = timed(read()).key_by("k").process(Delay, name="behind", chain=True, timers=True)
    graph: JobGraph = chained.sink(FileSink("out")).build()
    assert [type(one) for one in graph.vertex("delay").operators[:2]] == [TimedProcess, TimedProcess]
    several = timed(read())
    both = several.key_by("k").connect(several.key_by("k")).process(Delay, name="both", timers=True)
    assert both.sink(FileSink("out")).build().vertex("both").operators[0].inputs == 2


def test_timers_in_a_loop_are_refused() -> None:
    job = read().iterate(lambda stream: (timed(stream),) * 2)
    with pytest.raises(JobUsageError, match="'delay' has timers and is in a loop"):
        job.sink(FileSink("out")).build()


def test_a_slow_operator_still_has_timers() -> None:
    """As any version of Python looks for them: a wrapper that passes attributes on would not do."""
    slow = slowed_down(Components(), "op", 1).instruments.operator(DELAY, RowPlane())
    assert isinstance(slow, HasTimers) and inspect.getattr_static(slow, "fire_timer")


# --- in a subtask -------------------------------------------------------------------------------------------


class Subtask:
    """A chain of an operator with timers and one that only notes what comes, with its timers."""

    def __init__(self, spec: TimedProcess = DELAY) -> None:
        self.scheduler = Scheduler()
        self.operator = opened(spec, RowPlane())
        self.passed_on: list[Row] = []
        self.timed_out: list[CheckpointId] = []
        self.has_room = True
        port = NamedTimers(self.scheduler, self._due)
        self.timers = SubtaskTimers([self.operator], port, self.scheduler, lambda: self.has_room)

    def take(self, key: str, at_ms: int) -> None:
        self.operator.process([{"k": key, "at": at_ms}])
        self.timers.arm()

    def _due(self, name: str) -> None:
        checkpoint = self.timers.due(name, self._run_chain)
        if checkpoint is not None:
            self.timed_out.append(checkpoint)

    def _run_chain(self, start: int, payload: Any) -> None:
        assert start == 1
        self.passed_on += payload

    def until(self, time_ms: float) -> list[int]:
        """Let time pass, and return what has been passed on until then."""
        self.scheduler.run(time_ms)
        return [row["at"] for row in self.passed_on]


def test_the_world_is_asked_for_the_earliest_timer_whatever_is_set_later() -> None:
    subtask = Subtask()
    subtask.take("a", 30)
    subtask.take("b", 10)
    subtask.take("c", 20)
    assert subtask.until(9) == []
    assert subtask.until(10) == [10]
    assert subtask.until(25) == [10, 20]
    assert subtask.until(100) == [10, 20, 30]


def test_a_simulated_world_lets_timers_of_operators_go_off_late_and_no_others() -> None:
    scheduler, due = Scheduler(), list[tuple[str, float]]()
    timers = NamedTimers(scheduler, lambda name: due.append((name, scheduler.now)), lambda: 0.5)
    timers.set(OF_OPERATORS, 10.0)
    timers.set("other", 10.0)
    scheduler.run(50.0)
    assert due == [("other", 10.0), (OF_OPERATORS, 10.0 + LATE_MS_MAX / 2)]


def test_behind_a_terminal_barrier_no_timer_goes_off_until_the_job_goes_on() -> None:
    subtask = Subtask()
    subtask.take("a", 10)
    subtask.timers.hold(True)
    subtask.take("b", 5)
    assert subtask.until(50) == []
    subtask.timers.hold(False)
    assert subtask.until(51) == [5, 10]


def test_alignments_have_timers_of_their_own() -> None:
    subtask = Subtask()
    subtask.timers.start_alignment(CheckpointId(7), 10.0)
    subtask.take("a", 10)
    assert subtask.until(20) == [10] and subtask.timed_out == [CheckpointId(7)]


def test_as_long_as_there_is_no_room_for_output_no_timer_goes_off() -> None:
    subtask = Subtask()
    subtask.take("a", 10)
    subtask.has_room = False
    assert subtask.until(200) == []
    subtask.has_room = True
    assert subtask.until(230) == [10]


class Again(Delay):
    """Sets the timer anew that has just gone off."""

    def on_timer(self, group: int, key: bytes, at_ms: int) -> Iterable[Row]:
        self.timers.set(group, key, at_ms)
        return ({"at": at_ms},)


def test_time_goes_on_for_everybody_else_whatever_timers_do() -> None:
    subtask = Subtask(TimedProcess("op", (("k",),), Again))
    subtask.take("a", 10)
    subtask.scheduler.at(15.0, lambda _: subtask.timed_out.append(CheckpointId(1)))
    assert AT_ONCE_MAX <= len(subtask.until(20)) <= 11 * AT_ONCE_MAX
    assert subtask.timed_out


# --- the guide ----------------------------------------------------------------------------------------------


def test_the_example_of_the_guide_counts_by_key_and_minute() -> None:
    page = (ROOT / "docs" / "guide" / "state-backend.md").read_text()
    (code,) = [block for block in page.split("```") if "class PerMinute" in block]
    names: dict[str, Any] = {}
    exec(code.removeprefix("python"), names)
    storage = Storage()
    operator = opened(TimedProcess("op", (("key",),), names["PerMinute"]), RowPlane(), storage)
    operator.process([{"key": "a"}, {"key": "b"}, {"key": "a"}])
    part = operator.snapshot(CheckpointId(1)).run()
    restored = opened(TimedProcess("op", (("key",),), names["PerMinute"]), RowPlane(), storage, part)
    assert fired(restored, 59_999) == []
    rows = fired(restored, 60_000)
    assert sorted(row["records"] for row in rows) == [1, 2] and {row["until"] for row in rows} == {60_000}
