"""``event_interval_join``: pairs of records of two inputs whose event times are near each other (EVT-4).

A right record is a partner of a left one if it is at least ``lower_ms`` and at most ``upper_ms`` later. A record waits
as long as one that is on time may be its partner. Then an outer join (``form``) emits it alone, if it has had none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from barrier_tck.harness.plan.job_graph import OperatorPlan
from barrier_tck.harness.record.history import Row
from barrier_tck.harness.workloads.joined_records import (
    FORMS,
    SIDES,
    TIME_MAX_MS,
    form_problem,
    together,
    unknown_problem,
    waiting,
    whole_number_problem,
)
from barrier_tck.harness.workloads.kinds.event_window import LATE
from barrier_tck.harness.workloads.operator_kind import EVENT_TIMERS, Keeps, OperatorKind
from barrier_tck.harness.workloads.replayed import Emitted, KeyState

_PARTNERS = 4
"""Where a waiting record has the number of its partners so far, behind what it is."""


class ReplayedIntervalJoin:
    """The records of both sides that may still find partners."""

    def __init__(self, operator: OperatorPlan) -> None:
        wanted = operator.parameters
        self.name = operator.name
        self.lower, self.upper = wanted["lower_ms"], wanted["upper_ms"]
        self.alone = FORMS[wanted.get("form", "inner")]

    def take(self, kept: KeyState, number: int, row: Row, watermark: int) -> Iterable[Emitted]:
        if row["ts"] <= watermark:
            return [(LATE, row)]
        mine = [*waiting(row), 0]
        emitted: list[Emitted] = []
        for other in kept.setdefault(SIDES[1 - number], []):
            left, right = (mine, other) if number == 0 else (other, mine)
            if left[0] + self.lower <= right[0] <= left[0] + self.upper:
                left[_PARTNERS] += 1
                right[_PARTNERS] += 1
                later = max(left[0], right[0])
                emitted.append(("", together(self.name, row["key"], later, left, right)))
        if self._until(mine, number) > watermark:
            kept.setdefault(SIDES[number], []).append(mine)
        elif self.alone[number] and not mine[_PARTNERS]:
            emitted.append(("", self._alone(mine, number, row["key"])))
        return emitted

    def due(self, kept: KeyState, key: str, watermark: int) -> Iterable[Emitted]:
        gone: list[tuple[int, int, list[Any]]] = []
        for number, side in enumerate(SIDES):
            records = kept.get(side, [])
            gone += [
                (self._until(one, number), number, one)
                for one in records
                if self._until(one, number) <= watermark
            ]
            kept[side] = [one for one in records if self._until(one, number) > watermark]
        gone.sort(key=lambda entry: entry[:2])
        return [
            ("", self._alone(one, number, key))
            for _, number, one in gone
            if self.alone[number] and not one[_PARTNERS]
        ]

    def entries(self, kept: KeyState) -> Mapping[str, Any]:
        shown: dict[str, Any] = {}
        times = set()
        for number, side in enumerate(SIDES):
            records = kept.get(side, [])
            times |= {self._until(one, number) for one in records}
            if records:
                # Only of a record that may be emitted alone it is kept whether it has had a partner.
                shown[side] = [
                    [*one[:_PARTNERS], self.alone[number] and one[_PARTNERS] > 0] for one in records
                ]
        return {**shown, EVENT_TIMERS: sorted(times)} if times else shown

    def _until(self, one: list[Any], number: int) -> int:
        """Return at which watermark no record on time can be a partner of one any more."""
        until: int = one[0] + (self.upper if number == 0 else -self.lower)
        return until

    def _alone(self, one: list[Any], number: int, key: str) -> Row:
        sides = (one, None) if number == 0 else (None, one)
        return together(self.name, key, max(one[0], self._until(one, number)), *sides)


def _problem(operator: OperatorPlan) -> str | None:
    problem = unknown_problem(operator, "lower_ms", "upper_ms", "form") or form_problem(operator)
    for name in ("lower_ms", "upper_ms"):
        problem = problem or whole_number_problem(operator, name, -TIME_MAX_MS)
    if problem is None and operator.parameters["lower_ms"] > operator.parameters["upper_ms"]:
        return f"the join {operator.name!r} has a lower_ms above its upper_ms, so that nothing would match"
    return problem


KIND = OperatorKind(
    name="event_interval_join",
    keeps=Keeps.BY_KEY,
    problem=_problem,
    replayed=ReplayedIntervalJoin,
    side_outputs=(LATE,),
    joins=True,
)
