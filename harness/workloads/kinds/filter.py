"""``filter``: keeps the rows whose value in ``column`` is ``at_least``, or ``below``, a bound; a null is neither."""

from __future__ import annotations

from collections.abc import Sequence

from barrier_tck.harness.plan.job_graph import OperatorPlan
from barrier_tck.harness.workloads.operator_kind import OperatorKind
from barrier_tck.harness.workloads.records import Record


def _emits(operator: OperatorPlan, record: Record) -> Sequence[Record]:
    value = dict(record)[operator.parameters["column"]]
    if value is None:
        return ()
    least, below = operator.parameters.get("at_least"), operator.parameters.get("below")
    return (record,) if (least is None or value >= least) and (below is None or value < below) else ()


KIND = OperatorKind(name="filter", emits=_emits)
