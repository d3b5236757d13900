"""``totals``: the runtime's running aggregates."""

from __future__ import annotations

from barrier_tck.harness.reference.operator_kind import KeptState, ReferenceKind, Site
from barrier_tck.reference_impl.operators.aggregate import AGGREGATE_STATE, AggregateSpec
from barrier_tck.reference_impl.operators.encoding import decode_accumulator
from barrier_tck.reference_impl.operators.functions import Count, Emission, Sum
from barrier_tck.reference_impl.operators.graph import OperatorSpec


def _make(site: Site) -> OperatorSpec:
    spec = site.workload.spec
    assert spec is not None, "only a workload with a sequential model can have running totals"
    aggregates = {
        aggregate.name: Count() if aggregate.column is None else Sum(aggregate.column)
        for aggregate in spec.aggregates
    }
    return AggregateSpec(site.operator.name, site.key, aggregates, Emission.EACH_RECORD, (spec.id_column,))


KIND = ReferenceKind(_make, (KeptState(AGGREGATE_STATE, lambda entry: list(decode_accumulator(entry))),))
