"""``pass``: passes each record on with a longer path."""

from __future__ import annotations

from collections.abc import Sequence

from barrier_tck.harness.plan.job_graph import OperatorPlan
from barrier_tck.harness.workloads.operator_kind import Drawn, OperatorKind, Place
from barrier_tck.harness.workloads.records import Record, visit


def _emits(operator: OperatorPlan, record: Record) -> Sequence[Record]:
    return (visit(record, operator.name),)


KIND = OperatorKind(name="pass", emits=_emits, drawn=Drawn(Place.ONE_INPUT, rank=0))
