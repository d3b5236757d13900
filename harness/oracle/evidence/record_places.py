"""What was seen in checkpoints of a dataflow, the places in which records are looked for, and words for a surplus."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from barrier_tck.harness.workloads.records import Bag, Record

Positions = Mapping[str, int]
"""Split -> number of its records before the barrier."""
Ways = Mapping[Record, Sequence[str]]
"""Record -> the full path of each of its copies, if the copies show one."""


@dataclass(frozen=True, slots=True)
class SeenCut:
    """What was seen in one checkpoint, or what holds at the beginning of the input."""

    positions: Positions
    held: Mapping[str, Ways]
    """Stateful operator -> what it holds."""
    at_sinks: Mapping[str, Ways] | None
    """Sink -> what it committed or prepared; None if this was not read."""
    in_flight: Mapping[tuple[str, str, int], Bag] = field(default_factory=dict)
    """Edge -> the records on its channels."""
    waiting: Mapping[str, Bag] = field(default_factory=dict)
    """Operator -> which of the records that it holds wait for a timer, and were not passed on."""

    def holds(self, operator: str) -> Bag:
        return _bag(self.held.get(operator, {}))

    def passed_on(self, operator: str) -> Bag:
        """Return what of it does not wait for a timer."""
        return self.holds(operator) - self.waiting.get(operator, Counter())

    def reached(self, sink: str) -> Bag:
        """Return what a sink committed or prepared."""
        return _bag((self.at_sinks or {}).get(sink, {}))


def _bag(ways: Ways) -> Bag:
    return Counter({record: len(paths) for record, paths in ways.items()})


@dataclass(frozen=True, slots=True)
class RecordPlace:
    """A place in which records are looked for, and how many copies of each record must and may be there."""

    name: str
    least: Bag
    most: Bag | None
    """None if it is not known."""

    @classmethod
    def of(cls, name: str, exactly: Bag) -> RecordPlace:
        """Return a place whose exact content is known."""
        return cls(name, exactly, exactly)


def surplus(found: int, most: int, place: str, exactly: bool) -> str:
    """Return a phrase that says that a record is somewhere too often."""
    if most:
        bound = how_often(most) if exactly else f"{how_often(most)} at most"
        return f"is in {place} {how_often(found)} instead of {bound}"
    often = "" if found == 1 else f" {how_often(found)}"
    return f"is in {place}{often}, where it does not belong"


def how_often(count: int) -> str:
    """Return how often something is, in words."""
    return {1: "once", 2: "twice"}.get(count, f"{count} times")
