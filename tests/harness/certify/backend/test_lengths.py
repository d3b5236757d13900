"""To which lengths files are cut, by examples and properties."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from barrier_tck.harness.certify.backend.wire import lengths_to_cut_to


def test_a_short_file_is_cut_to_every_length_longest_first() -> None:
    assert lengths_to_cut_to(4, [2], 10) == [3, 2, 1, 0]
    assert lengths_to_cut_to(0, [], 10) == []


def test_a_long_file_is_cut_near_its_ends_and_where_writes_ended() -> None:
    ends = [1_000, 5_000, 9_000]
    chosen = lengths_to_cut_to(10_000, ends, 240)
    assert {0, 1, 63, *ends, 9_976, 9_999} <= set(chosen)
    assert all(later - earlier < 200 for later, earlier in itertools.pairwise(chosen))


@given(
    size=st.integers(0, 5_000),
    ends=st.lists(st.integers(0, 5_000), max_size=400),
    at_most=st.integers(200, 300),
)
def test_lengths_are_below_the_size_descending_and_few(size: int, ends: list[int], at_most: int) -> None:
    chosen = lengths_to_cut_to(size, sorted(ends), at_most)
    assert chosen == sorted(set(chosen), reverse=True)
    assert all(0 <= length < size for length in chosen)
    assert len(chosen) <= at_most
