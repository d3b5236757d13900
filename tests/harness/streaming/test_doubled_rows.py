"""Rows in the place of expected ones; grain: rows as dictionaries."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from barrier_tck.harness.streaming.driver.doubled_rows import (
    TOGETHER_MAX,
    Difference,
    Instead,
    difference_of,
    in_the_place_of,
)


def row(key: str | None, total: Any, count: Any = 1) -> dict[str, Any]:
    return {"key": key, "total": total, "count": count}


@pytest.mark.parametrize(
    ("expected", "committed", "times"),
    [
        (row("a", 10), row("a", 20), 2),
        (row("a", 10, 3), row("a", 30, 9), 3),
        (row("a", -4), row("a", -8), 2),
        (row(None, Decimal("1.5")), row(None, Decimal("3.0")), 2),
        (row("a", 10), row("a", 13), None),
        (row("a", 10, 3), row("a", 20, 9), None),
        (row("a", 10), row("a", -20), None),
        (row("a", 10), row("a", 5), None),
        (row("a", 0), row("a", 5), None),
    ],
)
def test_a_row_with_other_numbers_is_in_the_place_and_a_multiple_tells_how_often_it_was_added(
    expected: dict[str, Any], committed: dict[str, Any], times: int | None
) -> None:
    assert list(in_the_place_of([expected], [committed])) == [Instead(0, 0, times)]


@pytest.mark.parametrize(
    ("expected", "committed"),
    [
        ([row("a", 10)], [row("b", 20)]),
        ([row("a", None)], [row("a", 20)]),
        ([row("a", True)], [row("a", 2)]),
        ([{"id": 1, "n": 5}], [{"id": 2, "n": 10}]),
        ([row("a", 10)], [row("a", 20), row("a", 30)]),
        ([row("a", 10), row("a", 11)], [row("a", 20)]),
    ],
    ids=["another key", "no number", "no number either", "nothing the same", "two that would do", "for two"],
)
def test_rows_that_do_not_surely_belong_together_are_left_alone(
    expected: list[dict[str, Any]], committed: list[dict[str, Any]]
) -> None:
    assert list(in_the_place_of(expected, committed)) == []


def test_the_only_number_of_a_query_may_differ() -> None:
    assert list(in_the_place_of([{"total": 7}], [{"total": 14}])) == [Instead(0, 0, 2)]


PARTS = {0: [row("a", 10, 2), row("b", 1)], 1: [row("a", 3)], 2: [row("b", 4)], 3: [row("a", 7, 2)]}
"""What four micro-batches add: 20 to the total of "a", with a count of 5."""


@pytest.mark.parametrize(
    ("total", "count", "found"),
    [
        (23, 6, Difference({"total": 3, "count": 1}, (1,))),
        (30, 7, Difference({"total": 10, "count": 2}, (0,))),
        (13, 3, Difference({"total": -7, "count": -2}, (3,), lacks=True)),
        (30, 6, Difference({"total": 10, "count": 1}, ())),
        (21, 6, Difference({"total": 1, "count": 1}, ())),
        (27, 5, Difference({"total": 7}, (3,))),
    ],
    ids=["one", "the first", "lacks one", "of two different ones", "none of them", "in one column"],
)
def test_a_difference_is_that_of_a_micro_batch_if_it_adds_just_that(
    total: int, count: int, found: Difference
) -> None:
    assert difference_of(row("a", 20, 5), row("a", total, count), PARTS) == found


@pytest.mark.parametrize(
    "parts",
    [
        None,
        {},
        {batch: rows for batch, rows in PARTS.items() if batch != 3},
        {0: [row("a", 20, 5)], 1: [row("a", 3, 5)]},
        {0: [row("a", 20, 5)], 1: [row("a", 1), row("a", 2)]},
        {0: [row("a", 20, 5)], 1: [row("a", None)]},
    ],
    ids=["not known", "none", "one is missing", "a greatest value", "two rows of one key", "no number"],
)
def test_what_micro_batches_give_says_nothing_unless_it_adds_up_to_the_row(parts: Any) -> None:
    assert difference_of(row("a", 20, 5), row("a", 23, 6), parts) == Difference({"total": 3, "count": 1})


def test_several_micro_batches_that_add_the_same_are_all_named() -> None:
    parts = {0: [row("a", 5)], 1: [row("a", 5)], 2: [row("a", 1)]}
    found = difference_of(row("a", 11, 3), row("a", 16, 4), parts)
    assert found.equals == (0, 1)
    assert found.has_too_much_of([1]) and not found.has_too_much_of([2])
    assert not difference_of(row("a", 11, 3), row("a", 6, 2), parts).has_too_much_of([1]), "it lacks it"


TOGETHER = {0: [row("a", 5, 2)], 1: [row("a", 3)], 2: [row("a", 1)], 3: [row("b", 9)], 4: [row("a", 7, 2)]}
"""Of the key ``a`` the total is 16, and the count 6."""


@pytest.mark.parametrize(
    ("more", "run_again", "together"),
    [
        ((8, 3), (0, 1), (0, 1)),
        ((9, 4), (0, 1, 2), (0, 1, 2)),
        ((10, 4), (0, 1), (0, 0)),
        ((4, 2), (1, 2, 3, 4), (1, 2)),
        ((8, 3), (0, 2), ()),
        ((8, 3), (), ()),
        ((-8, -3), (0, 1), ()),
        ((2, 5), (0, 1, 2, 4), ()),
    ],
    ids=["two", "three", "one twice", "not by one without the key", "once", "none", "lacks", "no sum"],
)
def test_micro_batches_that_ran_again_may_have_added_it_together(
    more: tuple[int, int], run_again: tuple[int, ...], together: tuple[int, ...]
) -> None:
    found = difference_of(row("a", 16, 6), row("a", 16 + more[0], 6 + more[1]), TOGETHER, run_again)
    assert (found.equals, found.together) == ((), together)
    assert found.has_too_much_of(run_again) is bool(together)


def test_what_one_micro_batch_adds_alone_is_not_looked_for_in_several() -> None:
    found = difference_of(row("a", 16, 6), row("a", 20, 8), {**TOGETHER, 5: [row("c", 1)]}, (1, 2))
    assert found.together == (1, 2)
    alone = difference_of(row("a", 16, 6), row("a", 21, 8), TOGETHER, (0, 1, 2))
    assert (alone.equals, alone.together) == ((0,), ())


@pytest.mark.parametrize("number", range(2, TOGETHER_MAX + 2))
def test_so_many_micro_batches_are_looked_for_together_and_no_more(number: int) -> None:
    parts = {batch: [row("a", 10**batch, 1)] for batch in range(TOGETHER_MAX + 2)}
    whole = {name: sum(rows[0][name] for rows in parts.values()) for name in ("total", "count")}
    more = {"total": sum(10**batch for batch in range(number)), "count": number}
    found = difference_of(
        row("a", whole["total"], whole["count"]),
        row("a", whole["total"] + more["total"], whole["count"] + more["count"]),
        parts,
        tuple(parts),
    )
    assert found.together == (tuple(range(number)) if number <= TOGETHER_MAX else ())
