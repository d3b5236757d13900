"""What windows and joins must give, computed with Arrow and NumPy over the whole input at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.windows_data import LAST_KEY

WINDOW_COLUMNS = ("key", "window_start", "window_end", "count", "sum")
PAIR_COLUMNS = ("key", "left", "right", "time")


def sliding_windows(rows: pa.Table, size_ms: int, slide_ms: int) -> pa.Table:
    """Return count and sum of the values by key and window; windows that do not overlap slide by their own length.

    Keys are 0 or more, and sums below 2 ** 53. There is a cell for each key and slide, so most of them should be used.
    """
    keys, slides = _numpy(rows, "key"), _numpy(rows, "at_ms") // slide_ms
    ahead = size_ms // slide_ms - 1
    first = slides.min() - ahead
    width = slides.max() - first + 1
    cells = keys * width + slides - first
    shape = keys.max() + 1, width
    counts = np.bincount(cells, minlength=shape[0] * width).reshape(shape)
    sums = np.bincount(cells, _numpy(rows, "value"), shape[0] * width).astype(np.int64).reshape(shape)
    counts, sums = (_over_the_next(table, ahead) for table in (counts, sums))
    key, start = np.nonzero(counts)
    return pa.table(
        {
            "key": key,
            "window_start": (start + first) * slide_ms,
            "window_end": (start + first) * slide_ms + size_ms,
            "count": counts[key, start],
            "sum": sums[key, start],
        }
    )


def _over_the_next(table: Any, ahead: int) -> Any:
    """Return, for each cell, the sum of it and of so many cells behind it in its row."""
    whole = table.copy()
    for distance in range(1, ahead + 1):
        whole[:, :-distance] += table[:, distance:]
    return whole


def sessions(rows: pa.Table, gap_ms: int) -> pa.Table:
    """Return count and sum of the values by key and session: records of a key less than the gap apart."""
    keys, times, values = (_numpy(rows, name) for name in ("key", "at_ms", "value"))
    placed, _ = _placed(rows, rows, 0)
    order = np.argsort(placed)
    keys, times, values = keys[order], times[order], values[order]
    begins = np.append(True, (np.diff(keys) != 0) | (np.diff(times) >= gap_ms))
    first = np.flatnonzero(begins)
    behind = np.append(first[1:], len(keys))
    return pa.table(
        {
            "key": keys[first],
            "window_start": times[first],
            "window_end": times[behind - 1] + gap_ms,
            "count": behind - first,
            "sum": np.add.reduceat(values, first),
        }
    )


def pairs(left: pa.Table, right: pa.Table, upper_ms: int) -> pa.Table:
    """Return the pairs of equal keys in which the right record is later by 0 to ``upper_ms``, both included."""
    wanted, placed = _placed(left, right, upper_ms)
    order, left_order = np.argsort(placed), np.argsort(wanted)
    # Both in order: each search begins near the one before it, which is much quicker.
    placed, wanted = placed[order], wanted[left_order]
    begins = np.searchsorted(placed, wanted, side="left")
    counts = np.searchsorted(placed, wanted + upper_ms, side="right") - begins
    of_left = left_order[np.repeat(np.arange(len(wanted)), counts)]
    within = np.arange(len(of_left)) - np.repeat(np.cumsum(counts) - counts, counts)
    of_right = order[np.repeat(begins, counts) + within]
    return pa.table(
        {
            "key": _numpy(left, "key")[of_left],
            "left": _numpy(left, "value")[of_left],
            "right": _numpy(right, "value")[of_right],
            "time": np.maximum(_numpy(left, "at_ms")[of_left], _numpy(right, "at_ms")[of_right]),
        }
    )


def _placed(left: pa.Table, right: pa.Table, reach_ms: int) -> tuple[Any, Any]:
    """Return a number for each record of two tables: by key and then by time, keys further apart than the reach."""
    first_ms = min(_numpy(side, "at_ms").min() for side in (left, right))
    width = max(_numpy(side, "at_ms").max() for side in (left, right)) - first_ms + reach_ms + 1
    one, other = (_numpy(side, "key") * width + _numpy(side, "at_ms") - first_ms for side in (left, right))
    return one, other


def require_same_rows(found: pa.Table, expected: pa.Table, side: str) -> None:
    """Raise RuntimeError unless both have the same rows, each as often, in any order.

    What came of the records at the end of the lanes is passed over.
    """
    found = found.filter(pc.not_equal(found["key"], LAST_KEY))
    expected = expected.select(found.column_names)
    if _digest(found) == _digest(expected):
        return
    rows, wanted = _ordered(found), _ordered(expected)
    shared = min(len(rows), len(wanted))
    wrong = np.flatnonzero((rows[:shared] != wanted[:shared]).any(axis=1))
    place = int(wrong[0]) if len(wrong) else shared
    raise RuntimeError(
        f"{side} has {len(rows)} rows, and {len(wanted)} are right; the first that differs is "
        f"{_row(rows, place, found)}, not {_row(wanted, place, found)}"
    )


def _digest(table: pa.Table) -> tuple[int, int]:
    """Return the number of rows, and a sum over all of them of a hash of each: the same in any order.

    Sorting millions of rows would take longer than the run that gave them.
    """
    mixed = np.zeros(table.num_rows, dtype=np.uint64)
    for name in table.column_names:
        mixed = (mixed ^ _numpy(table, name).astype(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(32)
        mixed *= np.uint64(0xBF58476D1CE4E5B9)
        mixed ^= mixed >> np.uint64(29)
    return table.num_rows, int(mixed.sum())


def _ordered(table: pa.Table) -> Any:
    """Return a table as an array of rows, in the order of their values."""
    columns = [_numpy(table, name) for name in table.column_names]
    return np.column_stack(columns)[np.lexsort(columns[::-1])]


def _row(rows: Any, place: int, table: pa.Table) -> dict[str, int] | None:
    return dict(zip(table.column_names, rows[place].tolist(), strict=True)) if place < len(rows) else None


def _numpy(table: pa.Table, name: str) -> Any:
    return table[name].to_numpy()
