"""The rows of one side of a join that wait for partners, on Arrow: sorted runs, in which a batch looks up its own.

Each batch becomes a run, sorted by key and time. Neighbouring runs of about the same size become one, so there are few
and each row is moved seldom. What has to be found of a run is where a key's rows of a range of times begin and end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from barrier_tck.reference_impl.operators.arrow_keys import Ints, bounds_of
from barrier_tck.reference_impl.operators.arrow_window_slabs import Pins
from barrier_tck.reference_impl.operators.encoding import INT64_MAX

_FEW_ALIVE = 2
"""A run is made anew once less than one row in so many still waits."""


class _Ranks:
    """Gives pairs of a key's slot and a time one number each, in their order."""

    def __init__(self, slots: Ints, times: Ints) -> None:
        """Take the pairs between which others are to be looked up."""
        self._first_ms, self._last_ms = bounds_of(times)
        self._distinct: Ints | None = None
        """The times that there are, if they are too far from each other for numbers of 64 bits."""
        self._width = self._last_ms - self._first_ms + 2
        if (int(slots.max()) + 1) * self._width > INT64_MAX:
            self._distinct = np.unique(times)
            self._width = len(self._distinct) + 1

    def of(self, slots: Ints, times: Ints) -> Ints:
        """Return the numbers of pairs, or of the next ones that there are of the key."""
        if self._distinct is not None:
            return slots * self._width + np.searchsorted(self._distinct, times, side="left")
        return slots * self._width + (np.clip(times, self._first_ms, self._last_ms + 1) - self._first_ms)

    def behind(self, slots: Ints, times: Ints) -> Ints:
        """Return the numbers of the first pairs of the key that are later."""
        if self._distinct is not None:
            return slots * self._width + np.searchsorted(self._distinct, times, side="right")
        return slots * self._width + (np.clip(times, self._first_ms - 1, self._last_ms) + 1 - self._first_ms)


class Run:
    """Waiting rows, sorted by the slot of their key and by time."""

    def __init__(
        self, slots: Ints, times: Ints, numbers: Ints, matched: Any, batch: Any, removal_ms: Ints, pins: Pins
    ) -> None:
        """Take rows in any order: slots of keys, event times (ms), numbers in the order in which they came.

        ``matched``: which of them are part of a pair. ``batch``: what they give to the output. ``removal_ms``: at which
        watermark each is removed. ``pins``: the snapshots that may read the run.
        """
        self._ranks = _Ranks(slots, times)
        places = self._ranks.of(slots, times)
        # Timsort: what is put together of two runs is sorted with one pass over both.
        order = np.argsort(places, kind="stable")
        self._places = places[order]
        self.slots, self.times, self.numbers = slots[order], times[order], numbers[order]
        self.matched, self.removal_ms = matched[order], removal_ms[order]
        self.batch = batch.take(pa.array(order))
        self.waits: Any = np.ones(len(slots), dtype=np.bool_)
        """Which rows have not been removed."""
        self.next_ms = int(removal_ms.min())
        """No row is removed before."""
        self._pins = pins
        self._born = pins.next

    def __len__(self) -> int:
        return len(self.slots)

    def find(self, slots: Ints, first_ms: Ints, last_ms: Ints) -> tuple[Ints, Ints]:
        """Return pairs: the place in the given arrays, and that of a row of the same key and of a time in the range.

        Rows that were removed are found, too: they lie in no range of a row that is on time.
        """
        last_slot = self.slots[-1]
        known = np.minimum(slots, last_slot)  # the number of another one might have more than 64 bits
        begins = np.searchsorted(self._places, self._ranks.of(known, first_ms))
        ends = np.searchsorted(self._places, self._ranks.behind(known, last_ms))
        counts = np.where(slots <= last_slot, ends - begins, 0)
        found = np.repeat(np.arange(len(slots)), counts)
        within = np.arange(len(found)) - np.repeat(np.cumsum(counts) - counts, counts)
        return found, within + np.repeat(begins, counts)

    def make_own(self) -> None:
        """Copy what changes, if a snapshot reads it; ahead of every change."""
        if self._pins.newest >= self._born:
            self.matched, self.waits = self.matched.copy(), self.waits.copy()
            self._born = self._pins.next

    def kept(self, new_slots: Ints | None = None) -> Run | None:
        """Return the rows that still wait; ``new_slots``: the slots of their keys by the former ones."""
        rows = np.flatnonzero(self.waits)
        if not len(rows):
            return None
        slots = self.slots[rows]
        return Run(
            slots if new_slots is None else new_slots[slots],
            self.times[rows],
            self.numbers[rows],
            self.matched[rows],
            self.batch.take(pa.array(rows)),
            self.removal_ms[rows],
            self._pins,
        )


def together(runs: Sequence[Run], pins: Pins) -> Run:
    """Return the rows of several runs that still wait, of which there is one at least, as one run."""
    rows = [np.flatnonzero(run.waits) for run in runs]
    tables = [
        pa.Table.from_batches([run.batch.take(pa.array(of_run))])
        for run, of_run in zip(runs, rows, strict=True)
    ]
    whole = pa.concat_tables(tables, promote_options="permissive").combine_chunks()
    parts = [
        (
            run.slots[of_run],
            run.times[of_run],
            run.numbers[of_run],
            run.matched[of_run],
            run.removal_ms[of_run],
        )
        for run, of_run in zip(runs, rows, strict=True)
    ]
    slots, times, numbers, matched, removal_ms = (np.concatenate(each) for each in zip(*parts, strict=True))
    return Run(slots, times, numbers, matched, whole.to_batches()[0], removal_ms, pins)


class WaitingRows:
    """All runs of a side, the largest first."""

    def __init__(self, pins: Pins) -> None:
        self._pins = pins
        self.runs: list[Run] = []
        self._next_number = 0

    @property
    def next_ms(self) -> int | None:
        """Before that no row is removed; None: none is there."""
        return min((run.next_ms for run in self.runs), default=None)

    def add(self, slots: Ints, times: Ints, matched: Any, batch: Any, removal_ms: Ints) -> None:
        """Take rows (at least one) in the order in which they came."""
        numbers = np.arange(self._next_number, self._next_number + len(slots))
        self._next_number += len(slots)
        self.runs.append(Run(slots, times, numbers, matched, batch, removal_ms, self._pins))
        while len(self.runs) > 1 and len(self.runs[-2]) <= 2 * len(self.runs[-1]):
            self.runs[-2:] = [together(self.runs[-2:], self._pins)]

    def drop_removed(self) -> None:
        """Give up rows that were removed, where they are many."""
        runs: list[Run] = []
        for run in self.runs:
            waiting = int(np.count_nonzero(run.waits))
            if waiting * _FEW_ALIVE < len(run):
                fewer = run.kept()
                runs += [fewer] if fewer is not None else []
            else:
                runs.append(run)
        self.runs = runs

    def move(self, new_slots: Ints) -> None:
        """Let keys have other slots."""
        runs = (run.kept(new_slots) for run in self.runs)
        self.runs = [run for run in runs if run is not None]
