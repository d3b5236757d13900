"""The Arrow plane: a batch is a ``pyarrow.RecordBatch``; everything but plain row functions is vectorised."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from barrier_tck.reference_impl.operators.arrow_folded_table import ArrowFoldedTable, combine
from barrier_tck.reference_impl.operators.arrow_interval_join import ArrowIntervalJoin
from barrier_tck.reference_impl.operators.arrow_keys import groups_of_rows, key_columns, stable_order
from barrier_tck.reference_impl.operators.arrow_table import ArrowAccumulatorTable
from barrier_tck.reference_impl.operators.arrow_values import array_of, cast_table
from barrier_tck.reference_impl.operators.arrow_windows import ArrowWindows, takes_batches
from barrier_tck.reference_impl.operators.functions import Row, Vectorized, all_additive, missing_column
from barrier_tck.reference_impl.operators.interval_join import IntervalJoinDefinition
from barrier_tck.reference_impl.protocol.key_groups import owner_of
from barrier_tck.reference_impl.runtime_errors import CorruptStateError, JobUsageError

_ROW_GROUP_ROWS = 1 << 17
_FEW_RECEIVERS = 8
"""Up to this many receivers, one pass over the rows for each of them is faster than sorting the rows by receiver."""


def _batch_of_rows(rows: list[Row], like: Any | None = None) -> Any:
    """Return rows as a batch. A column keeps the type it has in ``like`` if its values fit it."""
    names = list(rows[0])
    arrays = []
    for name in names:
        values = [row[name] for row in rows]
        index = like.schema.get_field_index(name) if like is not None else -1
        arrays.append(
            array_of(values, like.schema.field(index).type if like is not None and index >= 0 else None)
        )
    return pa.RecordBatch.from_arrays(arrays, names)


def _names_of_text(schema: Any) -> list[str]:
    """Return the columns whose values are long and repeat. A dictionary of numbers costs more time than it saves."""
    return [
        field.name
        for field in schema
        if pa.types.is_string(field.type)
        or pa.types.is_large_string(field.type)
        or pa.types.is_binary(field.type)
        or pa.types.is_large_binary(field.type)
    ]


class ParquetEncoder:
    """Writes batches as one Parquet file; small batches are gathered into row groups of 128,000 rows."""

    def __init__(self, stream: Any) -> None:
        """Take the ``OutputStream`` to write to; the caller makes it durable and closes it."""
        self._stream = _CountingStream(stream)
        self._writer: Any = None
        self._waiting: list[Any] = []
        self._waiting_rows = 0

    def write(self, payload: Any) -> None:
        """Append a batch. The first 128,000 rows fix the columns; later ones are cast to them."""
        self._waiting.append(payload)
        self._waiting_rows += payload.num_rows
        if self._waiting_rows >= _ROW_GROUP_ROWS:
            self._flush()

    def finish(self) -> None:
        """Write what is gathered and the footer; raises JobUsageError if nothing was ever written."""
        if self._waiting:
            self._flush()
        if self._writer is None:
            raise JobUsageError(
                "a Parquet file without a batch has no columns; create files with their first batch"
            )
        self._writer.close()

    def _flush(self) -> None:
        # A column that holds only nulls takes the type that other batches give it.
        table = pa.concat_tables(map(_table, self._waiting), promote_options="permissive")
        self._waiting, self._waiting_rows = [], 0
        if self._writer is None:
            self._writer = pq.ParquetWriter(
                self._stream, table.schema, use_dictionary=_names_of_text(table.schema)
            )
        elif table.schema != self._writer.schema:
            table = cast_table(table, self._writer.schema)
        self._writer.write_table(table)


def _table(batch: Any) -> Any:
    return pa.Table.from_batches([batch])


class _CountingStream:
    """An ``OutputStream`` as Arrow wants a Python file: with ``tell``, and not to be closed by Arrow."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._written = 0

    @property
    def closed(self) -> bool:
        return bool(self._stream.closed)

    def write(self, data: bytes) -> int:
        self._stream.write(data)
        self._written += len(data)
        return len(data)

    def tell(self) -> int:
        return self._written

    def flush(self) -> None:
        self._stream.flush()

    def close(self) -> None:
        """Leave the stream open: its owner still has to sync it."""


class ArrowPlane:
    """``DataPlane`` over record batches."""

    name = "arrow"

    def length(self, payload: Any) -> int:
        return int(payload.num_rows)

    def largest(self, payload: Any, column: str) -> int | None:
        """Return the largest integer in a column, or None if all are null."""
        if column not in payload.schema.names:
            raise missing_column(column, payload.schema.names, "event time")
        found: int | None = pc.max(payload.column(column)).as_py()
        return found

    def from_rows(self, rows: Sequence[Row]) -> Any:
        """Return rows (at least one) as a payload; types follow from the values."""
        return _batch_of_rows(list(rows))

    def to_rows(self, payload: Any) -> list[Row]:
        rows: list[Row] = payload.to_pylist()
        return rows

    def slices(self, payload: Any, length: int) -> list[Any]:
        """Cut the batch into batches of at most so many records, without a copy."""
        return [payload.slice(start, length) for start in range(0, payload.num_rows, length)]

    def joined(self, payloads: Sequence[Any]) -> Any | None:
        if len(payloads) < 2:
            return payloads[0] if payloads else None
        # Types that follow from values may differ, for instance if results are all null in one of the batches.
        whole = pa.concat_tables(map(_table, payloads), promote_options="permissive")
        return whole.combine_chunks().to_batches()[0]

    def map(self, payload: Any, function: Any) -> Any:
        """Apply a row function to every record, or its vectorised form to the batch."""
        if isinstance(function, Vectorized):
            return _checked(function.batch(payload))
        return (
            _batch_of_rows(list(map(function, payload.to_pylist())), payload) if payload.num_rows else payload
        )

    def filter(self, payload: Any, function: Any) -> Any | None:
        mask: Iterable[Any]
        if isinstance(function, Vectorized):
            mask = function.batch(payload)
        else:
            mask = pa.array([bool(function(row)) for row in payload.to_pylist()], type=pa.bool_())
        kept = payload.filter(mask)
        return kept if kept.num_rows else None

    def flat_map(self, payload: Any, function: Any) -> Any | None:
        if isinstance(function, Vectorized):
            batch = _checked(function.batch(payload))
            return batch if batch.num_rows else None
        rows = [result for row in payload.to_pylist() for result in function(row)]
        return _batch_of_rows(rows, payload) if rows else None

    def partition(
        self, payload: Any, key: Sequence[str], parallelism: int, max_parallelism: int
    ) -> list[tuple[int, Any]]:
        """Split by the subtask that owns each record's key group (RSC-1), receivers in order."""
        if not payload.num_rows:
            return []
        if parallelism == 1:
            return [(0, payload)]
        groups = groups_of_rows(key_columns(payload, key, "key_by"), max_parallelism)
        owners = np.array([owner_of(group, parallelism, max_parallelism) for group in range(max_parallelism)])
        if parallelism <= _FEW_RECEIVERS:
            narrow = owners.astype(np.uint8)[groups]
            parts = [(target, np.flatnonzero(narrow == target)) for target in range(parallelism)]
            return [(target, payload.take(pa.array(part))) for target, part in parts if len(part)]
        targets = owners[groups]
        counts = np.bincount(targets, minlength=parallelism)
        ordered = payload.take(pa.array(stable_order(targets)))
        ends = np.cumsum(counts)
        return [
            (target, ordered.slice(int(ends[target] - counts[target]), int(counts[target])))
            for target in np.flatnonzero(counts).tolist()
        ]

    def combine(
        self, payload: Any, key: Sequence[str], aggregates: Mapping[str, Any], max_parallelism: int
    ) -> Any | None:
        return combine(payload, key, aggregates)

    def accumulators(
        self, key: Sequence[str], aggregates: Mapping[str, Any], carry: Sequence[str], max_parallelism: int
    ) -> ArrowAccumulatorTable | ArrowFoldedTable:
        """Return a table of arrays if all aggregates are sums, and else one with an accumulator for each key."""
        if all_additive(aggregates):
            return ArrowAccumulatorTable(key, aggregates, carry, max_parallelism)
        return ArrowFoldedTable(key, aggregates, carry, max_parallelism)

    def batched(self, definition: Any) -> ArrowWindows | ArrowIntervalJoin | None:
        """Return an operator for windows, unless they have a trigger or an assigner of the user's, or for a join."""
        if isinstance(definition, IntervalJoinDefinition):
            return ArrowIntervalJoin(definition, self)
        return ArrowWindows(definition, self) if takes_batches(definition) else None

    def encode(self, payload: Any) -> bytes:
        """Return the batch as an Arrow IPC stream of one batch, with its schema."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, payload.schema) as writer:
            writer.write_batch(payload)
        encoded: bytes = sink.getvalue().to_pybytes()
        return encoded

    def decode(self, data: bytes) -> Any:
        try:
            with pa.ipc.open_stream(data) as reader:
                return reader.read_next_batch()
        except (pa.ArrowInvalid, OSError, StopIteration) as error:
            raise CorruptStateError(f"records in flight cannot be decoded: {error}") from error

    def encoder(self, stream: Any) -> ParquetEncoder:
        """Return a writer of Parquet."""
        return ParquetEncoder(stream)

    @property
    def file_suffix(self) -> str:
        """Return ``.parquet``."""
        return ".parquet"


def _checked(batch: Any) -> Any:
    """Refuse what a vectorised function must not return."""
    if not isinstance(batch, pa.RecordBatch):
        raise JobUsageError(
            f"a vectorised function returns a pyarrow.RecordBatch, not {type(batch).__name__}"
        )
    return batch
