"""Totals of each key that are not emitted record by record, but when they have changed, or at the end.

That is what ``aggregate`` of the job API does unless told otherwise: ahead of each barrier, one row for each key that
changed since the rows before. Such a row belongs to the checkpoint of the barrier. The sink may be chained to the
operator that keeps the totals, or be a vertex of its own; sources may add up the rows of each batch beforehand.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from operator import add
from pathlib import Path

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
from barrier_tck.harness.plan.shapes import Parts, Shapes, job_among
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.record.history import Row
from barrier_tck.harness.workloads.drawn_splits import drawn_splits
from barrier_tck.harness.workloads.kinds.changes import AT_THE_END, CHANGES
from barrier_tck.harness.workloads.kinds.combine import COMBINE
from barrier_tck.harness.workloads.workload import SplitData, job_of_plan, problem_of_fixed

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("key", pa.string()),
        ("value", pa.int64()),
        ("mark", pa.bool_()),
        ("part", pa.float64()),
    ]
)
"""The columns of the input."""
KEY = ("key",)
COLUMNS = ("count", "sum", "marked", "parts")
"""The totals of a key: how many records, the sum of ``value``, how many with a ``mark``, the sum of ``part``."""

Totals = tuple[float, ...]
"""The totals of a key, in the order of ``COLUMNS``."""
NOTHING: Totals = (0, 0, 0, 0)

_VALUES = (*range(-20, 101), None)
_QUARTERS = range(-8, 41)


class ChangedTotals:
    """Generated rows ``id, key, value, mark, part``. The output holds totals of keys."""

    name = "changed-totals"
    description = (
        "Group the records by `key`; keep per key the number of records (`count`), the sum of `value` (`sum`), the "
        "number of records with a `mark` (`marked`) and the sum of `part` (`parts`). Ahead of each barrier, and at the "
        "end of the input, emit a row `key, count, sum, marked, parts` for each key that has changed since its row "
        "before; in the shapes that begin with `final`, emit one for each key at the end of the input only. Write the "
        "rows to an output that is visible exactly once."
    )
    spec = None
    shapes = ("line", "chained", "combined", "final", "final-chained")

    def job(self, shape: str, widths: Mapping[str, int]) -> JobPlan:
        """Return one of the named shapes; raises ValueError for an unknown one."""
        return job_among(_SHAPES, shape, widths)

    def problem_of(self, job: JobPlan) -> str | None:
        """Accept a job that is one of the shapes."""
        return problem_of_fixed(self, job)

    @property
    def input_directory(self) -> Path | None:
        """Return None: the input is generated."""
        return None

    def schemas(self, job: JobPlan) -> Mapping[str, pa.Schema]:
        """Return the columns of the input."""
        return {vertex.name: SCHEMA for vertex in job.sources}

    def splits(self, plan: TrialPlan) -> tuple[SplitData, ...]:
        """Return the splits of the source, with ids that are unique in the whole input."""
        return drawn_splits(plan, job_of_plan(self, plan), self.name, _rows)


def _rows(first: int, count: int, draws: random.Random, plan: TrialPlan, _vertex: VertexPlan) -> list[Row]:
    return [
        {
            "id": first + offset,
            "key": f"k{draws.randrange(plan.workload.keys)}",
            "value": draws.choice(_VALUES),
            "mark": draws.random() < 0.5,
            # Quarters add up to the same float in any order.
            "part": draws.choice(_QUARTERS) / 4,
        }
        for offset in range(count)
    ]


def is_combined(job: JobPlan) -> bool:
    """Return whether sources add the rows of a batch up, so that channels carry totals and no records."""
    return any(operator.kind == COMBINE for vertex in job.sources for operator in vertex.then)


def added(totals: Totals, more: Totals) -> Totals:
    """Return the totals of both."""
    return tuple(map(add, totals, more))


def totals_of_record(row: Row) -> Totals:
    """Return what a record of the input adds."""
    return (1, row["value"] or 0, int(row["mark"]), row["part"])


def totals_in(row: Row) -> Totals:
    """Return the totals that a row of the output shows; raises KeyError if it lacks one."""
    return tuple(row[column] for column in COLUMNS)


# --- shapes -------------------------------------------------------------------------------------------------


def _parts(chained: bool, combined: bool, at_the_end: bool) -> Parts:
    parameters = {AT_THE_END: True} if at_the_end else {}
    vertices = [
        VertexPlan(SOURCE, SOURCE, 2, then=(OperatorPlan("combined", COMBINE),) if combined else ()),
        VertexPlan("totals", CHANGES, 2, parameters, (OperatorPlan(SINK, SINK),) if chained else ()),
    ]
    edges = [EdgePlan(SOURCE, "totals", Spread.HASH, KEY)]
    if not chained:
        vertices.append(VertexPlan(SINK, SINK, 1))
        edges.append(EdgePlan("totals", SINK, Spread.FORWARD))
    return vertices, edges


_SHAPES: Shapes = {
    "line": lambda: _parts(chained=False, combined=False, at_the_end=False),
    "chained": lambda: _parts(chained=True, combined=False, at_the_end=False),
    "combined": lambda: _parts(chained=False, combined=True, at_the_end=False),
    "final": lambda: _parts(chained=False, combined=False, at_the_end=True),
    "final-chained": lambda: _parts(chained=True, combined=True, at_the_end=True),
}


def ends_with_totals(shape: str) -> bool:
    """Return whether the jobs of a shape emit all totals at the end of the input, and none before."""
    vertices, _ = _SHAPES[shape]()
    return any(AT_THE_END in vertex.parameters for vertex in vertices)
