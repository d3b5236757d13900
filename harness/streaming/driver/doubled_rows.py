"""Finds committed rows that stand in the place of expected ones: the same row with other numbers.

A sink that adds to a table, and is given a micro-batch twice, leaves no row twice: it leaves a total that is too great.
Compared as multisets, the right row is then lost and another one unexpected. Only the two together tell what happened.
If the total has several parts, the difference may be what one micro-batch adds.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import combinations_with_replacement
from typing import Any

TOGETHER_MAX = 4
"""What is too much in a row is looked for as what so many micro-batches add, at most."""
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


@dataclass(frozen=True, slots=True)
class Difference:
    """How a committed row differs from the one in whose place it stands."""

    amounts: Mapping[str, Any]
    """Column -> by how much it is greater."""
    equals: tuple[int, ...] | None = None
    """The micro-batches that each add exactly these amounts, or their opposites if the row lacks them; None: it is not
    known what each adds, or what they add do not make up the expected row."""
    lacks: bool = False
    """Whether it is the opposites."""
    together: tuple[int, ...] = ()
    """If no micro-batch adds them alone: those that ran more than once and add them together, each as often as it is
    named; empty if there are none."""

    def has_too_much_of(self, batches: Collection[int]) -> bool:
        """Whether the row has once too often what one of these micro-batches adds, or what some add together."""
        return bool(self.together) or (
            not self.lacks and any(batch in batches for batch in self.equals or ())
        )


def difference_of(
    row: Values,
    other: Values,
    parts: Mapping[int, Sequence[Values]] | None,
    run_again: Collection[int] = (),
) -> Difference:
    """Return how ``other``, in the place of ``row``, differs from it.

    ``parts`` has the rows that each micro-batch alone gives. They say something only if those in the place of ``row``
    add up to it: those of a greatest value or an average do not. ``run_again`` are the micro-batches that ran more
    than once.
    """
    names = _differing(row, other)
    amounts = {name: other[name] - row[name] for name in names}
    equal = [name for name in row if name not in names]
    # Numbers that are equal may be of the row's key, or others that it gives, for instance a greatest value.
    for key in (equal, [name for name in equal if not _is_number(row[name])]):
        added = _all_added(row, names, key, parts or {})
        if added:
            wanted = list(amounts.values())
            more = tuple(batch for batch, amount in added.items() if amount == wanted)
            less = tuple(batch for batch, amount in added.items() if [-part for part in amount] == wanted)
            together = () if more or less else _adding_up_to(wanted, added, run_again)
            return Difference(amounts, more or less, lacks=bool(less) and not more, together=together)
    return Difference(amounts)


def _adding_up_to(
    wanted: Sequence[Any], added: Mapping[int, Sequence[Any]], among: Collection[int]
) -> tuple[int, ...]:
    """Return the fewest micro-batches among some that add up to amounts, by their numbers if several would do."""
    adding = [batch for batch in sorted(added) if batch in among and any(added[batch])]
    for number in range(2, TOGETHER_MAX + 1):
        for batches in combinations_with_replacement(adding, number):
            sums = [sum(column) for column in zip(*(added[batch] for batch in batches), strict=True)]
            if sums == list(wanted):
                return batches
    return ()


def _all_added(
    row: Values, names: Sequence[str], key: Sequence[str], parts: Mapping[int, Sequence[Values]]
) -> dict[int, list[Any]]:
    """Return what each micro-batch adds in some columns to a row; nothing unless that is clear, and adds up to it."""
    added = {}
    for batch, rows in parts.items():
        same = [other for other in rows if all(other[name] == row[name] for name in key)]
        amounts = [same[0][name] for name in names] if same else [0] * len(names)
        if len(same) > 1 or not all(map(_is_number, amounts)):
            return {}
        added[batch] = amounts
    sums = [sum(column) for column in zip(*added.values(), strict=True)]
    return added if sums == [row[name] for name in names] else {}


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
