"""``filter``: keeps the rows with a value between bounds."""

from __future__ import annotations

from dataclasses import dataclass

from barrier_tck.harness.reference.operator_kind import ReferenceKind
from barrier_tck.reference_impl.operators.functions import Row
from barrier_tck.reference_impl.operators.stateless import Filter


@dataclass(frozen=True, slots=True)
class TableFilter:
    """A row predicate: a column's value is not null, at least a lower bound, and below an upper bound."""

    column: str
    at_least: float | None = None
    below: float | None = None

    def __call__(self, row: Row) -> bool:
        value = row[self.column]
        if value is None or (self.at_least is not None and value < self.at_least):
            return False
        return self.below is None or bool(value < self.below)


KIND = ReferenceKind(lambda site: Filter(site.operator.name, TableFilter(**site.operator.parameters)))
