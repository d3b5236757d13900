"""``unmarked``: keeps the rows that ``twice`` has not marked."""

from __future__ import annotations

from barrier_tck.harness.reference.operator_kind import ReferenceKind
from barrier_tck.reference_impl.operators.functions import Row
from barrier_tck.reference_impl.operators.stateless import Filter


def _is_unmarked(row: Row) -> bool:
    return not row["marked"]


KIND = ReferenceKind(lambda site: Filter(site.operator.name, _is_unmarked))
