"""What windows emit on Arrow: parts of slabs that fire, put together as batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from barrier_tck.reference_impl.operators.arrow_keys import Ints
from barrier_tck.reference_impl.operators.arrow_window_values import Results


class FiredRows:
    """Windows that fire, part by part."""

    def __init__(self) -> None:
        self.rows = 0
        self._slots: list[Ints] = []
        self._windows: list[tuple[Ints, Ints, Ints]] = []
        self._results: list[Sequence[Results]] = []

    def add(
        self, slots: Ints, start: Ints | int, end: Ints | int, firings: Ints, results: Sequence[Results]
    ) -> None:
        """Take windows: slots of their keys, start and end (ms) of each or all, numbers of firings, and results."""
        self.rows += len(slots)
        self._slots.append(slots)
        starts, ends = (np.broadcast_to(np.asarray(each), len(slots)) for each in (start, end))
        self._windows.append((starts, ends, firings))
        self._results.append(results)

    def columns(self) -> tuple[Ints, list[Ints], list[list[Results]]]:
        """Return the slots of all rows, the columns ``WINDOW_COLUMNS``, and the parts of results by aggregate."""
        starts, ends, firings = (np.concatenate(column) for column in zip(*self._windows, strict=True))
        results = [list(parts) for parts in zip(*self._results, strict=True)]
        return np.concatenate(self._slots), [starts, ends, ends - 1, firings], results


class UpdatedRows:
    """Late records that fire their windows again, each for itself."""

    def __init__(self) -> None:
        self.parts = FiredRows()
        self._numbers: list[Ints] = []
        self._starts: list[Ints] = []

    def add(
        self, numbers: Ints, start: int, end: int, slots: Ints, firings: Ints, results: Sequence[Results]
    ) -> None:
        """Take records by their number in the batch, all of the window with one start and end (ms)."""
        self.parts.add(slots, start, end, firings, results)
        self._numbers.append(numbers)
        self._starts.append(np.full(len(numbers), start))

    def batch(self, made: Callable[[FiredRows], Any]) -> Any:
        """Return a batch in the order of the records, for each of them the latest window first."""
        order = np.lexsort((-np.concatenate(self._starts), np.concatenate(self._numbers)))
        return made(self.parts).take(pa.array(order))
