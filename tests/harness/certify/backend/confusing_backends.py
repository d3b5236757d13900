"""Backends for the suite's own tests: each breaks one sentence of the interface, and otherwise works."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import ClassVar

from barrier_tck.reference_impl.ids import CheckpointId
from barrier_tck.reference_impl.protocol.messages import StateHandle
from barrier_tck.reference_impl.runtime_errors import CorruptStateError, JobUsageError, StorageError
from barrier_tck.reference_impl.state.backend import (
    KeyedStateStore,
    StateCapability,
    StateReader,
    StateScope,
)
from barrier_tck.reference_impl.state.heap import HeapStateBackend, HeapStateStore

Entries = Iterator[tuple[bytes, bytes]]


class _LazyStore(HeapStateStore):
    def scan(self, name: str, group: int) -> Entries:
        return ((key, self.get(name, group, key) or b"") for key, _ in super().scan(name, group))


class _PagedStore(HeapStateStore):
    def scan(self, name: str, group: int) -> Entries:
        return iter(list(super().scan(name, group))[:500])


class _DroppingStore(HeapStateStore):
    def scan(self, name: str, group: int) -> Entries:
        return iter(list(super().scan(name, group))[:-1])


class _ForgetfulStore(HeapStateStore):
    def confirm(self, checkpoint: CheckpointId) -> None:
        raise KeyError(checkpoint)


class _HospitableStore(HeapStateStore):
    def scan(self, name: str, group: int) -> Entries:
        try:
            return super().scan(name, group)
        except JobUsageError:
            return iter(())


class _OneGroupStore(HeapStateStore):
    def get_many(self, name: str, groups: Sequence[int], keys: Sequence[bytes]) -> list[bytes | None]:
        return super().get_many(name, [groups[0]] * len(keys), keys)


class _ShortNamesStore(HeapStateStore):
    def put(self, name: str, group: int, key: bytes, value: bytes) -> None:
        super().put(name[:64], group, key, value)

    def put_many(
        self, name: str, groups: Sequence[int], keys: Sequence[bytes], values: Sequence[bytes]
    ) -> None:
        super().put_many(name[:64], groups, keys, values)

    def get(self, name: str, group: int, key: bytes) -> bytes | None:
        return super().get(name[:64], group, key)

    def get_many(self, name: str, groups: Sequence[int], keys: Sequence[bytes]) -> list[bytes | None]:
        return super().get_many(name[:64], groups, keys)

    def scan(self, name: str, group: int) -> Entries:
        return super().scan(name[:64], group)


class Lazy(HeapStateBackend):
    """A scan shows entries that are written while it is being read."""

    store: type[HeapStateStore] = _LazyStore

    def new_store(self, scope: StateScope) -> HeapStateStore:
        return self.store(scope)


class Paged(Lazy):
    """A scan ends after one page."""

    store = _PagedStore


class DropsTheLast(Lazy):
    """A scan ends before the last entry."""

    store = _DroppingStore


class Forgetful(Lazy):
    """Confirming a checkpoint that it never saw is an error."""

    store = _ForgetfulStore


class Hospitable(Lazy):
    """A key group of another store is treated as empty."""

    store = _HospitableStore


class OneGroup(Lazy):
    """Several keys are all read from the key group of the first one."""

    store = _OneGroupStore


class ShortNames(Lazy):
    """Names of states are cut off."""

    store = _ShortNamesStore


class _LateStore(HeapStateStore):
    def scan(self, name: str, group: int) -> Entries:
        own = super().scan
        return ((key, value) for late in (own,) for key, value in list(late(name, group)))


class _OpenForEverStore(HeapStateStore):
    def close(self) -> None:
        for _, future in list(self._outstanding.values()):
            future.cancel()


class _RunningOnStore(HeapStateStore):
    def close(self) -> None:
        self._outstanding.clear()
        super().close()


class BeginsLate(Lazy):
    """A scan shows the entries of the moment at which its first one is read."""

    store = _LateStore


class OpenForEver(Lazy):
    """A closed store can be read."""

    store = _OpenForEverStore


class RunsOn(Lazy):
    """An unfinished snapshot runs although its store was closed."""

    store = _RunningOnStore


class KeepsWhatItRefused(HeapStateBackend):
    """A descriptor stays open if a restore is refused."""

    def open(self, scope: StateScope, restore: Sequence[StateHandle], reader: StateReader) -> KeyedStateStore:
        opened = os.open(os.devnull, os.O_RDONLY)
        store = super().open(scope, restore, reader)
        os.close(opened)
        return store


class _KeepsIfTheReaderRaises(HeapStateBackend):
    """A descriptor stays open if the reader raises an error of one kind."""

    kind: type[Exception]

    def open(self, scope: StateScope, restore: Sequence[StateHandle], reader: StateReader) -> KeyedStateStore:
        opened, raised = os.open(os.devnull, os.O_RDONLY), list[Exception]()

        class Reader:
            def read(self, handle: StateHandle) -> bytes:
                try:
                    return reader.read(handle)
                except Exception as error:
                    raised.append(error)
                    raise

        try:
            return super().open(scope, restore, Reader())
        finally:
            if not raised or type(raised[0]) is not self.kind:
                os.close(opened)


class KeepsIfAFileIsGone(_KeepsIfTheReaderRaises):
    kind = StorageError


class KeepsIfAFileDoesNotFit(_KeepsIfTheReaderRaises):
    kind = CorruptStateError


class NamesNothing(HeapStateBackend):
    """A restore is refused without saying which file is damaged."""

    def open(self, scope: StateScope, restore: Sequence[StateHandle], reader: StateReader) -> KeyedStateStore:
        try:
            return super().open(scope, restore, reader)
        except CorruptStateError as error:
            raise CorruptStateError("a file is damaged") from error


class ReadsTwo(HeapStateBackend):
    """Of several snapshots, only the files of two are restored."""

    def open(self, scope: StateScope, restore: Sequence[StateHandle], reader: StateReader) -> KeyedStateStore:
        ranges = list(dict.fromkeys(handle.path.rpartition("/")[2].split("-a")[0] for handle in restore))
        kept = [handle for handle in restore if handle.path.rpartition("/")[2].split("-a")[0] in ranges[:2]]
        return super().open(scope, kept, reader)


class SharesByNumber(HeapStateBackend):
    """Restored tables are cached by subtask and checkpoint, whichever operator they are of."""

    known: ClassVar[dict[str, Sequence[StateHandle]]] = {}

    def open(self, scope: StateScope, restore: Sequence[StateHandle], reader: StateReader) -> KeyedStateStore:
        if restore:
            restore = self.known.setdefault(f"{os.getcwd()} {scope.subtask_index} {restore[0].size}", restore)
        return super().open(scope, restore, reader)


class Leaking(HeapStateBackend):
    """A file that is opened for a restore stays open."""

    def open(self, scope: StateScope, restore: Sequence[StateHandle], reader: StateReader) -> KeyedStateStore:
        if restore:
            os.open(os.devnull, os.O_RDONLY)
        return super().open(scope, restore, reader)


class _SortedStore(HeapStateStore):
    restored = False

    def scan(self, name: str, group: int) -> Entries:
        entries = list(super().scan(name, group))
        return iter(entries[::-1] if self.restored else sorted(entries))


class SortedOnce(HeapStateBackend):
    """Scans are in order, except those of a store that was restored."""

    @property
    def capabilities(self) -> frozenset[StateCapability]:
        return super().capabilities | {StateCapability.ORDERED_SCAN}

    def new_store(self, scope: StateScope) -> HeapStateStore:
        return _SortedStore(scope)

    def open(self, scope: StateScope, restore: Sequence[StateHandle], reader: StateReader) -> KeyedStateStore:
        store = super().open(scope, restore, reader)
        assert isinstance(store, _SortedStore)
        store.restored = bool(restore)
        return store
