"""``event_deduplicate``: passes on the first record of its key, and drops others within ``horizon_ms`` of it (EVT-2).

What was first is forgotten once no record on time can repeat it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from barrier_tck.harness.plan.job_graph import OperatorPlan
from barrier_tck.harness.record.history import Row
from barrier_tck.harness.workloads.joined_records import unknown_problem, whole_number_problem
from barrier_tck.harness.workloads.kinds.event_window import LATE
from barrier_tck.harness.workloads.operator_kind import EVENT_TIMERS, Keeps, OperatorKind
from barrier_tck.harness.workloads.replayed import Emitted, KeyState

FIRST = "first"
"""The name of the state with the event times of first records (ms), in the order in which they came."""


class ReplayedDeduplicate:
    """The times of first records that a record on time may repeat."""

    def __init__(self, operator: OperatorPlan) -> None:
        self.name = operator.name
        self.horizon: int = operator.parameters["horizon_ms"]

    def take(self, kept: KeyState, number: int, row: Row, watermark: int) -> Iterable[Emitted]:
        time = row["ts"]
        if time <= watermark:
            return [(LATE, row)]
        first: list[int] = kept.setdefault("first", [])
        if any(one - self.horizon <= time <= one + self.horizon for one in first):
            return ()
        first.append(time)
        return [("", {**row, "how": f"{self.name}:{row['id']}"})]

    def due(self, kept: KeyState, key: str, watermark: int) -> Iterable[Emitted]:
        kept["first"] = [one for one in kept.get("first", []) if one + self.horizon > watermark]
        return ()

    def entries(self, kept: KeyState) -> Mapping[str, Any]:
        first = kept.get("first", [])
        times = sorted(one + self.horizon for one in first)
        return {FIRST: list(first), EVENT_TIMERS: times} if first else {}


def _problem(operator: OperatorPlan) -> str | None:
    return unknown_problem(operator, "horizon_ms") or whole_number_problem(operator, "horizon_ms", 0)


KIND = OperatorKind(
    name="event_deduplicate",
    keeps=Keeps.BY_KEY,
    problem=_problem,
    replayed=ReplayedDeduplicate,
    side_outputs=(LATE,),
)
