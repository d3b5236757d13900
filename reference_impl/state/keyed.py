"""Typed state over a keyed store: value, list, map, reducing and aggregating state (STA-1).

``KeyedStates`` belongs to one operator and names its states; ``state.of(group, key)`` gives the cell of one key.
A cell is a view: it holds nothing, so any number of them may exist and none needs closing. Each (name, key) is
one entry of the store, so a list or a map is read and written whole: meant for what fits a record, not for a
table. An empty list or map is no entry. Values, lists and maps may have a time to live (``time_to_live``).

Values cross to the store as MessagePack, by msgspec: dataclasses, Structs, tuples, containers and scalars.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from barrier_tck.reference_impl.runtime_errors import CorruptStateError, JobUsageError
from barrier_tck.reference_impl.state.backend import KeyedStateStore
from barrier_tck.reference_impl.state.time_to_live import TAG, LimitedEntries, TimeToLive

ValueT = TypeVar("ValueT")
KeyT = TypeVar("KeyT")
InputT = TypeVar("InputT")
OutputT = TypeVar("OutputT")

_encode = msgspec.msgpack.Encoder().encode


class Codec(Generic[ValueT]):
    """Turns values of one type into bytes and back."""

    def __init__(self, state: str, of_type: Any) -> None:
        """Take the state's name, for messages, and the type; raises JobUsageError if msgspec cannot do the type."""
        self.state = state
        self.of_type = of_type
        try:
            self._decode = msgspec.msgpack.Decoder(of_type).decode
        except TypeError as error:
            raise JobUsageError(f"state {state!r} cannot hold values of type {of_type!r}: {error}") from error

    def encode(self, value: ValueT) -> bytes:
        """Return the bytes; raises JobUsageError, with the value, if it is not of the type."""
        try:
            data = _encode(value)
            # What could not be read back must not be written: the mistake is here, not at the restore.
            self._decode(data)
        except (TypeError, ValueError, OverflowError, msgspec.MsgspecError) as error:
            raise JobUsageError(f"state {self.state!r} cannot hold {value!r}: {error}") from error
        return data

    def decode(self, data: bytes) -> ValueT:
        """Return the value; raises CorruptStateError if the bytes are not of this type."""
        try:
            value: ValueT = self._decode(data)
        except msgspec.MsgspecError as error:
            if data[0] == TAG:
                raise JobUsageError(
                    f"the state {self.state!r} has a time to live in the checkpoint and none in the job; name it with "
                    "a ttl, or give it another name"
                ) from error
            raise CorruptStateError(
                f"state {self.state!r} holds {data[:40]!r}, which is no {self.of_type!r}: {error}"
            ) from error
        return value


class Entries(Protocol):
    """What cells need of a store."""

    def get(self, name: str, group: int, key: bytes) -> bytes | None:
        """Return the value, or None if there is none."""

    def put(self, name: str, group: int, key: bytes, value: bytes) -> None:
        """Set the value."""

    def delete(self, name: str, group: int, key: bytes) -> None:
        """Remove the value; a missing one is no error."""

    def scan(self, name: str, group: int) -> Iterator[tuple[bytes, bytes]]:
        """Iterate over the entries of one state in one key group, in any order."""


class _Cell(Generic[ValueT]):
    """One entry of a store."""

    __slots__ = ("_codec", "_group", "_key", "_store")

    def __init__(self, store: Entries, codec: Codec[ValueT], group: int, key: bytes) -> None:
        self._store = store
        self._codec = codec
        self._group = group
        self._key = key

    def clear(self) -> None:
        """Remove what the key has; it is no error if it has nothing."""
        self._store.delete(self._codec.state, self._group, self._key)

    def _load(self) -> ValueT | None:
        data = self._store.get(self._codec.state, self._group, self._key)
        return None if data is None else self._codec.decode(data)

    def _save(self, value: ValueT) -> None:
        self._store.put(self._codec.state, self._group, self._key, self._codec.encode(value))


class ValueCell(_Cell[ValueT]):
    """One value of a key."""

    __slots__ = ()

    def get(self) -> ValueT | None:
        """Return the value, or None if there is none."""
        return self._load()

    def set(self, value: ValueT) -> None:
        self._save(value)


class ListCell(_Cell[list[ValueT]]):
    """A list of a key."""

    __slots__ = ()

    def get(self) -> list[ValueT]:
        """Return a copy of the list, in the order of adding; empty if there is none."""
        return self._load() or []

    def add(self, *values: ValueT) -> None:
        """Append values."""
        self.set([*self.get(), *values])

    def set(self, values: list[ValueT]) -> None:
        """Replace the list."""
        if values:
            self._save(values)
        else:
            self.clear()


class MapCell(_Cell[dict[KeyT, ValueT]]):
    """A map of a key."""

    __slots__ = ()

    def get(self, key: KeyT) -> ValueT | None:
        """Return the value at a key of the map, or None."""
        return self.items().get(key)

    def put(self, key: KeyT, value: ValueT) -> None:
        """Set the value at a key of the map."""
        self.set({**self.items(), key: value})

    def remove(self, key: KeyT) -> None:
        """Remove a key of the map; a missing one is no error."""
        items = self.items()
        if key in items:
            del items[key]
            self.set(items)

    def items(self) -> dict[KeyT, ValueT]:
        """Return a copy of the map, in the order in which keys were first put."""
        return self._load() or {}

    def set(self, items: Mapping[KeyT, ValueT]) -> None:
        """Replace the map."""
        if items:
            self._save(dict(items))
        else:
            self.clear()


class ReducingCell(_Cell[ValueT]):
    """All values added to a key, reduced to one of the same type."""

    __slots__ = ("_reduce",)

    def __init__(
        self,
        store: Entries,
        codec: Codec[ValueT],
        group: int,
        key: bytes,
        reduce: Callable[[ValueT, ValueT], ValueT],
    ) -> None:
        super().__init__(store, codec, group, key)
        self._reduce = reduce

    def get(self) -> ValueT | None:
        """Return the reduced value, or None if nothing was added."""
        return self._load()

    def add(self, value: ValueT) -> None:
        """Reduce a value in."""
        present = self._load()
        self._save(value if present is None else self._reduce(present, value))


class AggregatingCell(_Cell[ValueT], Generic[InputT, ValueT, OutputT]):
    """All values added to a key, folded into an accumulator of another type."""

    __slots__ = ("_functions",)

    def __init__(
        self,
        store: Entries,
        codec: Codec[ValueT],
        group: int,
        key: bytes,
        functions: tuple[
            Callable[[], ValueT], Callable[[ValueT, InputT], ValueT], Callable[[ValueT], OutputT]
        ],
    ) -> None:
        super().__init__(store, codec, group, key)
        self._functions = functions

    def get(self) -> OutputT | None:
        """Return the result, or None if nothing was added."""
        accumulator = self._load()
        return None if accumulator is None else self._functions[2](accumulator)

    def add(self, value: InputT) -> None:
        """Fold a value in."""
        create, add, _ = self._functions
        accumulator = self._load()
        self._save(add(create() if accumulator is None else accumulator, value))


CellT = TypeVar("CellT", bound=_Cell[Any])


class NamedState(Generic[CellT]):
    """One named state of an operator, over all keys of the subtask."""

    def __init__(self, store: Entries, name: str, make: Callable[[Entries, int, bytes], CellT]) -> None:
        self.name = name
        self._store = store
        self._make = make

    def of(self, group: int, key: bytes) -> CellT:
        """Return the cell of a key; ``group`` is the key's key group."""
        return self._make(self._store, group, key)

    def cells(self, group: int) -> Iterator[tuple[bytes, CellT]]:
        """Iterate over the keys of a key group that have something, and their cells."""
        for key, _ in self._store.scan(self.name, group):
            yield key, self._make(self._store, group, key)


class KeyedStates:
    """The named states of one operator. Each name is given to one state."""

    def __init__(
        self,
        store: KeyedStateStore,
        groups: Iterable[int] = (),
        now_ms: Callable[[], float] | None = None,
    ) -> None:
        """Take the operator's store, which it does not close.

        States with a time to live need ``groups``, the key groups of the subtask, and ``now_ms``, which gives the time
        now in ms of the epoch.
        """
        self._store = store
        self._groups = groups
        self._now_ms = now_ms
        self._names: dict[str, None] = {}
        self._limited: list[LimitedEntries] = []

    def value(
        self, name: str, of_type: type[ValueT], ttl: TimeToLive | None = None
    ) -> NamedState[ValueCell[ValueT]]:
        """Name a state with one value per key. None is not a value: it means that there is none."""
        codec: Codec[ValueT] = self._codec(name, of_type)
        entries = self._entries(name, ttl)
        return NamedState(entries, name, lambda store, group, key: ValueCell(store, codec, group, key))

    def list(
        self, name: str, of_type: type[ValueT], ttl: TimeToLive | None = None
    ) -> NamedState[ListCell[ValueT]]:
        """Name a state with a list per key; ``of_type`` is that of an element. It lives and ends as a whole."""
        codec: Codec[list[ValueT]] = self._codec(name, list[of_type])  # type: ignore[valid-type]
        entries = self._entries(name, ttl)
        return NamedState(entries, name, lambda store, group, key: ListCell(store, codec, group, key))

    def map(
        self, name: str, key_type: type[KeyT], of_type: type[ValueT], ttl: TimeToLive | None = None
    ) -> NamedState[MapCell[KeyT, ValueT]]:
        """Name a state with a map per key; it has keys and values of these types, and lives and ends as a whole."""
        codec: Codec[dict[KeyT, ValueT]] = self._codec(name, dict[key_type, of_type])  # type: ignore[valid-type]
        entries = self._entries(name, ttl)
        return NamedState(entries, name, lambda store, group, key: MapCell(store, codec, group, key))

    def reducing(
        self, name: str, of_type: type[ValueT], reduce: Callable[[ValueT, ValueT], ValueT]
    ) -> NamedState[ReducingCell[ValueT]]:
        """Name a state that keeps one value, reduced from all that were added."""
        codec: Codec[ValueT] = self._codec(name, of_type)
        return NamedState(
            self._store, name, lambda store, group, key: ReducingCell(store, codec, group, key, reduce)
        )

    def aggregating(
        self,
        name: str,
        accumulator_type: type[ValueT],
        create: Callable[[], ValueT],
        add: Callable[[ValueT, InputT], ValueT],
        result: Callable[[ValueT], OutputT],
    ) -> NamedState[AggregatingCell[InputT, ValueT, OutputT]]:
        """Name a state that keeps an accumulator of all that were added; ``get`` returns its result."""
        codec: Codec[ValueT] = self._codec(name, accumulator_type)
        functions = (create, add, result)
        return NamedState(
            self._store, name, lambda store, group, key: AggregatingCell(store, codec, group, key, functions)
        )

    def remove_what_is_over(self) -> None:
        """Remove every entry whose time to live is over."""
        for entries in self._limited:
            entries.remove_what_is_over()

    def _entries(self, name: str, ttl: TimeToLive | None) -> Entries:
        """Return the store, or the entries of one state in it that have a time to live."""
        if ttl is None:
            return self._store
        if self._now_ms is None:
            raise JobUsageError(
                f"the state {name!r} has a time to live; give KeyedStates the groups and a clock"
            )
        limited = LimitedEntries(self._store, name, ttl, self._groups, self._now_ms)
        self._limited.append(limited)
        return limited

    def _codec(self, name: str, of_type: Any) -> Codec[Any]:
        if not name:
            raise JobUsageError("a state needs a name")
        if name.startswith("~"):
            raise JobUsageError(f"the state name {name!r} begins with '~', which is reserved")
        if name in self._names:
            raise JobUsageError(f"the state {name!r} is named twice in one operator; give each its own name")
        codec: Codec[Any] = Codec(name, of_type)
        self._names[name] = None
        return codec
