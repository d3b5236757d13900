"""The sequential model: what a job means without faults, channels or parallelism, in a dozen lines.

A job of this kind groups its input by key columns and keeps a record count and sums per key. A sum ignores nulls,
as in SQL. A sum over no values is 0 here; a system may show null instead. `same_accumulators` treats the two as
equal, because together with the count they carry the same information.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import add, itemgetter
from typing import Any

from barrier_tck.harness.record.history import Row

Key = tuple[Any, ...]
"""The values of the key columns, in order."""

Totals = dict[Key, list[int]]
"""Key -> accumulators, in the order of the model's aggregates."""

Contribution = tuple[Key, list[int]]
"""The key of a record, and what the record adds to each accumulator."""


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One output column: a count of records (``column`` None) or the sum of a column."""

    name: str
    column: str | None = None


@dataclass(frozen=True, slots=True)
class SequentialSpec:
    """The meaning of a keyed running aggregation with one output row per input record.

    Each output row carries the record's id and key and the key's accumulators, this record included. Exactly
    one aggregate is a count, so that the rows of a key have an order.
    """

    id_column: str
    key_columns: tuple[str, ...]
    aggregates: tuple[Aggregate, ...]
    stateful: bool = True
    """False: no operator keeps state, so a checkpoint holds positions only, and there is no shuffle (ALO-3)."""
    count_index: int = field(init=False, repr=False, compare=False)
    """The position of the count among the aggregates."""
    _read: Callable[[Mapping[str, Any]], tuple[Any, ...]] = field(init=False, repr=False, compare=False)
    """Record -> the values of its key columns, then those of the summed columns."""

    def __post_init__(self) -> None:
        """Refuse a model without a key or without exactly one count."""
        if not self.key_columns:
            raise ValueError("a sequential model needs at least one key column")
        counts = [aggregate.name for aggregate in self.aggregates if aggregate.column is None]
        if len(counts) != 1:
            raise ValueError(f"a sequential model needs exactly one count among its aggregates, not {counts}")
        columns = [aggregate.column for aggregate in self.aggregates]
        summed = [column for column in columns if column is not None]
        object.__setattr__(self, "count_index", columns.index(None))
        object.__setattr__(self, "_read", values_of((*self.key_columns, *summed)))

    @property
    def output_columns(self) -> tuple[str, ...]:
        """Return the columns of an output row: id, key, aggregates."""
        return (self.id_column, *self.key_columns, *(aggregate.name for aggregate in self.aggregates))

    def key_of(self, row: Mapping[str, Any]) -> Key:
        """Return the key of an input or output row."""
        return tuple([row[column] for column in self.key_columns])

    def contribution(self, row: Mapping[str, Any]) -> Contribution:
        """Return an input record's key and what it adds to each accumulator: 1 to a count; null adds 0 to a sum."""
        values, width = self._read(row), len(self.key_columns)
        increments = [*values[width:]]
        if None in increments:
            increments = [0 if value is None else value for value in increments]
        increments.insert(self.count_index, 1)
        return values[:width], increments

    def fold(self, rows: Iterable[Mapping[str, Any]], onto: Totals | None = None) -> Totals:
        """Fold records, in any order, onto totals (changed in place; new ones if None) and return them."""
        return self.add(map(self.contribution, rows), {} if onto is None else onto)

    @staticmethod
    def add(contributions: Iterable[Contribution], totals: Totals) -> Totals:
        """Add the contributions of records to totals, which are changed in place and returned."""
        for key, increments in contributions:
            accumulators = totals.get(key)
            totals[key] = increments if accumulators is None else [*map(add, accumulators, increments)]
        return totals

    def running(self, rows: Iterable[Mapping[str, Any]]) -> list[Row]:
        """Return the output of a sequential run over records in this order: one row per record."""
        totals: Totals = {}
        output: list[Row] = []
        for row in rows:
            self.fold((row,), onto=totals)
            key = self.key_of(row)
            output.append(
                dict(zip(self.output_columns, (row[self.id_column], *key, *totals[key]), strict=True))
            )
        return output


def values_of(columns: Sequence[str]) -> Callable[[Mapping[str, Any]], tuple[Any, ...]]:
    """Return the function from a row to its values in some columns; it raises KeyError if a row lacks one."""
    if len(columns) > 1:
        return itemgetter(*columns)
    return lambda row: tuple([row[column] for column in columns])


def same_accumulators(expected: Sequence[int], shown: Sequence[Any]) -> bool:
    """Return whether shown accumulators are the expected ones; null stands for a sum over no value."""
    if shown == expected:
        return True
    return len(expected) == len(shown) and all(
        want == (0 if seen is None else seen) for want, seen in zip(expected, shown, strict=True)
    )
