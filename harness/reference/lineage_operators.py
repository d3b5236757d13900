"""The operators of the workload ``lineage`` for the reference runtime: each adds its subtask to a record's path."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import msgspec

from barrier_tck.harness.plan.job_graph import OperatorPlan
from barrier_tck.reference_impl.operators.functions import PerSubtask, Place, Row
from barrier_tck.reference_impl.operators.graph import OperatorSpec
from barrier_tck.reference_impl.operators.keyed_process import KeyedCoProcess, KeyedProcess
from barrier_tck.reference_impl.operators.list_process import KeptList, ListProcess, OperatorLists
from barrier_tck.reference_impl.operators.stateless import CoFlatMap, FlatMap
from barrier_tck.reference_impl.state.keyed import KeyedStates, ListCell, NamedState

SEEN = "seen"
"""Name of the state of ``keep``: per key, the (input, id, path) of each record, in the order of arrival."""

Listed = tuple[int, int, str, str]
"""(input, id, key, path) of a record in the list of ``list``."""
Owned = tuple[int, int, int, str, str]
"""The index of a subtask, and a record as above, in the list of ``union``."""


@dataclass(frozen=True, slots=True)
class _Marked:
    """Makes the function of one subtask, which turns a row into the rows to emit, their paths longer by one step."""

    operator: OperatorPlan

    def __call__(self, place: Place) -> Callable[..., Iterable[Row]]:
        name, parameters = self.operator.name, self.operator.parameters
        index = place.subtask.index

        def step(row: Row, branch: str = "") -> Row:
            return {**row, "path": _longer(row["path"], f"{name}{branch}[{index}]")}

        def drop(row: Row) -> Iterable[Row]:
            return () if row["id"] % parameters["modulo"] == parameters["gone"] else (step(row),)

        def rekey(row: Row) -> Iterable[Row]:
            return ({**step(row), "key": f"{row['key']}.{row['id'] % parameters['by']}"},)

        def again(row: Row) -> Iterable[Row]:
            done = sum(one.startswith(f"{name}[") for one in row["path"].split(">"))
            return (step(row),) if done < row["id"] % (parameters["turns"] + 1) else ()

        functions: dict[str, Callable[..., Iterable[Row]]] = {
            "pass": lambda row: (step(row),),
            "again": again,
            "drop": drop,
            "rekey": rekey,
            "fork": lambda row: (step(row, "/a"), step(row, "/b")),
            "merge": lambda row, number: (step(row),),
        }
        return functions[self.operator.kind]


class Keep:
    """A stateful operator: it remembers every record that reached it, and passes on those that it was told to."""

    def __init__(self, name: str, every: int, index: int) -> None:
        """Take the operator's name, the number that divides each id that it passes on, and its subtask's index."""
        self._step = f"{name}[{index}]"
        self._every = every
        self._seen: NamedState[ListCell[tuple[int, int, str]]] | None = None

    def open(self, states: KeyedStates) -> None:
        """Get the state by its name."""
        self._seen = states.list(SEEN, tuple[int, int, str])

    def process(self, group: int, key: bytes, row: Row, number: int = 0) -> Iterable[Row]:
        """Remember a record that came from an input."""
        assert self._seen is not None, "open comes first"
        self._seen.of(group, key).add((number, row["id"], row["path"]))
        return ({**row, "path": _longer(row["path"], self._step)},) if row["id"] % self._every == 0 else ()


@dataclass(frozen=True, slots=True)
class _KeepAt:
    """Makes the function of one subtask."""

    operator: OperatorPlan

    def __call__(self, place: Place) -> Keep:
        return Keep(self.operator.name, self.operator.parameters.get("every", 1), place.subtask.index)


class KeepInList:
    """It remembers every record that reached it in a list without keys, and passes all on."""

    def __init__(self, name: str, index: int) -> None:
        """Take the operator's name, and its subtask's index."""
        self._step = f"{name}[{index}]"
        self._list: KeptList[Listed] | None = None

    def open(self, lists: OperatorLists) -> None:
        """Get the list by its name."""
        self._list = lists.dealt_out(SEEN, tuple[int, int, str, str])

    def process(self, row: Row, number: int) -> Iterable[Row]:
        """Remember a record that came from an input."""
        assert self._list is not None, "open comes first"
        self._list.add((number, row["id"], row["key"], row["path"]))
        return ({**row, "path": _longer(row["path"], self._step)},)


class KeepInUnion:
    """It does the same with a list that every subtask gets whole. Each keeps the entries of the subtasks that it stands
    for: those whose index is its own, or was before the job became narrower."""

    def __init__(self, name: str, index: int, parallelism: int) -> None:
        """Take the operator's name, its subtask's index, and the number of subtasks."""
        self._step = f"{name}[{index}]"
        self._index, self._parallelism = index, parallelism
        self._list: KeptList[Owned] | None = None

    def open(self, lists: OperatorLists) -> None:
        """Get the list by its name, and keep one's own entries."""
        self._list = lists.for_all(SEEN, tuple[int, int, int, str, str])
        self._list.replace([one for one in self._list if one[0] % self._parallelism == self._index])

    def process(self, row: Row, number: int) -> Iterable[Row]:
        """Remember a record that came from an input."""
        assert self._list is not None, "open comes first"
        self._list.add((self._index, number, row["id"], row["key"], row["path"]))
        return ({**row, "path": _longer(row["path"], self._step)},)


@dataclass(frozen=True, slots=True)
class _ListAt:
    """Makes the function of one subtask."""

    operator: OperatorPlan

    def __call__(self, place: Place) -> KeepInList | KeepInUnion:
        name, index = self.operator.name, place.subtask.index
        if self.operator.kind == "list":
            return KeepInList(name, index)
        return KeepInUnion(name, index, place.parallelism)


def listing(operator: OperatorPlan, inputs: int) -> OperatorSpec:
    """Return the operator that keeps every record that reaches it, in a list without keys."""
    return ListProcess(operator.name, PerSubtask(_ListAt(operator)), inputs)


def marking(operator: OperatorPlan) -> OperatorSpec:
    """Return the operator of a kind that has no state and one input."""
    return FlatMap(operator.name, PerSubtask(_Marked(operator)))


def merging(operator: OperatorPlan, inputs: int) -> OperatorSpec:
    """Return the operator that merges several inputs without state; with a single input it only marks."""
    if inputs == 1:
        return marking(msgspec.structs.replace(operator, kind="pass"))
    return CoFlatMap(operator.name, inputs, PerSubtask(_Marked(operator)))


def keeping(operator: OperatorPlan, keys: tuple[tuple[str, ...], ...]) -> OperatorSpec:
    """Return the operator that keeps every record that reaches it, by the key columns of its input."""
    make = PerSubtask(_KeepAt(operator))
    if len(keys) == 1:
        return KeyedProcess(operator.name, keys[0], make)
    return KeyedCoProcess(operator.name, keys, make)


def _longer(path: str, step: str) -> str:
    return f"{path}>{step}" if path else step
