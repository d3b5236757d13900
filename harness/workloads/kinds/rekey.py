"""``rekey``: gives each record one of ``by`` keys made from its own; which one depends on its id."""

from __future__ import annotations

from collections.abc import Sequence

from barrier_tck.harness.plan.job_graph import OperatorPlan
from barrier_tck.harness.workloads.operator_kind import Drawn, OperatorKind, Place
from barrier_tck.harness.workloads.records import ID, KEY, PATH, Record, visit


def _emits(operator: OperatorPlan, record: Record) -> Sequence[Record]:
    visited = visit(record, operator.name)
    return ((visited[ID], f"{record[KEY]}.{record[ID] % operator.parameters['by']}", visited[PATH]),)


def _key_before(_: OperatorPlan, key: str) -> str:
    return key.rpartition(".")[0]


KIND = OperatorKind(
    name="rekey",
    emits=_emits,
    key_before=_key_before,
    drawn=Drawn(Place.ONE_INPUT, lambda between: {"by": between(2, 4)}),
)
