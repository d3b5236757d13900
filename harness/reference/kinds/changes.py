"""``changes``: the runtime's aggregates, emitted when they have changed, or at the end."""

from __future__ import annotations

from barrier_tck.harness.reference.operator_kind import KeptState, ReferenceKind, Site
from barrier_tck.harness.workloads.changed_totals import is_combined
from barrier_tck.harness.workloads.kinds.changes import AT_THE_END
from barrier_tck.reference_impl.operators.aggregate import AGGREGATE_STATE, AggregateSpec
from barrier_tck.reference_impl.operators.encoding import decode_accumulator
from barrier_tck.reference_impl.operators.functions import (
    Aggregate,
    Count,
    CountIf,
    Emission,
    FloatSum,
    Sum,
    merging_aggregates,
)
from barrier_tck.reference_impl.operators.graph import OperatorSpec

TOTALS: dict[str, Aggregate] = {
    "count": Count(),
    "sum": Sum("value"),
    "marked": CountIf("mark"),
    "parts": FloatSum("part"),
}
"""What is kept for each key: every aggregate that the runtime has."""


def _make(site: Site) -> OperatorSpec:
    totals = merging_aggregates(TOTALS) if is_combined(site.job) else TOTALS
    emission = Emission.FINAL if site.operator.parameters.get(AT_THE_END) else Emission.CHANGES
    return AggregateSpec(site.operator.name, site.key, totals, emission)


KIND = ReferenceKind(_make, (KeptState(AGGREGATE_STATE, lambda entry: list(decode_accumulator(entry))),))
