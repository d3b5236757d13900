"""``event_timer``: a function that holds records until a time in event time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from barrier_tck.harness.plan.job_graph import OperatorPlan
from barrier_tck.harness.reference.kinds.event_window import read_map
from barrier_tck.harness.reference.operator_kind import KeptState, ReferenceKind, Site
from barrier_tck.harness.workloads.kinds.event_timer import HELD
from barrier_tck.harness.workloads.operator_kind import EVENT_TIMERS
from barrier_tck.reference_impl.operators.encoding import decode_key
from barrier_tck.reference_impl.operators.event_time_process import EventTimeProcess, EventTimers
from barrier_tck.reference_impl.operators.functions import Row
from barrier_tck.reference_impl.operators.graph import OperatorSpec
from barrier_tck.reference_impl.operators.timed_process import KeyedTimers
from barrier_tck.reference_impl.state.keyed import KeyedStates

_COLUMNS = ("id", "mark", "n")


class HoldUntil:
    """An ``EventTimeFunction``: records wait together for the step of time to which they belong."""

    def __init__(self, operator: OperatorPlan) -> None:
        self._name = operator.name
        self._step_ms = operator.parameters["step_ms"]
        self._delay_ms = operator.parameters["delay_ms"]

    def open(self, states: KeyedStates, timers: KeyedTimers, event_timers: EventTimers) -> None:
        self._held = states.map(HELD, int, list[int])
        self._timers = event_timers

    def process(self, group: int, key: bytes, row: Row, number: int) -> Iterable[Row]:
        at_ms = (row["ts"] + self._delay_ms) // self._step_ms * self._step_ms
        cell = self._held.of(group, key)
        before = cell.get(at_ms) or [0, 0, 0]
        cell.put(at_ms, [held + row[column] for held, column in zip(before, _COLUMNS, strict=True)])
        self._timers.set(group, key, at_ms)
        return ()

    def on_timer(self, group: int, key: bytes, at_ms: int) -> Iterable[Row]:
        return ()

    def on_event_timer(self, group: int, key: bytes, at_ms: int) -> Iterable[Row]:
        cell = self._held.of(group, key)
        sums = cell.get(at_ms)
        if sums is None:
            return ()
        cell.remove(at_ms)
        held = dict(zip(_COLUMNS, sums, strict=True))
        return [{"key": decode_key(key)[0], "ts": at_ms, **held, "how": f"{self._name}@{at_ms}"}]


@dataclass(frozen=True, slots=True)
class _Hold:
    operator: OperatorPlan

    def __call__(self) -> HoldUntil:
        return HoldUntil(self.operator)


def _make(site: Site) -> OperatorSpec:
    return EventTimeProcess(site.operator.name, (site.key,), _Hold(site.operator))


KIND = ReferenceKind(_make, (KeptState(HELD, read_map), KeptState(EVENT_TIMERS)))
