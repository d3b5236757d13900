"""``pass``: passes each row on with a longer path."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from barrier_tck.harness.plan.job_graph import OperatorPlan
from barrier_tck.harness.reference.lineage import marking
from barrier_tck.harness.reference.operator_kind import ReferenceKind
from barrier_tck.reference_impl.operators.functions import Row


def _emits(_: OperatorPlan, row: Row, step: Callable[..., Row]) -> Iterable[Row]:
    return (step(row),)


KIND = ReferenceKind(lambda site: marking(site, _emits))
