"""Runs one operator in event time by steps, on either plane, and notes what a model needs to know of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from hypothesis import strategies as st

from barrier_tck.reference_impl.ids import CheckpointId, KeyGroupRange
from barrier_tck.reference_impl.operators.api import DataPlane
from barrier_tck.reference_impl.operators.encoding import key_group_of
from barrier_tck.reference_impl.operators.event_time_process import EVENT_TIMERS
from barrier_tck.reference_impl.operators.functions import Row
from barrier_tck.reference_impl.operators.scalars import canonical
from barrier_tck.reference_impl.protocol.watermarks import BEGINNING_OF_TIME, END_OF_TIME, EventTimeSnapshot
from tests.reference_impl.opened_operators import GROUPS, Storage, listed, opened

Step = tuple[Any, ...]
"""("row", input, row), ("watermark", ms), ("floor", half of the key groups, ms) or ("restore",)."""

HALVES = (KeyGroupRange(0, GROUPS // 2), KeyGroupRange(GROUPS // 2, GROUPS))
marks = st.tuples(st.just("watermark"), st.integers(-15, 45))
floors = st.tuples(st.just("floor"), st.integers(0, 1), st.integers(-15, 45))
restores = st.just(("restore",))


def steps_with(rows: st.SearchStrategy[Step], most: int = 16) -> st.SearchStrategy[list[Step]]:
    """Return lists of steps, half of which are rows."""
    return st.lists(rows | rows | rows | st.one_of(marks, floors, restores), max_size=most)


@dataclass
class Arrived:
    """A row that was given to the operator."""

    number: int
    row: Row
    watermark: int
    """How far event time had come for its key (ms)."""

    @property
    def is_late(self) -> bool:
        return bool(self.row["ts"] <= self.watermark)


@dataclass
class Run:
    """An operator and what has come of it; the key column is ``k`` and the event time ``ts``."""

    spec: Any
    plane: DataPlane
    states: tuple[str, ...]
    """The names of its states."""
    arrived: list[Arrived] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    """All that was emitted."""
    newest: list[Row] = field(default_factory=list)
    """What the last step has emitted."""
    late: list[Row] = field(default_factory=list)
    at_ms: int = BEGINNING_OF_TIME
    floors: list[int] = field(default_factory=lambda: [BEGINNING_OF_TIME] * 2)

    def __post_init__(self) -> None:
        self._storage = Storage()
        self._restores = 0
        self.operator = self._opened(None, None)

    def watermark(self, key: Any) -> int:
        """Return how far event time has come for a key (ms)."""
        group = key_group_of((key,), GROUPS)
        return max(self.at_ms, self.floors[0 if group in HALVES[0] else 1])

    def do(self, step: Step) -> None:
        self.newest = []
        match step:
            case "row", number, row:
                self.take(row, number=number)
            case "watermark", at_ms:
                self.advance(at_ms)
            case "floor", half, at_ms:
                self.floors[half] = max(self.floors[half], at_ms)
                self._emitted(self.operator.raise_floor(HALVES[half], at_ms))
            case _:
                self.restore()

    def take(self, *rows: Row, number: int = 0) -> list[Row]:
        """Give a batch to an input, and let timers go off behind it as a subtask does; return what is emitted."""
        self.newest = []
        self.arrived += [Arrived(number, row, self.watermark(row["k"])) for row in rows]
        payload = self.operator.process_input(self.plane.from_rows(list(rows)), number)
        self._emitted([] if payload is None else [payload])
        self._emitted(self.operator.fire_due())
        return self.newest

    def advance(self, at_ms: int) -> list[Row]:
        """Let event time advance; return what is emitted."""
        self.newest = []
        self.at_ms = max(self.at_ms, at_ms)
        self._emitted(self.operator.advance_watermark(self.at_ms))
        return self.newest

    def restore(self) -> None:
        """Go on in another operator, from a snapshot."""
        self._restores += 1
        part = self.operator.snapshot(CheckpointId(self._restores)).run()
        floors = self.operator._watermarks.floors
        self.operator = self._opened(part, EventTimeSnapshot(self.at_ms, floors=floors))

    def kept(self, name: str) -> list[Any]:
        """Return the entries of a state, decoded without types."""
        store = self.operator._opened()[1]
        return [
            msgspec.msgpack.decode(data) for group in range(GROUPS) for _, data in store.scan(name, group)
        ]

    def end(self) -> list[Row]:
        """Let event time end; nothing may be in state then. Return what is emitted."""
        newest = self.advance(END_OF_TIME)
        assert {name: self.kept(name) for name in (*self.states, EVENT_TIMERS)} == {
            name: [] for name in (*self.states, EVENT_TIMERS)
        }
        return newest

    def follow(self, steps: Sequence[Step], check: Callable[[], None]) -> None:
        """Take steps and the end of time, and check behind each of them."""
        for step in steps:
            self.do(step)
            check()
        self.end()
        check()

    def _opened(self, part: Any, event_time: EventTimeSnapshot | None) -> Any:
        return opened(
            self.spec,
            self.plane,
            self._storage,
            part,
            event_time,
            lambda output, payload: self.late.extend(listed(payload) if output == "late" else ()),
            write_through=True,  # ``kept`` looks into the store
        )

    def _emitted(self, payloads: Any) -> None:
        for payload in payloads:
            self.newest += listed(payload)
            self.rows += listed(payload)


def bag(rows: Sequence[Any]) -> list[str]:
    """Return rows in an order that does not depend on theirs; equal decimals and timestamps have one form."""
    return sorted(repr(sorted((name, canonical(value)) for name, value in row.items())) for row in rows)
