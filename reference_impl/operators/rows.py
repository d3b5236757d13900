"""The row plane: a batch is a list of dicts, in plain Python. The simulator runs on it; no Arrow is imported.

It is made to be fast with thousands of tiny batches: its loops avoid every call that they can.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Any

import msgspec

from barrier_tck.reference_impl.operators.api import LookUp
from barrier_tck.reference_impl.operators.encoding import (
    Key,
    decode_accumulator,
    decode_key,
    encode_accumulator,
    encode_key,
    group_of_encoded,
)
from barrier_tck.reference_impl.operators.functions import (
    Additive,
    Aggregate,
    Folded,
    Row,
    Vectorized,
    missing_column,
    partial_aggregates,
)
from barrier_tck.reference_impl.operators.scalars import EXTENDED_TYPES, from_extension, to_extension
from barrier_tck.reference_impl.protocol.key_groups import owner_of
from barrier_tck.reference_impl.runtime_errors import CorruptStateError, JobUsageError

Rows = list[Row]
"""The payload of this plane."""

_encode_lines = msgspec.json.Encoder().encode_lines
_pack_rows = msgspec.msgpack.Encoder().encode
_unpack_rows = msgspec.msgpack.Decoder(list[dict[str, Any]], ext_hook=from_extension).decode


def _row_form(function: Any) -> Callable[[Row], Any]:
    """Return the form of a user's function over one row."""
    form: Callable[[Row], Any] = function.rows if isinstance(function, Vectorized) else function
    return form


@lru_cache(maxsize=1024)
def _values_getter(columns: tuple[str, ...]) -> Callable[[Row], tuple[Any, ...]]:
    """Return the function from a row to its values in some columns, for instance to its key."""
    if not columns:
        return lambda row: ()
    if len(columns) == 1:
        only = columns[0]
        return lambda row: (row[only],)
    return itemgetter(*columns)


class _Entry:
    """One key's running aggregates; changed in place."""

    __slots__ = ("encoded", "group", "key", "values")

    def __init__(self, encoded: bytes, group: int, key: Key, values: list[Any]) -> None:
        self.encoded = encoded
        self.group = group
        self.key = key
        self.values = values


class RowAccumulatorTable:
    """An ``AccumulatorTable`` over rows. Fixed order everywhere: keys in the order of their first change."""

    def __init__(
        self,
        key: Sequence[str],
        aggregates: Mapping[str, Aggregate],
        carry: Sequence[str],
        max_parallelism: int,
    ) -> None:
        self._key = tuple(key)
        self._key_of = _values_getter(self._key)
        self._carried = _values_getter(tuple(carry))
        self._names = tuple(aggregates)
        self._reads = {*carry, *key, *(aggregate.column for aggregate in aggregates.values())}
        self._columns = (*carry, *self._key, *self._names)
        """Of a row of ``update``'s output."""
        self._contributions = [
            (position, aggregate.contribution)
            for position, aggregate in enumerate(aggregates.values())
            if isinstance(aggregate, Additive)
        ]
        self._zero = [
            0.0 if isinstance(aggregate, Additive) and aggregate.floating else 0
            for aggregate in aggregates.values()
        ]
        self._folded: list[tuple[int, Folded]] = [
            (position, aggregate)
            for position, aggregate in enumerate(aggregates.values())
            if not isinstance(aggregate, Additive)
        ]
        """Their values are accumulators. A key without records begins with those that ``_begin`` makes."""
        self._max_parallelism = max_parallelism
        self._entries: dict[bytes, _Entry] = {}
        self._dirty: dict[bytes, _Entry] = {}
        self._changed: dict[bytes, _Entry] = {}

    def load(self, entries: Sequence[tuple[int, bytes, bytes]]) -> None:
        """Take restored entries; they count neither as dirty nor as changed."""
        for group, encoded, accumulator in entries:
            values = list(decode_accumulator(accumulator))
            for position, aggregate in self._folded:
                values[position] = aggregate.restored(values[position])
            self._entries[encoded] = _Entry(encoded, group, decode_key(encoded), values)

    def update(self, payload: Rows, emit_each: bool, look_up: LookUp | None = None) -> Rows | None:
        if look_up is not None:
            self._fetch(payload, look_up)
        output: Rows = []
        key_of, entries, dirty, changed = self._key_of, self._entries, self._dirty, self._changed
        carried, columns = self._carried, self._columns
        row: Row = {}
        try:
            for row in payload:
                key = key_of(row)
                encoded = encode_key(key)
                entry = entries.get(encoded)
                if entry is None:
                    group = group_of_encoded(encoded, self._max_parallelism)
                    entry = entries[encoded] = _Entry(encoded, group, decode_key(encoded), self._begin())
                values = entry.values
                for position, contribution in self._contributions:
                    values[position] += contribution(row)
                for position, aggregate in self._folded:
                    values[position] = aggregate.add(values[position], row[aggregate.column])
                dirty[encoded] = changed[encoded] = entry
                if emit_each:
                    output.append(
                        dict(zip(columns, (*carried(row), *entry.key, *self._results(values)), strict=True))
                    )
        except KeyError as error:
            if error.args[0] in row or error.args[0] not in self._reads:
                raise  # it comes from a user's own aggregate
            raise missing_column(error.args[0], row, "aggregate") from error
        return output or None

    def _begin(self) -> list[Any]:
        """Return the values of a key without records."""
        values: list[Any] = list(self._zero)
        for position, aggregate in self._folded:
            values[position] = aggregate.create()
        return values

    def _results(self, values: list[Any]) -> list[Any]:
        """Return what is emitted for the values of a key."""
        if not self._folded:
            return values
        results = list(values)
        for position, aggregate in self._folded:
            results[position] = aggregate.result(values[position])
        return results

    def _stored(self, values: list[Any]) -> bytes:
        if not self._folded:
            return encode_accumulator(tuple(values))
        stored = list(values)
        for position, aggregate in self._folded:
            stored[position] = aggregate.stored(values[position])
        return encode_accumulator(tuple(stored))

    def _fetch(self, payload: Rows, look_up: LookUp) -> None:
        """Take the accumulators of keys of a batch that are not here."""
        row: Row = {}
        missing: dict[bytes, int] = {}
        try:
            for row in payload:
                encoded = encode_key(self._key_of(row))
                if encoded not in self._entries:
                    missing[encoded] = group_of_encoded(encoded, self._max_parallelism)
        except KeyError as error:
            raise missing_column(error.args[0], row, "aggregate") from error
        groups, keys = list(missing.values()), list(missing)
        found = zip(groups, keys, look_up(groups, keys) if keys else (), strict=True)
        self.load([(group, key, value) for group, key, value in found if value is not None])

    def take_dirty(self) -> tuple[list[int], list[bytes], list[bytes]]:
        groups: list[int] = []
        values: list[bytes] = []
        for entry in self._dirty.values():
            groups.append(entry.group)
            values.append(self._stored(entry.values))
        keys = list(self._dirty)
        self._dirty.clear()
        return groups, keys, values

    def take_changed(self) -> tuple[list[int], list[bytes]]:
        groups, keys = [entry.group for entry in self._changed.values()], list(self._changed)
        self._changed.clear()
        return groups, keys

    def take_changed_rows(self) -> Rows | None:
        """Return one row per key changed since the last call (or restore), or None."""
        rows = [self._row(entry) for entry in self._changed.values()]
        self._changed.clear()
        return rows or None

    def all_rows(self) -> Rows | None:
        return [self._row(entry) for entry in self._entries.values()] or None

    def clear(self) -> None:
        self._entries.clear()
        self._dirty.clear()
        self._changed.clear()

    def __len__(self) -> int:
        return len(self._entries)

    def _row(self, entry: _Entry) -> Row:
        row: Row = dict(zip(self._key, entry.key, strict=True))
        row.update(zip(self._names, self._results(entry.values), strict=True))
        return row


class JsonLinesEncoder:
    """Writes rows as JSON lines, one object per row."""

    def __init__(self, stream: Any) -> None:
        """Take the ``OutputStream`` to write to; the caller closes it."""
        self._stream = stream

    def write(self, payload: Rows) -> None:
        self._stream.write(_encode_lines(payload))

    def finish(self) -> None:
        """Do nothing: JSON lines have no footer, and nothing is buffered here."""


class RowPlane:
    """``DataPlane`` over lists of dicts."""

    name = "rows"

    def length(self, payload: Rows) -> int:
        return len(payload)

    def largest(self, payload: Rows, column: str) -> int | None:
        """Return the largest integer in a column, or None if all are null."""
        try:
            return max((row[column] for row in payload if row[column] is not None), default=None)
        except KeyError as error:
            raise missing_column(column, payload[0], "event time") from error

    def from_rows(self, rows: Sequence[Row]) -> Rows:
        return list(rows)

    def to_rows(self, payload: Rows) -> Rows:
        return payload

    def slices(self, payload: Rows, length: int) -> list[Rows]:
        """Cut the rows into lists of at most so many."""
        return [payload[start : start + length] for start in range(0, len(payload), length)]

    def joined(self, payloads: Sequence[Rows]) -> Rows | None:
        return [row for payload in payloads for row in payload] or None

    def map(self, payload: Rows, function: Any) -> Rows:
        return list(map(_row_form(function), payload))

    def filter(self, payload: Rows, function: Any) -> Rows | None:
        return list(filter(_row_form(function), payload)) or None

    def flat_map(self, payload: Rows, function: Any) -> Rows | None:
        form = _row_form(function)
        return [result for row in payload for result in form(row)] or None

    def partition(
        self, payload: Rows, key: Sequence[str], parallelism: int, max_parallelism: int
    ) -> list[tuple[int, Rows]]:
        """Split by the subtask that owns each row's key group (RSC-1), receivers in order."""
        if parallelism == 1:
            return [(0, payload)] if payload else []
        parts: dict[int, Rows] = {}
        key_of = _values_getter(tuple(key))
        row: Row = {}
        try:
            for row in payload:
                group = group_of_encoded(encode_key(key_of(row)), max_parallelism)
                target = owner_of(group, parallelism, max_parallelism)
                part = parts.get(target)
                if part is None:
                    parts[target] = [row]
                else:
                    part.append(row)
        except KeyError as error:
            raise missing_column(error.args[0], row, "key_by") from error
        return sorted(parts.items(), key=itemgetter(0))

    def combine(
        self, payload: Rows, key: Sequence[str], aggregates: Mapping[str, Any], max_parallelism: int
    ) -> Rows | None:
        table = RowAccumulatorTable(key, partial_aggregates(aggregates), (), max_parallelism)
        table.update(payload, emit_each=False)
        return table.all_rows()

    def accumulators(
        self, key: Sequence[str], aggregates: Mapping[str, Any], carry: Sequence[str], max_parallelism: int
    ) -> RowAccumulatorTable:
        return RowAccumulatorTable(key, aggregates, carry, max_parallelism)

    def batched(self, definition: Any) -> None:
        """Return None: a batch is a list of rows."""

    def encode(self, payload: Rows) -> bytes:
        """Return the rows as a MessagePack array of maps; tuples come back as lists, timestamps in UTC."""
        if not all(EXTENDED_TYPES.isdisjoint(map(type, row.values())) for row in payload):
            payload = [
                {
                    column: to_extension(value) if type(value) in EXTENDED_TYPES else value
                    for column, value in row.items()
                }
                for row in payload
            ]
        try:
            return _pack_rows(payload)
        except (TypeError, OverflowError, ValueError) as error:
            raise JobUsageError(
                f"a row in flight holds a value that cannot be stored with a checkpoint: {error}"
            ) from error

    def decode(self, data: bytes) -> Rows:
        try:
            return _unpack_rows(data)
        except (msgspec.DecodeError, ValueError) as error:
            raise CorruptStateError(f"records in flight cannot be decoded: {error}") from error

    def encoder(self, stream: Any) -> JsonLinesEncoder:
        """Return a writer of JSON lines."""
        return JsonLinesEncoder(stream)

    @property
    def file_suffix(self) -> str:
        """Return ``.jsonl``."""
        return ".jsonl"
