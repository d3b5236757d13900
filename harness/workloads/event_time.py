"""Event time on any graph: a workload whose meaning depends on the order in which records and watermarks come.

A record is ``key, ts, id, mark, n, how``: its event time ``ts`` in milliseconds, and the sums of the ids, of random
marks and of the numbers of the input records that it stands for, which is 1 for one of the input. ``how`` says by which
window or timer it came. What each operator must do is replayed from the recorded order of arrival (``replayed``).

Splits are out of order, some records by more than the bound, so that they are late. Some splits are much faster in
event time than others, and their event time jumps now and then, so that many windows end at once.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

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
from barrier_tck.harness.workloads.event_time_jobs import drawn_event_time_job
from barrier_tck.harness.workloads.event_time_parameters import (
    BOUND,
    DRIFT,
    GAPS,
    REPORT,
    SKEW,
    groups_problem,
    source_problem,
)
from barrier_tck.harness.workloads.generated_jobs import SUBTASKS_MAX
from barrier_tck.harness.workloads.kind_catalogue import kind_named, operator_kinds
from barrier_tck.harness.workloads.kinds.event_window import LATE
from barrier_tck.harness.workloads.operator_kind import Between
from barrier_tck.harness.workloads.workload import SplitData, job_of_plan

SCHEMA = pa.schema(
    [
        ("key", pa.string()),
        ("ts", pa.int64()),
        ("id", pa.int64()),
        ("mark", pa.int64()),
        ("n", pa.int64()),
        ("how", pa.string()),
    ]
)
"""The columns of the input and of every record derived from it."""
_KEY = ("key",)
_GAP_POLLS_MAX, _GAP_WAIT_MS_MAX = 6, 12


class EventTime:
    """Generated records with an event time; windows and timers follow it."""

    name = "event-time"
    description = (
        "Read the splits, whose watermark is the largest event time so far less the bound of the source and 1 ms; "
        "collect records in windows, join or rank them, or hold them until a time, as the operators say; write what "
        "reaches a sink, late records too, to an output that is visible exactly once."
    )
    spec = None
    shapes: tuple[str, ...] = (
        "tumbling",
        "sliding",
        "sessions",
        "chained",
        "sources",
        "timers",
        "interval",
        "joined-windows",
        "aligned",
        "distinct",
        "top",
        "expiring",
    )

    def shapes_made(self) -> Shapes:
        """Return what makes the parts of each shape."""
        return _SHAPES

    def job(self, shape: str, widths: Mapping[str, int]) -> JobPlan:
        """Return one of the named shapes; raises ValueError for an unknown one."""
        return job_among(self.shapes_made(), shape, widths)

    def draw_job(self, between: Between, subtasks_max: int = SUBTASKS_MAX) -> JobPlan:
        """Draw a graph of one to three layers."""
        return drawn_event_time_job(between, subtasks_max)

    def problem_of(self, job: JobPlan) -> str | None:
        """Accept every graph without loops whose operators can be replayed."""
        for vertex in job.vertices:
            if vertex.kind == SOURCE:
                problem = source_problem(vertex)
                if problem is not None:
                    return problem
            for operator in vertex.operators:
                kind = kind_named(operator.kind)
                if operator.kind not in (SOURCE, SINK) and kind.replayed is None:
                    known = ", ".join(
                        one.name for one in operator_kinds().values() if one.replayed is not None
                    )
                    return f"the operator {operator.name!r} is of kind {operator.kind!r}; known: {known}"
                problem = kind.problem(operator) or _inputs_problem(job, vertex, operator)
                if problem is not None:
                    return problem
            if any(kind_named(one.kind).keeps_by_key for one in vertex.operators) and any(
                edge.by is not Spread.HASH for edge in job.inputs_of(vertex.name)
            ):
                return f"the vertex {vertex.name!r} keeps state by key, so its input edges must be hash edges"
        for edge in job.edges:
            of = job.vertex(edge.source).operators
            known_outputs = [name for one in of for name in kind_named(one.kind).side_outputs]
            if edge.output and edge.output not in known_outputs:
                return f"the edge {edge.source} -> {edge.target}: there is no output {edge.output!r}"
            if edge.by is Spread.BROADCAST:
                return f"the edge {edge.source} -> {edge.target} is a broadcast, which this workload does not replay"
        if job.loops:
            return "it has a loop, in which no watermark is passed on"
        return groups_problem(job)

    @property
    def input_directory(self) -> Path | None:
        """Return None: the input is generated."""
        return None

    def schemas(self, job: JobPlan) -> Mapping[str, pa.Schema]:
        """Return the columns of the input, the same for every source vertex."""
        return dict.fromkeys([vertex.name for vertex in job.sources], SCHEMA)

    def splits(self, plan: TrialPlan) -> tuple[SplitData, ...]:
        """Return the splits of every source vertex, with ids that are unique in the whole input."""
        return drawn_splits(plan, job_of_plan(self, plan), self.name, _rows)


def _rows(first: int, count: int, draws: random.Random, plan: TrialPlan, vertex: VertexPlan) -> list[Row]:
    skew, names = vertex.parameters.get(SKEW, 0), [f"k{key}" for key in range(plan.workload.keys)]
    weights = [(rank + 1.0) ** -skew for rank in range(len(names))] if skew else None
    keys = draws.choices(names, weights, k=count)
    pace, time, rows = draws.choice((1, 1, 3, 8)), draws.randrange(200), list[Row]()
    late = draws.choice((0.06, 0.06, 0.3))
    for offset, key in enumerate(keys):
        time += pace * draws.randrange(8)
        if draws.random() < 0.04:
            time += draws.randrange(100, 1_500)
        fate = draws.random()
        behind = (
            draws.randrange(400)
            if fate < late
            else draws.randrange(60)
            if fate < late + 0.24
            else draws.randrange(10)
        )
        mark = draws.getrandbits(40)
        row = {"key": key, "ts": time - behind, "id": first + offset, "mark": mark, "n": 1, "how": ""}
        rows.append(row)
    return rows


def gaps_of(plan: TrialPlan, vertex: VertexPlan, split: SplitData) -> Iterator[tuple[str, int, int, float]]:
    """Yield where a split has no record for a time: split, offset, how often it is asked in vain, and the wait (ms)."""
    draws = random.Random(f"{plan.seed}/gaps/{split.name}")
    places = sorted(
        draws.randint(split.start_offset, len(split.rows)) for _ in range(vertex.parameters.get(GAPS, 0))
    )
    for offset in places:
        yield split.name, offset, draws.randint(1, _GAP_POLLS_MAX), float(draws.randint(1, _GAP_WAIT_MS_MAX))


def _inputs_problem(job: JobPlan, vertex: VertexPlan, operator: OperatorPlan) -> str | None:
    """Say what is wrong with the inputs of an operator: a join has two, all others have one."""
    heads = operator is vertex.operators[0]
    inputs = {edge.input for edge in job.inputs_of(vertex.name)} if heads else {0}
    if kind_named(operator.kind).joins:
        return None if inputs == {0, 1} else f"the join {operator.name!r} needs two inputs, 0 and 1"
    return f"{operator.name!r} of kind {operator.kind!r} takes one input" if len(inputs) > 1 else None


# --- shapes -------------------------------------------------------------------------------------------------


def _source(name: str, parallelism: int = 2, **parameters: int) -> VertexPlan:
    return VertexPlan(name, SOURCE, parallelism, {BOUND: 60, **parameters})


def _hashed(start: str, end: str, output: str = "", number: int = 0) -> EdgePlan:
    return EdgePlan(start, end, Spread.HASH, _KEY, number, output=output)


def _sunk(vertex: str) -> Parts:
    """Sinks for what a vertex emits, and for its late records."""
    return (VertexPlan("out", SINK, 1), VertexPlan("late", SINK, 1)), (
        EdgePlan(vertex, "out", Spread.REBALANCE),
        EdgePlan(vertex, "late", Spread.REBALANCE, output=LATE),
    )


def _windows(kind: str = "event_window", **parameters: Any) -> Parts:
    """One vertex with windows, whose late records have a sink of their own."""
    sinks, edges = _sunk("window")
    vertices = _source("read"), VertexPlan("window", kind, 2, parameters), *sinks
    return vertices, (_hashed("read", "window"), *edges)


def _interval() -> Parts:
    """Two sources of different speed, joined by an interval that is not the same in both directions."""
    sinks, edges = _sunk("join")
    parameters = {"lower_ms": -20, "upper_ms": 50, "form": "full"}
    vertices = (
        _source("lefts"),
        _source("rights", bound_ms=20),
        VertexPlan("join", "event_interval_join", 2, parameters),
    )
    return (*vertices, *sinks), (_hashed("lefts", "join"), _hashed("rights", "join", number=1), *edges)


def _joined_windows() -> Parts:
    """A join by windows with windows chained to it, for which its pairs and its rows alone must not be late."""
    then = (OperatorPlan("join.then", "event_window", {"size_ms": 100}),)
    vertices = (
        _source("lefts"),
        _source("rights"),
        VertexPlan("join", "event_window_join", 2, {"size_ms": 60, "slide_ms": 25, "form": "left"}, then),
        VertexPlan("out", SINK, 1),
    )
    return vertices, (
        _hashed("lefts", "join"),
        _hashed("rights", "join", number=1),
        EdgePlan("join", "out", Spread.REBALANCE),
    )


def _chained() -> Parts:
    """Windows over windows, chained in one vertex and behind an edge: what the first ones emit is never late."""
    then = (OperatorPlan("first.then", "event_window", {"size_ms": 200}),)
    vertices = (
        _source("read"),
        VertexPlan("first", "event_window", 2, {"size_ms": 50}, then),
        VertexPlan("second", "event_window", 3, {"size_ms": 400, "lateness_ms": 50}),
        VertexPlan("out", SINK, 1),
    )
    return vertices, (
        _hashed("read", "first"),
        _hashed("first", "second"),
        EdgePlan("second", "out", Spread.REBALANCE),
    )


def _sources() -> Parts:
    """A source that is always ready, and one that pauses and counts as idle."""
    vertices = (
        _source("busy"),
        _source("idle", 1, idle_after_ms=5, gaps=2),
        VertexPlan("window", "event_window", 2, {"size_ms": 100, "lateness_ms": 30}),
        VertexPlan("out", SINK, 1),
    )
    return vertices, (
        _hashed("busy", "window"),
        _hashed("idle", "window"),
        EdgePlan("window", "out", Spread.REBALANCE),
    )


def _aligned() -> Parts:
    """Two sources whose splits wait for each other; one of them pauses and counts as idle."""
    aligned = {DRIFT: 200, REPORT: 5}
    vertices = (
        _source("steady", **aligned),
        _source("pausing", 1, idle_after_ms=5, gaps=2, **aligned),
        VertexPlan("window", "event_window", 2, {"size_ms": 100, "lateness_ms": 30}),
        VertexPlan("out", SINK, 1),
    )
    return vertices, (
        _hashed("steady", "window"),
        _hashed("pausing", "window"),
        EdgePlan("window", "out", Spread.REBALANCE),
    )


def _timers() -> Parts:
    """Timers for times to come and for times that have passed."""
    vertices = (
        _source("read"),
        VertexPlan("hold", "event_timer", 2, {"step_ms": 40, "delay_ms": 20}),
        VertexPlan("past", "event_timer", 2, {"step_ms": 30, "delay_ms": -90}),
        VertexPlan("out", SINK, 1),
    )
    return vertices, (
        _hashed("read", "hold"),
        _hashed("hold", "past"),
        EdgePlan("past", "out", Spread.REBALANCE),
    )


def _expiring() -> Parts:
    """State with a time to live, which counts what came, and now and then is cleared."""
    vertices = (
        _source("read"),
        VertexPlan("count", "expiring", 2, {"ttl_ms": 60, "clear_every": 5}),
        VertexPlan("out", SINK, 1),
    )
    return vertices, (_hashed("read", "count"), EdgePlan("count", "out", Spread.REBALANCE))


_SHAPES: Shapes = {
    "tumbling": lambda: _windows(size_ms=100, lateness_ms=40),
    "sliding": lambda: _windows(size_ms=120, slide_ms=50, lateness_ms=20),
    "sessions": lambda: _windows(gap_ms=40, lateness_ms=60),
    "chained": _chained,
    "sources": _sources,
    "timers": _timers,
    "interval": _interval,
    "joined-windows": _joined_windows,
    "aligned": _aligned,
    "distinct": lambda: _windows("event_deduplicate", horizon_ms=40),
    "expiring": _expiring,
    "top": lambda: _windows("event_top_n", n=2, by=["-n"], size_ms=120, slide_ms=50),
}
