"""Finds the running totals of one key among its rows: a chain from given totals to given totals, one row per count."""

from __future__ import annotations

from collections.abc import Sequence
from operator import sub
from typing import Any, NamedTuple

from barrier_tck.harness.oracle.evidence.recoveries import Cut
from barrier_tck.harness.oracle.evidence.trial_input import InputRecord

STEPS_MAX = 200_000
"""The largest number of rows that are tried for one chain, far more than repeated rows of one key can require."""


class ChainTooAmbiguous(Exception):
    """Too many rows fit one another, so the chain was not found in time."""


class OutputRow(NamedTuple):
    """One committed row, with the record that it stands for."""

    identifier: Any
    record: InputRecord
    totals: tuple[int, ...]
    before: tuple[int, ...]
    """The totals to which the row's record was added."""
    number: int
    """The count among the totals: the row's place among the rows of its key."""


def output_row(identifier: Any, record: InputRecord, totals: tuple[int, ...], count_index: int) -> OutputRow:
    """Return the row, with the fields that follow from the others."""
    before = tuple(map(sub, totals, record.increments))
    return OutputRow(identifier, record, totals, before, totals[count_index])


def chain_of(
    rows: Sequence[OutputRow],
    first: tuple[int, ...],
    goal: tuple[int, ...],
    start: Cut | None,
    end: Cut | None,
    count_index: int,
) -> tuple[list[OutputRow], str]:
    """Return the rows that lead from ``first`` to ``goal``; if there are none, also what is wrong.

    ``start`` and ``end`` are the checkpoints at which they begin and end (None: the input's begin and end). No record
    comes twice in a chain, none lies before ``start``, and all of the input's records before ``end`` are in it.
    Raises ChainTooAmbiguous.
    """
    needed = _needed(start, end, rows)
    length = goal[count_index] - first[count_index]
    if length < 0:
        return [], f"the totals go back from {list(first)} to {list(goal)}"
    following: dict[tuple[int, ...], list[OutputRow]] = {}
    for row in rows:
        if first[count_index] < row.number <= goal[count_index] and (
            start is None or start.is_behind(row.record)
        ):
            following.setdefault(row.before, []).append(row)
    chain: list[OutputRow] = []
    used: dict[Any, None] = {}
    open_choices = [_choices(following, first, used, end)]
    furthest = first
    steps = 0
    while open_choices:
        here = chain[-1].totals if chain else first
        if len(chain) == length and here == goal and all(identifier in used for identifier in needed):
            return chain, ""
        steps += 1
        if steps > STEPS_MAX:
            raise ChainTooAmbiguous(f"{steps} rows were tried on the way from {list(first)} to {list(goal)}")
        if open_choices[-1] and len(chain) < length:
            row = open_choices[-1].pop()
            chain.append(row)
            used[row.identifier] = None
            open_choices.append(_choices(following, row.totals, used, end))
            if row.number > furthest[count_index]:
                furthest = row.totals
            continue
        open_choices.pop()
        if chain:
            del used[chain.pop().identifier]
    if furthest == goal:
        return (
            [],
            f"the rows from {list(first)} to {list(goal)} do not belong to the records that they should",
        )
    return [], f"no row goes on from {list(furthest)} on the way from {list(first)} to {list(goal)}"


def _needed(start: Cut | None, end: Cut | None, rows: Sequence[OutputRow]) -> list[Any]:
    """Return the ids among the rows that lie between two checkpoints: the chain must contain each of them."""
    return [
        row.identifier
        for row in rows
        if (start is None or start.is_behind(row.record)) and (end is None or not end.is_behind(row.record))
    ]


def _choices(
    following: dict[tuple[int, ...], list[OutputRow]],
    totals: tuple[int, ...],
    used: dict[Any, None],
    end: Cut | None,
) -> list[OutputRow]:
    """Return the rows that may come next, equal ones once, and last those whose records lie before ``end``."""
    found: dict[tuple[Any, tuple[int, ...]], OutputRow] = {}
    for row in following.get(totals, ()):
        if row.identifier not in used:
            found.setdefault((row.identifier, row.totals), row)
    return sorted(found.values(), key=lambda row: end is None or not end.is_behind(row.record))
