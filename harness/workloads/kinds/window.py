"""``window``: keeps every record, as ``keep``, but passes it on only when a window of its key has ended."""

from __future__ import annotations

from barrier_tck.harness.plan.job_graph import OperatorPlan
from barrier_tck.harness.workloads.kept_records import KEPT_RECORDS
from barrier_tck.harness.workloads.operator_kind import HoldsBack, Keeps, OperatorKind

SIZE_MS_MAX = 60_000
"""The longest window (ms): at its end, a job lets all windows end at once, so longer ones show nothing more."""


def _problem(operator: OperatorPlan) -> str | None:
    size_ms = operator.parameters.get("size_ms")
    if isinstance(size_ms, int) and 1 <= size_ms <= SIZE_MS_MAX:
        return None
    return (
        f"the window {operator.name!r} needs the parameter size_ms, a whole number of milliseconds "
        f"from 1 to {SIZE_MS_MAX}"
    )


KIND = OperatorKind(
    name="window",
    state=KEPT_RECORDS,
    keeps=Keeps.BY_KEY,
    holds_back=HoldsBack("size_ms", SIZE_MS_MAX),
    problem=_problem,
    stands_for=("keep",),
)
