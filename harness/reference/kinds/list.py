"""``list``: remembers every row in a list without keys that is dealt out, and passes all on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import msgspec

from barrier_tck.harness.plan.job_graph import OperatorPlan
from barrier_tck.harness.reference.lineage import SEEN, longer
from barrier_tck.harness.reference.operator_kind import ReferenceKind
from barrier_tck.reference_impl.operators.functions import PerSubtask, Place, Row
from barrier_tck.reference_impl.operators.list_process import ListProcess, OperatorListState, OperatorStates

Listed = tuple[int, int, str, str]
"""(input, id, key, path) of a record in the list."""


class KeepInList:
    """It remembers every record that reached it in a list without keys, and passes all on."""

    def __init__(self, name: str, index: int) -> None:
        self._step = f"{name}[{index}]"
        self._list: OperatorListState[Listed] | None = None

    def open(self, lists: OperatorStates) -> None:
        self._list = lists.split_list(SEEN, tuple[int, int, str, str])

    def process(self, row: Row, number: int) -> Iterable[Row]:
        """Remember a record that came from an input."""
        assert self._list is not None, "open comes first"
        self._list.add((number, row["id"], row["key"], row["path"]))
        return ({**row, "path": longer(row["path"], self._step)},)


@dataclass(frozen=True, slots=True)
class _ListAt:
    """Makes the function of one subtask."""

    operator: OperatorPlan

    def __call__(self, place: Place) -> KeepInList:
        return KeepInList(self.operator.name, place.subtask.index)


def _read(entry: bytes) -> tuple[str, list[Any]]:
    number, identifier, key, path = msgspec.msgpack.decode(entry)
    return key, [number, identifier, path]


KIND = ReferenceKind(
    lambda site: ListProcess(site.operator.name, PerSubtask(_ListAt(site.operator)), len(site.keys)),
    read_listed=_read,
)
