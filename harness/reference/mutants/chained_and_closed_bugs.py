"""Planted bugs of state backends in long chains, in what happens while a snapshot is unfinished, and in rare values and
sizes (CER-2).
"""

from __future__ import annotations

import threading
import zlib
from collections.abc import Iterable, Iterator, Sequence

from barrier_tck.harness.reference.mutants.dropped_and_deleted_bugs import OtherIncrements
from barrier_tck.harness.reference.mutants.held_out_backend_bugs import Variant
from barrier_tck.reference_impl.ids import CheckpointId
from barrier_tck.reference_impl.protocol.messages import StateHandle
from barrier_tck.reference_impl.runtime_errors import CorruptStateError, StorageError
from barrier_tck.reference_impl.state.backend import (
    KeyedStateStore,
    SharingStateWriter,
    StateReader,
    StateScope,
    StateWriter,
)
from barrier_tck.reference_impl.state.heap import HeapStateBackend, HeapStateStore, IncrementalHeapStore
from barrier_tck.reference_impl.state.heap_files import CapturedState, Change
from barrier_tck.reference_impl.state.heap_increments import (
    ChangeLog,
    IncrementTask,
    PlannedSnapshot,
    StoredSnapshot,
)
from barrier_tck.reference_impl.state.heap_write_task import Captured, WriteTask

# --- increments -----------------------------------------------------------------------------------------------


class _Remembered:
    """A writer whose answer for a base is asked for once."""

    def __init__(self, inner: SharingStateWriter, usable: bool) -> None:
        self._usable = usable
        self.write = inner.write
        self.write_shared = inner.write_shared
        self.reuse = inner.reuse

    def may_reuse(self, checkpoint: CheckpointId) -> bool:
        return self._usable


class _RememberingLog(ChangeLog):
    def __init__(self) -> None:
        super().__init__()
        self._asked: tuple[StoredSnapshot, bool] | None = None

    def planned(self, version: int, checkpoint: CheckpointId, writer: SharingStateWriter) -> PlannedSnapshot:
        base = self._base
        if base is not None:
            if self._asked is None or self._asked[0] is not base:
                self._asked = (base, writer.may_reuse(base.checkpoint))
            writer = _Remembered(writer, self._asked[1])
        return super().planned(version, checkpoint, writer)


class _RememberingStore(IncrementalHeapStore):
    def __init__(self, scope: StateScope) -> None:
        super().__init__(scope)
        self._log = _RememberingLog()


class RemembersWhatMayBeReused(HeapStateBackend):
    """SB-26: whether the files of a checkpoint may be reused is asked once."""

    def new_store(self, scope: StateScope) -> HeapStateStore:
        return _RememberingStore(scope) if scope.incremental else HeapStateStore(scope)


class _FifthIncrement(IncrementTask):
    POSITION = 4

    def _changes(self, base: StoredSnapshot) -> list[Change] | None:
        changes = super()._changes(base)
        if changes is None or base.position < self.POSITION:
            return changes
        return [(name, group, entries, []) for name, group, entries, _ in changes]


class _MergingStore(OtherIncrements):
    task = _FifthIncrement


class LosesLateDeletions(HeapStateBackend):
    """SB-27: from the fifth increment of a chain on, deletions are lost."""

    def new_store(self, scope: StateScope) -> HeapStateStore:
        return _MergingStore(scope) if scope.incremental else HeapStateStore(scope)


class _UndeletingStore(IncrementalHeapStore):
    def delete(self, name: str, group: int, key: bytes) -> None:
        HeapStateStore.delete(self, name, group, key)


class ForgetsDeletionsSinceItsBase(HeapStateBackend):
    """SB-35: an increment does not say what was deleted since the confirmed snapshot on which it builds."""

    def new_store(self, scope: StateScope) -> HeapStateStore:
        return _UndeletingStore(scope) if scope.incremental else HeapStateStore(scope)


# --- while a snapshot is unfinished ---------------------------------------------------------------------------


class _OfAnOpenStore(WriteTask):
    """Reads its store's tables, which are gone when the store is closed."""

    store_closed = threading.Event()

    def cancellable(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        return super().cancellable(self._read(chunks))

    def _read(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        for chunk in chunks:
            if self.store_closed.is_set():
                raise ValueError("I/O operation on a closed table")
            yield chunk


class _TablesOfItsOwn(HeapStateStore):
    def __init__(self, scope: StateScope) -> None:
        super().__init__(scope)
        self._is_closed = threading.Event()

    def write_task(self, checkpoint: CheckpointId, captured: Captured, writer: StateWriter) -> WriteTask:
        version = self._version
        task = _OfAnOpenStore(
            captured, writer, self._slices, self._compression, lambda: self._release(version)
        )
        task.store_closed = self._is_closed
        return task

    def close(self) -> None:
        super().close()
        self._is_closed.set()


class ClosesWhatIsRead(Variant):
    """SB-28: a store is closed while another thread still reads it for a snapshot."""

    store = _TablesOfItsOwn


class _LateScans(HeapStateStore):
    def scan(self, name: str, group: int) -> Iterator[tuple[bytes, bytes]]:
        now = super().scan(name, group)
        return self._at_its_first_step(name, group) if self.pinned_versions else now

    def _at_its_first_step(self, name: str, group: int) -> Iterator[tuple[bytes, bytes]]:
        yield from super().scan(name, group)


class ScansLateAmidASnapshot(Variant):
    """SB-29: while a snapshot is unfinished, a scan gives what is there when its first entry is read."""

    store = _LateScans


class _CompactedStore(HeapStateStore):
    GROWTH_BYTES = 4 << 20

    def __init__(self, scope: StateScope) -> None:
        super().__init__(scope)
        self._grown_bytes = 0
        self._captured: list[CapturedState] = []

    def capture(self) -> list[CapturedState]:
        self._captured, self._grown_bytes = super().capture(), 0
        return self._captured

    def put_many(
        self, name: str, groups: Sequence[int], keys: Sequence[bytes], values: Sequence[bytes]
    ) -> None:
        super().put_many(name, groups, keys, values)
        self._grown_bytes += sum(map(len, values))
        if self.pinned_versions and self._grown_bytes > self.GROWTH_BYTES:
            for captured, tables in self._captured:
                for group, table in tables.items():
                    table.update(self._states[captured].readable[group])


class CompactsUnderASnapshot(Variant):
    """SB-34: when 4 MiB were written while a snapshot is unfinished, the snapshot has the later values."""

    store = _CompactedStore


# --- values, sizes, files -------------------------------------------------------------------------------------


def _inflated(value: bytes | None) -> bytes | None:
    if value is None or value[:1] != b"x":
        return value
    try:
        return zlib.decompress(value)
    except zlib.error:
        return value


class _InflatingStore(HeapStateStore):
    def get(self, name: str, group: int, key: bytes) -> bytes | None:
        return _inflated(super().get(name, group, key))

    def get_many(self, name: str, groups: Sequence[int], keys: Sequence[bytes]) -> list[bytes | None]:
        return [_inflated(value) for value in super().get_many(name, groups, keys)]

    def scan(self, name: str, group: int) -> Iterator[tuple[bytes, bytes]]:
        return iter([(key, _inflated(value) or b"") for key, value in super().scan(name, group)])


class InflatesValues(Variant):
    """SB-30: values that look compressed are inflated when they are read."""

    store = _InflatingStore


class _FewStates(HeapStateStore):
    STATES_MAX = 128

    def put(self, name: str, group: int, key: bytes, value: bytes) -> None:
        if name not in self._states and len(self._states) >= self.STATES_MAX:
            raise StorageError(f"no room for the state {name!r}")
        super().put(name, group, key, value)


class HasRoomForFewStates(Variant):
    """SB-31: a store has room for 128 states."""

    store = _FewStates


class _SweptStore(HeapStateStore):
    ENTRIES = 1_000

    def __init__(self, scope: StateScope) -> None:
        super().__init__(scope)
        self._written = 0

    def put_many(
        self, name: str, groups: Sequence[int], keys: Sequence[bytes], values: Sequence[bytes]
    ) -> None:
        super().put_many(name, groups, keys, values)
        before, self._written = self._written, self._written + len(keys)
        if before < self.ENTRIES <= self._written:
            threading.Thread(target=threading.Event().wait, name="sweeper", daemon=True).start()


class KeepsItsSweeper(Variant):
    """SB-32: a store with 1,000 entries or more has a thread that close does not end."""

    store = _SweptStore


class BlamesTheFirstFile(HeapStateBackend):
    """SB-33: whichever of several restored files is damaged, the message names the first one."""

    def open(self, scope: StateScope, restore: Sequence[StateHandle], reader: StateReader) -> KeyedStateStore:
        """Restore, and name the wrong file if that fails."""
        try:
            return super().open(scope, restore, reader)
        except CorruptStateError as error:
            raise CorruptStateError(f"{restore[0].path} cannot be read") from error
