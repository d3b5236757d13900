"""State with a time to live: what is seen, what is removed and when, and that only its last use counts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from barrier_tck.reference_impl.ids import CheckpointId
from barrier_tck.reference_impl.operators.api import DataPlane
from barrier_tck.reference_impl.operators.event_time_process import EventTimeProcess
from barrier_tck.reference_impl.operators.functions import Row
from barrier_tck.reference_impl.operators.keyed_process import KeyedCoProcess, KeyedProcess
from barrier_tck.reference_impl.operators.timed_process import TimedProcess
from barrier_tck.reference_impl.runtime_errors import JobUsageError
from barrier_tck.reference_impl.state.keyed import KeyedStates
from barrier_tck.reference_impl.state.time_to_live import RefreshedBy, TimeToLive
from tests.reference_impl.opened_operators import GROUPS, PLANES, Storage, listed, opened
from tests.reference_impl.state_worlds import ALL, StateWorld, content

WRITING, READING = TimeToLive(10), TimeToLive(10, RefreshedBy.READING)
BACKENDS = ("heap", "rocksdb")
NAMES = ("s", "plain", "limited")


class Clock:
    """A clock that stands still unless it is set."""

    def __init__(self) -> None:
        self.ms = 1_000.0

    def __call__(self) -> float:
        return self.ms


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_entry_is_seen_until_its_time_is_over_and_then_removed(backend: str) -> None:
    world, clock = StateWorld(backend), Clock()
    store = world.store()
    cell = KeyedStates(store, ALL, clock).value("s", int, WRITING).of(3, b"k")
    cell.set(7)
    clock.ms += 9.9
    assert cell.get() == 7
    clock.ms += 0.1
    assert cell.get() is None and content(store, ALL, NAMES) == {}
    cell.set(8)
    assert cell.get() == 8
    cell.clear()
    assert cell.get() is None
    world.close()


@pytest.mark.parametrize(("ttl", "seen"), [(WRITING, None), (READING, 7)])
def test_reading_is_a_use_if_that_was_asked_for(ttl: TimeToLive, seen: int | None) -> None:
    world, clock = StateWorld(), Clock()
    cell = KeyedStates(world.store(), ALL, clock).value("s", int, ttl).of(3, b"k")
    cell.set(7)
    for _ in range(2):
        clock.ms += 6
        found = cell.get()
    assert found == seen
    world.close()


def test_lists_and_maps_live_and_end_as_a_whole() -> None:
    world, clock = StateWorld(), Clock()
    states = KeyedStates(world.store(), ALL, clock)
    numbers, names = (
        states.list("l", int, WRITING).of(0, b"k"),
        states.map("m", str, int, WRITING).of(0, b"k"),
    )
    numbers.add(1)
    names.put("a", 1)
    clock.ms += 9
    numbers.add(2)
    names.put("b", 2)
    clock.ms += 9
    assert (numbers.get(), names.items()) == ([1, 2], {"a": 1, "b": 2})
    names.remove("missing")  # no change, so no use
    clock.ms += 1
    assert (numbers.get(), names.items()) == ([], {})
    numbers.add(3)
    assert numbers.get() == [3]
    world.close()


def test_what_is_over_is_not_among_the_cells_of_a_group() -> None:
    world, clock = StateWorld(), Clock()
    state = KeyedStates(world.store(), ALL, clock).value("s", int, WRITING)
    state.of(2, b"old").set(1)
    clock.ms += 5
    state.of(2, b"new").set(2)
    clock.ms += 5
    assert [(key, cell.get()) for key, cell in state.cells(2)] == [(b"new", 2)]
    world.close()


def test_entries_without_a_time_to_live_are_the_same_bytes_as_ever() -> None:
    world, clock = StateWorld(), Clock()
    store = world.store()
    states = KeyedStates(store, ALL, clock)
    states.value("plain", int).of(0, b"k").set(7)
    states.value("limited", int, WRITING).of(0, b"k").set(7)
    assert content(store, ALL, NAMES) == {
        ("plain", 0, b"k"): b"\x07",
        ("limited", 0, b"k"): b"\xc1" + (1_000).to_bytes(8, "big") + b"\x07",
    }
    world.close()


# --- over restores, against a model ------------------------------------------------------------------------

keys = st.tuples(st.integers(0, 2), st.sampled_from([b"a", b"b"]))
actions = st.lists(
    st.one_of(
        st.tuples(st.just("set"), keys, st.integers(0, 9)),
        st.tuples(st.just("get"), keys),
        st.tuples(st.just("clear"), keys),
        st.tuples(st.just("wait"), st.integers(0, 12)),
        st.tuples(st.just("clean")),
        st.tuples(st.just("restore")),
    ),
    max_size=30,
)


@given(actions, st.sampled_from([WRITING, READING]))
def test_only_the_last_use_counts_whatever_was_restored_or_cleaned_up(
    steps: Sequence[tuple[Any, ...]], ttl: TimeToLive
) -> None:
    world, clock = StateWorld(), Clock()
    store = world.store()
    states = KeyedStates(store, ALL, clock)
    state = states.value("s", int, ttl)
    model: dict[tuple[int, bytes], tuple[int, float]] = {}
    for step in steps:
        match step:
            case "set", key, value:
                state.of(*key).set(value)
                model[key] = value, clock.ms
            case "get", key:
                live = key in model and clock.ms < model[key][1] + 10
                assert state.of(*key).get() == (model[key][0] if live else None)
                if live and ttl is READING:
                    model[key] = model[key][0], clock.ms
            case "clear", key:
                state.of(*key).clear()
                model.pop(key, None)
            case "wait", ms:
                clock.ms += ms
            case _:
                states.remove_what_is_over()
                live_keys = {key for key, (_, used) in model.items() if clock.ms < used + 10}
                assert {(group, key) for _, group, key in content(store, ALL, NAMES)} == live_keys
                if step[0] == "restore":
                    handles = store.snapshot(CheckpointId(1), world.writer()).run()
                    store = world.store(handles=handles)
                    states = KeyedStates(store, ALL, clock)
                    state = states.value("s", int, ttl)
    clock.ms += 10
    states.remove_what_is_over()
    assert content(store, ALL, NAMES) == {}
    world.close()


@pytest.mark.parametrize("first", ["left", "read", "cleared"])
def test_an_entry_that_comes_again_after_it_was_over_ends_again(first: str) -> None:
    """Whatever has removed it the first time; later on it is only left to itself."""
    world, clock = StateWorld(), Clock()
    store = world.store()
    states = KeyedStates(store, ALL, clock)
    cell = states.value("s", int, WRITING).of(0, b"k")
    for value in range(3):
        cell.set(value)
        if first == "cleared" and not value:
            cell.clear()
        clock.ms += 10
        assert first != "read" or value or cell.get() is None
        states.remove_what_is_over()
        assert content(store, ALL, NAMES) == {}
    world.close()


def test_the_queue_does_not_grow_with_uses() -> None:
    world, clock = StateWorld(), Clock()
    states = KeyedStates(world.store(), ALL, clock)
    cell = states.value("s", int, READING).of(0, b"k")
    for number in range(100):
        clock.ms += 7
        cell.set(number)
        cell.get()
        states.remove_what_is_over()
    (entries,) = states._limited
    assert len(entries._queue) == 1 and cell.get() == 99
    world.close()


# --- in operators --------------------------------------------------------------------------------------------


class Latest:
    """Emits what a key had before; it fits every kind of keyed function."""

    def open(self, states: KeyedStates, *_: Any) -> None:
        self.latest = states.value("latest", int, WRITING)

    def process(self, group: int, key: bytes, row: Row, *_: int) -> Iterable[Row]:
        cell = self.latest.of(group, key)
        before = cell.get()
        cell.set(row["v"])
        return [{"k": row["k"], "before": before}]

    def on_timer(self, group: int, key: bytes, at_ms: int) -> Iterable[Row]:
        return ()

    def on_event_timer(self, group: int, key: bytes, at_ms: int) -> Iterable[Row]:
        return ()


KINDS: dict[str, Any] = {
    "keyed": KeyedProcess("op", ("k",), Latest),
    "keyed, two inputs": KeyedCoProcess("op", (("k",), ("k",)), Latest),
    "timed": TimedProcess("op", (("k",),), Latest),
    "event time": EventTimeProcess("op", (("k",),), Latest),
}


def taken(operator: Any, plane: DataPlane, key: str, value: int) -> Any:
    payload = plane.from_rows([{"k": key, "v": value}])
    several = hasattr(operator, "process_input")
    (row,) = listed(operator.process_input(payload, 0) if several else operator.process(payload))
    return row["before"]


@pytest.mark.parametrize("plane", PLANES, ids=["rows", "arrow"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_keyed_function_has_it_and_a_restore_gives_nothing_more_to_live(
    kind: str, plane: DataPlane
) -> None:
    clock, storage = Clock(), Storage()
    first = opened(KINDS[kind], plane, storage, now_ms=clock)
    assert taken(first, plane, "a", 1) is None
    clock.ms += 6
    assert taken(first, plane, "b", 2) is None
    part = first.snapshot(CheckpointId(1)).run()
    clock.ms += 4
    second = opened(KINDS[kind], plane, storage, part, now_ms=clock)
    assert taken(second, plane, "a", 3) is None, "it was over at the restore"
    assert taken(second, plane, "b", 4) == 2


@pytest.mark.parametrize("kind", KINDS)
def test_no_snapshot_has_what_is_over_and_state_does_not_grow(kind: str) -> None:
    clock = Clock()
    operator = opened(KINDS[kind], PLANES[0], now_ms=clock)
    for number in range(50):
        taken(operator, PLANES[0], f"key {number}", number)
        clock.ms += 4
        operator.snapshot(CheckpointId(number + 1)).run()
        store = operator._opened()[1]
        assert sum(1 for group in range(GROUPS) for _ in store.scan("latest", group)) <= 2


# --- what is refused -----------------------------------------------------------------------------------------


def _with_another_job(before: TimeToLive | None, after: TimeToLive | None) -> Callable[[], object]:
    def change() -> object:
        world, clock = StateWorld(), Clock()
        store = world.store()
        KeyedStates(store, ALL, clock).value("s", int, before).of(0, b"k").set(7)
        return KeyedStates(store, ALL, clock).value("s", int, after).of(0, b"k").get()

    return change


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        (lambda: TimeToLive(0), "ms must be above 0, not 0; leave ttl out if nothing ends"),
        (_with_another_job(None, WRITING), "'s' has a time to live, and entries .* leave ttl out, or give"),
        (
            _with_another_job(WRITING, None),
            "'s' has a time to live in the checkpoint and none in the job; name it",
        ),
        (
            lambda: KeyedStates(StateWorld().store()).value("s", int, WRITING),
            "give KeyedStates the groups and a clock",
        ),
    ],
)
def test_mistakes_are_told(mistake: Any, message: str) -> None:
    with pytest.raises(JobUsageError, match=message):
        mistake()


def test_an_entry_begins_with_what_messagepack_never_uses() -> None:
    """So one with a time to live is never taken for one without, nor the other way round."""
    with pytest.raises(msgspec.DecodeError):
        msgspec.msgpack.decode(b"\xc1" + bytes(8) + b"\x07")


def test_an_entry_of_a_clock_that_was_ahead_ends_by_its_use_at_one_that_is_behind() -> None:
    world, clock = StateWorld(), Clock()
    store = world.store()
    KeyedStates(store, ALL, clock).value("s", int, WRITING).of(0, b"k").set(1)
    clock.ms -= 500
    states = KeyedStates(store, ALL, clock)
    states.value("s", int, WRITING).of(0, b"k").set(2)
    clock.ms += 10
    states.remove_what_is_over()
    assert content(store, ALL, NAMES) == {}
    world.close()
