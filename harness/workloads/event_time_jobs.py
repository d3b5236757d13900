"""Job graphs in event time, drawn at random: windows behind windows, joins, timers, several sources, some idle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from barrier_tck.harness.plan.job_graph import (
    SINK,
    SOURCE,
    EdgePlan,
    JobPlan,
    OperatorPlan,
    Spread,
    VertexPlan,
)
from barrier_tck.harness.plan.shapes import without_key
from barrier_tck.harness.workloads.event_time_parameters import DRIFT, GROUP, REPORT
from barrier_tck.harness.workloads.generated_jobs import GENERATED
from barrier_tck.harness.workloads.joined_records import FORMS
from barrier_tck.harness.workloads.kind_catalogue import kind_named
from barrier_tck.harness.workloads.kinds.event_top_n import RANKED
from barrier_tck.harness.workloads.kinds.event_window import LATE
from barrier_tck.harness.workloads.kinds.expiring import FORMS as EXPIRING
from barrier_tck.harness.workloads.operator_kind import Between

_KEY = ("key",)
_BOUNDS_MS = (60, 0, 20, 200)
_SIZES_MS = (100, 50, 30, 400)
_DRIFTS_MS = (200, 30, 0, 800)
_KINDS = (
    "event_window",
    "event_window",
    "event_timer",
    "expiring",
    "shift",
    "event_deduplicate",
    "event_top_n",
    "event_interval_join",
    "event_window_join",
)
_TTLS_MS = (60, 8, 20, 250, 1_500)
"""Times to live: less than a checkpoint is apart from the next one, and more than an outage and a restore take."""
_LATENESS_MAX_MS = (150, 20, 1_000)
_JOINS_MAX = 1
"""So many joins a graph may have: a second one would square what the first one has multiplied."""
_JOINED_MS = (50, 30, 100)
"""The sizes of windows with joins, in which many pairs may lie."""


@dataclass
class _Drawing:
    """The graph so far."""

    between: Between
    subtasks_max: int
    vertices: list[VertexPlan] = field(default_factory=list)
    edges: list[EdgePlan] = field(default_factory=list)
    unread: list[tuple[str, str]] = field(default_factory=list)
    """Vertex and output that something must read, since nothing does yet."""
    aside: list[str] = field(default_factory=list)
    """The vertices with a side output, which nothing has to read, and anything may."""
    joins: int = 0
    """How many joins it has."""

    def chance(self, one_in: int) -> bool:
        return self.between(0, one_in - 1) == one_in - 1

    def among(self, values: Sequence[Any]) -> Any:
        return values[self.between(0, len(values) - 1)]

    def width(self) -> int:
        left = self.subtasks_max - sum(vertex.parallelism for vertex in self.vertices)
        return max(1, min(left // 2, self.between(1, 3)))


def drawn_event_time_job(between: Between, subtasks_max: int) -> JobPlan:
    """Return a drawn graph."""
    drawing = _Drawing(between, subtasks_max)
    above = [_add_source(drawing, number) for number in range(between(1, 3))]
    for layer in range(between(1, 3)):
        above = [_add_vertex(drawing, f"v{layer}{letter}", above) for letter in "ab"[: between(1, 2)]]
    _add_sinks(drawing)
    _align_sources(drawing)
    vertices = tuple(drawing.vertices)
    edges = tuple(without_key(edge, vertices) for edge in drawing.edges)
    return JobPlan(shape=GENERATED, vertices=vertices, edges=edges)


def _add_source(drawing: _Drawing, number: int) -> str:
    parameters: dict[str, Any] = {"bound_ms": drawing.among(_BOUNDS_MS)}
    if drawing.chance(2):
        parameters["gaps"] = drawing.between(1, 3)
        if drawing.chance(2):
            parameters["idle_after_ms"] = drawing.between(2, 20)
    if drawing.chance(4):
        parameters["skew"] = drawing.between(1, 2)
    name = f"s{number}"
    drawing.vertices.append(VertexPlan(name, SOURCE, drawing.width(), parameters))
    drawing.unread.append((name, ""))
    return name


def _add_vertex(drawing: _Drawing, name: str, above: Sequence[str]) -> str:
    head = _operator(drawing, name, heads=True)
    then = (_operator(drawing, f"{name}.then", heads=False),) if drawing.chance(3) else ()
    # At most one operator of a vertex has a side output: an edge names it alone.
    aside = [bool(kind_named(one.kind).side_outputs) for one in (head, *then)]
    if all(aside) and then:
        then = (OperatorPlan(f"{name}.then", "shift", {"by_ms": drawing.between(0, 20)}),)
    by_key = any(one.kind != "shift" for one in (head, *then))
    drawing.vertices.append(VertexPlan(name, head.kind, drawing.width(), head.parameters, then))
    edges = [
        (sender, 0) for sender in dict.fromkeys(drawing.among(above) for _ in range(drawing.between(1, 2)))
    ]
    if kind_named(head.kind).joins:
        drawing.joins += 1
        edges = [(edges[0][0], 0), (drawing.among(above), 1), *((sender, 1) for sender, _ in edges[1:])]
    for sender, number in edges:
        output = LATE if sender in drawing.aside and drawing.chance(3) else ""
        spread = Spread.HASH if by_key else Spread.REBALANCE
        drawing.edges.append(EdgePlan(sender, name, spread, _KEY if by_key else (), number, output=output))
        if (sender, output) in drawing.unread:
            drawing.unread.remove((sender, output))
    drawing.unread.append((name, ""))
    if any(aside):
        drawing.aside.append(name)
        # Some have no reader, and some have several.
        drawing.unread += [(name, LATE)] * drawing.between(0, 2)
    return name


def _operator(drawing: _Drawing, name: str, *, heads: bool) -> OperatorPlan:
    may_join = heads and drawing.joins < _JOINS_MAX
    kind = drawing.among([one for one in _KINDS if may_join or not kind_named(one).joins])
    parameters: dict[str, Any]
    if kind == "shift":
        parameters = {"by_ms": drawing.between(-100, 100)}
    elif kind == "event_timer":
        parameters = {"step_ms": drawing.among((40, 1, 150)), "delay_ms": drawing.between(-120, 200)}
    elif kind == "expiring":
        parameters = _expiring(drawing)
    elif kind == "event_deduplicate":
        parameters = {"horizon_ms": drawing.among((40, 0, 10, 200))}
    elif kind == "event_interval_join":
        lower_ms = drawing.between(-80, 60)
        parameters = {"lower_ms": lower_ms, "upper_ms": lower_ms + drawing.between(0, 60), **_form(drawing)}
    elif kind == "event_window_join":
        parameters = {**_assigner(drawing, _JOINED_MS, sessions=False), **_form(drawing)}
    elif kind == "event_top_n":
        by = [drawing.among(RANKED) for _ in range(drawing.between(1, 2))]
        directed = [f"{drawing.among(('', '-'))}{column}" for column in dict.fromkeys(by)]
        parameters = {
            "n": drawing.between(1, 3),
            "by": directed,
            **_assigner(drawing, _SIZES_MS, sessions=True),
        }
    else:
        parameters = _assigner(drawing, _SIZES_MS, sessions=True)
        if drawing.chance(2):
            parameters["lateness_ms"] = drawing.between(1, drawing.among(_LATENESS_MAX_MS))
        if drawing.chance(4):
            parameters["every"] = drawing.between(2, 4)
    return OperatorPlan(name, kind, parameters)


def _expiring(drawing: _Drawing) -> dict[str, Any]:
    """Return parameters of state with a time to live; others than the defaults now and then."""
    parameters: dict[str, Any] = {"ttl_ms": drawing.among(_TTLS_MS)}
    if drawing.chance(2):
        parameters["refreshed_by"] = "reading"
    if drawing.chance(2):
        parameters["form"] = drawing.among(EXPIRING)
    if drawing.chance(2):
        parameters["clear_every"] = drawing.between(3, 6)
    if drawing.chance(2):
        parameters["look_every"] = drawing.between(2, 4)
    return parameters


def _form(drawing: _Drawing) -> dict[str, Any]:
    return {"form": drawing.among(tuple(FORMS))}


def _assigner(drawing: _Drawing, sizes_ms: Sequence[int], *, sessions: bool) -> dict[str, Any]:
    assigner = drawing.between(0, 2 if sessions else 1)
    if assigner == 2:
        return {"gap_ms": drawing.among((40, 5, 120))}
    parameters: dict[str, Any] = {"size_ms": drawing.among(sizes_ms)}
    if assigner == 1:
        parameters["slide_ms"] = drawing.among((40, 25, 70))
    if drawing.chance(2):
        parameters["offset_ms"] = drawing.between(1, 40)
    return parameters


def _add_sinks(drawing: _Drawing) -> None:
    for number, (vertex, output) in enumerate(drawing.unread):
        drawing.vertices.append(VertexPlan(f"out{number}", SINK, drawing.width()))
        drawing.edges.append(EdgePlan(vertex, f"out{number}", Spread.REBALANCE, output=output))


def _align_sources(drawing: _Drawing) -> None:
    """Let the sources of some graphs wait for each other, all of them or some, now and then in two groups."""
    if not drawing.chance(3):
        return
    groups = [
        {DRIFT: drawing.among(_DRIFTS_MS), REPORT: drawing.between(2, 12), **({GROUP: 1} if number else {})}
        for number in range(2)
    ]
    for place, vertex in enumerate(drawing.vertices):
        if vertex.kind != SOURCE or (place and drawing.chance(5)):
            continue
        parameters = {**vertex.parameters, **groups[drawing.chance(5)]}
        drawing.vertices[place] = msgspec.structs.replace(vertex, parameters=parameters)
