"""One trial as a timeline: a plotly figure, as plain data that plotly.js draws.

Lanes from the top: faults and recovery, the coordinator, every subtask from upstream to downstream. Attempts
are background bands. The theme (ink and grid colours) is left to the page: one figure serves light and dark.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from barrier_tck.faults.catalogue import FAULTS
from barrier_tck.faults.fault import Fault, tag_of
from barrier_tck.harness.record.records import FaultRecord, RestoreRecord, SnapshotRecord, TrialRecord
from barrier_tck.reports.intervals import (
    ALIGNMENT_COLOUR,
    ASYNC_COLOUR,
    LOCAL,
    RECOVERY_COLOUR,
    SYNC_COLOUR,
    recoveries,
)
from barrier_tck.reports.loading import planned_faults
from barrier_tck.reports.wording import control_name, duration, one_line, size

Figure = dict[str, Any]
"""A plotly figure: ``data`` (traces) and ``layout``."""

COMPLETED_COLOUR = "#009e73"
ABORTED_COLOUR = "#d55e00"
BARRIER_COLOUR = "#8a93a0"
LOCAL_COLOUR = "#009e73"
PRIMARY_COLOUR = "#5b6f9e"
DEPLOYING_COLOUR = "rgba(230, 159, 0, 0.16)"
RUNNING_COLOURS = ("rgba(0, 158, 115, 0.10)", "rgba(0, 114, 178, 0.10)")
"""Neighbouring attempts have different colours, so that their border shows."""

_LEGEND = (
    ("■", ALIGNMENT_COLOUR, "alignment"),
    ("■", SYNC_COLOUR, "synchronous part"),
    ("■", ASYNC_COLOUR, "asynchronous part"),
    ("|", BARRIER_COLOUR, "first {control}"),
    ("▷", BARRIER_COLOUR, "{control} forwarded"),
    ("●", COMPLETED_COLOUR, "checkpoint completed"),
    ("✖", ABORTED_COLOUR, "checkpoint aborted"),
    ("■", RECOVERY_COLOUR, "recovery"),
    ("▲", LOCAL_COLOUR, "restored from the local copy"),
    ("▲", PRIMARY_COLOUR, "restored from the primary"),
    ("■", "rgba(230, 159, 0, 0.45)", "deploying"),
    ("■", "rgba(0, 158, 115, 0.35)", "running"),
)
"""Symbol, colour and meaning of everything but the faults. ``{control}`` is a barrier, or a marker."""

FAULT_LANE = 0
COORDINATOR_LANE = 1
_FIRST_SUBTASK_LANE = 2
_LANE_PIXELS = 34
_LABEL_MAX = 60
"""Characters of a fault's label that are shown; all of it is in the hover text."""
_CHARACTER_SHARE = 0.0072
"""About what share of the plot's width a character takes."""
_SPAN = 0.04
"""Offset of the bar of a fault that lasts: under its label, above a recovery."""
_UPPER, _LOWER = -0.17, 0.22
"""Offsets within a lane: alignment and synchronous part above, asynchronous part below, for they overlap."""


def legend(records: Iterable[TrialRecord]) -> tuple[tuple[str, str, str], ...]:
    """Return symbol, colour and meaning: one legend for all timelines of a page, instead of one in each figure.

    It names only the faults that struck in one of these trials.
    """
    records = tuple(records)
    struck = {tag_of(fault) for record in records for _, fault, _ in _fired(record)}
    control = " or ".join(sorted({control_name(record.plan) for record in records})) or "barrier"
    known = tuple((sign, colour, meaning.format(control=control)) for sign, colour, meaning in _LEGEND)
    return (*known, *(("✦", fault.colour, fault.label) for fault in FAULTS if tag_of(fault) in struck))


def _fired(record: TrialRecord) -> list[tuple[FaultRecord, Fault, float]]:
    """Return the faults that fired, as recorded and as planned, with their times."""
    return [
        (fault, record.plan.faults[fault.index].fault, fault.fired_at_ms)
        for fault in planned_faults(record)
        if fault.outcome == "fired" and fault.fired_at_ms is not None
    ]


def timeline(record: TrialRecord) -> Figure:
    """Return the figure of one trial; times are in milliseconds, or in seconds beyond 10 s."""
    drawing = _Drawing(record)
    return {
        "data": [
            *drawing.fault_spans(),
            *drawing.snapshot_parts(),
            *drawing.barriers(),
            *drawing.coordinator(),
            drawing.recovery_bars(),
            *drawing.restores(),
            drawing.fault_markers(),
        ],
        "layout": drawing.layout(),
    }


def safe(text: str, limit: int = 200) -> str:
    """Return untrusted text for plotly, which interprets some HTML tags in labels."""
    line = one_line(text)
    return escape(line if len(line) <= limit else line[: limit - 1] + "…")


class _Drawing:
    """What the traces of one figure share: the lanes and the unit of time."""

    def __init__(self, record: TrialRecord) -> None:
        self._record = record
        named = dict.fromkeys((*record.subtasks, *(part.subtask for part in record.snapshots)))
        self._lanes = {subtask: _FIRST_SUBTASK_LANE + place for place, subtask in enumerate(named)}
        self._end_ms = max(
            (
                record.duration_ms,
                *(attempt.ended_at_ms for attempt in record.attempts),
                *(checkpoint.ended_at_ms for checkpoint in record.checkpoints),
                *(fault.fired_at_ms or 0.0 for fault in record.faults),
                *(fault.healed_at_ms or 0.0 for fault in record.faults),
            )
        )
        self._in_seconds = self._end_ms > 10_000
        self._fault_rows = self._rows_of_faults()
        self._control = control_name(record.plan)

    def _time(self, milliseconds: float) -> float:
        """Return a time or a length on the axis."""
        return round(milliseconds / 1_000, 6) if self._in_seconds else round(milliseconds, 3)

    def _bars(
        self,
        name: str,
        colour: str | Sequence[str],
        offset: float,
        width: float,
        bars: Sequence[tuple[float, float, float, str]],
    ) -> Figure:
        """Return one trace of horizontal bars from (start, length, lane, hover); ``colour`` of all, or of each."""
        return {
            "type": "bar",
            "orientation": "h",
            "name": name,
            "base": [self._time(start) for start, _, _, _ in bars],
            "x": [self._time(length) for _, length, _, _ in bars],
            "y": [lane + offset for _, _, lane, _ in bars],
            "width": width,
            "hovertext": [hover for _, _, _, hover in bars],
            "hovertemplate": "%{hovertext}<extra></extra>",
            # An outline keeps a bar of a fraction of a millisecond visible at full zoom.
            "marker": {"color": colour, "line": {"color": colour, "width": 1}},
        }

    def _markers(
        self,
        name: str,
        symbol: str,
        colour: str | Sequence[str],
        marks: Sequence[tuple[float, float, str]],
    ) -> Figure:
        """Return one trace of markers from (time, y, hover); ``colour`` of all, or of each."""
        return {
            "type": "scatter",
            "mode": "markers",
            "name": name,
            "x": [self._time(time) for time, _, _ in marks],
            "y": [y for _, y, _ in marks],
            "hovertext": [hover for _, _, hover in marks],
            "hovertemplate": "%{hovertext}<extra></extra>",
            "marker": {"symbol": symbol, "color": colour, "size": 8, "line": {"color": colour, "width": 1.5}},
        }

    def snapshot_parts(self) -> list[Figure]:
        """Return alignment, synchronous and asynchronous part of every snapshot."""
        alignment, sync, rest = [], [], []
        for part in self._record.snapshots:
            lane, hover = self._lanes[part.subtask], _snapshot_hover(part)
            aligned = part.alignment_started_ms + part.alignment_ms
            if part.alignment_ms > 0:
                alignment.append((part.alignment_started_ms, part.alignment_ms, lane, hover))
            sync.append((aligned, part.sync_ms, lane, hover))
            rest.append((aligned + part.sync_ms, part.async_ms, lane, hover))
        return [
            self._bars("alignment", ALIGNMENT_COLOUR, _UPPER, 0.4, alignment),
            self._bars("synchronous part", SYNC_COLOUR, _UPPER, 0.4, sync),
            self._bars("asynchronous part", ASYNC_COLOUR, _LOWER, 0.24, rest),
        ]

    def barriers(self) -> list[Figure]:
        """Return where the first barrier or marker came, and where it was forwarded (SNP-3)."""
        control = self._control
        first, forwarded = [], []
        for part in self._record.snapshots:
            y = self._lanes[part.subtask] + _UPPER
            label = f"checkpoint {part.checkpoint}, {safe(part.subtask)}"
            end = part.alignment_started_ms + part.alignment_ms + part.sync_ms
            first.append(
                (
                    part.alignment_started_ms,
                    y,
                    f"first {control}: {label}<br>at {duration(part.alignment_started_ms)}",
                )
            )
            forwarded.append((end, y, f"{control} forwarded: {label}<br>at {duration(end)}"))
        return [
            self._markers(f"first {control}", "line-ns-open", BARRIER_COLOUR, first),
            self._markers(f"{control} forwarded", "triangle-right-open", BARRIER_COLOUR, forwarded),
        ]

    def coordinator(self) -> list[Figure]:
        """Return every checkpoint from trigger to end, with a mark for how it ended."""
        traces = []
        for status, symbol, colour in (
            ("completed", "circle", COMPLETED_COLOUR),
            ("aborted", "x", ABORTED_COLOUR),
        ):
            chosen = [checkpoint for checkpoint in self._record.checkpoints if checkpoint.status == status]
            hovers = [
                f"checkpoint {checkpoint.checkpoint} {status}, attempt {checkpoint.attempt}"
                f"<br>triggered at {duration(checkpoint.triggered_at_ms)}"
                f"<br>took {duration(checkpoint.ended_at_ms - checkpoint.triggered_at_ms)}"
                + (f"<br>{safe(checkpoint.reason)}" if checkpoint.reason else "")
                for checkpoint in chosen
            ]
            spans = [
                (entry.triggered_at_ms, entry.ended_at_ms - entry.triggered_at_ms, COORDINATOR_LANE, hover)
                for entry, hover in zip(chosen, hovers, strict=True)
            ]
            ends = [
                (checkpoint.ended_at_ms, COORDINATOR_LANE, hover)
                for checkpoint, hover in zip(chosen, hovers, strict=True)
            ]
            bar = self._bars(f"checkpoint {status}", colour, 0, 0.1, spans)
            traces += [bar, self._markers(f"checkpoint {status}", symbol, colour, ends)]
        return traces

    def recovery_bars(self) -> Figure:
        """Return the bars of recoveries: each from a failure until all subtasks run again."""
        bars = []
        for recovery in recoveries(self._record):
            end = recovery.gave_up_at_ms if recovery.running_at_ms is None else recovery.running_at_ms
            took = (
                "never came to run" if recovery.length_ms is None else f"took {duration(recovery.length_ms)}"
            )
            restored = recovery.restored_checkpoint
            hover = (
                f"recovery to attempt {recovery.attempt}: {took}"
                f"<br>from {'the beginning' if restored is None else f'checkpoint {restored}'}"
                f"<br>after: {safe(recovery.reason)}"
            )
            bars.append((recovery.failed_at_ms, end - recovery.failed_at_ms, FAULT_LANE, hover))
        return self._bars("recovery", RECOVERY_COLOUR, _LOWER, 0.3, bars)

    def restores(self) -> list[Figure]:
        """Return which copy served what, in the lanes of the subtasks that restored (LOC-4)."""
        traces = []
        for name, colour, local in (
            ("restored from the local copy", LOCAL_COLOUR, True),
            ("restored from the primary", PRIMARY_COLOUR, False),
        ):
            marks = [
                (restore.at_ms, self._lanes[restore.subtask], _restore_hover(restore))
                for restore in self._record.restores
                if restore.subtask in self._lanes and (restore.served_by == LOCAL) is local
            ]
            traces.append(self._markers(name, "triangle-up", colour, marks))
        return traces

    def fault_spans(self) -> list[Figure]:
        """Return the lasting faults, from firing to healing, in their own lane and in those of the subtasks hit."""
        traces = []
        for name in dict.fromkeys(fault.shown_as for fault in FAULTS if fault.shown_as):
            own, hit = [], []
            for record, fault, fired in _fired(self._record):
                if fault.shown_as != name:
                    continue
                end = self._end_ms if record.healed_at_ms is None else record.healed_at_ms
                bar, hover = (fired, end - fired), _fault_hover(record)
                own.append((fault.colour, (*bar, self._fault_rows[record.index], hover)))
                hit += [
                    (fault.colour, (*bar, self._lanes[subtask], hover))
                    for subtask in fault.subtasks
                    if subtask in self._lanes
                ]
            # Pale over the whole lane: what went on meanwhile stays readable.
            traces += [
                self._coloured_bars(name, _SPAN, 0.08, own),
                self._coloured_bars(f"{name}: processes hit", 0, 0.92, hit) | {"opacity": 0.28},
            ]
        return traces

    def _coloured_bars(
        self,
        name: str,
        offset: float,
        width: float,
        bars: Sequence[tuple[str, tuple[float, float, float, str]]],
    ) -> Figure:
        return self._bars(name, [colour for colour, _ in bars], offset, width, [bar for _, bar in bars])

    def fault_markers(self) -> Figure:
        """Return a mark and a label for every fault that fired."""
        fired = _fired(self._record)
        rows = [self._fault_rows[record.index] + _UPPER for record, _, _ in fired]
        marks = [
            (time, row, _fault_hover(record)) for (record, _, time), row in zip(fired, rows, strict=True)
        ]
        return self._markers("fault", "star-diamond", [fault.colour for _, fault, _ in fired], marks) | {
            "mode": "markers+text",
            "text": [f" {safe(record.label, _LABEL_MAX)} " for record, _, _ in fired],
            "textposition": [f"middle {'left' if self._is_late(time) else 'right'}" for _, _, time in fired],
        }

    def _is_late(self, time_ms: float) -> bool:
        """Return whether a fault's label goes to its left because there is no room on the right."""
        return time_ms > self._end_ms * 0.6

    def _rows_of_faults(self) -> dict[int, int]:
        """Return a row for each fault that fired, so that no two labels overlap: the fault lane, and rows above it."""
        ends: list[float] = []  # row -> where its last label ends
        rows: dict[int, int] = {}
        spans = []
        for fault, _, time in _fired(self._record):
            length = (min(len(fault.label), _LABEL_MAX) + 4) * _CHARACTER_SHARE * self._end_ms
            spans.append((time - length if self._is_late(time) else time, length, fault.index))
        for start, length, index in sorted(spans):
            free = (place for place, end in enumerate(ends) if end <= start)
            row = next(free, len(ends))
            if row == len(ends):
                ends.append(0.0)
            ends[row] = start + length
            rows[index] = FAULT_LANE - row
        return rows

    def layout(self) -> Figure:
        """Return axes, bands and fault lines."""
        names = ["faults, recovery", "coordinator", *(safe(subtask, 28) for subtask in self._lanes)]
        top = min(self._fault_rows.values(), default=FAULT_LANE)
        shapes, annotations = self._bands()
        for _, fault, time in _fired(self._record):
            line = {"color": fault.colour, "width": 1.5, "dash": "dot"}
            at = self._time(time)
            shapes.append(
                {"type": "line", "x0": at, "x1": at, "yref": "paper", "y0": 0, "y1": 1, "line": line}
            )
        return {
            "barmode": "overlay",
            "height": 74 + _LANE_PIXELS * (len(names) - top),
            "hovermode": "closest",
            "showlegend": False,
            "margin": {"l": 120, "r": 16, "t": 26, "b": 44},
            "shapes": shapes,
            "annotations": annotations,
            "xaxis": {
                "title": {
                    "text": f"{'seconds' if self._in_seconds else 'milliseconds'} since the trial began",
                    "standoff": 8,
                },
                "range": [0, self._time(self._end_ms * 1.01) or 1],
                "zeroline": False,
            },
            "yaxis": {
                "tickmode": "array",
                "tickvals": list(range(len(names))),
                "ticktext": names,
                "range": [len(names) - 0.45, top - 0.55],
                "fixedrange": True,
                "zeroline": False,
                "showgrid": True,
            },
        }

    def _bands(self) -> tuple[list[Figure], list[Figure]]:
        """Return each attempt as background bands (deploying, then running) with its number above."""
        shapes: list[Figure] = []
        notes: list[Figure] = []
        for place, attempt in enumerate(self._record.attempts):
            running = attempt.ended_at_ms if attempt.running_at_ms is None else attempt.running_at_ms
            shapes.append(self._band(attempt.started_at_ms, running, DEPLOYING_COLOUR))
            if attempt.running_at_ms is not None:
                shapes.append(self._band(running, attempt.ended_at_ms, RUNNING_COLOURS[place % 2]))
            share = (attempt.ended_at_ms - attempt.started_at_ms) / self._end_ms if self._end_ms else 0
            if share > 0.02:
                text = f"attempt {attempt.attempt}" if share > 0.08 else str(attempt.attempt)
                notes.append(
                    {
                        "x": self._time(attempt.started_at_ms),
                        "y": 1,
                        "yref": "paper",
                        "xanchor": "left",
                        "yanchor": "bottom",
                        "showarrow": False,
                        "text": text,
                    }
                )
        return shapes, notes

    def _band(self, start: float, end: float, colour: str) -> Figure:
        return {
            "type": "rect",
            "layer": "below",
            "x0": self._time(start),
            "x1": self._time(end),
            "yref": "paper",
            "y0": 0,
            "y1": 1,
            "fillcolor": colour,
            "line": {"width": 0},
        }


def _snapshot_hover(part: SnapshotRecord) -> str:
    """Describe one subtask's part of a checkpoint."""
    return (
        f"<b>checkpoint {part.checkpoint}</b>, {safe(part.subtask)}, attempt {part.attempt}"
        f"<br>alignment {duration(part.alignment_ms)}, {size(part.alignment_buffered_bytes)} buffered"
        f"<br>synchronous {duration(part.sync_ms)}, asynchronous {duration(part.async_ms)}"
        f"<br>{size(part.bytes_written)} written"
    )


def _restore_hover(restore: RestoreRecord) -> str:
    """Describe which copy served a range of key groups."""
    return (
        f"<b>{safe(restore.subtask)}</b>, attempt {restore.attempt}, checkpoint {restore.checkpoint}"
        f"<br>key groups {restore.first_key_group} to {restore.end_key_group - 1} "
        f"from its {safe(restore.served_by)} copy" + (f"<br>{safe(restore.reason)}" if restore.reason else "")
    )


def _fault_hover(fault: FaultRecord) -> str:
    """Describe one fault that fired."""
    return (
        f"<b>fault {fault.index + 1}: {safe(fault.label)}</b><br>{safe(fault.trigger)}"
        f"<br>hit {safe(fault.target) or 'its target'} at {duration(fault.fired_at_ms)}"
        + (f", {safe(fault.phase.replace('_', ' '))}" if fault.phase else "")
        + (f"<br>healed at {duration(fault.healed_at_ms)}" if fault.healed_at_ms is not None else "")
    )
