"""Lineage: a workload for any graph. It needs no other model than the way that its records took.

Every source record has an id; every derived record carries the id of its source record and the path that it took. A
stateful operator keeps each record that reached it, by key and input, in the order of arrival. So for any cut through
the sources the right content of every vertex is known without guessing an interleaving (``dataflow_model``), and a
finding names the record, the path and the vertex.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
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
from barrier_tck.harness.workloads.dataflow_model import endless_loop, windows_of
from barrier_tck.harness.workloads.drawn_splits import drawn_splits
from barrier_tck.harness.workloads.generated_jobs import SUBTASKS_MAX, generated_job
from barrier_tck.harness.workloads.kind_catalogue import kind_named, operator_kinds
from barrier_tck.harness.workloads.kinds.window import KIND as WINDOW
from barrier_tck.harness.workloads.operator_kind import Between
from barrier_tck.harness.workloads.record_forms import LINEAGE
from barrier_tck.harness.workloads.workload import SplitData, job_of_plan

SCHEMA = pa.schema([("id", pa.int64()), ("key", pa.string()), ("path", pa.string())])
"""The columns of the input and of every record derived from it."""

_KEY = ("key",)


class Lineage:
    """Generated rows ``id, key, path``. The output holds every record that reaches a sink, with its path."""

    name = "lineage"
    description = (
        "Read the splits; every vertex adds its subtask to the path of each record that it passes on; stateful ones "
        "keep each record that reached them, by key and input or in lists; write what reaches a sink to an output that "
        "is visible exactly once."
    )
    spec = None
    record_form = LINEAGE
    shapes: tuple[str, ...] = (
        *("line", "union", "diamond", "shuffles", "joined"),
        *("fan-in", "mixed", "apart", "between", "lists", "windows"),
    )

    def shapes_made(self) -> Shapes:
        """Return what makes the parts of each shape."""
        return _SHAPES

    def job(self, shape: str, widths: Mapping[str, int]) -> JobPlan:
        """Return one of the named shapes; raises ValueError for an unknown one."""
        return job_among(self.shapes_made(), shape, widths)

    def draw_job(self, between: Between, subtasks_max: int = SUBTASKS_MAX) -> JobPlan:
        """Draw a graph of one to four layers."""
        return generated_job(between, subtasks_max)

    def problem_of(self, job: JobPlan) -> str | None:
        """Accept every graph whose operators have a meaning, and whose sources mark their records."""
        for vertex in job.vertices:
            for operator in vertex.operators:
                kind = kind_named(operator.kind)
                if operator.kind not in (SOURCE, SINK) and not kind.has_meaning:
                    known = ", ".join(
                        operator_kind.name
                        for operator_kind in operator_kinds().values()
                        if operator_kind.has_meaning
                    )
                    return f"the operator {operator.name!r} is of kind {operator.kind!r}; known: {known}"
                problem = kind.problem(operator)
                if problem is not None:
                    return problem
            if kind_named(vertex.kind).keeps_by_key and any(
                edge.by is not Spread.HASH for edge in job.inputs_of(vertex.name)
            ):
                return f"the vertex {vertex.name!r} keeps state by key, so its input edges must be hash edges"
        looped = [vertex for loop in job.loops for vertex in loop]
        windows = windows_of(job)
        caught = next(
            (name for name in looped if any(o.name in windows for o in job.vertex(name).operators)), None
        )
        if caught is not None:
            return f"a window in the vertex {caught!r} is in a loop, which would end while records wait there"
        endless = endless_loop(job)
        if endless is not None:
            ending = [
                entry.name for entry in operator_kinds().values() if entry.has_meaning and entry.ends_loops
            ]
            return (
                f"no operator of kind {' or '.join(map(repr, ending))} is in the loop of {endless!r}, so records would "
                "go round for ever"
            )
        unmarked = next((vertex.name for vertex in job.sources if not vertex.then), None)
        if unmarked is not None:
            return (
                f"the source {unmarked!r} does not mark its records, so their paths would not begin there; chain an "
                f"operator to it, for instance {unmarked}.mark of kind 'pass'"
            )
        return None

    @property
    def input_directory(self) -> Path | None:
        """Return None: the input is generated."""
        return None

    def schemas(self, job: JobPlan) -> Mapping[str, pa.Schema]:
        """Return the columns of the input, the same for every source vertex."""
        return dict.fromkeys([vertex.name for vertex in job.sources], SCHEMA)

    def splits(self, plan: TrialPlan) -> tuple[SplitData, ...]:
        """Return the splits of every source vertex, with ids that are unique in the whole input."""
        return drawn_splits(plan, job_of_plan(self, plan), "lineage", _rows)


def _rows(first: int, count: int, draws: random.Random, plan: TrialPlan, _vertex: VertexPlan) -> list[Row]:
    keys = draws.choices([f"k{key}" for key in range(plan.workload.keys)], k=count)
    return [{"id": first + offset, "key": key, "path": ""} for offset, key in enumerate(keys)]


# --- shapes -------------------------------------------------------------------------------------------------


def source(name: str, parallelism: int = 2) -> VertexPlan:
    """Return a source vertex, at which the paths of its records begin."""
    return VertexPlan(name, SOURCE, parallelism, then=(OperatorPlan(f"{name}.mark", "pass"),))


def hashed(start: str, end: str, number: int = 0) -> EdgePlan:
    """Return an edge that spreads records by their key."""
    return EdgePlan(start, end, Spread.HASH, _KEY, number)


def _line() -> Parts:
    vertices = (source("read"), VertexPlan("keep", "keep", 2), VertexPlan("out", SINK, 1))
    return vertices, (hashed("read", "keep"), EdgePlan("keep", "out", Spread.FORWARD))


def _union() -> Parts:
    vertices = (source("left"), source("right", 1), VertexPlan("keep", "keep", 2), VertexPlan("out", SINK, 1))
    return vertices, (
        hashed("left", "keep"),
        hashed("right", "keep"),
        EdgePlan("keep", "out", Spread.FORWARD),
    )


def _diamond() -> Parts:
    vertices = (
        source("read"),
        VertexPlan("some", "drop", 2, {"modulo": 3, "gone": 0}),
        VertexPlan("all", "keep", 3, {"every": 2}),
        VertexPlan("both", "keep", 2),
        VertexPlan("out", SINK, 1),
    )
    return vertices, (
        EdgePlan("read", "some", Spread.FORWARD),
        hashed("read", "all"),
        hashed("some", "both"),
        hashed("all", "both", 1),
        EdgePlan("both", "out", Spread.REBALANCE),
    )


def _shuffles() -> Parts:
    rekey = OperatorPlan("first.rekey", "rekey", {"by": 3})
    vertices = (
        source("read"),
        VertexPlan("first", "keep", 2, then=(rekey,)),
        VertexPlan("second", "keep", 3),
        VertexPlan("out", SINK, 2),
    )
    return vertices, (
        hashed("read", "first"),
        hashed("first", "second"),
        EdgePlan("second", "out", Spread.REBALANCE),
    )


def _joined() -> Parts:
    vertices = (source("left"), source("right"), VertexPlan("met", "keep", 2), VertexPlan("out", SINK, 1))
    return vertices, (
        hashed("left", "met", 0),
        hashed("right", "met", 1),
        EdgePlan("met", "out", Spread.FORWARD),
    )


def _fan_in() -> Parts:
    sources = tuple(source(f"read{number}", 1) for number in range(11))
    vertices = (*sources, VertexPlan("keep", "keep", 2), VertexPlan("out", SINK, 1))
    return vertices, (
        *(hashed(entry.name, "keep") for entry in sources),
        EdgePlan("keep", "out", Spread.FORWARD),
    )


def _mixed() -> Parts:
    """A broadcast, two edges between the same vertices, a chain with two states, two sinks with one sender."""
    vertices = (
        source("read"),
        VertexPlan("spread", "rekey", 2, {"by": 2}),
        VertexPlan("twice", "keep", 2, then=(OperatorPlan("twice.keep", "keep"),)),
        VertexPlan("out0", SINK, 2),
        VertexPlan("out1", SINK, 1),
    )
    return vertices, (
        hashed("read", "spread"),
        hashed("read", "twice"),
        hashed("read", "twice", 1),
        EdgePlan("spread", "out0", Spread.BROADCAST),
        EdgePlan("spread", "out1", Spread.REBALANCE),
        EdgePlan("twice", "out1", Spread.REBALANCE),
    )


def _apart() -> Parts:
    """Two pipelines side by side."""
    vertices = (
        source("long", 1),
        source("short", 1),
        VertexPlan("out0", SINK, 1),
        VertexPlan("out1", SINK, 1),
    )
    return vertices, (
        EdgePlan("long", "out0", Spread.FORWARD),
        EdgePlan("short", "out1", Spread.FORWARD),
    )


def _between() -> Parts:
    """A vertex without state between two that keep some, all of different widths (UC-07)."""
    vertices = (
        source("read", 3),
        VertexPlan("first", "keep", 7, then=(OperatorPlan("first.too", "keep"),)),
        VertexPlan("between", "pass", 3),
        VertexPlan("last", "keep", 7),
        VertexPlan("out", SINK, 3),
    )
    return vertices, (
        hashed("read", "first"),
        EdgePlan("first", "between", Spread.REBALANCE),
        hashed("between", "last"),
        EdgePlan("last", "out", Spread.REBALANCE),
    )


def _lists() -> Parts:
    """Two vertices that keep lists without keys: one whose list is dealt out, one whose list is for all (RSC-3)."""
    vertices = (
        source("read"),
        VertexPlan("dealt", "list", 3),
        VertexPlan("shared", "union", 2),
        VertexPlan("out", SINK, 1),
    )
    return vertices, (
        hashed("read", "dealt"),
        EdgePlan("dealt", "shared", Spread.REBALANCE),
        EdgePlan("shared", "out", Spread.REBALANCE),
    )


def _windows() -> Parts:
    """What one vertex passes on waits in windows before it comes to the next one."""
    vertices = (
        source("read", 1),
        VertexPlan("first", "keep", 1),
        VertexPlan("windows", WINDOW.name, 2, {"size_ms": 60}),
        VertexPlan("last", "keep", 1),
        VertexPlan("out", SINK, 1),
    )
    return vertices, (
        hashed("read", "first"),
        hashed("first", "windows"),
        hashed("windows", "last"),
        EdgePlan("last", "out", Spread.FORWARD),
    )


_SHAPES: Shapes = {
    "line": _line,
    "union": _union,
    "diamond": _diamond,
    "shuffles": _shuffles,
    "joined": _joined,
    "fan-in": _fan_in,
    "mixed": _mixed,
    "apart": _apart,
    "between": _between,
    "lists": _lists,
    "windows": _windows,
}
