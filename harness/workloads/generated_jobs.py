"""Job graphs drawn at random, valid by construction: connected, with keys on hash edges, not too wide to simulate.

There are one to four layers between sources and sinks. Each vertex reads one to three vertices above it, mostly from
the layer right above, through a union or through separate inputs; sometimes two edges come from the same
vertex. A vertex that no other vertex reads gets a sink, and a sink may also read a vertex that others read. In half of
the graphs one vertex has a parallelism of two digits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

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
from barrier_tck.harness.workloads.kind_catalogue import drawn_at
from barrier_tck.harness.workloads.operator_kind import Between, Place

GENERATED = "generated"
"""The shape of a drawn graph."""
_KEY = ("key",)
SUBTASKS_MAX = 30
"""A graph stops growing wider near this many subtasks; a simulated trial then takes some hundredths of a second."""
_WIDE = (10, 12)
"""The parallelism of the one wide vertex that a graph may have: its subtasks' numbers have two digits."""


@dataclass
class _Drawing:
    """The graph so far."""

    between: Between
    subtasks_max: int
    vertices: list[VertexPlan] = field(default_factory=list)
    edges: list[EdgePlan] = field(default_factory=list)
    wide: int | None = None
    """The vertex that must be wide; None if none must be."""
    multiplied: bool = False
    """Whether something (a broadcast, for instance) already copies each record; one such place is enough."""

    def chance(self, one_in: int) -> bool:
        return self.between(0, one_in - 1) == one_in - 1

    def width(self) -> int:
        """Draw a parallelism for the next vertex: a small one, and an even smaller one once the graph has grown."""
        if len(self.vertices) == self.wide:
            return self.between(*_WIDE)
        to_come = _WIDE[1] if self.wide is not None and self.wide > len(self.vertices) else 0
        left = self.subtasks_max - to_come - sum(vertex.parallelism for vertex in self.vertices)
        return max(1, min(left // 2, self.between(1, 3)))

    def pick(self, names: Sequence[str]) -> str:
        return names[self.between(0, len(names) - 1)]


def generated_job(between: Between, subtasks_max: int = SUBTASKS_MAX) -> JobPlan:
    """Return a drawn graph."""
    drawing = _Drawing(between, subtasks_max)
    if subtasks_max > 2 * _WIDE[1] and drawing.chance(2):
        drawing.wide = between(0, 4)
    above = [_add_source(drawing, number) for number in range(between(1, 3))]
    vertices_above = list(above)
    for layer in range(between(1, 4)):
        names = [
            _add_vertex(drawing, f"v{layer}{letter}", above, vertices_above)
            for letter in "abc"[: between(1, 2 if layer else 3)]
        ]
        above, vertices_above = names, [*vertices_above, *names]
    _add_sinks(drawing)
    vertices = tuple(drawing.vertices)
    return JobPlan(
        shape=GENERATED,
        vertices=vertices,
        edges=tuple(without_key(edge, vertices) for edge in drawing.edges),
    )


def _add_source(drawing: _Drawing, number: int) -> str:
    name = f"s{number}"
    mark = OperatorPlan(f"{name}.mark", "pass")
    drawing.vertices.append(VertexPlan(name, SOURCE, drawing.width(), then=(mark,)))
    return name


def _add_vertex(drawing: _Drawing, name: str, above: Sequence[str], vertices_above: Sequence[str]) -> str:
    senders = list(
        dict.fromkeys(
            drawing.pick(vertices_above if drawing.chance(4) else above) for _ in range(drawing.between(1, 3))
        )
    )
    if not drawing.multiplied and drawing.chance(6):
        drawing.multiplied = True
        senders.append(drawing.pick(senders))
    keeps = drawing.chance(2)
    numbers = range(len(senders)) if len(senders) > 1 and drawing.chance(2) else [0] * len(senders)
    several = len(set(numbers)) > 1
    operator = _head(drawing, name, keeps, several)
    vertex = VertexPlan(
        name, operator.kind, drawing.width(), operator.parameters, _chain(drawing, name, keeps)
    )
    drawing.vertices.append(vertex)
    for sender, number in zip(senders, numbers, strict=True):
        spread = Spread.HASH if keeps else _spread(drawing)
        key = _KEY if spread is Spread.HASH else ()
        drawing.edges.append(EdgePlan(sender, name, spread, key, number))
    return name


def _head(drawing: _Drawing, name: str, keeps: bool, several: bool) -> OperatorPlan:
    if keeps:
        return _drawn(drawing, name, Place.BY_KEY)
    return _drawn(drawing, name, Place.SEVERAL_INPUTS if several else Place.ONE_INPUT)


def _drawn(drawing: _Drawing, name: str, place: Place, chained: bool = False) -> OperatorPlan:
    operator, multiplies = drawn_operator(drawing.between, name, place, drawing.multiplied, chained)
    drawing.multiplied = drawing.multiplied or multiplies
    return operator


def drawn_operator(
    between: Between, name: str, place: Place, multiplied: bool = False, chained: bool = False
) -> tuple[OperatorPlan, bool]:
    """Return an operator of a kind that may stand at a place, and whether it emits more records than reach it.

    An operator that emits more is not drawn where records are ``multiplied`` already. ``chained``: whether it is
    chained behind another operator.
    """
    among = [
        (kind.name, kind.drawn)
        for kind in drawn_at(place)
        if kind.drawn is not None and not (multiplied and kind.drawn.multiplies)
    ]
    kind, drawn = among[between(0, len(among) - 1)]
    parameters = drawn.chained if chained and drawn.chained is not None else drawn.parameters
    return OperatorPlan(name, kind, dict(parameters(between))), drawn.multiplies


def _chain(drawing: _Drawing, name: str, by_key: bool) -> tuple[OperatorPlan, ...]:
    """Return operators to chain behind a vertex's first: stateless ones, or one that keeps state by the same key."""
    if not drawing.chance(3):
        return ()
    place = Place.BY_KEY if by_key and drawing.chance(2) else Place.ONE_INPUT
    return (_drawn(drawing, f"{name}.then", place, chained=True),)


def _spread(drawing: _Drawing) -> Spread:
    if not drawing.multiplied and drawing.chance(6):
        drawing.multiplied = True
        return Spread.BROADCAST
    return Spread.HASH if drawing.chance(3) else Spread.REBALANCE


def _add_sinks(drawing: _Drawing) -> None:
    """Add one or two sinks. Two share the vertices that no other vertex reads; the second may read a vertex more."""
    read = {edge.source for edge in drawing.edges}
    names = [vertex.name for vertex in drawing.vertices]
    unread = [name for name in names if name not in read]
    readers = [unread]
    if drawing.chance(2):
        readers = [unread[::2], unread[1::2] or [drawing.pick(names)]]
        if drawing.chance(2):
            readers[1] = list(dict.fromkeys([*readers[1], drawing.pick(names)]))
    for number, senders in enumerate(readers):
        name = f"out{number}"
        drawing.vertices.append(VertexPlan(name, SINK, drawing.width()))
        drawing.edges += [EdgePlan(sender, name, Spread.REBALANCE) for sender in senders]
