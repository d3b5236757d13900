"""The join by an interval over Arrow batches, a batch at a time: what ``IntervalJoinFunction`` does row by row.

Rows of a batch are of one input, so they meet only those that wait on the other side: sorted runs (see
``arrow_waiting_rows``), in which the partners of all rows of the batch are looked up at once. Pairs, rows alone, late
ones and state are those of rows one by one, and either goes on from a snapshot of the other. The pairs of a batch come
in the order of its rows, and what a watermark removes in the order of the times at which that is due.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from barrier_tck.reference_impl.operators.api import DataPlane, OperatorContext, Payload
from barrier_tck.reference_impl.operators.arrow_held import ArrowHolder, times_of
from barrier_tck.reference_impl.operators.arrow_keys import Ints, as_int64, columns_of, key_columns
from barrier_tck.reference_impl.operators.arrow_slots import KeySlots
from barrier_tck.reference_impl.operators.arrow_values import Column, array_of, plain
from barrier_tck.reference_impl.operators.arrow_waiting_rows import Run, WaitingRows
from barrier_tck.reference_impl.operators.arrow_window_entries import (
    FrozenKeys,
    once,
    ordered_times,
)
from barrier_tck.reference_impl.operators.arrow_window_keys import ROWS_OF_A_BATCH, Marks
from barrier_tck.reference_impl.operators.chosen_columns import Kept, as_mapping, not_kept, shown
from barrier_tck.reference_impl.operators.event_time_process import EVENT_TIMERS
from barrier_tck.reference_impl.operators.interval_join import IntervalJoinDefinition, WaitingRow
from barrier_tck.reference_impl.operators.join_sides import SIDES
from barrier_tck.reference_impl.operators.on_time import no_event_time
from barrier_tck.reference_impl.operators.scalars import canonical, to_extension
from barrier_tck.reference_impl.operators.windows import LATE
from barrier_tck.reference_impl.protocol.messages import OperatorSnapshot
from barrier_tck.reference_impl.protocol.watermarks import END_OF_TIME
from barrier_tck.reference_impl.runtime_errors import ProtocolError
from barrier_tck.reference_impl.state.held import FrozenState, HeldEntries
from barrier_tck.reference_impl.state.keyed import Codec

_FILLER = "~"
"""A column of nulls, which is in each batch of rows that wait: they may give nothing to the output."""
_encode = msgspec.msgpack.Encoder().encode


class ArrowIntervalJoin(ArrowHolder):
    """A ``MultiInputOperator`` that joins whole batches; ``HeldState`` of its store."""

    def __init__(self, definition: IntervalJoinDefinition, plane: DataPlane) -> None:
        super().__init__(definition.uid, plane, (*SIDES, EVENT_TIMERS))
        self._definition = definition
        self._columns = [as_mapping(side.columns) for side in definition.sides]
        self._outputs = (*self._columns[0], *self._columns[1], definition.time)
        self._types: dict[str, Any] = {}
        """Output column -> its type, as far as it was seen."""
        self._waiting = tuple(WaitingRows(self._pins) for _ in SIDES)
        self._next_ms = END_OF_TIME + 1
        """No row is removed before."""

    def open(self, context: OperatorContext, restored: OperatorSnapshot | None) -> None:
        """Open the store with the restored files, and take the rows from it (REC-1, EVT-1)."""
        self._open_keys(context, restored, self._definition.keys[0])
        self._restore()
        self._hold()

    def process(self, payload: Payload) -> Payload | None:
        """Refuse: every batch belongs to one of the inputs."""
        raise ProtocolError(f"operator {self.uid!r} has several inputs; pass its batches to process_input")

    def process_input(self, payload: Payload, number: int) -> Payload | None:
        """Join a batch of an input with what waits; returns the pairs, and the rows that can match nothing."""
        if not payload.num_rows:
            return None
        times = times_of(payload, self._definition.sides[number].time, self.uid, no_event_time)
        columns = key_columns(payload, self._definition.keys[number], self.uid)
        keys = self._with_keys()
        slots = keys.of_columns(columns)
        marks = keys.marks_of(slots)
        late = times <= marks
        if late.any():
            self._opened()[0].emit_aside(LATE, payload.filter(pa.array(late)))
        without_key = _any_null(columns)
        rows = np.flatnonzero(~(late | without_key))
        batch = self._chosen(payload, number)
        emitted = []
        alone = np.flatnonzero(without_key & ~late)
        if len(alone) and self._keeps(number):
            emitted.append(self._alone(batch.take(pa.array(alone)), number, times[alone]))
        if len(rows):
            of_rows = marks if isinstance(marks, int) else marks[rows]
            own = batch if len(rows) == len(times) else batch.take(pa.array(rows))
            emitted = [*self._meet(own, slots[rows], times[rows], of_rows, number), *emitted]
        self._written_through()
        return self._plane.joined(emitted)

    def _meet(self, batch: Any, slots: Ints, times: Ints, marks: Marks, number: int) -> list[Any]:
        """Pair rows with those that wait, and let them wait; return what is emitted."""
        within, keys = self._definition.within, self._with_keys()
        first_ms = times + within.lower_ms if number == 0 else times - within.upper_ms
        last_ms = times + within.upper_ms if number == 0 else times - within.lower_ms
        emitted, has_met = list[Any](), np.zeros(len(slots), dtype=np.bool_)
        found = []
        for run in self._waiting[1 - number].runs:
            mine, others = run.find(slots, first_ms, last_ms)
            if len(mine):
                has_met[mine] = True
                if self._keeps(1 - number):
                    run.make_own()
                    run.matched[others] = True
                found.append((mine, run, others))
        if found:
            keys.note(slots[has_met])
            emitted.append(self._pairs(batch, times, found, number))
        removal_ms = self._removal_of(times, number)
        stays = removal_ms > marks
        if stays.any():
            rows = np.flatnonzero(stays)
            keys.note(slots[rows])
            keys.more_windows(slots[rows])
            own = batch if len(rows) == len(slots) else batch.take(pa.array(rows))
            matched = has_met[rows] & self._keeps(number)
            self._waiting[number].add(slots[rows], times[rows], matched, own, removal_ms[rows])
            self._next_ms = min(self._next_ms, int(removal_ms[rows].min()))
        over = np.flatnonzero(~stays & ~has_met)
        if len(over) and self._keeps(number):
            at_ms = np.maximum(times, removal_ms)[over]
            emitted.append(self._alone(batch.take(pa.array(over)), number, at_ms))
        return emitted

    def _pairs(self, batch: Any, times: Ints, found: Sequence[tuple[Ints, Run, Ints]], number: int) -> Any:
        """Return pairs as a batch, in the order of the rows that complete them."""
        rows = np.concatenate([mine for mine, _, _ in found])
        order = np.argsort(rows, kind="stable")
        partners = pa.concat_tables(
            [pa.Table.from_batches([run.batch.take(pa.array(others))]) for _, run, others in found],
            promote_options="permissive",
        ).combine_chunks()
        of_others = np.concatenate([run.times[others] for _, run, others in found])
        at_ms = np.maximum(times[rows], of_others)[order]
        mine, theirs = batch.take(pa.array(rows[order])), partners.take(pa.array(order))
        sides = (mine, theirs) if number == 0 else (theirs, mine)
        arrays = [
            _whole(side.column(name))
            for side, names in zip(sides, self._columns, strict=True)
            for name in names
        ]
        return pa.RecordBatch.from_arrays([*arrays, pa.array(at_ms)], self._outputs)

    def _alone(self, batch: Any, number: int, at_ms: Ints) -> Any:
        """Return rows without a partner as a batch; ``at_ms`` are the event times that they get."""
        nulls = [
            pa.nulls(batch.num_rows, self._types.get(name, pa.null())) for name in self._columns[1 - number]
        ]
        own = [_whole(batch.column(name)) for name in self._columns[number]]
        arrays = [*own, *nulls] if number == 0 else [*nulls, *own]
        return pa.RecordBatch.from_arrays([*arrays, pa.array(at_ms)], self._outputs)

    # --- watermarks -----------------------------------------------------------------------------------------

    def fire_due(self) -> Iterator[Payload]:
        """Remove the rows that nothing on time can match any more; emit those that an outer join emits alone."""
        watermarks = self._watermarks
        if watermarks.at_ms < self._next_ms and not watermarks.floors:
            return
        keys = self._with_keys()
        alone: list[tuple[Ints, Any]] = []
        is_removed = False
        for number, waiting in enumerate(self._waiting):
            for run in waiting.runs:
                if not watermarks.floors and run.next_ms > watermarks.at_ms:
                    continue
                over = np.flatnonzero(run.waits & (run.removal_ms <= keys.marks_of(run.slots)))
                if not len(over):
                    continue
                is_removed = True
                run.make_own()
                run.waits[over] = False
                keys.note(run.slots[over])
                keys.fewer_windows(run.slots[over])
                left = run.removal_ms[run.waits]
                run.next_ms = int(left.min()) if len(left) else END_OF_TIME + 1
                unmatched = over[~run.matched[over]]
                if len(unmatched) and self._keeps(number):
                    removal_ms = run.removal_ms[unmatched]
                    rows = run.batch.take(pa.array(unmatched))
                    at_ms = np.maximum(run.times[unmatched], removal_ms)
                    alone.append((removal_ms, self._alone(rows, number, at_ms)))
            waiting.drop_removed()
        nexts = [next_ms for waiting in self._waiting if (next_ms := waiting.next_ms) is not None]
        self._next_ms = min(nexts, default=END_OF_TIME + 1)
        if alone:
            whole: Any = self._plane.joined([batch for _, batch in alone])
            order = np.argsort(np.concatenate([removal_ms for removal_ms, _ in alone]), kind="stable")
            yield from self._plane.slices(whole.take(pa.array(order)), ROWS_OF_A_BATCH)
        if is_removed and (moved := keys.compacted(self._changes_since())) is not None:
            for waiting in self._waiting:
                waiting.move(moved)
        self._written_through()

    # --- columns --------------------------------------------------------------------------------------------

    def _chosen(self, payload: Any, number: int) -> Any:
        """Return what rows give to the output; raises JobUsageError for what state cannot keep."""
        where = f"the {SIDES[number]} side of the join {self.uid!r}"
        chosen = self._columns[number]
        arrays = []
        for output, column in zip(chosen, columns_of(payload, [*chosen.values()], where), strict=True):
            kept = _as_kept(column, chosen[output])
            if kept is None:
                value = next((one for one in column.to_pylist() if one is not None), None)
                if value is not None:
                    raise not_kept(where, chosen[output], value)
                kept = pa.nulls(len(column))
            if not pa.types.is_null(kept.type):
                self._types[output] = kept.type
            arrays.append(kept)
        return _batch_of(arrays, [*chosen], payload.num_rows)

    def _removal_of(self, times: Ints, number: int) -> Ints:
        """Return at which watermark rows are removed (ms)."""
        return np.minimum(times + self._definition.removal_after_ms(number), END_OF_TIME)

    def _keeps(self, number: int) -> bool:
        return self._definition.form.keeps(number)

    # --- state ----------------------------------------------------------------------------------------------

    def _restore(self) -> None:
        context, store = self._opened()
        keys, slot_of = self._with_keys(), dict[bytes, int]()
        found: tuple[list[tuple[int, WaitingRow]], ...] = ([], [])
        for number, name in enumerate(SIDES):
            codec: Codec[list[WaitingRow]] = Codec(name, list[WaitingRow])
            for group in context.key_groups:
                for key, data in store.scan(name, group):
                    slot = slot_of.setdefault(key, len(slot_of))
                    found[number].extend((slot, row) for row in codec.decode(data))
        keys.add([*slot_of])
        for number, rows in enumerate(found):
            if not rows:
                continue
            slots, times = np.array([slot for slot, _ in rows]), np.array([row.time for _, row in rows])
            columns = [shown(row.columns) for _, row in rows]
            arrays = [array_of([row[name] for row in columns]) for name in self._columns[number]]
            self._types.update(
                (name, array.type)
                for name, array in zip(self._columns[number], arrays, strict=True)
                if not pa.types.is_null(array.type)
            )
            batch = _batch_of(arrays, [*self._columns[number]], len(rows))
            matched = np.array([row.matched for _, row in rows])
            removal_ms = self._removal_of(times, number)
            keys.more_windows(slots)
            self._waiting[number].add(slots, times, matched, batch, removal_ms)
            self._next_ms = min(self._next_ms, int(removal_ms.min()))

    def freeze(self, version: int) -> FrozenState:
        """Freeze the rows for a snapshot."""
        keys = self._with_keys()
        pin = self._pins.take()
        keys.version = version + 1
        sides = tuple([(run, run.matched, run.waits) for run in side.runs] for side in self._waiting)
        is_empty = self._next_ms > END_OF_TIME
        columns = [[*side] for side in self._columns]
        released = partial(self._pins.release, pin)
        return _FrozenRows(keys.slots, sides, columns, is_empty, keys.share_changes(), released)


@dataclass(frozen=True, slots=True)
class _FrozenSide:
    """The rows of a side that wait, in the order in which they came."""

    slots: Ints
    times: Ints
    removal_ms: Ints
    matched: Any
    table: Any


class _FrozenRows(FrozenKeys):
    """``FrozenState`` of the rows that wait."""

    def __init__(
        self,
        keys: KeySlots,
        sides: Sequence[Sequence[tuple[Run, Any, Any]]],
        columns: Sequence[Sequence[str]],
        is_empty: bool,
        changed: Ints,
        released: Callable[[], None],
    ) -> None:
        """Take what ``FrozenKeys`` takes; for each side its runs, with what has matched, and waits; and its columns."""
        super().__init__(keys, is_empty, changed, (*SIDES, EVENT_TIMERS), released)
        self._runs = sides
        self._columns = columns

    @cached_property
    def _sides(self) -> dict[str, _FrozenSide]:
        return {name: _read(runs) for name, runs in zip(SIDES, self._runs, strict=True)}

    @cached_property
    def _due(self) -> tuple[Ints, Ints]:
        """Key by slot, and time, of each timer, in the order of the times; some are there twice."""
        sides = [*self._sides.values()]
        slots, times = [side.slots for side in sides], [side.removal_ms for side in sides]
        return ordered_times(np.concatenate(slots), np.concatenate(times))

    def _elements(self) -> Mapping[str, Ints]:
        return {**{name: side.slots for name, side in self._sides.items()}, EVENT_TIMERS: self._due[0]}

    def _made(self, name: str, order: Ints) -> Iterator[HeldEntries]:
        if name == EVENT_TIMERS:
            slots, times = self._due
            yield from self._timers(*once(slots[order], times[order]))
            return
        side, columns = self._sides[name], self._columns[SIDES.index(name)]
        for group, keys, bounds in self._by_key(side.slots[order]):
            rows = order[bounds[0] : bounds[-1]]
            kept = _as_held(side.table.select(columns).take(pa.array(rows))) if columns else [{}] * len(rows)
            waiting = [*map(WaitingRow, side.times[rows].tolist(), side.matched[rows].tolist(), kept)]
            begins = (bounds - bounds[0]).tolist()
            made = [_encode(waiting[begin:end]) for begin, end in pairwise(begins)]
            yield HeldEntries(name, group, self.keys.keys_of(keys)[1], made)


def _read(runs: Sequence[tuple[Run, Any, Any]]) -> _FrozenSide:
    """Return the rows of runs that wait."""
    if not runs:
        none = np.empty(0, dtype=np.int64)
        return _FrozenSide(none, none, none, none, None)
    rows = [np.flatnonzero(waits) for _, _, waits in runs]
    tables = [
        pa.Table.from_batches([run.batch]).take(pa.array(of_run))
        for (run, _, _), of_run in zip(runs, rows, strict=True)
    ]
    table = pa.concat_tables(tables, promote_options="permissive").combine_chunks()
    parts = [
        (run.slots[of_run], run.times[of_run], run.removal_ms[of_run], matched[of_run], run.numbers[of_run])
        for (run, matched, _), of_run in zip(runs, rows, strict=True)
    ]
    *columns, numbers = (np.concatenate(each) for each in zip(*parts, strict=True))
    order = np.argsort(numbers, kind="stable")
    slots, times, removal_ms, matched = (column[order] for column in columns)
    return _FrozenSide(slots, times, removal_ms, matched, table.take(pa.array(order)))


def _batch_of(arrays: Sequence[Column], names: Sequence[str], rows: int) -> Any:
    """Return columns as a batch; one without any would have no rows."""
    return pa.RecordBatch.from_arrays([*arrays, pa.nulls(rows)], [*names, _FILLER])


def _any_null(columns: Sequence[Column]) -> Any:
    """Return in which rows a column is null."""
    found = np.zeros(len(columns[0]), dtype=np.bool_)
    for column in columns:
        if column.null_count:
            found |= column.is_null().to_numpy(zero_copy_only=False)
    return found


def _whole(column: Any) -> Column:
    """Return a column that may be in chunks as an array."""
    return pa.concat_arrays(column.chunks) if isinstance(column, pa.ChunkedArray) else column


def _as_kept(column: Column, name: str) -> Column | None:
    """Return a column of what state can keep, in the widest type of its kind; None if it is another one.

    Raises JobUsageError for timestamps without a time zone, or that microseconds cannot hold.
    """
    kind = column.type
    if pa.types.is_integer(kind):
        integers = as_int64(column)
        return column if integers is None else integers
    if pa.types.is_floating(kind):
        return column.cast(pa.float64())
    if pa.types.is_large_string(kind):
        return column.cast(pa.string())
    if pa.types.is_decimal(kind):
        return array_of(column.to_pylist())
    if _is_extended(kind):
        return plain(column, name)
    return column if pa.types.is_null(kind) or pa.types.is_boolean(kind) or pa.types.is_string(kind) else None


def _is_extended(kind: Any) -> bool:
    """Return whether values of a type are extensions in state (``scalars``)."""
    return bool(pa.types.is_decimal(kind) or pa.types.is_timestamp(kind) or pa.types.is_date(kind))


def _as_held(table: Any) -> list[dict[str, Kept]]:
    """Return the rows of a table as state holds them."""
    rows: list[dict[str, Kept]] = table.to_pylist()
    for field in table.schema:
        if _is_extended(field.type):
            for row in rows:
                value: Any = row[field.name]
                row[field.name] = value if value is None else to_extension(canonical(value))
    return rows
