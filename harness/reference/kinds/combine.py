"""``combine``: the runtime's aggregates of one batch, as ``aggregate(combine=True)`` puts them before a shuffle."""

from __future__ import annotations

from barrier_tck.harness.reference.kinds.changes import totals_of
from barrier_tck.harness.reference.operator_kind import ReferenceKind, Site
from barrier_tck.harness.workloads.changed_totals import KEY
from barrier_tck.reference_impl.operators.graph import OperatorSpec
from barrier_tck.reference_impl.operators.stateless import Combine


def _make(site: Site) -> OperatorSpec:
    return Combine(site.operator.name, KEY, totals_of(site.job), site.deployment.max_parallelism)


KIND = ReferenceKind(_make)
