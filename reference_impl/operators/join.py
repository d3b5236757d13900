"""The inner join of two keyed inputs, without a bound in time: every pair of rows with equal keys, once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from barrier_tck.reference_impl.operators.api import DataPlane
from barrier_tck.reference_impl.operators.chosen_columns import Kept, chosen, shown
from barrier_tck.reference_impl.operators.functions import Row
from barrier_tck.reference_impl.operators.keyed_process import (
    KeyedCoProcess,
    KeyedCoProcessOperator,
    require_joinable,
)
from barrier_tck.reference_impl.runtime_errors import JobUsageError
from barrier_tck.reference_impl.state.keyed import KeyedStates

JOIN_STATES = ("left", "right")
"""Names of the states: per key, the list of the rows of input 0, and that of input 1, in the order of arrival.

A row is kept as a map of the output columns that come from its side; decimals, dates and timestamps are extensions of
MessagePack (``operators.scalars``).
"""


@dataclass(frozen=True, slots=True)
class Join:
    """Spec of an inner join; input 0 is the left side, input 1 the right, each partitioned by its key.

    Rows of both sides are kept for good. A row whose key holds a null matches nothing, as in SQL.
    """

    inputs: ClassVar[int] = 2
    keeps_state: ClassVar[bool] = True
    uid: str
    left_key: tuple[str, ...]
    right_key: tuple[str, ...]
    left: Mapping[str, str]
    """Output column to column of the left side."""
    right: Mapping[str, str]
    """Output column to column of the right side."""

    def __post_init__(self) -> None:
        require_joinable(self.uid, (self.left_key, self.right_key))
        both = [column for column in self.left if column in self.right]
        if both:
            raise JobUsageError(
                f"the join {self.uid!r} has the output column {both[0]!r} from both sides; rename one of them"
            )
        if not self.left and not self.right:
            raise JobUsageError(f"the join {self.uid!r} has no output columns")

    def build(self, plane: DataPlane) -> KeyedCoProcessOperator:
        keys = (self.left_key, self.right_key)
        function = partial(JoinFunction, keys, (dict(self.left), dict(self.right)))
        return KeyedCoProcess(self.uid, keys, function).build(plane)


class JoinFunction:
    """A ``KeyedCoFunction``: a row meets all rows that its key has on the other side, then it waits on its own.

    Of two rows that match, the later one finds the earlier, and not the other way round; so each pair is emitted
    once, whatever the interleaving of the inputs.
    """

    def __init__(self, keys: tuple[tuple[str, ...], ...], columns: tuple[dict[str, str], ...]) -> None:
        self._keys = keys
        self._columns = columns

    def open(self, states: KeyedStates) -> None:
        self._kept = tuple(states.list(name, dict[str, Kept]) for name in JOIN_STATES)

    def process(self, group: int, key: bytes, row: Row, number: int) -> Iterable[Row]:
        """Emit the pairs that a row completes."""
        if any(row[column] is None for column in self._keys[number]):
            return ()
        mine = chosen(row, self._columns[number], f"the join, {JOIN_STATES[number]} side")
        self._kept[number].of(group, key).add(mine)
        others = self._kept[1 - number].of(group, key).get()
        return [shown({**mine, **other} if number == 0 else {**other, **mine}) for other in others]
