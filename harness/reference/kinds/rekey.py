"""``rekey``: gives each row a new key."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from barrier_tck.harness.plan.job_graph import OperatorPlan
from barrier_tck.harness.reference.lineage import marking
from barrier_tck.harness.reference.operator_kind import ReferenceKind
from barrier_tck.reference_impl.operators.functions import Row


def _emits(operator: OperatorPlan, row: Row, step: Callable[..., Row]) -> Iterable[Row]:
    return ({**step(row), "key": f"{row['key']}.{row['id'] % operator.parameters['by']}"},)


KIND = ReferenceKind(lambda site: marking(site, _emits))
