"""Functions of the runtime in event time, whose rows become records of the workload ``event-time`` again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from barrier_tck.reference_impl.ids import KeyGroupRange
from barrier_tck.reference_impl.operators.api import DataPlane, Payload
from barrier_tck.reference_impl.operators.chosen_columns import as_mapping
from barrier_tck.reference_impl.operators.encoding import decode_key
from barrier_tck.reference_impl.operators.event_time_process import (
    BatchedProcess,
    EventTimeProcess,
    EventTimeProcessOperator,
    EventTimers,
)
from barrier_tck.reference_impl.operators.functions import Row
from barrier_tck.reference_impl.operators.join_sides import JoinSide
from barrier_tck.reference_impl.operators.timed_process import KeyedTimers
from barrier_tck.reference_impl.state.keyed import KeyedStates

COLUMNS = ("id", "mark", "n")
"""What is summed of the records for which one stands."""
SIDES = (
    JoinSide("ts", {f"l_{column}": column for column in COLUMNS}),
    JoinSide("ts", {f"r_{column}": column for column in COLUMNS}),
)
"""What both sides of a join give to its rows."""
KEYS = ("key", "l_key", "r_key")
"""The columns with the key, of records and of what the sides of a join give."""
SIDES_WITH_KEYS = (
    JoinSide("ts", {"l_key": "key", **as_mapping(SIDES[0].columns)}),
    JoinSide("ts", {"r_key": "key", **as_mapping(SIDES[1].columns)}),
)
"""What they give if the rows alone must say whose they are."""

ToRecord = Callable[[str, str, Row], Row]
"""Maps the operator's name, a key and a row of the runtime's function to a record."""


def of_records(spec: EventTimeProcess, record: ToRecord) -> EventTimeProcess:
    """Return the spec of a function of the runtime that passes on records."""
    made = _Records(spec.uid, spec.function, record)
    return EventTimeProcess(spec.uid, spec.keys, made, spec.side_outputs)


def of_batched_records(spec: BatchedProcess, record: ToRecord) -> EventTimeProcess:
    """Return the spec of a function of the runtime that passes on records, on whole batches where it takes such."""
    made = _Records(spec.uid, spec.function, record)
    return _BatchedRecords(spec.uid, spec.keys, made, spec.side_outputs, spec, record)


@dataclass(frozen=True, slots=True)
class _BatchedRecords(EventTimeProcess):
    """Spec of what may take whole batches, and whose rows become records."""

    inner: BatchedProcess | None = None
    record: ToRecord | None = None

    def build(self, plane: DataPlane) -> Any:
        """Return the operator of the runtime, whose batches are mapped if it takes whole ones."""
        assert self.inner is not None and self.record is not None, "of_batched_records makes such specs"
        inner = self.inner.build(plane)
        if isinstance(inner, EventTimeProcessOperator):
            return EventTimeProcess.build(self, plane)
        record = self.record
        return _OfBatches(inner, plane, lambda row: record(self.uid, _key_in(row), row))


class _OfBatches:
    """A ``MultiInputOperator`` around one of the runtime that takes whole batches and emits rows."""

    def __init__(self, inner: Any, plane: DataPlane, record: Callable[[Row], Row]) -> None:
        self._inner = inner
        self._plane = plane
        self._record = record

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def process(self, payload: Payload) -> Payload | None:
        return self._mapped(self._inner.process(payload))

    def process_input(self, payload: Payload, number: int) -> Payload | None:
        return self._mapped(self._inner.process_input(payload, number))

    def advance_watermark(self, at_ms: int) -> Iterator[Payload]:
        return map(self._mapped, self._inner.advance_watermark(at_ms))

    def raise_floor(self, key_groups: KeyGroupRange, at_ms: int) -> Iterator[Payload]:
        return map(self._mapped, self._inner.raise_floor(key_groups, at_ms))

    def fire_due(self) -> Iterator[Payload]:
        return map(self._mapped, self._inner.fire_due())

    def _mapped(self, payload: Payload | None) -> Payload | None:
        return None if payload is None else self._plane.map(payload, self._record)


def _key_in(row: Row) -> str:
    """Return the key in a row of windows, or of a join both of whose sides give it."""
    return str(next(row[name] for name in KEYS if row.get(name) is not None))


@dataclass(frozen=True, slots=True)
class _Records:
    """Makes the function of one subtask."""

    name: str
    make: Any
    """Makes the function of the runtime."""
    record: ToRecord

    def __call__(self) -> _OfRecords:
        return _OfRecords(self.name, self.make(), self.record)


class _OfRecords:
    """An ``EventTimeFunction`` around one of the runtime."""

    def __init__(self, name: str, inner: Any, record: ToRecord) -> None:
        self._name = name
        self._inner = inner
        self._record = record

    def open_aside(self, emit: Callable[[str, Row], None]) -> None:
        self._inner.open_aside(emit)

    def open(self, states: KeyedStates, timers: KeyedTimers, event_timers: EventTimers) -> None:
        self._inner.open(states, timers, event_timers)

    def process(self, group: int, key: bytes, row: Row, number: int) -> Iterable[Row]:
        return self._records(key, self._inner.process(group, key, row, number))

    def on_timer(self, group: int, key: bytes, at_ms: int) -> Iterable[Row]:
        return self._records(key, self._inner.on_timer(group, key, at_ms))

    def on_event_timer(self, group: int, key: bytes, at_ms: int) -> Iterable[Row]:
        return self._records(key, self._inner.on_event_timer(group, key, at_ms))

    def _records(self, key: bytes, rows: Iterable[Row]) -> Iterator[Row]:
        for row in rows:
            yield self._record(self._name, str(decode_key(key)[0]), row)


def joined(name: str, key: str, row: Row, time: str, behind: str = "") -> Row:
    """Return the record of a row of a join, with the sums of both sides."""
    sums = {column: (row[f"l_{column}"] or 0) + (row[f"r_{column}"] or 0) for column in COLUMNS}
    ids = ("-" if row[column] is None else str(row[column]) for column in ("l_id", "r_id"))
    return {"key": key, "ts": row[time], **sums, "how": f"{name}({','.join(ids)}){behind}"}


def values_of(columns: Mapping[str, Any]) -> list[int]:
    """Return the values of what a state keeps of a record, without its key."""
    return [value for name, value in columns.items() if name not in KEYS]


def read_waiting(entry: bytes) -> list[Any]:
    """Read a list of rows, each with its columns as the last field: the fields before, and the values."""
    fields = msgspec.msgpack.decode(entry, type=list[list[Any]])
    return [[one[0], *values_of(one[-1]), *one[1:-1]] for one in fields]
