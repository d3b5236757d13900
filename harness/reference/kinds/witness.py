"""``witness``: a second stateful operator in the chain, which raises on a wrong count."""

from __future__ import annotations

from functools import partial

from barrier_tck.harness.reference.operator_kind import KeptState, ReferenceKind, single_value
from barrier_tck.reference_impl.operators.functions import Row
from barrier_tck.reference_impl.operators.keyed_process import KeyedProcess
from barrier_tck.reference_impl.state.keyed import KeyedStates, NamedState, ValueCell

SEEN = "seen"
"""Name of its state: how many records each key had."""


class Witness:
    """Counts the records of each key, and compares its count with that of the operator before it."""

    def __init__(self, column: str) -> None:
        self._column = column
        self._count: NamedState[ValueCell[int]] | None = None

    def open(self, states: KeyedStates) -> None:
        self._count = states.value(SEEN, int)

    def process(self, group: int, key: bytes, row: Row) -> tuple[Row]:
        """Pass the record on; raises ValueError if the two operators do not agree."""
        assert self._count is not None, "open comes first"
        cell = self._count.of(group, key)
        seen = (cell.get() or 0) + 1
        if row[self._column] != seen:
            raise ValueError(f"{row} is record {seen} of its key according to the state of the next operator")
        cell.set(seen)
        return (row,)


KIND = ReferenceKind(
    lambda site: KeyedProcess(
        site.operator.name, site.key, partial(Witness, site.operator.parameters["count"])
    ),
    (KeptState(SEEN, single_value),),
)
