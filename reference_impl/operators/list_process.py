"""Functions that keep lists without keys: what belongs to a subtask, and not to a key, and yet must survive (STA-1).

A list is either *dealt out* when another parallelism restores it, so that each entry goes to one subtask, or it is *for
all*: then every restore gives each subtask the entries of all, and the function takes those that it needs (RSC-3).
Lists are part of a checkpoint's metadata. They are meant for positions, tables of settings or a few waiting records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Generic, Protocol, TypeVar, runtime_checkable

import msgspec

from barrier_tck.reference_impl.ids import CheckpointId
from barrier_tck.reference_impl.operators.api import DataPlane, OperatorContext, Payload
from barrier_tck.reference_impl.operators.functions import PerSubtask, Row, function_at
from barrier_tck.reference_impl.operators.stateless import flat_mapped
from barrier_tck.reference_impl.protocol.messages import OperatorSnapshot, StateList
from barrier_tck.reference_impl.runtime_errors import CorruptStateError, JobUsageError, ProtocolError
from barrier_tck.reference_impl.state.keyed import Codec
from barrier_tck.reference_impl.state.snapshots import FinishedSnapshot

EntryT = TypeVar("EntryT")


class OperatorListState(Generic[EntryT]):
    """One list of one subtask. Entries are stored as MessagePack."""

    def __init__(self, name: str, to_all: bool, entry: type[EntryT], entries: Iterable[bytes]) -> None:
        """Take what a checkpoint holds of it.

        Raises CorruptStateError if an entry is of another type, JobUsageError if msgspec cannot do the type.
        """
        self.name = name
        self.to_all = to_all
        self._codec: Codec[EntryT] = Codec(name, entry)
        self._entries = list(entries)
        try:
            list(self)
        except CorruptStateError as error:
            raise CorruptStateError(f"list {name!r} has an entry that is no {entry}: {error}") from error

    def add(self, entry: EntryT) -> None:
        """Append an entry; raises JobUsageError if it is not of the type."""
        self._entries.append(self._codec.encode(entry))

    def replace(self, entries: Iterable[EntryT]) -> None:
        """Keep these entries and no others; raises JobUsageError if one is not of the type."""
        self._entries = [self._codec.encode(entry) for entry in entries]

    def __iter__(self) -> Iterator[EntryT]:
        return map(self._codec.decode, self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def stored(self) -> StateList:
        """Return what a checkpoint holds of it."""
        return StateList(self.name, tuple(self._entries), self.to_all)


class OperatorStates:
    """The lists of one operator in one subtask."""

    def __init__(self, uid: str, restored: OperatorSnapshot | None) -> None:
        self._uid = uid
        self._restored = {one.name: one for one in (restored.lists or () if restored is not None else ())}
        self._named: dict[str, OperatorListState[Any]] = {}

    def split_list(self, name: str, entry: type[EntryT]) -> OperatorListState[EntryT]:
        """Return the list of a name, whose entries are dealt out if the parallelism changes.

        Raises JobUsageError for a name that was taken already, and if the list that is restored is one for all;
        CorruptStateError if that has entries of another type.
        """
        return self._list(name, False, entry)

    def union_list(self, name: str, entry: type[EntryT]) -> OperatorListState[EntryT]:
        """Return the list of a name; after a restore it has the entries of all subtasks, by index.

        The function must decide which of them stay with this subtask: what each keeps is what the next checkpoint
        holds. Raises as ``split_list``.
        """
        return self._list(name, True, entry)

    def stored(self) -> tuple[StateList, ...]:
        """Return what a checkpoint holds; lists that were not named are handed on, each entry by one subtask."""
        untouched = (_handed_on(one) for name, one in self._restored.items() if name not in self._named)
        return (*(one.stored() for one in self._named.values()), *untouched)

    def _list(self, name: str, to_all: bool, entry: type[EntryT]) -> OperatorListState[EntryT]:
        if name in self._named:
            raise JobUsageError(f"operator {self._uid!r} has two lists of the name {name!r}")
        before = self._restored.get(name)
        if before is not None and before.to_all is not to_all:
            was, now = ("union_list", "split_list") if before.to_all else ("split_list", "union_list")
            raise JobUsageError(
                f"list {name!r} of operator {self._uid!r} is {was} in the checkpoint and {now} in the job; give it "
                f"another name, or make it {was} again"
            )
        made = OperatorListState(name, to_all, entry, before.entries if before is not None else ())
        self._named[name] = made
        return made


def _handed_on(unnamed: StateList) -> StateList:
    """Return a subtask's own part of a list: what all of them kept of one that is for all would be more each time."""
    if not unnamed.own:
        return unnamed
    start, stop = unnamed.own
    return msgspec.structs.replace(unnamed, entries=unnamed.entries[start:stop], own=msgspec.UNSET)


class ListFunction(Protocol):
    """A user's function; one instance per subtask and attempt. What it must remember, it keeps in lists."""

    def open(self, lists: OperatorStates) -> None:
        """Name the lists; they hold what was restored."""

    def process(self, row: Row, number: int) -> Iterable[Row]:
        """Take a record of an input and return what is passed on."""


@runtime_checkable
class HasListStates(Protocol):
    """An operator that keeps lists, also after its subtask has finished (BAR-6)."""

    def stored_list_states(self) -> tuple[StateList, ...]:
        """Return what a checkpoint holds of them now."""


@dataclass(frozen=True, slots=True)
class ListProcess:
    """Spec of a function that keeps lists; its input may be spread in any way."""

    keeps_state: ClassVar[bool] = True
    uid: str
    function: Callable[[], ListFunction] | PerSubtask
    """Makes the function of one subtask; shipped to subtasks."""
    inputs: int = 1

    def build(self, plane: DataPlane) -> ListProcessOperator:
        return ListProcessOperator(self.uid, self.function, plane)


class ListProcessOperator:
    """A ``MultiInputOperator`` around a ``ListFunction``, on either plane, a record at a time."""

    def __init__(self, uid: str, function: Callable[[], Any] | PerSubtask, plane: DataPlane) -> None:
        self.uid = uid
        self._make = function
        self._plane = plane
        self._function: Any = None
        self._lists: OperatorStates | None = None

    def open(self, context: OperatorContext, restored: OperatorSnapshot | None) -> None:
        """Let the function name its lists, which have what was restored (REC-1)."""
        make = self._make
        self._lists = OperatorStates(self.uid, restored)
        self._function = function_at(make, context.place) if isinstance(make, PerSubtask) else make()
        self._function.open(self._lists)

    def process(self, payload: Payload) -> Payload | None:
        """Give every record to the function, as of its only input."""
        return self._plane.flat_map(payload, partial(self._process_row, 0))

    def process_input(self, payload: Payload, number: int) -> Payload | None:
        """Give every record of an input to the function."""
        return flat_mapped(self._plane, partial(self._process_row, number), payload)

    def before_barrier(self, checkpoint: CheckpointId) -> Iterable[Payload]:
        """Return nothing: nothing is held back."""
        return ()

    def end_of_input(self) -> Iterable[Payload]:
        """Return nothing: nothing is held back."""
        return ()

    def snapshot(self, checkpoint: CheckpointId) -> FinishedSnapshot[OperatorSnapshot]:
        """Return the lists as they are: they are small, and no file holds them."""
        return FinishedSnapshot(OperatorSnapshot(self.uid, lists=self.stored_list_states()))

    def stored_list_states(self) -> tuple[StateList, ...]:
        """Return what a checkpoint holds of the lists now."""
        if self._lists is None:
            raise ProtocolError(f"operator {self.uid!r} was used before it was opened")
        return self._lists.stored()

    def checkpoint_completed(self, checkpoint: CheckpointId) -> bool:
        """Return False: there was nothing to commit."""
        return False

    def checkpoint_aborted(self, checkpoint: CheckpointId) -> None:
        """Do nothing: nothing was kept for it."""

    def close(self) -> None:
        """Do nothing."""

    def _process_row(self, number: int, row: Row) -> Iterable[Row]:
        found: Iterable[Row] = self._function.process(row, number)
        return found
