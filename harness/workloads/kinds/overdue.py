"""``overdue``: keeps every record, as ``window``, but its timer is set for a time that has passed already (EVT-5)."""

from __future__ import annotations

from barrier_tck.harness.plan.job_graph import OperatorPlan
from barrier_tck.harness.workloads.kept_records import KEPT_RECORDS
from barrier_tck.harness.workloads.operator_kind import HoldsBack, Keeps, OperatorKind

BEHIND_MS_MAX = 60_000
"""How long a time may have passed, at most (ms)."""


def _problem(operator: OperatorPlan) -> str | None:
    behind_ms = operator.parameters.get("behind_ms")
    if isinstance(behind_ms, int) and 0 <= behind_ms <= BEHIND_MS_MAX:
        return None
    return (
        f"the operator {operator.name!r} needs the parameter behind_ms, a whole number of milliseconds "
        f"from 0 to {BEHIND_MS_MAX}"
    )


KIND = OperatorKind(
    name="overdue",
    state=KEPT_RECORDS,
    keeps=Keeps.BY_KEY,
    holds_back=HoldsBack("behind_ms", BEHIND_MS_MAX),
    problem=_problem,
    stands_for=("keep",),
)
