"""``event_window_join``: pairs of all records of two inputs in one window, when that ends (EVT-4).

An outer join (``form``) emits then the records alone that have no partner in that window.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from barrier_tck.harness.plan.job_graph import OperatorPlan
from barrier_tck.harness.record.history import Row
from barrier_tck.harness.workloads.joined_records import (
    FORMS,
    SIDES,
    form_problem,
    together,
    unknown_problem,
    waiting,
    windows_at,
    windows_problem,
)
from barrier_tck.harness.workloads.kinds.event_window import LATE
from barrier_tck.harness.workloads.operator_kind import EVENT_TIMERS, Keeps, OperatorKind
from barrier_tck.harness.workloads.replayed import Emitted, KeyState

_RECORD = slice(0, 4)
_LAST_END = 4
"""Where a record has the end of the last one of its windows, behind what it is."""


class ReplayedWindowJoin:
    """The records of both sides, and the windows that have not ended: end by start."""

    def __init__(self, operator: OperatorPlan) -> None:
        wanted = operator.parameters
        self.name = operator.name
        self.size: int = wanted["size_ms"]
        self.slide: int = wanted.get("slide_ms", self.size)
        self.offset: int = wanted.get("offset_ms", 0)
        self.alone = FORMS[wanted.get("form", "inner")]

    def take(self, kept: KeyState, number: int, row: Row, watermark: int) -> Iterable[Emitted]:
        windows = windows_at(row["ts"], self.size, self.slide, self.offset)
        still_open = [(start, end) for start, end in windows if end - 1 > watermark]
        if not still_open:
            return [(LATE, row)] if windows else ()
        record = [*waiting(row), max(end for _, end in windows)]
        kept.setdefault(SIDES[number], []).append(record)
        kept.setdefault("open", {}).update(dict(still_open))
        return ()

    def due(self, kept: KeyState, key: str, watermark: int) -> Iterable[Emitted]:
        still_open: dict[int, int] = kept.get("open", {})
        emitted: list[Emitted] = []
        for start in sorted(still_open):
            end = still_open[start]
            if end - 1 <= watermark:
                del still_open[start]
                inside = [[one for one in kept.get(side, []) if start <= one[0] < end] for side in SIDES]
                emitted += [("", row) for row in self._joined(key, start, end, *inside)]
                for side in SIDES:
                    kept[side] = [one for one in kept.get(side, []) if one[_LAST_END] > end]
        return emitted

    def entries(self, kept: KeyState) -> Mapping[str, Any]:
        shown: dict[str, Any] = {
            side: [one[_RECORD] for one in kept[side]] for side in SIDES if kept.get(side)
        }
        ends = sorted(end - 1 for end in kept.get("open", {}).values())
        return {**shown, EVENT_TIMERS: ends} if ends else shown

    def _joined(self, key: str, start: int, end: int, lefts: list[Any], rights: list[Any]) -> Iterable[Row]:
        pairs: list[tuple[Any, Any]] = [(left, right) for left in lefts for right in rights]
        if not rights and self.alone[0]:
            pairs = [(left, None) for left in lefts]
        if not lefts and self.alone[1]:
            pairs += [(None, right) for right in rights]
        return [together(self.name, key, end - 1, *pair, f"[{start},{end})") for pair in pairs]


def _problem(operator: OperatorPlan) -> str | None:
    return (
        unknown_problem(operator, "size_ms", "slide_ms", "offset_ms", "form")
        or form_problem(operator)
        or windows_problem(operator, sessions=False)
    )


KIND = OperatorKind(
    name="event_window_join",
    keeps=Keeps.BY_KEY,
    problem=_problem,
    replayed=ReplayedWindowJoin,
    side_outputs=(LATE,),
    joins=True,
)
