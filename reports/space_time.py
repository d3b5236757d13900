"""A cut as a space-time diagram: lanes from the top, time from left to right, as plain numbers for an SVG template.

However long the run and however many its lanes, a bounded number of lines is drawn: what crosses the cut first, then
what is nearest to it. ``CutDiagram.left_out`` says what is not drawn.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from barrier_tck.reports.cut import AT_LEAST_ONCE, LATE_OUTPUT, Batch, ChannelCut, CheckpointCut, Side
from barrier_tck.reports.drawn_watermarks import (
    DrawnBatch,
    Ends,
    Label,
    Mark,
    arrivals,
    labels,
    late_records,
    overtakings,
    watermark_name,
)
from barrier_tck.reports.wording import duration, one_line, plural

LINES_MAX = 600
"""How many batches are drawn at most."""
CROSSING_MAX = 300
"""How many batches that cross the cut are drawn one by one; beyond it each channel shows its first and last ones."""
NEAR_MAX = 6
"""How many batches that do not cross the cut are drawn on each side of it, for each channel, if there is room."""
NEAR_LINES = 120
"""How many of them are drawn of all channels together, or one on each side of each channel: more is a thicket."""
WATERMARKS_NEAR_MAX = 3
"""The same for watermarks, which are drawn beside those batches."""
WATERMARKS_NEAR_LINES = 72
"""How many of them are drawn of all channels together, or one on each side of each channel."""

_MARGIN, _TOP, _BOTTOM = 34, 34, 30
_WIDTH_MIN, _WIDTH_MAX, _EVENT_PIXELS = 940, 1_400, 7
_ARC = 30
_STUB = 26
"""Pixels of a line of which only one end is known."""
_BY_RANK = 0.75
"""How much of the width goes by the order of events, and not by time: much happens at once around a barrier."""
_WEIGHT_OF_OTHERS = 0.3
"""The room of an event that is neither of a barrier, nor of a snapshot, nor of a batch that crosses the cut."""
BARRIERS_MAX = 300
"""How many barriers are drawn at most."""
_TICK_PIXELS = 120
_CROWDED = 150
_BEFORE_THE_CUT = 165
_CROSSING = (Side.EARLY, Side.LOST, Side.EXTRA, Side.IN_FLIGHT)


@dataclass(frozen=True, slots=True)
class DrawnLane:
    """One lane."""

    label: str
    y: int
    cut_x: float | None


@dataclass(frozen=True, slots=True)
class Line:
    """One line; ``style`` is its class in the style sheet."""

    style: str
    x1: float
    y1: float
    x2: float
    y2: float
    title: str

    @property
    def path(self) -> str:
        """Return its way: straight, or an arc for a channel that leads back to its sender."""
        if self.y1 != self.y2:
            return f"M{self.x1} {self.y1:g}L{self.x2} {self.y2:g}"
        return (
            f"M{self.x1} {self.y1:g}Q{(self.x1 + self.x2) / 2:.1f} {self.y1 - _ARC:g} {self.x2} {self.y2:g}"
        )


@dataclass(frozen=True, slots=True)
class Band:
    """The area between the first and the last of many batches."""

    style: str
    points: str
    title: str


@dataclass(frozen=True, slots=True)
class IdleTime:
    """A piece of a lane during which its subtask was idle."""

    x1: float
    x2: float
    y: int
    title: str


@dataclass(frozen=True, slots=True)
class CutDiagram:
    """Everything that the template draws; lengths in pixels."""

    width: int
    height: int
    lanes: tuple[DrawnLane, ...]
    ticks: tuple[tuple[float, str], ...]
    bands: tuple[Band, ...]
    lines: tuple[Line, ...]
    """What must be seen best comes last, so that it lies on top."""
    cut: tuple[str, ...]
    """The points of the cut, in one piece for each run of lanes with a snapshot."""
    label_x: float
    begins_x: int
    """A little before the cut begins: what a narrow window shows first."""
    left_out: str
    """A sentence about what is not drawn; empty if everything is."""
    idle: tuple[IdleTime, ...] = ()
    marks: tuple[Mark, ...] = ()
    labels: tuple[Label, ...] = ()
    """The values of watermarks, where there is room."""

    @property
    def is_crowded(self) -> bool:
        """Whether lines should be thin."""
        return len(self.lines) > _CROWDED

    @property
    def styles(self) -> tuple[str, ...]:
        """Return the styles that occur, for a legend."""
        idle = ("idle",) if self.idle else ()
        return tuple(dict.fromkeys((*(line.style for line in self.lines), *idle)))

    @property
    def mark_styles(self) -> tuple[str, ...]:
        """Return the styles of marks that occur."""
        return tuple(dict.fromkeys(mark.style for mark in self.marks))


def diagram_of(cut: CheckpointCut) -> CutDiagram:
    """Return the diagram of a cut."""
    chosen = _chosen(cut.channels)
    return _Drawing(cut, chosen).diagram()


@dataclass(frozen=True, slots=True)
class _Chosen:
    """What is drawn of one channel."""

    channel: ChannelCut
    batches: tuple[Batch, ...]
    bands: tuple[tuple[Batch, Batch, int], ...]
    """First and last batch of an area, and how many batches in it are not drawn."""


def _chosen(channels: Sequence[ChannelCut]) -> tuple[_Chosen, ...]:
    crossing = {
        channel.name: [batch for batch in channel.batches if batch.side in _CROSSING] for channel in channels
    }
    some = sum(1 for batches in crossing.values() if batches)
    all_of_them = sum(map(len, crossing.values())) <= CROSSING_MAX
    each = max(1, CROSSING_MAX // (2 * some)) if some else 0
    drawn = sum(len(b) if all_of_them else min(len(b), 2 * each) for b in crossing.values())
    sides = max(1, 2 * len(channels))
    near = min(NEAR_MAX, max(1, NEAR_LINES // sides), max(0, LINES_MAX - drawn) // sides)
    left = max(0, LINES_MAX - drawn - near * sides)
    near_watermarks = min(WATERMARKS_NEAR_MAX, max(1, WATERMARKS_NEAR_LINES // sides), left // sides)
    found, room = [], LINES_MAX
    for channel in channels:
        batches, bands = list(crossing[channel.name]), []
        if not all_of_them and len(batches) > 2 * each:
            bands.append((batches[0], batches[-1], len(batches) - 2 * each))
            batches = batches[:each] + batches[-each:]
        batches += _nearest(channel, near, watermarks=False)
        batches += _nearest(channel, near_watermarks, watermarks=True)
        batches = batches[:room]
        room -= len(batches)
        found.append(_Chosen(channel, tuple(batches), tuple(bands)))
    return tuple(found)


def _nearest(channel: ChannelCut, near: int, *, watermarks: bool) -> list[Batch]:
    """Return the batches with records, or the watermarks, nearest to the cut that do not cross it."""
    if not near:
        return []
    found = [batch for batch in channel.batches if batch.is_watermark is watermarks]
    before = [batch for batch in found if batch.side is Side.BEFORE]
    after = [batch for batch in found if batch.side is Side.AFTER]
    unknown = [batch for batch in found if batch.side is Side.UNKNOWN]
    known = channel.sent if channel.sent is not None else channel.taken
    place = sum(1 for batch in unknown if known is None or batch.position < known)
    return [*before[-near:], *after[:near], *unknown[max(0, place - near) : place + near]]


class _Drawing:
    """One diagram: where lanes and times are."""

    def __init__(self, cut: CheckpointCut, chosen: Sequence[_Chosen]) -> None:
        self._cut = cut
        self._chosen = chosen
        spacing = 48 if len(cut.lanes) <= 10 else 34 if len(cut.lanes) <= 20 else 28
        self._y = {lane.subtask: _TOP + spacing // 2 + spacing * n for n, lane in enumerate(cut.lanes)}
        self._height = _TOP + spacing * len(cut.lanes) + _BOTTOM
        weights = self._weights()
        self._times = sorted(weights)
        places = list(accumulate((weights[time] for time in self._times[1:]), initial=0.0))
        self._places = dict(zip(self._times, places, strict=True))
        """Time -> how much happens before it."""
        self._width = int(min(_WIDTH_MAX, max(_WIDTH_MIN, _EVENT_PIXELS * places[-1])))
        self._barriers_left = BARRIERS_MAX
        self._cut_x = {lane.subtask: self._x(lane.at_ms) for lane in cut.lanes}
        self._barriers_drawn: dict[str, list[Ends]] = {}
        """Channel -> the lines of its barriers that are drawn."""

    def diagram(self) -> CutDiagram:
        lanes = tuple(
            DrawnLane(
                f"{lane.subtask} (finished)" if lane.finished else lane.subtask,
                self._y[lane.subtask],
                self._x(lane.at_ms),
            )
            for lane in self._cut.lanes
        )
        lines = sorted(self._lines(), key=lambda line: _LAYERS.index(line.style))
        drawn, control = tuple(self._drawn()), f"{self._cut.control} {self._cut.checkpoint}"
        marks = (
            *arrivals(drawn),
            *late_records(drawn, LATE_OUTPUT),
            *overtakings(drawn, self._barriers_drawn, control),
        )
        cut_x = [lane.cut_x for lane in lanes if lane.cut_x is not None]
        begins_x = max(0, round(min(cut_x)) - _BEFORE_THE_CUT) if cut_x else 0
        return CutDiagram(
            self._width,
            self._height,
            lanes,
            self._ticks(),
            tuple(self._bands()),
            tuple(lines),
            _pieces(lanes, self._height),
            min(max(cut_x[0] if cut_x else 0.0, 70.0), self._width - 70.0),
            begins_x,
            self._left_out(),
            tuple(self._idle()),
            marks,
            labels(drawn, self._width),
        )

    def _weights(self) -> dict[float, float]:
        """Return every time at which something drawn happens, with the room that it gets."""
        important: list[float | None] = [lane.at_ms for lane in self._cut.lanes]
        others: list[float | None] = []
        for chosen in self._chosen:
            for batch in chosen.batches:
                times = important if batch.side in _CROSSING else others
                times += (batch.sent_ms, batch.taken_ms)
            for first, last, _ in chosen.bands:
                important += (first.sent_ms, first.taken_ms, last.sent_ms, last.taken_ms)
            for barrier in chosen.channel.barriers:
                important += (barrier.sent_ms, barrier.taken_ms)
        found = {time: _WEIGHT_OF_OTHERS for time in others if time is not None}
        return found | {time: 1.0 for time in important if time is not None}

    def _x(self, time: float | None) -> float | None:
        """Return the place of a time: partly by time, partly by how many events came before."""
        if time is None:
            return None
        first, last = self._times[0], self._times[-1]
        by_rank = self._places[time] / max(1.0, self._places[last])
        by_time = (time - first) / (last - first) if last > first else 0.5
        share = _BY_RANK * by_rank + (1 - _BY_RANK) * by_time
        return round(_MARGIN + (self._width - 2 * _MARGIN) * share, 1)

    def _near(self, time: float) -> float:
        """Return the place of the first event that is drawn at a time or after it."""
        x = self._x(self._times[bisect_left(self._times, time)])
        assert x is not None
        return x

    def _ticks(self) -> tuple[tuple[float, str], ...]:
        """Return about one time for each ``_TICK_PIXELS``, at events."""
        found: list[tuple[float, str]] = []
        for time in self._times:
            x = self._x(time)
            assert x is not None
            if not found or x - found[-1][0] >= _TICK_PIXELS:
                found.append((x, f"{time:,.1f} ms" if time < 10_000 else f"{time / 1_000:,.3f} s"))
        return tuple(found)

    def _lines(self) -> Iterable[Line]:
        for chosen in self._chosen:
            channel = chosen.channel
            for batch in chosen.batches:
                title = f"{channel.name}: {_what(batch)}"
                yield from self._line(channel, self._style(batch), title, batch.sent_ms, batch.taken_ms)
            for barrier in channel.barriers[: self._barriers_left]:
                self._barriers_left -= 1
                ends = self._ends(channel, barrier.sent_ms, barrier.taken_ms)
                self._barriers_drawn.setdefault(channel.name, []).append(ends)
                title = f"{channel.name}: {self._cut.control} {self._cut.checkpoint}"
                yield from self._line(channel, "barrier", title, barrier.sent_ms, barrier.taken_ms)

    def _style(self, batch: Batch) -> str:
        if batch.side is Side.EARLY and self._cut.mode == AT_LEAST_ONCE:
            return "early-allowed"
        if batch.is_watermark and batch.side is Side.IN_FLIGHT:
            return "watermark-flight"
        return "watermark" if batch.is_watermark and batch.side not in _CROSSING else batch.side.value

    def _ends(self, channel: ChannelCut, sent_ms: float | None, taken_ms: float | None) -> Ends:
        return Ends(self._x(sent_ms), self._y[channel.sender], self._x(taken_ms), self._y[channel.receiver])

    def _drawn(self) -> Iterator[DrawnBatch]:
        """Yield every batch that is drawn, with its line."""
        for chosen in self._chosen:
            for batch in chosen.batches:
                ends = self._ends(chosen.channel, batch.sent_ms, batch.taken_ms)
                cut_x = self._cut_x.get(chosen.channel.receiver)
                away = 0.0 if cut_x is None or ends.x2 is None else abs(ends.x2 - cut_x)
                yield DrawnBatch(chosen.channel, batch, self._style(batch), ends, away)

    def _idle(self) -> Iterator[IdleTime]:
        """Yield the pieces of lanes that are drawn during which a subtask was idle."""
        first, last = self._times[0], self._times[-1]
        for one in self._cut.idle:
            until_ms = last if one.until_ms is None else one.until_ms
            if one.from_ms < last and until_ms > first:
                x1, x2 = self._near(max(first, one.from_ms)), self._near(min(last, until_ms))
                until = "while this was logged" if one.until_ms is None else f"until {duration(one.until_ms)}"
                title = f"{one.subtask} is idle from {duration(one.from_ms)} {until}: nobody waits for its watermark"
                yield IdleTime(x1, x2, self._y[one.subtask], one_line(title))

    def _line(
        self, channel: ChannelCut, style: str, what: str, sent_ms: float | None, taken_ms: float | None
    ) -> Iterable[Line]:
        y1, y2 = self._y[channel.sender], self._y[channel.receiver]
        x1, x2 = self._x(sent_ms), self._x(taken_ms)
        slope = (y2 - y1) / abs(y2 - y1) if y2 != y1 else 0.0
        if x1 is None and x2 is None:
            return
        if x1 is None and x2 is not None:
            x1, y1 = x2 - _STUB, round(y2 - slope * _STUB)
        elif x2 is None and x1 is not None:
            x2, y2 = x1 + _STUB, round(y1 + slope * _STUB)
        assert x1 is not None
        assert x2 is not None
        sent = f"sent at {duration(sent_ms)}" if sent_ms is not None else "its sending was not logged"
        taken = (
            f"taken at {duration(taken_ms)}" if taken_ms is not None else "not taken while this was logged"
        )
        title = one_line(f"{what}; {sent}, {taken}; {_MEANING.get(style, '')}").rstrip("; ")
        yield Line(style, x1, float(y1), x2, float(y2), title)

    def _bands(self) -> Iterable[Band]:
        for chosen in self._chosen:
            for first, last, hidden in chosen.bands:
                y1, y2 = self._y[chosen.channel.sender], self._y[chosen.channel.receiver]
                corners = [
                    (self._x(first.sent_ms), y1),
                    (self._x(last.sent_ms), y1),
                    (self._x(last.taken_ms), y2),
                    (self._x(first.taken_ms), y2),
                ]
                if all(x is not None for x, _ in corners):
                    points = " ".join(f"{x},{y}" for x, y in corners)
                    title = f"{chosen.channel.name}: {plural(hidden, 'more batch', 'more batches')}"
                    yield Band(first.side.value, points, one_line(title))

    def _left_out(self) -> str:
        near, near_drawn = (
            sum(_beside(batches, watermarks=False) for batches in every) for every in self._all_and_drawn()
        )
        watermarks, watermarks_drawn = (
            sum(_beside(batches, watermarks=True) for batches in every) for every in self._all_and_drawn()
        )
        crossing = sum(_crossing(element.channel.batches) for element in self._chosen)
        crossing_drawn = sum(_crossing(chosen.batches) for chosen in self._chosen)
        really = sum(abs(entry.channel.crossing) for entry in self._chosen)
        parts = []
        if max(crossing, really) > crossing_drawn:
            parts.append(
                f"of the {max(crossing, really):,} batches that cross the cut {crossing_drawn:,} are drawn, "
                "the first and the last of each channel; an area stands for the others"
            )
        if near > near_drawn:
            parts.append(
                f"of the {near:,} other batches that were logged around the checkpoint the {near_drawn:,} nearest to "
                "the cut are drawn"
            )
        if watermarks > watermarks_drawn:
            parts.append(
                f"of the {watermarks:,} watermarks that do not cross it the {watermarks_drawn:,} nearest are drawn"
            )
        if self._cut.has_event_time:
            parts.append("the value of a watermark is written where there is room")
        barriers = sum(len(item.channel.barriers) for item in self._chosen)
        if barriers > BARRIERS_MAX:
            parts.append(
                f"of the {barriers:,} {self._cut.control}s of the checkpoint {BARRIERS_MAX:,} are drawn"
            )
        parts.append(f"{self._cut.control}s of other checkpoints are left out")
        text = "; ".join(parts)
        counted = "The table counts all batches that cross the cut"
        also = ", and a watermark as one of them" if self._cut.has_event_time else ""
        return f"{text[0].upper()}{text[1:]}. {counted}{also}."

    def _all_and_drawn(self) -> tuple[list[Sequence[Batch]], list[Sequence[Batch]]]:
        """Return the batches that were logged, and those that are drawn, channel by channel."""
        return [one.channel.batches for one in self._chosen], [one.batches for one in self._chosen]


def _what(batch: Batch) -> str:
    """Return what a batch is and how many records it holds; of one that was restored in flight this is not logged."""
    if batch.is_watermark:
        return watermark_name(batch)
    size = plural(batch.records, "record") if batch.records else "restored in flight"
    return f"batch {batch.position}, {size}"


def _beside(batches: Sequence[Batch], *, watermarks: bool) -> int:
    """Count the batches with records, or the watermarks, that do not cross the cut."""
    return sum(batch.is_watermark is watermarks and batch.side not in _CROSSING for batch in batches)


def _crossing(batches: Sequence[Batch]) -> int:
    return sum(batch.side in _CROSSING for batch in batches)


def _pieces(lanes: Sequence[DrawnLane], height: int) -> tuple[str, ...]:
    """Return the cut in pieces: a lane without a snapshot interrupts it; at both ends it reaches the edge."""
    pieces: list[list[tuple[float, float]]] = [[]]
    for lane in lanes:
        if lane.cut_x is None:
            pieces.append([])
        else:
            pieces[-1].append((lane.cut_x, float(lane.y)))
    whole = [piece for piece in pieces if piece]
    if lanes and lanes[0].cut_x is not None:
        whole[0].insert(0, (whole[0][0][0], float(_TOP - 8)))
    if lanes and lanes[-1].cut_x is not None:
        whole[-1].append((whole[-1][-1][0], float(height - _BOTTOM + 4)))
    return tuple(" ".join(f"{x},{y:g}" for x, y in piece) for piece in whole)


_LAYERS = (
    "before",
    "after",
    "unknown",
    "watermark",
    "barrier",
    "flight",
    "watermark-flight",
    "early-allowed",
    "early",
    "extra",
    "lost",
)
"""From the bottom to the top."""

_MEANING = {
    "before": "before the cut at both ends",
    "after": "after the cut at both ends",
    "flight": "in flight, and held by the snapshot",
    "watermark-flight": "in flight, and held by the snapshot",
    "lost": "in flight, and not in the snapshot",
    "extra": "held by the snapshot, though not in flight",
    "early": "backwards across the cut",
    "early-allowed": "backwards across the cut, which at-least-once mode allows",
    "unknown": "one end took no snapshot",
}

_LEGEND = {
    "before": "batch before the cut",
    "after": "batch after it",
    "unknown": "batch of a subtask without a snapshot",
    "barrier": "barrier",
    "flight": "in flight, held by the snapshot",
    "watermark": "watermark, with its value",
    "watermark-flight": "watermark in flight, held by the snapshot",
    "idle": "idle: nobody waits for its watermark",
    "early-allowed": "came early (at least once)",
    "early": "backwards across the cut",
    "lost": "in flight, not in the snapshot",
    "extra": "held by the snapshot, not in flight",
}
"""Style -> what it means, in the order of a legend."""


def legend(diagram: CutDiagram, control: str) -> tuple[tuple[str, str], ...]:
    """Return style and meaning of the lines in a diagram; ``control`` is the name of what passes the channels."""
    known = {**_LEGEND, "barrier": control}
    return tuple((style, meaning) for style, meaning in known.items() if style in diagram.styles)


def legend_of_marks(diagram: CutDiagram, control: str) -> tuple[tuple[Mark, str], ...]:
    """Return each kind of mark in a diagram that its lines do not explain, in the middle of a small picture."""
    known = {
        "overtaken": f"here the {control} overtakes a watermark",
        "late": "late records leave by their side output",
    }
    return tuple((Mark(style, 13, 6), text) for style, text in known.items() if style in diagram.mark_styles)
