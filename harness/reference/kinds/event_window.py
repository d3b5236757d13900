"""``event_window``: the windows of the runtime, whose rows become records of the workload again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from barrier_tck.harness.plan.job_graph import OperatorPlan
from barrier_tck.harness.reference.operator_kind import KeptState, ReferenceKind, Site
from barrier_tck.harness.workloads.kinds.event_window import LATE, WINDOWS
from barrier_tck.harness.workloads.operator_kind import EVENT_TIMERS
from barrier_tck.reference_impl.operators.event_time_process import EventTimeProcess, EventTimers
from barrier_tck.reference_impl.operators.functions import Row, Sum
from barrier_tck.reference_impl.operators.graph import OperatorSpec
from barrier_tck.reference_impl.operators.timed_process import KeyedTimers
from barrier_tck.reference_impl.operators.windows import (
    EveryRecords,
    Session,
    Sliding,
    Tumbling,
    WindowAssigner,
    window_aggregate,
)
from barrier_tck.reference_impl.state.keyed import KeyedStates

_AGGREGATES = {"id": Sum("id"), "mark": Sum("mark"), "n": Sum("n")}


@dataclass(frozen=True, slots=True)
class _Records:
    """Makes the function of one subtask."""

    name: str
    make: Any
    """Makes the function of the runtime."""

    def __call__(self) -> _WindowRecords:
        return _WindowRecords(self.name, self.make())


class _WindowRecords:
    """An ``EventTimeFunction`` around the runtime's windows."""

    def __init__(self, name: str, inner: Any) -> None:
        self._name = name
        self._inner = inner

    def open_aside(self, emit: Callable[[str, Row], None]) -> None:
        self._inner.open_aside(emit)

    def open(self, states: KeyedStates, timers: KeyedTimers, event_timers: EventTimers) -> None:
        self._inner.open(states, timers, event_timers)

    def process(self, group: int, key: bytes, row: Row, number: int) -> Iterable[Row]:
        return map(self._record, self._inner.process(group, key, row, number))

    def on_timer(self, group: int, key: bytes, at_ms: int) -> Iterable[Row]:
        return map(self._record, self._inner.on_timer(group, key, at_ms))

    def on_event_timer(self, group: int, key: bytes, at_ms: int) -> Iterator[Row]:
        return map(self._record, self._inner.on_event_timer(group, key, at_ms))

    def _record(self, row: Row) -> Row:
        how = f"{self._name}[{row['window_start']},{row['window_end']})#{row['firing']}"
        sums = {column: row[column] for column in _AGGREGATES}
        return {"key": row["key"], "ts": row["window_time"], **sums, "how": how}


def _assigner(operator: OperatorPlan) -> WindowAssigner:
    wanted = operator.parameters
    if "gap_ms" in wanted:
        return Session(wanted["gap_ms"])
    offset_ms = wanted.get("offset_ms", 0)
    if "slide_ms" in wanted:
        return Sliding(wanted["size_ms"], wanted["slide_ms"], offset_ms)
    return Tumbling(wanted["size_ms"], offset_ms)


def _make(site: Site) -> OperatorSpec:
    name, wanted = site.operator.name, site.operator.parameters
    trigger = EveryRecords(wanted["every"]) if "every" in wanted else None
    lateness_ms = wanted.get("lateness_ms", 0)
    spec = window_aggregate(name, site.key, _assigner(site.operator), "ts", _AGGREGATES, lateness_ms, trigger)
    return EventTimeProcess(name, spec.keys, _Records(name, spec.function), (LATE,))


def read_map(entry: bytes) -> list[Any]:
    """Read a map with whole numbers as keys as a list of pairs, in the order of the keys."""
    return [list(pair) for pair in sorted(msgspec.msgpack.decode(entry, type=dict[int, Any]).items())]


KIND = ReferenceKind(_make, (KeptState(WINDOWS, read_map), KeptState(EVENT_TIMERS)))
