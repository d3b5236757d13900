"""``shift``: keeps nothing, and gives each record a later event time, or an earlier one, for which it may be late."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from barrier_tck.harness.plan.job_graph import OperatorPlan
from barrier_tck.harness.record.history import Row
from barrier_tck.harness.workloads.joined_records import TIME_MAX_MS
from barrier_tck.harness.workloads.operator_kind import OperatorKind
from barrier_tck.harness.workloads.replayed import Emitted, KeyState


class ReplayedShift:
    """Another event time."""

    def __init__(self, operator: OperatorPlan) -> None:
        self.by_ms = operator.parameters["by_ms"]

    def take(self, kept: KeyState, number: int, row: Row, watermark: int) -> Iterable[Emitted]:
        return [("", {**row, "ts": row["ts"] + self.by_ms})]

    def due(self, kept: KeyState, key: str, watermark: int) -> Iterable[Emitted]:
        return ()

    def entries(self, kept: KeyState) -> Mapping[str, Any]:
        return {}


def _problem(operator: OperatorPlan) -> str | None:
    by_ms = operator.parameters.get("by_ms")
    if isinstance(by_ms, int) and -TIME_MAX_MS <= by_ms <= TIME_MAX_MS:
        return None
    return (
        f"{operator.name!r} needs by_ms, a whole number of milliseconds from -{TIME_MAX_MS} to {TIME_MAX_MS}"
    )


KIND = OperatorKind(name="shift", problem=_problem, replayed=ReplayedShift)
