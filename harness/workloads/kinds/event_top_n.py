"""``event_top_n``: the first ``n`` records of each window of a key, by the columns ``by``, when it ends (EVT-2).

``by`` is a list of columns, with ``-`` in front if the largest value is first. Records that are equal in all of them
are ranked by id, mark and n.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from barrier_tck.harness.plan.job_graph import OperatorPlan
from barrier_tck.harness.record.history import Row
from barrier_tck.harness.workloads.joined_records import (
    unknown_problem,
    whole_number_problem,
    windows_at,
    windows_problem,
)
from barrier_tck.harness.workloads.kinds.event_window import LATE
from barrier_tck.harness.workloads.operator_kind import EVENT_TIMERS, Keeps, OperatorKind
from barrier_tck.harness.workloads.replayed import Emitted, KeyState

TOP = "top"
"""The name of the state with the windows: start to end, and the first records."""
RANKED = ("ts", "id", "mark", "n")
"""The columns by which records may be ranked."""
_MOST = 1_000


class ReplayedTopN:
    """The windows that have not ended, as lists: start, end, and all of their first records in order of rank."""

    def __init__(self, operator: OperatorPlan) -> None:
        wanted = operator.parameters
        self.name = operator.name
        self.n: int = wanted["n"]
        self.by = [(column.lstrip("-"), -1 if column.startswith("-") else 1) for column in wanted["by"]]
        self.gap: int | None = wanted.get("gap_ms")
        self.size: int = wanted.get("size_ms", 0)
        self.slide: int = wanted.get("slide_ms", self.size)
        self.offset: int = wanted.get("offset_ms", 0)

    def take(self, kept: KeyState, number: int, row: Row, watermark: int) -> Iterable[Emitted]:
        windows: list[list[Any]] = kept.setdefault("windows", [])
        record = [[row[column] for column, _ in self.by], [row["id"], row["mark"], row["n"]]]
        bounds = self._bounds(windows, row["ts"])
        found = [(start, end) for start, end in bounds if end - 1 > watermark]
        for start, end in found:
            before = [one for one in windows if start <= one[0] and one[1] <= end]
            records = [record, *(inside for one in before for inside in one[2])]
            windows[:] = [one for one in windows if one not in before]
            windows.append([start, end, sorted(records, key=self._place)[: self.n]])
        return [(LATE, row)] if bounds and not found else ()

    def due(self, kept: KeyState, key: str, watermark: int) -> Iterable[Emitted]:
        windows = sorted(kept.get("windows", []), key=lambda one: (one[1], one[0]))
        kept["windows"] = [one for one in windows if one[1] - 1 > watermark]
        return [
            ("", self._ranked(key, start, end, rank, *record[1]))
            for start, end, records in windows
            if end - 1 <= watermark
            for rank, record in enumerate(records, start=1)
        ]

    def entries(self, kept: KeyState) -> Mapping[str, Any]:
        windows = kept.get("windows", [])
        shown = {start: [end, records] for start, end, records in windows}
        return {TOP: shown, EVENT_TIMERS: sorted({end - 1 for _, end, _ in windows})} if windows else {}

    def _bounds(self, windows: list[list[Any]], time: int) -> list[tuple[int, int]]:
        if self.gap is None:
            return windows_at(time, self.size, self.slide, self.offset)
        met = [(start, end) for start, end, _ in windows if start < time + self.gap and time < end]
        ends = [time + self.gap, *(end for _, end in met)]
        return [(min([time, *(start for start, _ in met)]), max(ends))]

    def _place(self, record: list[list[int]]) -> tuple[list[int], list[int]]:
        order = [value * sign for value, (_, sign) in zip(record[0], self.by, strict=True)]
        return order, record[1]

    def _ranked(self, key: str, start: int, end: int, rank: int, *sums: int) -> Row:
        how = f"{self.name}[{start},{end})#{rank}"
        return {"key": key, "ts": end - 1, **dict(zip(("id", "mark", "n"), sums, strict=True)), "how": how}


def _problem(operator: OperatorPlan) -> str | None:
    by = operator.parameters.get("by")
    columns = (
        [one.removeprefix("-") if isinstance(one, str) else one for one in by] if isinstance(by, list) else []
    )
    if not columns or any(one not in RANKED for one in columns) or len(set(columns)) < len(columns):
        return (
            f"{operator.name!r} needs by, a list of columns, each at most once, with '-' in front for the largest "
            f"value first; known: {', '.join(RANKED)}"
        )
    return (
        unknown_problem(operator, "n", "by", "size_ms", "slide_ms", "offset_ms", "gap_ms")
        or whole_number_problem(operator, "n", 1, _MOST)
        or windows_problem(operator, sessions=True)
    )


KIND = OperatorKind(
    name="event_top_n",
    keeps=Keeps.BY_KEY,
    problem=_problem,
    replayed=ReplayedTopN,
    side_outputs=(LATE,),
)
