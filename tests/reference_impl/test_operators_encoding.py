"""The encoding of keys and accumulators: round trips, equality, key groups, and the vectorised forms."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from barrier_tck.reference_impl.operators.arrow_keys import encode_int_keys, groups_of_ints, stable_order
from barrier_tck.reference_impl.operators.encoding import (
    accumulator_header,
    decode_accumulator,
    decode_key,
    encode_accumulator,
    encode_key,
    key_group_of,
)
from barrier_tck.reference_impl.runtime_errors import CorruptStateError, JobUsageError

int64 = st.integers(-(2**63), 2**63 - 1)
scalars = st.none() | st.booleans() | int64 | st.floats(allow_nan=False) | st.text()
keys = st.lists(scalars, max_size=4).map(tuple)
accumulators = st.lists(st.none() | int64 | st.floats(allow_nan=False), max_size=20).map(tuple)


def _typed(values: tuple[Any, ...]) -> list[tuple[type, Any]]:
    return [(type(value), value) for value in values]


@pytest.mark.long
@given(keys)
def test_keys_round_trip_with_their_types(key: tuple[Any, ...]) -> None:
    assert _typed(decode_key(encode_key(key))) == _typed(key)


@given(keys, keys)
def test_keys_have_equal_bytes_exactly_if_they_are_equal(
    one: tuple[Any, ...], other: tuple[Any, ...]
) -> None:
    assert (encode_key(one) == encode_key(other)) == (_typed(one) == _typed(other))


def test_one_and_one_and_true_are_three_keys_and_zeros_are_one() -> None:
    assert len({encode_key((value,)) for value in (1, 1.0, True)}) == 3
    assert encode_key((0.0,)) == encode_key((-0.0,))
    assert encode_key((math.nan,)) == encode_key((-math.nan,))


@given(accumulators)
def test_accumulators_round_trip_with_their_types(values: tuple[Any, ...]) -> None:
    assert _typed(decode_accumulator(encode_accumulator(values))) == _typed(values)


def test_the_fixed_width_form_is_what_numpy_writes() -> None:
    assert encode_accumulator((1, 2.0)) == accumulator_header((False, True)) + (
        np.array([1], "<i8").tobytes() + np.array([2.0], "<f8").tobytes()
    )


@given(st.lists(int64), st.integers(1, 2**15))
def test_a_column_of_integers_is_encoded_and_grouped_as_its_keys_are(values: list[int], groups: int) -> None:
    column = np.array(values, dtype=np.int64)
    assert encode_int_keys(column) == [encode_key((value,)) for value in values]
    assert groups_of_ints(column, groups).tolist() == [key_group_of((value,), groups) for value in values]


@pytest.mark.long
@given(keys, st.integers(1, 2**15))
def test_a_key_group_lies_in_its_range(key: tuple[Any, ...], groups: int) -> None:
    assert 0 <= key_group_of(key, groups) < groups


@pytest.mark.parametrize(
    "key_set", [[(i,) for i in range(4096)], [(f"N{i}", "EWR") for i in range(4096)]], ids=["ints", "texts"]
)
def test_keys_spread_evenly_over_groups(key_set: list[tuple[Any, ...]]) -> None:
    counts = np.bincount([key_group_of(key, 16) for key in key_set], minlength=16)
    # 256 expected, standard deviation 15.5
    assert 170 < counts.min() <= counts.max() < 340


def test_key_groups_never_change() -> None:
    """They decide where stored state is found, so a changed hash would lose all of it."""
    found = [key_group_of(key, 128) for key in [(0,), (1,), (-1,), ("AA", "JFK"), (None,), (True, 1.5)]]
    assert found == [113, 72, 114, 84, 0, 122]


@given(st.lists(st.integers(0, 2**34)))
def test_stable_order_sorts_stably(codes: list[int]) -> None:
    array = np.array(codes, dtype=np.int64)
    assert stable_order(array).tolist() == sorted(range(len(codes)), key=codes.__getitem__)


@pytest.mark.parametrize("data", [b"", b"\xc1\x00", b"\xc1", b"hello", b"\x93\x01"])
def test_bytes_that_are_no_key_are_called_corrupt(data: bytes) -> None:
    with pytest.raises(CorruptStateError):
        decode_key(data)


@pytest.mark.parametrize("data", [b"", b"\x02\x00", b"\x01\x00\x00abc", b"\x93\x01", b"hello"])
def test_bytes_that_are_no_accumulator_are_called_corrupt(data: bytes) -> None:
    with pytest.raises(CorruptStateError):
        decode_accumulator(data)


def test_values_that_fit_no_key_or_accumulator_are_refused() -> None:
    with pytest.raises(JobUsageError, match="b'x'"):
        encode_key((b"x",))  # type: ignore[arg-type]
    with pytest.raises(JobUsageError, match="64"):
        encode_key((2**64,))
    with pytest.raises(JobUsageError, match="64"):
        encode_accumulator((2**63,))
