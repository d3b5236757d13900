"""``changes``: keeps totals for each key, and emits those that changed ahead of each barrier, or all at the end.

When it emits depends on the barriers, so no function of bags says what reaches its sinks; ``changed_totals`` of the
oracle does.
"""

from __future__ import annotations

from barrier_tck.harness.plan.job_graph import OperatorPlan
from barrier_tck.harness.workloads.operator_kind import Keeps, OperatorKind

CHANGES = "changes"
AT_THE_END = "at_the_end"
"""The parameter that says that all totals are emitted at the end of the input, and none before."""


def _problem(operator: OperatorPlan) -> str | None:
    if set(operator.parameters) <= {AT_THE_END} and isinstance(
        operator.parameters.get(AT_THE_END, False), bool
    ):
        return None
    return f"the operator {operator.name!r} takes the parameter {AT_THE_END}, true or false, and no other one"


KIND = OperatorKind(name=CHANGES, keeps=Keeps.BY_KEY, problem=_problem)
