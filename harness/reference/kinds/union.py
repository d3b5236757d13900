"""``union``: remembers every row in a list without keys that every subtask gets whole, and passes all on."""

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

Owned = tuple[int, int, int, str, str]
"""The index of a subtask, and (input, id, key, path) of a record in the list."""


class KeepInUnion:
    """It remembers every record that reached it, and passes all on. Each subtask keeps the entries of the subtasks that
    it stands for: those whose index is its own, or was before the job became narrower."""

    def __init__(self, name: str, index: int, parallelism: int) -> None:
        self._step = f"{name}[{index}]"
        self._index, self._parallelism = index, parallelism
        self._list: OperatorListState[Owned] | None = None

    def open(self, lists: OperatorStates) -> None:
        """Get the list by its name, and keep one's own entries."""
        self._list = lists.union_list(SEEN, tuple[int, int, int, str, str])
        self._list.replace([entry for entry in self._list if entry[0] % self._parallelism == self._index])

    def process(self, row: Row, number: int) -> Iterable[Row]:
        """Remember a record that came from an input."""
        assert self._list is not None, "open comes first"
        self._list.add((self._index, number, row["id"], row["key"], row["path"]))
        return ({**row, "path": longer(row["path"], self._step)},)


@dataclass(frozen=True, slots=True)
class _UnionAt:
    """Makes the function of one subtask."""

    operator: OperatorPlan

    def __call__(self, place: Place) -> KeepInUnion:
        return KeepInUnion(self.operator.name, place.subtask.index, place.parallelism)


def _read(entry: bytes) -> tuple[str, list[Any]]:
    _, number, identifier, key, path = msgspec.msgpack.decode(entry)
    return key, [number, identifier, path]


KIND = ReferenceKind(
    lambda site: ListProcess(site.operator.name, PerSubtask(_UnionAt(site.operator)), len(site.keys)),
    read_listed=_read,
)
