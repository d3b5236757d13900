"""Record batches as bytes, and back, without a copy of their columns where that is possible.

On a channel the schema is sent once, and each batch is an Arrow IPC message. A batch that is cut into fragments carries
its schema with it (``fragments``).
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from barrier_tck.reference_impl.runtime_errors import JobUsageError


class _Collector:
    """The file that Arrow's writer writes to: keeps what it is given, by reference."""

    closed = False

    def __init__(self) -> None:
        self.parts: list[Any] = []

    def write(self, part: Any) -> int:
        self.parts.append(part)
        return len(part)

    def flush(self) -> None:
        """Do nothing: the parts are sent together."""

    def close(self) -> None:
        self.closed = True


def _holds_dictionary(data_type: pa.DataType) -> bool:
    if pa.types.is_dictionary(data_type):
        return True
    return any(_holds_dictionary(data_type.field(i).type) for i in range(data_type.num_fields))


class DictionaryDecoder:
    """Decodes the dictionary columns of batches of one schema: their dictionaries would be messages of their own."""

    def __init__(self, schema: pa.Schema) -> None:
        """Take the schema; raises JobUsageError for a dictionary type inside another type."""
        self.schema = schema
        self._dictionaries = [i for i, field in enumerate(schema) if pa.types.is_dictionary(field.type)]
        for i, field in enumerate(schema):
            if i not in self._dictionaries and _holds_dictionary(field.type):
                raise JobUsageError(
                    f"column {field.name!r} of type {field.type} cannot be sent; decode its dictionary"
                )

    def takes(self, batch: pa.RecordBatch) -> bool:
        """Return whether a batch has the schema."""
        return self.schema is batch.schema or bool(self.schema == batch.schema)

    def decoded(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the batch with plain columns; the batch itself if all are."""
        for i in self._dictionaries:
            field = batch.schema.field(i)
            batch = batch.set_column(
                i, field.with_type(field.type.value_type), batch.column(i).dictionary_decode()
            )
        return batch


class BatchSerializer:
    """Turns the batches of one schema into buffers that can be sent as they are; dictionary columns are decoded."""

    def __init__(self, first: pa.RecordBatch) -> None:
        """Take the schema of a batch; raises JobUsageError for a dictionary type inside another type."""
        self._decoder = DictionaryDecoder(first.schema)
        empty = self._decoder.decoded(first.slice(0, 0))
        self.schema: pa.Schema = empty.schema
        self._collector = _Collector()
        self._writer = pa.ipc.new_stream(pa.PythonFile(self._collector, mode="w"), self.schema)
        # The stream writer puts the schema before its first batch; frames carry the schema on their own.
        self._writer.write_batch(empty)
        self._collector.parts.clear()

    def takes(self, batch: pa.RecordBatch) -> bool:
        """Return whether a batch has the schema of this serializer."""
        return self._decoder.takes(batch)

    def buffers(self, batch: pa.RecordBatch) -> list[Any]:
        """Return the batch's IPC message in parts; the parts refer to the batch's memory."""
        self._writer.write_batch(self._decoder.decoded(batch))
        parts = self._collector.parts
        self._collector.parts = []
        return parts
