"""``session``: keeps every record, as ``window``, but later ones move the end of the wait: timers are deleted.

A key may have several timers at once, and the last of them is deleted while earlier ones stay. Some keys wait for very
long, and a later record may end that soon: so timers are set that are earlier than those that are set already.
"""

from __future__ import annotations

from barrier_tck.harness.plan.job_graph import OperatorPlan
from barrier_tck.harness.workloads.kept_records import KEPT_RECORDS
from barrier_tck.harness.workloads.operator_kind import HoldsBack, Keeps, OperatorKind

GAP_MS_MAX = 60_000
"""The longest step of time (ms), as of windows."""


def _problem(operator: OperatorPlan) -> str | None:
    gap_ms = operator.parameters.get("gap_ms")
    if isinstance(gap_ms, int) and 1 <= gap_ms <= GAP_MS_MAX:
        return None
    return (
        f"the session {operator.name!r} needs the parameter gap_ms, a whole number of milliseconds "
        f"from 1 to {GAP_MS_MAX}"
    )


KIND = OperatorKind(
    name="session",
    state=KEPT_RECORDS,
    keeps=Keeps.BY_KEY,
    holds_back=HoldsBack("gap_ms", GAP_MS_MAX),
    problem=_problem,
    stands_for=("keep",),
)
