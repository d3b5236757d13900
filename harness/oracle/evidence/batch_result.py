"""What the batch query of a workload gives, over the input without the records that came late (``batch_query``).

Spark SQL gives the result where Spark runs, and then it is part of the history. Elsewhere SQLite, which comes with
Python, runs the same statement over the same rows.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

import pyarrow as pa
import pyarrow.types as types

from barrier_tck.harness.record.history import Row
from barrier_tck.harness.workloads.batch_query import RESULT, BatchQuery
from barrier_tck.harness.workloads.workload import SplitData

Result = tuple[str | int, ...]
"""The values of the columns ``RESULT``."""


def is_late(row: Row) -> bool:
    """Return whether a row of the output is a record of the input that came late: nothing was made of it."""
    how: str = row["how"]
    return not how


def late_ids(output: Iterable[Row]) -> tuple[int, ...]:
    """Return the ids of the records that a side output gave, in order."""
    return tuple(sorted(row["id"] for row in output if is_late(row)))


def query_in_process(
    query: BatchQuery,
    schemas: Mapping[str, pa.Schema],
    splits: Sequence[SplitData],
    late: Collection[int],
) -> Counter[Result]:
    """Return what a query gives over the input of the splits, without the records with some ids."""
    left_out = frozenset(late)
    connection = sqlite3.connect(":memory:")
    try:
        for table, schema in schemas.items():
            columns = ", ".join(f"{field.name} {_type_of(field)}" for field in schema)
            connection.execute(f"CREATE TABLE {table} ({columns})")
            rows = [
                tuple(row[name] for name in schema.names)
                for split in splits
                if split.vertex == table
                for row in split.input
                if row["id"] not in left_out
            ]
            connection.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(schema))})", rows)
        return Counter(connection.execute(query.sql, dict(query.parameters)).fetchall())
    finally:
        connection.close()


def result_of(row: Row) -> Result:
    """Return a row of the output, or of the query, as a result."""
    return tuple(row[name] for name in RESULT)


def _type_of(field: pa.Field) -> str:
    return "INTEGER" if types.is_integer(field.type) else "TEXT"
