"""Finds committed rows that stand in the place of expected ones: the same row with other numbers.

A sink that adds to a table, and is given a micro-batch twice, leaves no row twice: it leaves a total that is too great.
Compared as multisets, the right row is then lost and another one unexpected. Only the two together tell what happened.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

Values = Mapping[str, Any]
"""Column -> value."""


@dataclass(frozen=True, slots=True)
class Instead:
    """An expected row that was not committed, and the row that was committed in its place."""

    expected: int
    """Its place among the expected rows."""
    committed: int
    """Its place among the committed ones."""
    times: int | None
    """What all numbers that differ are a multiple of, by this number: the row was added so often; None: they are
    none."""


def in_the_place_of(expected: Sequence[Values], committed: Sequence[Values]) -> Iterator[Instead]:
    """Yield the rows that belong together: all that differs are numbers, and no other row would do as well.

    ``expected`` are those that were not committed, ``committed`` those that are not expected, with the same columns.
    """
    partners = [
        [number for number, other in enumerate(committed) if _same_but_for_numbers(row, other)]
        for row in expected
    ]
    wanted = [number for found in partners for number in found]
    for place, found in enumerate(partners):
        if len(found) == 1 and wanted.count(found[0]) == 1:
            yield Instead(place, found[0], _times(expected[place], committed[found[0]]))


def _same_but_for_numbers(row: Values, other: Values) -> bool:
    """Whether some column is equal, if there are several, and those that are not are numbers."""
    differing = _differing(row, other)
    if len(differing) == len(row) > 1:
        return False
    return all(_is_number(row[name]) and _is_number(other[name]) for name in differing)


def _differing(row: Values, other: Values) -> list[str]:
    return [name for name, value in row.items() if value != other[name]]


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def _times(row: Values, other: Values) -> int | None:
    ratios = set()
    for name in _differing(row, other):
        if not row[name] or other[name] % row[name]:
            return None
        ratios.add(other[name] / row[name])
    times = ratios.pop() if len(ratios) == 1 else 0
    return int(times) if times >= 2 else None
