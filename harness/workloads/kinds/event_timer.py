"""``event_timer``: holds each record until a time that it names, and passes on together what one time holds (EVT-5).

That time may have passed already when the record comes: then it is passed on behind the batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from barrier_tck.harness.plan.job_graph import OperatorPlan
from barrier_tck.harness.record.history import Row
from barrier_tck.harness.workloads.joined_records import TIME_MAX_MS
from barrier_tck.harness.workloads.operator_kind import EVENT_TIMERS, Keeps, OperatorKind
from barrier_tck.harness.workloads.replayed import Emitted, KeyState

HELD = "held"
"""The name of the state: time to what waits for it."""


class ReplayedTimers:
    """Records by the time for which they wait."""

    def __init__(self, operator: OperatorPlan) -> None:
        self.name = operator.name
        self.step, self.delay = operator.parameters["step_ms"], operator.parameters["delay_ms"]

    def take(self, kept: KeyState, number: int, row: Row, watermark: int) -> Iterable[Emitted]:
        at = (row["ts"] + self.delay) // self.step * self.step
        kept.setdefault("held", {}).setdefault(at, []).append((row["id"], row["mark"], row["n"]))
        return ()

    def due(self, kept: KeyState, key: str, watermark: int) -> Iterable[Emitted]:
        held: dict[int, list[Any]] = kept.get("held", {})
        emitted: list[Emitted] = []
        for at in sorted(time for time in held if time <= watermark):
            sums = [sum(column) for column in zip(*held.pop(at), strict=True)]
            row = dict(zip(("id", "mark", "n"), sums, strict=True))
            emitted.append(("", {"key": key, "ts": at, **row, "how": f"{self.name}@{at}"}))
        return emitted

    def entries(self, kept: KeyState) -> Mapping[str, Any]:
        held = kept.get("held", {})
        shown = {at: [sum(column) for column in zip(*rows, strict=True)] for at, rows in held.items()}
        return {HELD: shown, EVENT_TIMERS: sorted(held)} if held else {}


def _problem(operator: OperatorPlan) -> str | None:
    step, delay = operator.parameters.get("step_ms"), operator.parameters.get("delay_ms")
    if not isinstance(step, int) or not 1 <= step <= TIME_MAX_MS:
        return f"the timers {operator.name!r} need step_ms, a whole number from 1 to {TIME_MAX_MS}"
    if not isinstance(delay, int) or not -TIME_MAX_MS <= delay <= TIME_MAX_MS:
        return (
            f"the timers {operator.name!r} need delay_ms, a whole number from -{TIME_MAX_MS} to {TIME_MAX_MS}"
        )
    return None


KIND = OperatorKind(name="event_timer", keeps=Keeps.BY_KEY, problem=_problem, replayed=ReplayedTimers)
