"""Loops of a job graph: vertices that reach each other, which only feedback edges make possible."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from barrier_tck.reference_impl.ids import SubtaskId


class Arrow(Protocol):
    """What a loop needs to know of an edge."""

    @property
    def source(self) -> str:
        """Return the vertex that sends."""

    @property
    def target(self) -> str:
        """Return the vertex that receives."""


@dataclass(frozen=True)
class Loop:
    """Vertices that reach each other."""

    name: str
    """The name of its first vertex."""
    vertices: tuple[str, ...]
    """In the order of the graph."""
    members: tuple[SubtaskId, ...]
    """Every subtask of the vertices."""
    fed: tuple[SubtaskId, ...]
    """The members that something outside the loop feeds: their own source, or a channel from outside."""


def leads_to(edges: Sequence[Arrow], start: str, end: str) -> bool:
    """Return whether edges lead from one vertex to another; a vertex leads to itself only round a loop."""
    reached = [start]
    for name in reached:  # grows while it is walked
        targets = [edge.target for edge in edges if edge.source == name]
        if end in targets:
            return True
        reached.extend(target for target in dict.fromkeys(targets) if target not in reached)
    return False


def looped(names: Sequence[str], edges: Sequence[Arrow]) -> tuple[tuple[str, ...], ...]:
    """Return the vertices of each loop, in the order of ``names``."""
    found: list[tuple[str, ...]] = []
    for name in names:
        if not any(name in loop for loop in found) and leads_to(edges, name, name):
            found.append(
                tuple(
                    other for other in names if leads_to(edges, name, other) and leads_to(edges, other, name)
                )
            )
    return tuple(found)
