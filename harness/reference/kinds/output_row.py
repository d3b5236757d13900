"""``output_row``: gives each row the columns of running totals."""

from __future__ import annotations

from barrier_tck.harness.reference.operator_kind import ReferenceKind
from barrier_tck.reference_impl.operators.functions import Row
from barrier_tck.reference_impl.operators.stateless import Map


def _as_output_row(row: Row) -> Row:
    return {"id": row["id"], "count": 1, "sum": row["value"] or 0}


KIND = ReferenceKind(lambda site: Map(site.operator.name, _as_output_row))
