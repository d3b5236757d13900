"""``event_window``: windows in event time over the records of a key, which fire when the watermark passes their end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from barrier_tck.harness.plan.job_graph import OperatorPlan
from barrier_tck.harness.record.history import Row
from barrier_tck.harness.workloads.joined_records import TIME_MAX_MS
from barrier_tck.harness.workloads.operator_kind import EVENT_TIMERS, Keeps, OperatorKind
from barrier_tck.harness.workloads.replayed import Emitted, KeyState

LATE = "late"
"""The side output with the late records."""
WINDOWS = "windows"
"""The name of the state with the windows."""


class ReplayedWindows:
    """What windows are: content by start and end, until the allowed lateness is over."""

    def __init__(self, operator: OperatorPlan) -> None:
        wanted = operator.parameters
        self.name = operator.name
        self.gap: int | None = wanted.get("gap_ms")
        self.size: int = wanted.get("size_ms", 0)
        self.slide: int = wanted.get("slide_ms", self.size)
        self.offset: int = wanted.get("offset_ms", 0)
        self.lateness, self.every = wanted.get("lateness_ms", 0), wanted.get("every")

    def take(self, kept: KeyState, number: int, row: Row, watermark: int) -> Iterable[Emitted]:
        windows: list[dict[str, Any]] = kept.setdefault("windows", [])
        bounds = self._bounds(windows, row["ts"])
        found = [(start, end) for start, end in bounds if end - 1 + self.lateness > watermark]
        if not found:
            return [(LATE, row)] if bounds else ()
        emitted: list[Emitted] = []
        for start, end in found:
            window = self._window(windows, start, end, watermark)
            window["rows"].append((row["id"], row["mark"], row["n"]))
            window["since"] += 1
            if end - 1 <= watermark or (self.every and window["since"] >= self.every):
                emitted.append(("", self._fired(window, row["key"])))
        return emitted

    def due(self, kept: KeyState, key: str, watermark: int) -> Iterable[Emitted]:
        windows: list[dict[str, Any]] = kept.get("windows", [])
        ended = sorted(
            (window for window in windows if window["open"] and window["end"] - 1 <= watermark),
            key=lambda window: (window["end"], window["start"]),
        )
        emitted: list[Emitted] = [("", self._fired(window, key)) for window in ended]
        for window in windows:
            window["open"] = window["open"] and window["end"] - 1 > watermark
        kept["windows"] = [window for window in windows if window["end"] - 1 + self.lateness > watermark]
        return emitted

    def entries(self, kept: KeyState) -> Mapping[str, Any]:
        windows = kept.get("windows", [])
        shown = {
            window["start"]: [window["end"], window["firings"], window["since"], _sums(window["rows"])]
            for window in windows
        }
        ends = {window["end"] - 1 for window in windows if window["open"]}
        removals = {window["end"] - 1 + self.lateness for window in windows}
        return {
            name: held for name, held in ((WINDOWS, shown), (EVENT_TIMERS, sorted(ends | removals))) if held
        }

    def _bounds(self, windows: list[dict[str, Any]], time: int) -> list[tuple[int, int]]:
        if self.gap is None:
            last = (time - self.offset) // self.slide * self.slide + self.offset
            count = -(-self.size // self.slide)
            starts = [last - back * self.slide for back in range(count)]
            return [(start, start + self.size) for start in starts if start + self.size > time]
        met = [one for one in windows if one["start"] < time + self.gap and time < one["end"]]
        return [(min([time, *(w["start"] for w in met)]), max([time + self.gap, *(w["end"] for w in met)]))]

    def _window(self, windows: list[dict[str, Any]], start: int, end: int, watermark: int) -> dict[str, Any]:
        """Return the window with these bounds; sessions inside them become one."""
        inside = [
            one for one in windows if start <= one["start"] and one["end"] <= end and self.gap is not None
        ]
        same = [one for one in windows if (one["start"], one["end"]) == (start, end)]
        before = inside or same
        whole = {
            "start": start,
            "end": end,
            "firings": max([one["firings"] for one in before], default=0),
            "since": sum(one["since"] for one in before),
            "open": end - 1 > watermark,
            "rows": [row for one in before for row in one["rows"]],
        }
        windows[:] = [*(one for one in windows if one not in before), whole]
        return whole

    def _fired(self, window: dict[str, Any], key: str) -> Row:
        identifiers, marks, count = _sums(window["rows"])
        how = f"{self.name}[{window['start']},{window['end']})#{window['firings']}"
        window["firings"] += 1
        window["since"] = 0
        time = window["end"] - 1
        return {"key": key, "ts": time, "id": identifiers, "mark": marks, "n": count, "how": how}


def _sums(rows: Iterable[tuple[int, int, int]]) -> list[int]:
    return [sum(column) for column in zip(*rows, strict=True)] or [0, 0, 0]


def _problem(operator: OperatorPlan) -> str | None:
    wanted = operator.parameters
    known = ("size_ms", "slide_ms", "offset_ms", "gap_ms", "lateness_ms", "every")
    unknown = [name for name in wanted if name not in known]
    if unknown:
        return f"the windows {operator.name!r} have no parameter {unknown[0]!r}; known: {', '.join(known)}"
    for name, value in wanted.items():
        least = 0 if name in ("lateness_ms", "offset_ms") else 1
        if not isinstance(value, int) or not least <= value <= TIME_MAX_MS:
            return (
                f"the windows {operator.name!r} need a whole number from {least} to {TIME_MAX_MS} for {name}"
            )
    of_size = "slide_ms" in wanted or "offset_ms" in wanted
    if ("size_ms" in wanted) == ("gap_ms" in wanted) or (of_size and "size_ms" not in wanted):
        return (
            f"the windows {operator.name!r} need size_ms, with slide_ms and offset_ms or without, or gap_ms"
        )
    return None


KIND = OperatorKind(
    name="event_window",
    keeps=Keeps.BY_KEY,
    problem=_problem,
    replayed=ReplayedWindows,
    side_outputs=(LATE,),
)
