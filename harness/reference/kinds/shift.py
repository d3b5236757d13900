"""``shift``: a record with another event time."""

from __future__ import annotations

from dataclasses import dataclass

from barrier_tck.harness.reference.operator_kind import ReferenceKind
from barrier_tck.reference_impl.operators.functions import Row
from barrier_tck.reference_impl.operators.stateless import Map


@dataclass(frozen=True, slots=True)
class _Shift:
    by_ms: int

    def __call__(self, row: Row) -> Row:
        return {**row, "ts": row["ts"] + self.by_ms}


KIND = ReferenceKind(lambda site: Map(site.operator.name, _Shift(site.operator.parameters["by_ms"])))
