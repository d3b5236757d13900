"""``expiring``: a function with state of the runtime that has a time to live."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import msgspec

from barrier_tck.harness.plan.job_graph import OperatorPlan
from barrier_tck.harness.reference.operator_kind import KeptState, ReferenceKind, Site
from barrier_tck.harness.workloads.kinds.expiring import COUNTED, divides
from barrier_tck.reference_impl.operators.event_time_process import EventTimeProcess, EventTimers
from barrier_tck.reference_impl.operators.functions import Row
from barrier_tck.reference_impl.operators.graph import OperatorSpec
from barrier_tck.reference_impl.operators.timed_process import KeyedTimers
from barrier_tck.reference_impl.state.keyed import KeyedStates
from barrier_tck.reference_impl.state.time_to_live import RefreshedBy, TimeToLive

_USED = struct.Struct(">xq")


class CountUntilUnused:
    """An ``EventTimeFunction``: it says of each record how many of its key came since the state was new."""

    def __init__(self, operator: OperatorPlan) -> None:
        wanted = operator.parameters
        self._name, self._form = operator.name, wanted.get("form", "value")
        self._ttl = TimeToLive(wanted["ttl_ms"], RefreshedBy(wanted.get("refreshed_by", "writing")))
        self._clear_every, self._look_every = wanted.get("clear_every"), wanted.get("look_every")

    def open(self, states: KeyedStates, timers: KeyedTimers, event_timers: EventTimers) -> None:
        self._timers = timers
        self._counted: Any
        if self._form == "value":
            self._counted = states.value(COUNTED, tuple[int, int], self._ttl)
        elif self._form == "list":
            self._counted = states.list(COUNTED, int, self._ttl)
        else:
            self._counted = states.map(COUNTED, int, int, self._ttl)

    def process(self, group: int, key: bytes, row: Row, number: int) -> Iterable[Row]:
        # So what time it is now is recorded with every record, whatever the state asks for.
        _ = self._timers.now_ms
        cell, identifier = self._counted.of(group, key), row["id"]
        held = cell.items() if self._form == "map" else cell.get()
        count, first = self._seen(held)
        if divides(self._clear_every, identifier):
            cell.clear()
        elif not divides(self._look_every, identifier):
            if self._form == "value":
                cell.set((count + 1, first if count else identifier))
            elif self._form == "list":
                cell.add(identifier)
            else:
                cell.put(identifier, held.get(identifier, 0) + 1)
        return [{**row, "how": f"{self._name}:{count} since {first if count else '-'}"}]

    def _seen(self, held: Any) -> tuple[int, int]:
        """Return how many records a cell holds, and the id of the first one."""
        if not held:
            return 0, 0
        if self._form == "value":
            count, first = held
            return count, first
        return sum(held.values()) if self._form == "map" else len(held), next(iter(held))

    def on_timer(self, group: int, key: bytes, at_ms: int) -> Iterable[Row]:
        return ()

    def on_event_timer(self, group: int, key: bytes, at_ms: int) -> Iterable[Row]:
        return ()


@dataclass(frozen=True, slots=True)
class _Count:
    operator: OperatorPlan

    def __call__(self) -> CountUntilUnused:
        return CountUntilUnused(self.operator)


def _make(site: Site) -> OperatorSpec:
    return EventTimeProcess(site.operator.name, (site.key,), _Count(site.operator))


def _read(entry: bytes) -> list[Any]:
    """Read when an entry was used last, and what it holds; a map as pairs, in the order of its keys."""
    held = msgspec.msgpack.decode(entry[_USED.size :])
    shown = [list(pair) for pair in sorted(held.items())] if isinstance(held, dict) else held
    return [_USED.unpack_from(entry)[0], shown]


KIND = ReferenceKind(_make, (KeptState(COUNTED, _read),))
