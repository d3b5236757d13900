"""Totals of keys between two cuts: the same as all combinations tried one by one, and in far fewer steps.

Grain: unit.
"""

from __future__ import annotations

from functools import reduce
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barrier_tck.harness.oracle.evidence import key_totals
from barrier_tck.harness.oracle.evidence.key_totals import Between, KeyTotals
from barrier_tck.harness.record.history import Row
from barrier_tck.harness.workloads.changed_totals import NOTHING, Totals, added, totals_of_record
from barrier_tck.harness.workloads.workload import SplitData

KEYS = ("a", "b")
ROWS = st.builds(
    lambda key, value, mark, quarters: {"key": key, "value": value, "mark": mark, "part": quarters / 4},
    st.sampled_from(KEYS),
    st.sampled_from((None, -2, 1, 3)),
    st.booleans(),
    st.integers(-2, 3),
)
SPLITS = st.lists(st.tuples(st.lists(ROWS, max_size=6), st.integers(0, 2)), min_size=1, max_size=4)


def _splits(drawn: list[tuple[list[Row], int]]) -> list[SplitData]:
    return [
        SplitData(f"s{number}", 0, tuple(rows), min(start, len(rows)))
        for number, (rows, start) in enumerate(drawn)
    ]


def _one_by_one(splits: list[SplitData], key: str, positions: list[int]) -> Totals:
    return reduce(
        added,
        (
            totals_of_record(row)
            for split, position in zip(splits, positions, strict=True)
            for row in split.rows[split.start_offset : position]
            if row["key"] == key
        ),
        NOTHING,
    )


@given(SPLITS, st.data())
def test_between_two_cuts_are_the_totals_that_some_positions_between_them_give(
    drawn: list[tuple[list[Row], int]], data: st.DataObject
) -> None:
    splits = _splits(drawn)
    read = KeyTotals(splits)
    low = [data.draw(st.integers(split.start_offset, len(split.rows))) for split in splits]
    high = [
        data.draw(st.integers(position, len(split.rows))) for position, split in zip(low, splits, strict=True)
    ]
    names = [split.name for split in splits]
    at_low, at_high = dict(zip(names, low, strict=True)), dict(zip(names, high, strict=True))
    assert read.before(at_low) == {
        key: totals for key in KEYS if (totals := _one_by_one(splits, key, low)) != NOTHING
    }
    for key in KEYS:
        begun = _one_by_one(splits, key, low)
        between = read.between(key, at_low, at_high)
        ways = product(*(range(first, end + 1) for first, end in zip(low, high, strict=True)))
        given_by_some = {
            tuple(now - before for now, before in zip(_one_by_one(splits, key, way), begun, strict=True))
            for way in map(list, ways)
        }
        for more in given_by_some:
            assert between.gives(more)
            off = (more[0], more[1] + 0.5, *more[2:])
            assert not between.gives(off)


def test_sums_of_many_splits_are_looked_up_and_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    additions = 0

    def counted(totals: Totals, more: Totals) -> Totals:
        nonlocal additions
        additions += 1
        return added(totals, more)

    monkeypatch.setattr(key_totals, "added", counted)
    splits = [[(number, number * 10**split, 0, 0.0) for number in range(8)] for split in range(6)]
    between = Between(splits)
    for digits in ((7, 0, 3, 1, 5, 2), (0, 0, 0, 0, 0, 0), (7, 7, 7, 7, 7, 7)):
        value = sum(digit * 10**split for split, digit in enumerate(digits))
        assert between.gives((sum(digits), value, 0, 0.0))
        assert not between.gives((sum(digits) + 1, value, 0, 0.0))
    assert additions < 8**4 < 8**6


def test_with_too_many_sums_nothing_is_said() -> None:
    splits = [[(number, number * 1000**split, 0, 0.0) for number in range(300)] for split in range(4)]
    assert Between(splits).gives((0, 0, 0, 0.0)) is None
