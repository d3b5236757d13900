"""``node``: keeps the least label that each node received, and its neighbours."""

from __future__ import annotations

from collections.abc import Iterable

from barrier_tck.harness.reference.operator_kind import KeptState, ReferenceKind, single_value
from barrier_tck.reference_impl.operators.functions import Row
from barrier_tck.reference_impl.operators.keyed_process import KeyedProcess
from barrier_tck.reference_impl.state.keyed import KeyedStates, ListCell, NamedState, ValueCell

LABEL, NEIGHBOURS = "label", "neighbours"
"""Names of its states."""


class Node:
    """Keeps the least label that each node received, and its neighbours; sends it to them whenever it changes."""

    def __init__(self) -> None:
        self._label: NamedState[ValueCell[str]] | None = None
        self._neighbours: NamedState[ListCell[str]] | None = None

    def open(self, states: KeyedStates) -> None:
        self._label = states.value(LABEL, str)
        self._neighbours = states.list(NEIGHBOURS, str)

    def process(self, group: int, key: bytes, row: Row) -> Iterable[Row]:
        """Take an edge, whose label is empty, or what a neighbour sends; return what the node sends then."""
        assert self._label is not None and self._neighbours is not None, "open comes first"
        cell, neighbours = self._label.of(group, key), self._neighbours.of(group, key)
        node, heard = row["node"], row["label"]
        known = cell.get()
        label = node if known is None else known
        if heard and heard < label:
            cell.set(heard)
            return [_message(other, node, heard) for other in neighbours.get()]
        if known is None:
            cell.set(label)
        if heard:
            return ()
        neighbours.add(row["other"])
        return (_message(row["other"], node, label),)


def _message(to: str, sender: str, label: str) -> Row:
    return {"node": to, "other": sender, "label": label}


KIND = ReferenceKind(
    lambda site: KeyedProcess(site.operator.name, site.key, Node),
    (KeptState(LABEL, single_value), KeptState(NEIGHBOURS)),
)
