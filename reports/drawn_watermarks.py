"""Event time in a cut diagram: where watermarks arrive and barriers overtake them, their values, and late records.

Places are computed from the lines that are drawn, so nothing is marked whose line was left out. A value is written
where it covers no other one, first at watermarks in flight, then at those nearest to the cut.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import hypot

from barrier_tck.reports.cut import Batch, ChannelCut
from barrier_tck.reports.wording import event_time, one_line, plural

LABELS_MAX = 80
"""How many values are written at most."""

_LETTER_PIXELS, _GAP_PIXELS = 6.5, 7
_RING = 10
_RIGHT, _ABOVE, _BELOW = 6, -7, 15

Overtaking = tuple[tuple[float, float], int]
"""Where a barrier overtakes a watermark, and what that says (ms)."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A small sign at a place; ``style`` is its class in the style sheet."""

    style: str
    x: float
    y: float
    title: str = ""

    @property
    def path(self) -> str:
        """Return its shape: a ring, a triangle, or a diamond."""
        match self.style:
            case "overtaken":
                return f"M{self.x - 5:g} {self.y:g}a5 5 0 1 0 10 0a5 5 0 1 0 -10 0Z"
            case "late":
                return f"M{self.x - 5:g} {self.y + 4:g}h10l-5 -9Z"
            case _:
                return f"M{self.x - 4:g} {self.y:g}l4 -4l4 4l-4 4Z"


@dataclass(frozen=True, slots=True)
class Label:
    """A value at a place, which is the left end of its line of text."""

    x: float
    y: float
    text: str


@dataclass(frozen=True, slots=True)
class Ends:
    """Where a line begins and ends; None where that was not logged."""

    x1: float | None
    y1: float
    x2: float | None
    y2: float


@dataclass(frozen=True, slots=True)
class DrawnBatch:
    """A batch, or a watermark, with its line."""

    channel: ChannelCut
    batch: Batch
    style: str
    ends: Ends
    from_cut: float
    """How far from the cut its end lies, in pixels."""


def watermark_name(batch: Batch) -> str:
    """Return what a watermark says."""
    assert batch.watermark_ms is not None
    return f"watermark {event_time(batch.watermark_ms)}" + (", from here on idle" if batch.idle else "")


def arrivals(drawn: Iterable[DrawnBatch]) -> Iterator[Mark]:
    """Yield a diamond where each watermark arrives."""
    for one in drawn:
        if one.batch.is_watermark and one.ends.x2 is not None:
            title = one_line(f"{one.channel.name}: {watermark_name(one.batch)}")
            yield Mark(one.style, one.ends.x2, one.ends.y2, title)


def overtakings(drawn: Iterable[DrawnBatch], barriers: dict[str, list[Ends]], control: str) -> Iterator[Mark]:
    """Yield a ring where the line of a barrier crosses those of watermarks which left before it.

    Of rings that would cover each other one is drawn, which stands for all of them.
    """
    for channel, lines in barriers.items():
        overtaken = [one for one in drawn if one.channel.name == channel and one.batch.is_watermark]
        for barrier in lines:
            places = sorted(
                (place, one.batch.watermark_ms or 0)
                for one in overtaken
                if (place := _crossing(one.ends, barrier)) is not None
            )
            for near in _together(places):
                (x, y), _ = near[len(near) // 2]
                least, most = (event_time(end(value for _, value in near)) for end in (min, max))
                what = (
                    f"watermark {least}" if len(near) == 1 else f"{len(near)} watermarks, {least} to {most}"
                )
                title = one_line(f"{channel}: the {control} overtakes {what}")
                yield Mark("overtaken", round(x, 1), round(y, 1), title)


def late_records(drawn: Iterable[DrawnBatch], output: str) -> Iterator[Mark]:
    """Yield a triangle where a subtask sends records to its side output for late ones."""
    for one in drawn:
        if one.channel.output == output and not one.batch.is_watermark and one.ends.x1 is not None:
            records = plural(one.batch.records, "late record")
            title = f"{one.channel.name}: {records}, behind the allowed lateness"
            yield Mark("late", one.ends.x1, one.ends.y1, one_line(title))


def labels(drawn: Iterable[DrawnBatch], width: float) -> tuple[Label, ...]:
    """Return the values of watermarks that there is room for: right of where each arrives, away from its line."""
    arriving = [one for one in drawn if one.batch.is_watermark and one.ends.x2 is not None]
    taken: dict[float, list[tuple[float, float]]] = {}
    found: list[Label] = []
    for one in sorted(arriving, key=lambda each: (each.style == "watermark", each.from_cut)):
        assert one.batch.watermark_ms is not None
        text = event_time(one.batch.watermark_ms, short=True) + (" · idle" if one.batch.idle else "")
        begin = _known(one.ends.x2) + _RIGHT
        end = begin + _LETTER_PIXELS * len(text)
        y = one.ends.y2 + (_ABOVE if one.ends.y1 <= one.ends.y2 else _BELOW)
        if end > width or not _is_free(taken.setdefault(y, []), begin, end):
            continue
        insort(taken[y], (begin, end))
        found.append(Label(round(begin, 1), y, text))
        if len(found) == LABELS_MAX:
            break
    return tuple(found)


def _is_free(taken: Sequence[tuple[float, float]], begin: float, end: float) -> bool:
    return all(end + _GAP_PIXELS <= other[0] or other[1] + _GAP_PIXELS <= begin for other in taken)


def _together(places: Sequence[Overtaking]) -> Iterator[list[Overtaking]]:
    """Yield those together that lie less than a ring apart from the one before."""
    found: list[Overtaking] = []
    for place in places:
        if found and hypot(place[0][0] - found[-1][0][0], place[0][1] - found[-1][0][1]) > _RING:
            yield found
            found = []
        found.append(place)
    if found:
        yield found


def _crossing(earlier: Ends, later: Ends) -> tuple[float, float] | None:
    """Return where the second of two lines between the same lanes, which begins later, crosses the first; or None."""
    if None in (earlier.x1, earlier.x2, later.x1, later.x2) or earlier.y1 == earlier.y2:
        return None
    begin, end = _known(earlier.x1), _known(earlier.x2)
    ahead, behind = _known(later.x1) - begin, end - _known(later.x2)
    if ahead < 0 or behind <= 0:
        return None
    share = ahead / (ahead + behind)
    return begin + (end - begin) * share, earlier.y1 + (earlier.y2 - earlier.y1) * share


def _known(x: float | None) -> float:
    assert x is not None
    return x
