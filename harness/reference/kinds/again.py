"""``again``: sends a row round a loop as often as its id says."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from barrier_tck.harness.plan.job_graph import OperatorPlan
from barrier_tck.harness.reference.lineage import marking
from barrier_tck.harness.reference.operator_kind import ReferenceKind
from barrier_tck.reference_impl.operators.functions import Row


def _emits(operator: OperatorPlan, row: Row, step: Callable[..., Row]) -> Iterable[Row]:
    done = sum(entry.startswith(f"{operator.name}[") for entry in row["path"].split(">"))
    return (step(row),) if done < row["id"] % (operator.parameters["turns"] + 1) else ()


KIND = ReferenceKind(lambda site: marking(site, _emits))
