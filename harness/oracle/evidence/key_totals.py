"""Totals of the keys of an input after any number of records of each split, and which of them lie between two cuts.

Which records of a split had come when a total was read is not known, only that they were its first ones. So a total
between two cuts is right if each split has a number of further records that give it together. These are too many
combinations to try; but half of the splits give few sums, and what the others must add to one of them is looked up.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from functools import cached_property
from operator import sub

from barrier_tck.harness.workloads.changed_totals import KEY, NOTHING, Totals, added, totals_of_record
from barrier_tck.harness.workloads.workload import SplitData

SUMS_MAX = 50_000
"""If half of the splits give more sums than these between two cuts, no total between them is compared."""


class KeyTotals:
    """The totals of each key, by how far the splits were read. Reads the input once."""

    def __init__(self, splits: Sequence[SplitData]) -> None:
        """Take the splits, whose records before their ``start_offset`` do not count."""
        self._of_splits = {split.name: _prefixes_of(split) for split in splits}
        self._keys = tuple(dict.fromkeys(key for split in self._of_splits.values() for key in split))

    def before(self, positions: Mapping[str, int]) -> dict[str, Totals]:
        """Return key -> the totals of the records before a cut, for each key that has one."""
        found: dict[str, Totals] = {}
        for key in self._keys:
            totals = NOTHING
            for name, prefixes in self._of_splits.items():
                if key in prefixes:
                    totals = added(totals, prefixes[key].before(positions[name]))
            if totals[0]:
                found[key] = totals
        return found

    def between(self, key: str, low: Mapping[str, int], high: Mapping[str, int]) -> Between:
        """Return what records of a key between two cuts can add."""
        return Between(
            [
                prefixes[key].added_between(low[name], high[name])
                for name, prefixes in self._of_splits.items()
                if key in prefixes
            ]
        )


class Between:
    """What the first records of a key in each split, from one cut to another, can add together."""

    def __init__(self, splits: Sequence[Sequence[Totals]]) -> None:
        """Take for each split what none, one, two and more of its records add."""
        self._splits = splits

    def gives(self, more: Totals) -> bool | None:
        """Return whether some numbers of records add exactly this; None if there are too many sums."""
        if self._halves is None:
            return None
        few, many = self._halves
        return any(tuple(map(sub, more, part)) in many for part in few)

    @cached_property
    def _halves(self) -> tuple[dict[Totals, None], dict[Totals, None]] | None:
        """The sums of either half of the splits, the fewer ones first; None if there are too many."""
        few: dict[Totals, None] = {NOTHING: None}
        many = few
        for split in sorted(self._splits, key=len, reverse=True):
            if len(few) * len(split) > SUMS_MAX:
                return None
            sums = dict.fromkeys(added(total, part) for total in few for part in split)
            few, many = sorted((sums, many), key=len)
        return few, many


class _Prefixes:
    """The records of one key in one split."""

    def __init__(self) -> None:
        self._offsets: list[int] = []
        self._totals: list[Totals] = [NOTHING]
        """The totals of none of them, of the first one, of the first two, and so on."""

    def add(self, offset: int, record: Totals) -> None:
        """Add the next one."""
        self._offsets.append(offset)
        self._totals.append(added(self._totals[-1], record))

    def before(self, position: int) -> Totals:
        """Return the totals of those before a position."""
        return self._totals[bisect_left(self._offsets, position)]

    def added_between(self, low: int, high: int) -> list[Totals]:
        """Return what none, the first one, the first two and more of those between two positions add."""
        first, end = bisect_left(self._offsets, low), bisect_left(self._offsets, high)
        begun = self._totals[first]
        return [tuple(map(sub, totals, begun)) for totals in self._totals[first : max(first, end) + 1]]


def _prefixes_of(split: SplitData) -> dict[str, _Prefixes]:
    found: dict[str, _Prefixes] = {}
    for offset, row in enumerate(split.rows[split.start_offset :], split.start_offset):
        found.setdefault(row[KEY[0]], _Prefixes()).add(offset, totals_of_record(row))
    return found
