"""Rows in the place of expected ones; grain: rows as dictionaries."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from barrier_tck.harness.streaming.driver.doubled_rows import Instead, in_the_place_of


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
