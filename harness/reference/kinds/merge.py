"""``merge``: passes the rows of several inputs on with longer paths."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from barrier_tck.harness.plan.job_graph import OperatorPlan
from barrier_tck.harness.reference.lineage import Marked, marking
from barrier_tck.harness.reference.operator_kind import ReferenceKind, Site
from barrier_tck.reference_impl.operators.functions import PerSubtask, Row
from barrier_tck.reference_impl.operators.graph import OperatorSpec
from barrier_tck.reference_impl.operators.stateless import CoFlatMap


def _emits(_: OperatorPlan, row: Row, step: Callable[..., Row]) -> Iterable[Row]:
    return (step(row),)


def _make(site: Site) -> OperatorSpec:
    if len(site.keys) == 1:
        return marking(site, _emits)
    return CoFlatMap(site.operator.name, len(site.keys), PerSubtask(Marked(site.operator, _emits)))


KIND = ReferenceKind(_make)
