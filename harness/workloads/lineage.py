"""Lineage: a workload for any graph. It needs no other model than the way that its records took.

Every source record has an id; every derived record carries the id of its source record and the path that it took. A
stateful operator keeps each record that reached it, by key and input, in the order of arrival. So for any cut through
the sources the right content of every vertex is known without guessing an interleaving (``meaning``), and a finding
names the record, the path and the vertex.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
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
from barrier_tck.harness.plan.shapes import along
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.workloads.generated_jobs import SUBTASKS_MAX, generated_job
from barrier_tck.harness.workloads.meaning import AGAIN, KINDS, endless_loop
from barrier_tck.harness.workloads.record_forms import LINEAGE
from barrier_tck.harness.workloads.workload import Between, SplitData, job_of_plan

SCHEMA = pa.schema([("id", pa.int64()), ("key", pa.string()), ("path", pa.string())])
"""The columns of the input and of every record derived from it."""

_KEY = ("key",)
_PARTS = 3
"""The most splits that one source subtask reads."""


class Lineage:
    """Generated rows ``id, key, path``. The output holds every record that reaches a sink, with its path."""

    name = "lineage"
    description = (
        "Read the splits; every vertex adds its subtask to the path of each record that it passes on; stateful ones "
        "keep each record that reached them, by key and input; write what reaches a sink to an output that is visible "
        "exactly once."
    )
    spec = None
    record_form = LINEAGE
    shapes: tuple[str, ...] = ("line", "union", "diamond", "shuffles", "joined", "fan-in", "mixed", "apart")

    def job(self, shape: str, widths: Mapping[str, int]) -> JobPlan:
        """Return one of the named shapes; raises ValueError for an unknown one."""
        make = _SHAPES.get(shape or self.shapes[0])
        if make is None:
            raise ValueError(f"there is no shape {shape!r}; known: {', '.join(self.shapes)}")
        vertices, edges = make()
        return along(*edges, shape=shape or self.shapes[0], vertices=vertices, widths=widths)

    def draw_job(self, between: Between, subtasks_max: int = SUBTASKS_MAX) -> JobPlan:
        """Draw a graph of one to four layers."""
        return generated_job(between, subtasks_max)

    def problem_of(self, job: JobPlan) -> str | None:
        """Accept every graph whose operators have a meaning, and whose sources mark their records."""
        for vertex in job.vertices:
            for operator in vertex.operators:
                if operator.kind not in (SOURCE, SINK, *KINDS):
                    return f"the operator {operator.name!r} is of kind {operator.kind!r}; known: {', '.join(KINDS)}"
            if vertex.kind == "keep" and any(
                edge.by is not Spread.HASH for edge in job.inputs_of(vertex.name)
            ):
                return f"the vertex {vertex.name!r} keeps state by key, so its input edges must be hash edges"
        endless = endless_loop(job)
        if endless is not None:
            return f"no operator of kind {AGAIN!r} is in the loop of {endless!r}, so records would go round for ever"
        return None

    @property
    def input_directory(self) -> Path | None:
        """Return None: the input is generated."""
        return None

    def schemas(self, job: JobPlan) -> Mapping[str, pa.Schema]:
        """Return the columns of the input, the same for every source vertex."""
        return dict.fromkeys([vertex.name for vertex in job.sources], SCHEMA)

    def splits(self, plan: TrialPlan) -> tuple[SplitData, ...]:
        """Return the splits of every source vertex.

        A vertex may have fewer splits than subtasks (then some are idle), or up to three splits per subtask. Ids are
        unique in the whole input and do not depend on the splits of the other vertices.
        """
        return tuple(
            split
            for number, vertex in enumerate(job_of_plan(self, plan).sources)
            for split in _splits_of(plan, number, vertex)
        )


def _splits_of(plan: TrialPlan, number: int, vertex: VertexPlan) -> list[SplitData]:
    """Return the splits of one source vertex; every draw comes from a stream named after what it decides."""
    shape = random.Random(f"{plan.seed}/lineage/{vertex.name}")
    records = plan.workload.batches * plan.workload.batch_records
    width = vertex.parallelism
    # One split per source subtask, or several, or so few that some subtasks are idle.
    parts = shape.choice((width, width, 0, width * shape.randint(2, _PARTS)))
    parts = parts or shape.randint(1, max(1, width - 1))
    return [_split(plan, number, vertex, part, _length(shape, records)) for part in range(parts)]


def _length(shape: random.Random, records: int) -> int:
    """Return how many input records a split has: mostly as many as the plan says, now and then fewer."""
    return records if shape.random() < 0.7 else shape.randint(0, records)


def _split(plan: TrialPlan, number: int, vertex: VertexPlan, part: int, records: int) -> SplitData:
    name, start = f"{vertex.name}-{part}", plan.workload.start_offset
    draws = random.Random(f"{plan.seed}/lineage/{name}")
    keys = draws.choices([f"k{key}" for key in range(plan.workload.keys)], k=start + records)
    first = (number * 1_000 + part) * 100_000
    rows = tuple({"id": first + offset, "key": key, "path": ""} for offset, key in enumerate(keys))
    return SplitData(name, part % vertex.parallelism, rows, start, vertex.name)


# --- shapes -------------------------------------------------------------------------------------------------

_Parts = tuple[Sequence[VertexPlan], Sequence[EdgePlan]]


def source(name: str, parallelism: int = 2) -> VertexPlan:
    """Return a source vertex, at which the paths of its records begin."""
    return VertexPlan(name, SOURCE, parallelism, then=(OperatorPlan(f"{name}.mark", "pass"),))


def hashed(start: str, end: str, number: int = 0) -> EdgePlan:
    """Return an edge that spreads records by their key."""
    return EdgePlan(start, end, Spread.HASH, _KEY, number)


def _line() -> _Parts:
    vertices = (source("read"), VertexPlan("keep", "keep", 2), VertexPlan("out", SINK, 1))
    return vertices, (hashed("read", "keep"), EdgePlan("keep", "out", Spread.FORWARD))


def _union() -> _Parts:
    vertices = (source("left"), source("right", 1), VertexPlan("keep", "keep", 2), VertexPlan("out", SINK, 1))
    return vertices, (
        hashed("left", "keep"),
        hashed("right", "keep"),
        EdgePlan("keep", "out", Spread.FORWARD),
    )


def _diamond() -> _Parts:
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


def _shuffles() -> _Parts:
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


def _joined() -> _Parts:
    vertices = (source("left"), source("right"), VertexPlan("met", "keep", 2), VertexPlan("out", SINK, 1))
    return vertices, (
        hashed("left", "met", 0),
        hashed("right", "met", 1),
        EdgePlan("met", "out", Spread.FORWARD),
    )


def _fan_in() -> _Parts:
    sources = tuple(source(f"read{number}", 1) for number in range(11))
    vertices = (*sources, VertexPlan("keep", "keep", 2), VertexPlan("out", SINK, 1))
    return vertices, (
        *(hashed(one.name, "keep") for one in sources),
        EdgePlan("keep", "out", Spread.FORWARD),
    )


def _mixed() -> _Parts:
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


def _apart() -> _Parts:
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


_SHAPES: dict[str, Callable[[], _Parts]] = {
    "line": _line,
    "union": _union,
    "diamond": _diamond,
    "shuffles": _shuffles,
    "joined": _joined,
    "fan-in": _fan_in,
    "mixed": _mixed,
    "apart": _apart,
}
