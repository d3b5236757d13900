"""What the operators of the workload ``lineage`` share here: each adds its subtask to the path of a record."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from barrier_tck.harness.plan.job_graph import OperatorPlan
from barrier_tck.harness.reference.operator_kind import Site
from barrier_tck.reference_impl.operators.functions import PerSubtask, Place, Row
from barrier_tck.reference_impl.operators.graph import OperatorSpec
from barrier_tck.reference_impl.operators.stateless import FlatMap

SEEN = "seen"
"""Name of the state with every record that reached an operator: (input, id, path), in the order of arrival."""

Emits = Callable[[OperatorPlan, Row, Callable[..., Row]], Iterable[Row]]
"""Maps an operator and a row to what it emits. The third argument makes the path of a row longer by the subtask."""


@dataclass(frozen=True, slots=True)
class Marked:
    """Makes the function of one subtask, which turns a row into the rows to emit, their paths longer by one step."""

    operator: OperatorPlan
    emits: Emits

    def __call__(self, place: Place) -> Callable[..., Iterable[Row]]:
        operator, emits, index = self.operator, self.emits, place.subtask.index

        def step(row: Row, branch: str = "") -> Row:
            return {**row, "path": longer(row["path"], f"{operator.name}{branch}[{index}]")}

        return lambda row, number=0: emits(operator, row, step)


def marking(site: Site, emits: Emits) -> OperatorSpec:
    """Return an operator that has no state and one input."""
    return FlatMap(site.operator.name, PerSubtask(Marked(site.operator, emits)))


def longer(path: str, step: str) -> str:
    """Return a path with one step more."""
    return f"{path}>{step}" if path else step
