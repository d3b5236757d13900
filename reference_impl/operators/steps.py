"""The steps that a user wrote, and how they become a job graph: which of them share a vertex, and what it is called.

A step refers to the steps that feed it and is distinguished from others by identity, so a stream may go on in two
ways and come together again. Steps are chained into one vertex as long as nothing comes in between: a key, a
partitioning, a union, another width, a name, or a second way on.

What comes back round a loop has a step of its own, which becomes no vertex: until the loop is closed, it is not known
which steps lead back to it. Then every edge from such a step is a feedback edge from those.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from barrier_tck.reference_impl.operators.api import Source
from barrier_tck.reference_impl.operators.graph import Edge, JobGraph, OperatorSpec, Partitioning, Vertex
from barrier_tck.reference_impl.operators.watermark_strategies import WatermarkAlignment, WatermarkStrategy
from barrier_tck.reference_impl.runtime_errors import JobUsageError


class Chaining(Enum):
    """Whether a step joins the vertex of the step before it."""

    IF_POSSIBLE = "if possible"
    NEVER = "never"
    ALWAYS = "always"
    """A job in which that is not possible is refused."""


@dataclass(frozen=True, slots=True)
class Feed:
    """What goes from one step into another."""

    step: Step
    partitioning: Partitioning | None = None
    """None: the user did not choose; records stay in the same vertex if that is possible."""
    key: tuple[str, ...] = ()
    input: int = 0
    output: str = ""
    """Which side output of the step it is; empty: the main one."""


@dataclass(eq=False, slots=True)
class Back:
    """What leads back to the beginning of a loop, once the loop is closed."""

    feeds: tuple[Feed, ...] = ()


@dataclass(frozen=True, eq=False, slots=True)
class Step:
    """A source, an operator and what feeds it, or what comes back round a loop."""

    parallelism: int
    feeds: tuple[Feed, ...] = ()
    source: Source | None = None
    watermarks: WatermarkStrategy | None = None
    alignment: WatermarkAlignment | None = None
    make: Callable[[str], OperatorSpec] | None = None
    """Makes the operator of its uid; None for a source."""
    uid: str | None = None
    """None: ``kind-n``, counted when the job is built."""
    kind: str = ""
    name: str | None = None
    """Of the vertex that the step begins, if it begins one; None: its uid."""
    chaining: Chaining = Chaining.NEVER
    back: Back | None = None
    """Of what comes back round a loop only."""

    @property
    def label(self) -> str:
        """Return what the step is called in messages before the job is built."""
        return self.name or self.uid or self.kind

    def is_partitioned_by(self, key: tuple[str, ...], width: int) -> bool:
        """Return whether each record is already at the subtask, out of ``width``, that owns its key.

        Operators since the last shuffle must have left the key's columns as they were.
        """
        if self.parallelism != width or not self.feeds:
            return False
        if all(feed.partitioning is Partitioning.HASH for feed in self.feeds):
            return all(feed.key == key for feed in self.feeds)
        return all(
            feed.partitioning in (None, Partitioning.FORWARD) and feed.step.is_partitioned_by(key, width)
            for feed in self.feeds
        )


def graph_of(name: str, max_parallelism: int, ends: Sequence[Step]) -> JobGraph:
    """Return the graph of all that leads to the last steps of a job; raises JobUsageError as ``JobGraph`` does."""
    found = _with_loops(ends)
    ways_on = dict.fromkeys(found, 0)
    for step in found:
        for feed in (*step.feeds, *(step.back.feeds if step.back is not None else ())):
            ways_on[feed.step] += not feed.output
    steps = [step for step in found if step.back is None]
    uids = _uids(steps)
    parts: dict[Step, _VertexParts] = {}
    edges: list[Edge] = []
    closed: list[tuple[_VertexParts, Feed]] = []
    """The beginnings of loops; where they lead back from is known when every step has its vertex."""
    for step in steps:
        before = _joins(step, ways_on)
        if before is not None:
            part = parts[step] = parts[before]
        else:
            part = parts[step] = _VertexParts(
                step.name or uids[step], step.parallelism, step.source, step.watermarks, step.alignment
            )
            edges.extend(_edge(parts[feed.step], part, feed) for feed in step.feeds if feed.step.back is None)
            closed.extend((part, feed) for feed in step.feeds if feed.step.back is not None)
        if step.make is not None:
            part.operators.append(step.make(uids[step]))
    for part, feed in closed:
        edges.extend(_feedback_edges(parts, part, feed))
    vertices = tuple(part.vertex() for part in dict.fromkeys(parts.values()))
    return JobGraph(name, vertices, tuple(edges), max_parallelism)


@dataclass(eq=False, slots=True)
class _VertexParts:
    """A vertex that steps are still added to."""

    name: str
    parallelism: int
    source: Source | None
    watermarks: WatermarkStrategy | None = None
    alignment: WatermarkAlignment | None = None
    operators: list[OperatorSpec] = field(default_factory=list)

    def vertex(self) -> Vertex:
        operators = tuple(self.operators)
        return Vertex(self.name, self.parallelism, self.source, operators, self.watermarks, self.alignment)


def _edge(source: _VertexParts, target: _VertexParts, feed: Feed, feedback: bool = False) -> Edge:
    equal = source.parallelism == target.parallelism
    straight = Partitioning.FORWARD if equal else Partitioning.REBALANCE
    partitioning = feed.partitioning or straight
    return Edge(source.name, target.name, partitioning, feed.key, feed.input, feedback, feed.output)


def _feedback_edges(parts: dict[Step, _VertexParts], target: _VertexParts, feed: Feed) -> list[Edge]:
    """Return the edges that lead back to the beginning of a loop."""
    assert feed.step.back is not None, "only what comes back has such edges"
    return [
        _edge(
            parts[back.step], target, replace(feed, partitioning=feed.partitioning or back.partitioning), True
        )
        for back in feed.step.back.feeds
    ]


def _with_loops(ends: Sequence[Step]) -> list[Step]:
    """List every step as ``_upstream_first`` does; steps that lead back only are among them."""
    known: list[Step] = []
    found = _upstream_first(ends)
    while len(found) > len(known):
        known = found
        backs = [feed.step for step in known if step.back is not None for feed in step.back.feeds]
        found = _upstream_first([*ends, *backs])
    return known


def _upstream_first(ends: Sequence[Step]) -> list[Step]:
    """List every step once, after the steps that feed it, in an order that follows from how the job was written."""
    found: dict[Step, None] = {}
    # Without recursion: a generated job may be longer than Python's stack.
    waiting: list[tuple[Step, bool]] = [(end, False) for end in reversed(ends)]
    while waiting:
        step, fed = waiting.pop()
        if step in found:
            continue
        if fed or not step.feeds:
            found[step] = None
        else:
            waiting.append((step, True))
            waiting.extend((feed.step, False) for feed in reversed(step.feeds))
    return list(found)


def _uids(steps: Sequence[Step]) -> dict[Step, str]:
    """Give each step without a uid ``kind-n``, counting the steps of that kind: stable as long as the job does not
    change.
    """
    taken = [step.uid for step in steps if step.uid is not None]
    counts: dict[str, int] = {}
    found: dict[Step, str] = {}
    for step in steps:
        uid = step.uid
        while uid is None:
            counts[step.kind] = counts.get(step.kind, 0) + 1
            candidate = f"{step.kind}-{counts[step.kind]}"
            uid = candidate if candidate not in taken else None
        found[step] = uid
    return found


def _joins(step: Step, ways_on: dict[Step, int]) -> Step | None:
    """Return the step whose vertex this one joins, or None if it begins one; raises JobUsageError if it cannot join."""
    if step.chaining is Chaining.NEVER:
        return None
    (feed, *more) = step.feeds
    before = feed.step
    straight = not more and feed.partitioning is None and before.back is None and not feed.output
    if straight and before.parallelism == step.parallelism:
        if ways_on[before] == 1:
            return before
        why = f"which goes on in {ways_on[before]} ways"
    else:
        why = "for a shuffle, a union, a side output or another parallelism lies in between"
    if step.chaining is Chaining.ALWAYS:
        raise JobUsageError(f"{step.label!r} cannot be chained to {before.label!r}, {why}")
    return None
