"""The operators of the workloads ``money`` and ``components`` for the reference runtime."""

from __future__ import annotations

from collections.abc import Iterable

from barrier_tck.reference_impl.operators.functions import Row
from barrier_tck.reference_impl.state.keyed import KeyedStates, ListCell, NamedState, ValueCell

BALANCE = "balance"
"""Name of the state of ``account``: how much an account holds."""
OPENED_WITH = 1_000

LABEL, NEIGHBOURS = "label", "neighbours"
"""Names of the states of ``node``."""


class Account:
    """Takes what a row carries, and pays on what the row says, less a quarter for each account on its way."""

    def __init__(self) -> None:
        """Start without a state; ``open`` names it."""
        self._balance: NamedState[ValueCell[int]] | None = None

    def open(self, states: KeyedStates) -> None:
        """Get the state by its name."""
        self._balance = states.value(BALANCE, int)

    def process(self, group: int, key: bytes, row: Row) -> Iterable[Row]:
        """Change the balance of one account, and emit the payment to the next one, if there is one."""
        assert self._balance is not None, "open comes first"
        cell = self._balance.of(group, key)
        balance = cell.get()
        balance = (OPENED_WITH if balance is None else balance) + row["carries"]
        passed = row["route"].split(">") if row["route"] else []
        if not passed:
            cell.set(balance)
            return ()
        amount = row["pays"]
        cell.set(balance - amount)
        on = {
            "account": passed[0],
            "carries": amount,
            "pays": amount - amount // 4,
            "route": ">".join(passed[1:]),
        }
        return ({"id": row["id"], **on},)


def both_ends(row: Row) -> Iterable[Row]:
    """Return an edge as each of its ends sees it."""
    return row, {**row, "node": row["other"], "other": row["node"]}


class Node:
    """Keeps the least label that each node heard of, and its neighbours; tells them whenever it changes."""

    def __init__(self) -> None:
        """Start without states; ``open`` names them."""
        self._label: NamedState[ValueCell[str]] | None = None
        self._neighbours: NamedState[ListCell[str]] | None = None

    def open(self, states: KeyedStates) -> None:
        """Get the states by their names."""
        self._label = states.value(LABEL, str)
        self._neighbours = states.list(NEIGHBOURS, str)

    def process(self, group: int, key: bytes, row: Row) -> Iterable[Row]:
        """Take an edge, whose label is empty, or what a neighbour tells; return what the node tells then."""
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
