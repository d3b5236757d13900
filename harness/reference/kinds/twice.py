"""``twice``: emits each row twice."""

from __future__ import annotations

from barrier_tck.harness.reference.operator_kind import ReferenceKind
from barrier_tck.reference_impl.operators.functions import Row
from barrier_tck.reference_impl.operators.stateless import FlatMap


def _twice(row: Row) -> tuple[Row, Row]:
    return {**row, "marked": False}, {**row, "marked": True}


KIND = ReferenceKind(lambda site: FlatMap(site.operator.name, _twice))
