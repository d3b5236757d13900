"""The two sides of a join in event time: which rows of them appear in its output, and as what."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from barrier_tck.reference_impl.operators.chosen_columns import Columns, Kept, as_mapping, chosen, shown
from barrier_tck.reference_impl.operators.functions import Row
from barrier_tck.reference_impl.operators.keyed_process import require_joinable
from barrier_tck.reference_impl.runtime_errors import JobUsageError

Keys = tuple[tuple[str, ...], ...]
SIDES = ("left", "right")
"""The names of input 0 and input 1, and of the states with their rows."""


class JoinForm(Enum):
    """Which rows without a partner appear in the output, with nulls for the other side."""

    INNER = "inner"
    """None."""
    LEFT = "left"
    """Those of the left side."""
    RIGHT = "right"
    """Those of the right side."""
    FULL = "full"
    """Those of both sides."""

    def keeps(self, number: int) -> bool:
        """Return whether rows of an input appear that match nothing."""
        return self is JoinForm.FULL or self.value == SIDES[number]


@dataclass(frozen=True, slots=True)
class JoinSide:
    """What a join in event time reads of one input."""

    time: str
    """The column with the event time (ms)."""
    columns: Columns
    """What its rows give to the output: columns, or a mapping from output column to column."""


class JoinedRows:
    """Makes the rows of a join."""

    def __init__(
        self, uid: str, keys: Keys, sides: tuple[JoinSide, JoinSide], form: JoinForm, own: tuple[str, ...]
    ) -> None:
        """Take the key columns of both inputs and the columns that the join itself adds behind those of the sides.

        Raises JobUsageError if the inputs cannot be joined, or if an output column is given twice.
        """
        require_joinable(uid, keys)
        if len(keys) != 2:
            raise JobUsageError(f"the join {uid!r} takes two inputs, not {len(keys)}; join the result again")
        self._keys = keys
        self.form = form
        self.times = (sides[0].time, sides[1].time)
        """The column with the event time (ms) of each input."""
        self._columns = (as_mapping(sides[0].columns), as_mapping(sides[1].columns))
        self._places = tuple(f"the {side} side of the join {uid!r}" for side in SIDES)
        outputs = (*self._columns[0], *self._columns[1], *own)
        twice = sorted({column for column in outputs if outputs.count(column) > 1})
        if twice:
            raise JobUsageError(
                f"the join {uid!r} has the output column {twice[0]!r} twice; rename it on one side by a mapping"
            )
        self._nulls: tuple[dict[str, Kept], ...] = tuple(dict.fromkeys(side) for side in self._columns)

    def has_null_key(self, row: Row, number: int) -> bool:
        """Return whether the key of a row holds a null, so that it matches nothing, as in SQL."""
        return any(row[column] is None for column in self._keys[number])

    def chosen(self, row: Row, number: int) -> dict[str, Kept]:
        """Return what a row gives to the output; raises JobUsageError as ``chosen_columns.chosen``."""
        return chosen(row, self._columns[number], self._places[number])

    def pair(self, mine: Mapping[str, Kept], other: Mapping[str, Kept], number: int) -> Row:
        """Return a pair, without the join's own columns; ``mine`` is of the input with that number."""
        return shown({**mine, **other} if number == 0 else {**other, **mine})

    def alone(self, mine: Mapping[str, Kept], number: int) -> Row:
        """Return a row that matches nothing, without the join's own columns."""
        return self.pair(mine, self._nulls[1 - number], number)
