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
    """Return count and sum of the values by key and window; windows that do not overlap slide by their own length."""
    panes = pa.table(
        {
            "key": rows["key"],
            "pane": _numpy(rows, "at_ms") // slide_ms * slide_ms,
            "value": rows["value"],
        }
    )
    parts = panes.group_by(["key", "pane"]).aggregate([("value", "count"), ("value", "sum")])
    starts = range(0, size_ms, slide_ms)
    shifted = pa.concat_tables(
        [parts.set_column(1, "window_start", pc.subtract(parts["pane"], back)) for back in starts]
    )
    whole = shifted.group_by(["key", "window_start"]).aggregate(
        [("value_count", "sum"), ("value_sum", "sum")]
    )
    return pa.table(
        {
            "key": whole["key"],
            "window_start": whole["window_start"],
            "window_end": pc.add(whole["window_start"], size_ms),
            "count": whole["value_count_sum"],
            "sum": whole["value_sum_sum"],
        }
    )


def sessions(rows: pa.Table, gap_ms: int) -> pa.Table:
    """Return count and sum of the values by key and session: records of a key less than the gap apart."""
    order = np.lexsort((_numpy(rows, "at_ms"), _numpy(rows, "key")))
    keys, times, values = (_numpy(rows, name)[order] for name in ("key", "at_ms", "value"))
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
    first_ms = min(_numpy(side, "at_ms").min() for side in (left, right))
    width = max(_numpy(side, "at_ms").max() for side in (left, right)) - first_ms + upper_ms + 1
    placed = _numpy(right, "key") * width + _numpy(right, "at_ms") - first_ms
    order = np.argsort(placed)
    placed = placed[order]
    wanted = _numpy(left, "key") * width + _numpy(left, "at_ms") - first_ms
    begins = np.searchsorted(placed, wanted, side="left")
    counts = np.searchsorted(placed, wanted + upper_ms, side="right") - begins
    of_left = np.repeat(np.arange(len(wanted)), counts)
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


def require_same_rows(found: pa.Table, expected: pa.Table, side: str) -> None:
    """Raise RuntimeError unless both have the same rows, each as often, in any order.

    What came of the records at the end of the lanes is passed over.
    """
    found = found.filter(pc.not_equal(found["key"], LAST_KEY))
    rows, wanted = (_ordered(table) for table in (found, expected.select(found.column_names)))
    shared = min(found.num_rows, expected.num_rows)
    wrong = np.flatnonzero((rows[:shared] != wanted[:shared]).any(axis=1))
    if len(wrong) or len(rows) != len(wanted):
        place = int(wrong[0]) if len(wrong) else shared
        raise RuntimeError(
            f"{side} has {len(rows)} rows, and {len(wanted)} are right; the first that differs is "
            f"{_row(rows, place, found)}, not {_row(wanted, place, found)}"
        )


def _ordered(table: pa.Table) -> Any:
    """Return a table as an array of rows, in the order of their values."""
    columns = [_numpy(table, name) for name in table.column_names]
    return np.column_stack(columns)[np.lexsort(columns[::-1])]


def _row(rows: Any, place: int, table: pa.Table) -> dict[str, int] | None:
    return dict(zip(table.column_names, rows[place].tolist(), strict=True)) if place < len(rows) else None


def _numpy(table: pa.Table, name: str) -> Any:
    return table[name].to_numpy()
