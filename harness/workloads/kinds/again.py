"""``again``: sends a record round a loop as often as its id says: up to ``turns`` times, as its path shows."""

from __future__ import annotations

from collections.abc import Sequence

from barrier_tck.harness.plan.job_graph import OperatorPlan
from barrier_tck.harness.workloads.operator_kind import Drawn, OperatorKind, Place
from barrier_tck.harness.workloads.records import ID, PATH, Record, visit


def _emits(operator: OperatorPlan, record: Record) -> Sequence[Record]:
    done = record[PATH].split(">").count(operator.name)
    return (visit(record, operator.name),) if done < record[ID] % (operator.parameters["turns"] + 1) else ()


KIND = OperatorKind(
    name="again",
    emits=_emits,
    ends_loops=True,
    drawn=Drawn(Place.LEADING_BACK, lambda between: {"turns": between(1, 2)}),
)
