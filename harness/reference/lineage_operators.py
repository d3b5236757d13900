"""The operators of the workload ``lineage`` for the reference runtime: each adds its subtask to a record's path."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import msgspec

from barrier_tck.harness.plan.job_graph import OperatorPlan
from barrier_tck.harness.workloads.meaning import WAITING
from barrier_tck.reference_impl.operators.encoding import decode_key
from barrier_tck.reference_impl.operators.functions import PerSubtask, Place, Row
from barrier_tck.reference_impl.operators.graph import OperatorSpec
from barrier_tck.reference_impl.operators.keyed_process import KeyedCoProcess, KeyedProcess
from barrier_tck.reference_impl.operators.list_process import ListProcess, OperatorListState, OperatorStates
from barrier_tck.reference_impl.operators.stateless import CoFlatMap, FlatMap
from barrier_tck.reference_impl.operators.timed_process import KeyedTimers, TimedProcess
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


class KeepInWindow:
    """It remembers every record that reached it, too, but passes it on only when the window has ended.

    The windows of a key lie one behind the other, each ``size_ms`` long. Between arrival and the end, a record lies in
    the state ``WAITING``, with the end; after it in ``SEEN``. Within a key, records leave in the order of arrival.
    """

    def __init__(self, name: str, parameters: Mapping[str, int], index: int) -> None:
        """Take the operator's name and parameters, and its subtask's index."""
        self._step = f"{name}[{index}]"
        self._every, self._size_ms = parameters.get("every", 1), parameters["size_ms"]
        self._seen: NamedState[ListCell[tuple[int, int, str]]] | None = None
        self._waiting: NamedState[ListCell[tuple[int, int, str, int]]] | None = None
        self._timers: KeyedTimers | None = None

    def open(self, states: KeyedStates, timers: KeyedTimers) -> None:
        """Get the states by their names, and the timers."""
        self._seen = states.list(SEEN, tuple[int, int, str])
        self._waiting = states.list(WAITING, tuple[int, int, str, int])
        self._timers = timers

    def process(self, group: int, key: bytes, row: Row, number: int) -> Iterable[Row]:
        """Hold a record back that came from an input."""
        assert self._waiting is not None and self._timers is not None, "open comes first"
        waiting = self._waiting.of(group, key)
        end_ms = self._timers.now_ms // self._size_ms * self._size_ms + self._size_ms
        # The clock of another host may be behind.
        end_ms = max([end_ms, *(last for *_, last in waiting.get()[-1:])])
        waiting.add((number, row["id"], row["path"], end_ms))
        self._timers.set(group, key, end_ms)
        return ()

    def on_timer(self, group: int, key: bytes, at_ms: int) -> Iterable[Row]:
        """Pass on what came in the window that ends now."""
        assert self._waiting is not None and self._seen is not None, "open comes first"
        waiting, kept = self._waiting.of(group, key), self._waiting.of(group, key).get()
        gone = [(number, identifier, path) for number, identifier, path, end_ms in kept if end_ms == at_ms]
        waiting.set([one for one in kept if one[-1] != at_ms])
        self._seen.of(group, key).add(*gone)
        (text,) = decode_key(key)
        return [
            {"id": identifier, "key": text, "path": _longer(path, self._step)}
            for _, identifier, path in gone
            if identifier % self._every == 0
        ]


@dataclass(frozen=True, slots=True)
class _WindowAt:
    """Makes the function of one subtask."""

    operator: OperatorPlan

    def __call__(self, place: Place) -> KeepInWindow:
        return KeepInWindow(self.operator.name, self.operator.parameters, place.subtask.index)


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
        self._list: OperatorListState[Listed] | None = None

    def open(self, lists: OperatorStates) -> None:
        """Get the list by its name."""
        self._list = lists.split_list(SEEN, tuple[int, int, str, str])

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
        self._list: OperatorListState[Owned] | None = None

    def open(self, lists: OperatorStates) -> None:
        """Get the list by its name, and keep one's own entries."""
        self._list = lists.union_list(SEEN, tuple[int, int, int, str, str])
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


def windowing(operator: OperatorPlan, keys: tuple[tuple[str, ...], ...]) -> OperatorSpec:
    """Return the operator that keeps every record that reaches it, and passes it on at the end of its window."""
    return TimedProcess(operator.name, keys, PerSubtask(_WindowAt(operator)))


def _longer(path: str, step: str) -> str:
    return f"{path}>{step}" if path else step
