"""``both_ends``: turns an edge into one row for each of its ends."""

from __future__ import annotations

from collections.abc import Iterable

from barrier_tck.harness.reference.operator_kind import ReferenceKind
from barrier_tck.reference_impl.operators.functions import Row
from barrier_tck.reference_impl.operators.stateless import FlatMap


def both_ends(row: Row) -> Iterable[Row]:
    """Return an edge as each of its ends sees it."""
    return row, {**row, "node": row["other"], "other": row["node"]}


KIND = ReferenceKind(lambda site: FlatMap(site.operator.name, both_ends))
