"""Identifiers of the runtime: one type per integer, so that a mix-up is a type error.

A *subtask* is one parallel instance of a vertex (a chain of operators). A *channel* connects two subtasks.
A *checkpoint* is global and has an id; an *attempt* is one deployment of the whole dataflow (REC-1, REC-2).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NewType

import msgspec

CheckpointId = NewType("CheckpointId", int)
"""Identifies one global checkpoint. Starts at 1 and grows strictly, across coordinator restarts too (COO-4)."""

AttemptNumber = NewType("AttemptNumber", int)
"""Counts deployments of the dataflow, from 1. Everything a subtask sends or writes carries it (REC-2)."""

KeyGroup = NewType("KeyGroup", int)
"""One of a fixed number of partitions of the key space; the unit of rescaling (RSC-1)."""


class SubtaskId(msgspec.Struct, frozen=True, order=True):
    """One parallel instance of a vertex: ``count[1]`` is the second instance of the vertex ``count``."""

    vertex: str
    index: int

    def __post_init__(self) -> None:
        if not self.vertex or self.index < 0:
            raise ValueError(f"a subtask needs a vertex name and an index of 0 or more, not {self!r}")

    def __str__(self) -> str:
        """Return the form used in traces, metadata and reports: ``vertex[index]``."""
        return f"{self.vertex}[{self.index}]"

    @classmethod
    def parse(cls, text: str) -> SubtaskId:
        """Read ``vertex[index]``; raises ValueError on any other form."""
        vertex, bracket, rest = text.rpartition("[")
        if not bracket or not rest.endswith("]") or not rest[:-1].isdigit():
            raise ValueError(f"{text!r} is not of the form vertex[index], for instance count[0]")
        return cls(vertex, int(rest[:-1]))


class ChannelId(msgspec.Struct, frozen=True, order=True):
    """A FIFO connection from one subtask to another (BAR-2)."""

    sender: SubtaskId
    receiver: SubtaskId
    edge: int = 0
    """Which of the edges between the two vertices it belongs to, in the order of the job graph; usually the only
    one.
    """

    def __str__(self) -> str:
        """Return ``sender->receiver``, followed by ``#edge`` if it belongs to a second or later edge."""
        return f"{self.sender}->{self.receiver}" + (f"#{self.edge}" if self.edge else "")


class KeyGroupRange(msgspec.Struct, frozen=True, order=True):
    """A half-open, contiguous range of key groups: ``start`` belongs to it, ``end`` does not."""

    start: int
    end: int

    def __post_init__(self) -> None:
        """Refuse negative and inverted ranges; an empty range (start == end) is legal."""
        if not 0 <= self.start <= self.end:
            raise ValueError(f"a key group range needs 0 <= start <= end, not [{self.start}, {self.end})")

    def __len__(self) -> int:
        return self.end - self.start

    def __contains__(self, group: object) -> bool:
        return isinstance(group, int) and self.start <= group < self.end

    def __iter__(self) -> Iterator[KeyGroup]:
        return (KeyGroup(group) for group in range(self.start, self.end))

    def intersection(self, other: KeyGroupRange) -> KeyGroupRange:
        """Return the common part, an empty range at the later start if there is none."""
        start = max(self.start, other.start)
        return KeyGroupRange(start, max(start, min(self.end, other.end)))
