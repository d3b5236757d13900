"""``forms``: remembers every row in a map of its key, and counts them in two more states, which must agree."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from operator import add
from typing import Any

import msgspec

from barrier_tck.harness.plan.job_graph import OperatorPlan
from barrier_tck.harness.reference.lineage import SEEN, longer
from barrier_tck.harness.reference.operator_kind import KeptState, ReferenceKind, Site
from barrier_tck.reference_impl.operators.functions import PerSubtask, Place, Row
from barrier_tck.reference_impl.operators.graph import OperatorSpec
from barrier_tck.reference_impl.operators.keyed_process import KeyedCoProcess, KeyedProcess
from barrier_tck.reference_impl.state.keyed import (
    AggregatingCell,
    KeyedStates,
    MapCell,
    NamedState,
    ReducingCell,
)

NUMBER, HALVES = "number", "halves"
"""The names of the states that count the records of a key: as a sum, and in an accumulator of halves."""


def _created() -> tuple[int, int]:
    return (0, 0)


def _added(halves: tuple[int, int], more: int) -> tuple[int, int]:
    even, odd = halves
    return (odd, even + more)


class Forms:
    """It remembers every record that reached it, and passes on those whose ids ``every`` divides."""

    def __init__(self, name: str, every: int, index: int) -> None:
        self._step, self._every = f"{name}[{index}]", every
        self._seen: NamedState[MapCell[int, tuple[int, int, str]]] | None = None
        self._number: NamedState[ReducingCell[int]] | None = None
        self._halves: NamedState[AggregatingCell[int, tuple[int, int], int]] | None = None

    def open(self, states: KeyedStates) -> None:
        self._seen = states.map(SEEN, int, tuple[int, int, str])
        self._number = states.reducing(NUMBER, int, add)
        self._halves = states.aggregating(HALVES, tuple[int, int], _created, _added, sum)

    def process(self, group: int, key: bytes, row: Row, number: int = 0) -> Iterable[Row]:
        """Remember a record that came from an input; raises ValueError if the states do not agree."""
        assert self._seen is not None and self._number is not None and self._halves is not None, (
            "open comes first"
        )
        seen, counted = self._seen.of(group, key), self._number.of(group, key)
        halves = self._halves.of(group, key)
        known = len(seen.items())
        if not known == (counted.get() or 0) == (halves.get() or 0):
            raise ValueError(
                f"of a key {known} records are kept, {counted.get()} counted, and {halves.get()} in halves"
            )
        seen.put(known, (number, row["id"], row["path"]))
        counted.add(1)
        halves.add(1)
        return ({**row, "path": longer(row["path"], self._step)},) if row["id"] % self._every == 0 else ()


@dataclass(frozen=True, slots=True)
class _FormsAt:
    """Makes the function of one subtask."""

    operator: OperatorPlan

    def __call__(self, place: Place) -> Forms:
        return Forms(self.operator.name, self.operator.parameters.get("every", 1), place.subtask.index)


def _make(site: Site) -> OperatorSpec:
    make = PerSubtask(_FormsAt(site.operator))
    if len(site.keys) == 1:
        return KeyedProcess(site.operator.name, site.key, make)
    return KeyedCoProcess(site.operator.name, site.keys, make)


def _records_in(entry: bytes) -> list[Any]:
    return list(msgspec.msgpack.decode(entry, type=dict[int, list[Any]]).values())


KIND = ReferenceKind(_make, (KeptState(SEEN, _records_in),))
