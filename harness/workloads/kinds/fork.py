"""``fork``: emits every record twice, with different paths."""

from __future__ import annotations

from collections.abc import Sequence

from barrier_tck.harness.plan.job_graph import OperatorPlan
from barrier_tck.harness.workloads.operator_kind import Drawn, OperatorKind, Place
from barrier_tck.harness.workloads.records import Record, visit


def _emits(operator: OperatorPlan, record: Record) -> Sequence[Record]:
    return tuple(visit(record, f"{operator.name}/{branch}") for branch in "ab")


KIND = OperatorKind(name="fork", emits=_emits, drawn=Drawn(Place.ONE_INPUT, multiplies=True, rank=2))
