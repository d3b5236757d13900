"""``combine``: the runtime's aggregates of one batch, as ``aggregate(combine=True)`` puts them before a shuffle."""

from __future__ import annotations

from barrier_tck.harness.reference.kinds.changes import TOTALS
from barrier_tck.harness.reference.operator_kind import ReferenceKind
from barrier_tck.harness.workloads.changed_totals import KEY
from barrier_tck.reference_impl.operators.stateless import Combine

KIND = ReferenceKind(lambda site: Combine(site.operator.name, KEY, TOTALS, site.deployment.max_parallelism))
