"""``drop``: drops the records whose ids, divided by ``modulo``, leave the remainder ``gone``."""

from __future__ import annotations

from collections.abc import Sequence

from barrier_tck.harness.plan.job_graph import OperatorPlan
from barrier_tck.harness.workloads.operator_kind import Drawn, OperatorKind, Place
from barrier_tck.harness.workloads.records import ID, Record, visit


def _emits(operator: OperatorPlan, record: Record) -> Sequence[Record]:
    modulo, gone = operator.parameters["modulo"], operator.parameters["gone"]
    return () if record[ID] % modulo == gone else (visit(record, operator.name),)


KIND = OperatorKind(
    name="drop",
    emits=_emits,
    drawn=Drawn(Place.ONE_INPUT, lambda between: {"modulo": 3, "gone": between(0, 2)}),
)
