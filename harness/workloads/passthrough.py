"""A generated workload without shuffle and without state: every operator has one input with one sender (ALO-3).

At-least-once mode counts a record twice only if a subtask waits for barriers from several channels. Here none
does, so the output is exact in both modes, and the exactly-once checker judges it in both.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec
import pyarrow as pa

from barrier_tck.harness.plan.job_graph import (
    SINK,
    SOURCE,
    EdgePlan,
    JobPlan,
    OperatorPlan,
    Spread,
    VertexPlan,
)
from barrier_tck.harness.plan.shapes import job_along
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.workloads.keyed_totals import SCHEMA, KeyedTotals
from barrier_tck.harness.workloads.sequential_model import Aggregate, SequentialSpec
from barrier_tck.harness.workloads.workload import SplitData, job_of_plan, problem_of_fixed, require_shape


class Passthrough:
    """Generated rows ``id, key, value``; per record one output row ``id, count, sum`` with count 1.

    In terms of the keyed model, every record has a key of its own: a record that comes twice is a second row
    of a key that has only one record.
    """

    name = "passthrough"
    description = (
        "Read the splits; emit every record twice, the second time marked (flat map); drop the marked ones "
        "(filter); turn each record that is left into a row with its `id`, `count` 1 and `sum` its value (map); "
        "write the rows to a sink whose committed output is visible exactly once. Neither keys nor shuffles: "
        "each step reads from the one step before it, on as many subtasks as the source has."
    )
    spec = SequentialSpec(
        id_column="id",
        key_columns=("id",),
        aggregates=(Aggregate("count"), Aggregate("sum", "value")),
        stateful=False,
    )

    shapes = ("line",)

    def job(self, shape: str, widths: Mapping[str, int]) -> JobPlan:
        """Return the line. Every vertex is as wide as the widest one asked for, so nothing is shuffled (ALO-3)."""
        require_shape(self, shape)
        names = (SOURCE, "steps", SINK)
        width = max((widths.get(name, 1) for name in names), default=1) if widths else 2
        steps = (OperatorPlan("unmarked", "unmarked"), OperatorPlan("output_row", "output_row"))
        return job_along(
            EdgePlan(SOURCE, "steps", Spread.FORWARD),
            EdgePlan("steps", SINK, Spread.FORWARD),
            shape="line",
            vertices=(
                VertexPlan(SOURCE, SOURCE, 1),
                VertexPlan("steps", "twice", 1, then=steps),
                VertexPlan(SINK, SINK, 1),
            ),
            widths={**dict.fromkeys(names, width), **dict.fromkeys(widths, width)},
        )

    def problem_of(self, job: JobPlan) -> str | None:
        """Accept a job that is one of the shapes."""
        return problem_of_fixed(self, job)

    @property
    def input_directory(self) -> Path | None:
        """Return None: the input is generated."""
        return None

    def schemas(self, job: JobPlan) -> Mapping[str, pa.Schema]:
        """Return the columns of the input."""
        return {SOURCE: SCHEMA}

    def splits(self, plan: TrialPlan) -> tuple[SplitData, ...]:
        """Return the splits that ``keyed-totals`` has for the same plan."""
        return KeyedTotals().splits(msgspec.structs.replace(plan, job=job_of_plan(self, plan)))
