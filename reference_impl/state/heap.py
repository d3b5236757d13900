"""A state backend that keeps state in memory, with copy-on-write snapshots (SNP-4).

Entries live in one dict per (state name, key group); keys and values are immutable bytes, so a shallow copy
of a dict is a full copy. The synchronous part of a snapshot notes which dicts exist and marks them shared;
the first later write to a shared dict copies it (BE-01). The snapshot *pins* its version until the
asynchronous part ends, fails or is cancelled; without a pin a write copies nothing (BE-07).

``heap_files`` writes and reads the files of a snapshot. With incremental checkpoints, a snapshot is a full one and the
increments since then, each with the entries that had changed (SNP-5); ``heap_increments`` decides what each holds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from threading import Lock

from barrier_tck.reference_impl.ids import CheckpointId, KeyGroupRange
from barrier_tck.reference_impl.protocol.messages import StateHandle
from barrier_tck.reference_impl.runtime_errors import CorruptStateError, JobUsageError
from barrier_tck.reference_impl.state.backend import (
    KeyedStateStore,
    SharingStateWriter,
    SnapshotFuture,
    StateCapability,
    StateReader,
    StateScope,
    StateWriter,
)
from barrier_tck.reference_impl.state.checks import refuse_overlaps, require_in_range, require_same_length
from barrier_tck.reference_impl.state.heap_files import (
    CapturedState,
    Table,
    position_of,
    read_increment,
    read_snapshot,
)
from barrier_tck.reference_impl.state.heap_increments import (
    ChangeLog,
    IncrementTask,
    StoredSnapshot,
    require_next,
)
from barrier_tck.reference_impl.state.heap_write_task import Captured, WriteTask, slices_of
from barrier_tck.reference_impl.state.held import NOTHING_HELD, HeldState
from barrier_tck.reference_impl.state.snapshots import DeferredSnapshot, FinishedSnapshot

_CAPABILITIES = frozenset(
    {
        StateCapability.ASYNCHRONOUS_SNAPSHOTS,
        StateCapability.CONCURRENT_SNAPSHOTS,
        StateCapability.DETERMINISTIC_FILES,
        StateCapability.INCREMENTAL_SNAPSHOTS,
    }
)


class HeapStateBackend:
    """Opens stores that live in memory. A value: it is shipped to subtasks."""

    @property
    def name(self) -> str:
        return "heap"

    @property
    def capabilities(self) -> frozenset[StateCapability]:
        return _CAPABILITIES

    def open(self, scope: StateScope, restore: Sequence[StateHandle], reader: StateReader) -> KeyedStateStore:
        """Open a store with the entries of the handles that lie in the scope's key groups (RSC-1).

        Raises CorruptStateError if a file is not a heap snapshot, or if two handles hold the same key group.
        """
        store = self.new_store(scope)
        wanted = [handle for handle in restore if len(handle.key_groups.intersection(scope.key_groups))]
        full: list[StateHandle] = []
        increments: list[StateHandle] = []
        position = 0
        for handle in wanted:
            content = reader.read(handle)
            before, position = position, position_of(content)
            if position:
                require_next(handle, before if full else -1, position)
                increments.append(handle)
                for change in read_increment(handle, content, scope.key_groups):
                    store.amend(*change)
                continue
            full.append(handle)
            refuse_overlaps(full)
            for name, group, table in read_snapshot(handle, content, scope.key_groups):
                store.adopt(name, group, table)
        store.build_on(scope, full, increments)
        return store

    def new_store(self, scope: StateScope) -> HeapStateStore:
        """Return an empty store, whose increments can be restored if the scope asks for that."""
        return IncrementalHeapStore(scope) if scope.incremental else HeapStateStore(scope)


class _ReadableTables(dict[int, Table]):
    """The tables of one state by key group. A group that was never written reads as empty."""

    __slots__ = ("_key_groups",)

    def __init__(self, key_groups: KeyGroupRange) -> None:
        super().__init__()
        self._key_groups = key_groups

    def __missing__(self, group: int) -> Table:
        require_in_range(group, self._key_groups)
        return {}


class _WritableTables(dict[int, Table]):
    """The tables of one state that may be written in place. A missing one is made writable by its store."""

    __slots__ = ("_state", "_store")

    def __init__(self, store: HeapStateStore, state: _State) -> None:
        super().__init__()
        self._store = store
        self._state = state

    def __missing__(self, group: int) -> Table:
        table = self._store.writable_copy(self._state, group)
        self[int(group)] = table
        return table


class _State:
    """One named state: its tables, those that may be written in place, and the version each stems from."""

    __slots__ = ("born", "readable", "writable")

    def __init__(self, store: HeapStateStore, key_groups: KeyGroupRange) -> None:
        self.readable = _ReadableTables(key_groups)
        self.writable = _WritableTables(store, self)
        self.born: dict[int, int] = {}


class _States(dict[str, _State]):
    """The states by name, made on first use."""

    __slots__ = ("_key_groups", "_store")

    def __init__(self, store: HeapStateStore, key_groups: KeyGroupRange) -> None:
        super().__init__()
        self._store = store
        self._key_groups = key_groups

    def __missing__(self, name: str) -> _State:
        state = self[name] = _State(self._store, self._key_groups)
        return state


class _ClosedStates(_States):
    """Stands in for the states of a closed store."""

    __slots__ = ()

    def __missing__(self, name: str) -> _State:
        raise JobUsageError(f"the state {name!r} was used after its store was closed")


class HeapStateStore:
    """The live state of one operator of one subtask, in memory. Values must be immutable ``bytes``."""

    def __init__(self, scope: StateScope) -> None:
        self._key_groups = scope.key_groups
        self._slices = slices_of(scope.key_groups, scope.files_wanted)
        self._compression = scope.compression
        self._states: _States = _States(self, scope.key_groups)
        self._version = 0
        self._outstanding: dict[int, tuple[CheckpointId, DeferredSnapshot[tuple[StateHandle, ...]]]] = {}
        self._pins: dict[int, None] = {}
        # Pins are released by the thread that runs the asynchronous part.
        self._pin_lock = Lock()
        self._held: HeldState | None = None

    @property
    def pinned_versions(self) -> int:
        """Return how many snapshots still hold tables, so that a write has to copy (BE-07)."""
        return len(self._pins)

    def get(self, name: str, group: int, key: bytes) -> bytes | None:
        return self._states[name].readable[group].get(key)

    def put(self, name: str, group: int, key: bytes, value: bytes) -> None:
        """Set the value; raises JobUsageError for a key group that is not the store's."""
        self._states[name].writable[group][key] = value

    def delete(self, name: str, group: int, key: bytes) -> None:
        """Remove the value; a missing one is no error (and copies nothing)."""
        state = self._states[name]
        if key in state.readable[group]:
            del state.writable[group][key]

    def scan(self, name: str, group: int) -> Iterator[tuple[bytes, bytes]]:
        """Iterate over the entries as they are now; writes during the iteration do not disturb it."""
        return iter(list(self._states[name].readable[group].items()))

    def get_many(self, name: str, groups: Sequence[int], keys: Sequence[bytes]) -> list[bytes | None]:
        require_same_length(len(groups), len(keys))
        return list(map(dict.get, map(self._states[name].readable.__getitem__, groups), keys))

    def put_many(
        self, name: str, groups: Sequence[int], keys: Sequence[bytes], values: Sequence[bytes]
    ) -> None:
        require_same_length(len(groups), len(keys))
        require_same_length(len(groups), len(values))
        tables = map(self._states[name].writable.__getitem__, groups)
        for table, key, value in zip(tables, keys, values, strict=True):
            table[key] = value

    def adopt(self, name: str, group: int, table: Table) -> None:
        """Take a restored table as it is; raises CorruptStateError if the group has one already (BE-03)."""
        state = self._states[name]
        if group in state.readable:
            raise CorruptStateError(
                f"key group {group} of state {name!r} is in more than one restored snapshot"
            )
        state.readable[group] = table
        state.born[group] = self._version

    def amend(self, name: str, group: int, entries: Table, removed: Sequence[bytes]) -> None:
        """Apply what an increment says to restored tables, which nothing shares yet."""
        state = self._states[name]
        if group not in state.readable:
            self.adopt(name, group, {})
        table = state.readable[group]
        table.update(entries)
        for key in removed:
            table.pop(key, None)

    def build_on(
        self, scope: StateScope, full: Sequence[StateHandle], increments: Sequence[StateHandle]
    ) -> None:
        """All these files are applied: those of a full snapshot, and its increments in their order."""

    def hold(self, held: HeldState, names: Sequence[str]) -> None:
        """Have the states with these names only in the form in which the operator holds them."""
        self._held = held
        for name in names:
            self._states.pop(name, None)

    @property
    def changes_since(self) -> int | None:
        """None: each snapshot is a full one."""
        return None

    def snapshot(
        self, checkpoint: CheckpointId, writer: StateWriter
    ) -> SnapshotFuture[tuple[StateHandle, ...]]:
        """Note the tables and mark them shared; the future serialises and writes them (SNP-1)."""
        if isinstance(self._states, _ClosedStates):
            raise JobUsageError(f"snapshot {checkpoint} was asked of a store that is closed")
        captured = self.capture()
        frozen = self._held.freeze(self._version + 1) if self._held is not None else NOTHING_HELD
        if frozen.is_empty and not [tables for _, tables in captured if tables]:
            frozen.release()
            return FinishedSnapshot(())
        self._version += 1
        version = self._version
        self._pins[version] = None
        task = self.write_task(checkpoint, Captured(captured, frozen), writer)
        future = DeferredSnapshot(task.run, task.cancel)
        self._outstanding[version] = (checkpoint, future)
        return future

    def write_task(self, checkpoint: CheckpointId, captured: Captured, writer: StateWriter) -> WriteTask:
        """Return the asynchronous part of the snapshot whose version was just pinned."""
        version = self._version
        return WriteTask(captured, writer, self._slices, self._compression, lambda: self._release(version))

    def capture(self) -> list[CapturedState]:
        """Return the tables as of now, and see to it that none of them is written in place any more."""
        captured = []
        for name, state in self._states.items():
            captured.append((name, dict(state.readable)))
            state.writable.clear()
        return captured

    def writable_copy(self, state: _State, group: int) -> Table:
        """Return a table to write in place: the present one, or a copy if a pinned snapshot shares it."""
        require_in_range(group, self._key_groups)
        group = int(group)
        table = state.readable.get(group)
        if table is None:
            table = {}
        else:
            with self._pin_lock:
                # Versions count up, so the newest pin is the last one; it shares every table born before it.
                shared = bool(self._pins) and next(reversed(self._pins)) > state.born[group]
            if shared:
                table = table.copy()
        state.readable[group] = table
        state.born[group] = self._version
        return table

    def confirm(self, checkpoint: CheckpointId) -> None:
        """Do nothing: nothing is kept for a checkpoint once its files are written."""

    def abort(self, checkpoint: CheckpointId) -> None:
        """Cancel the checkpoint's asynchronous part if it has not ended (COO-2)."""
        self._cancel([future for number, future in list(self._outstanding.values()) if number == checkpoint])

    def close(self) -> None:
        """Cancel what runs and drop the state."""
        self._cancel([future for _, future in list(self._outstanding.values())])
        self._states = _ClosedStates(self, self._key_groups)

    @staticmethod
    def _cancel(futures: list[DeferredSnapshot[tuple[StateHandle, ...]]]) -> None:
        for future in futures:
            future.cancel()

    def _release(self, version: int) -> None:
        """Unpin a version. Twice is harmless: a version is pinned once and its number never returns."""
        with self._pin_lock:
            self._pins.pop(version, None)
        self._outstanding.pop(version, None)


class IncrementalHeapStore(HeapStateStore):
    """A store that notes which keys change, so that a snapshot can be an increment on a confirmed one (SNP-5)."""

    def __init__(self, scope: StateScope) -> None:
        super().__init__(scope)
        self._range = scope.key_groups
        self._log = ChangeLog()

    def put(self, name: str, group: int, key: bytes, value: bytes) -> None:
        """Set the value, and note that it changed."""
        super().put(name, group, key, value)
        self._log.note(name, group, key)

    def put_many(
        self, name: str, groups: Sequence[int], keys: Sequence[bytes], values: Sequence[bytes]
    ) -> None:
        """Set many values, and note that they changed."""
        super().put_many(name, groups, keys, values)
        for group, key in zip(groups, keys, strict=True):
            self._log.note(name, group, key)

    def delete(self, name: str, group: int, key: bytes) -> None:
        """Remove the value, and note that it changed."""
        super().delete(name, group, key)
        self._log.note(name, group, key)

    def build_on(
        self, scope: StateScope, full: Sequence[StateHandle], increments: Sequence[StateHandle]
    ) -> None:
        """Build on what was restored, if it is one chain of a store with these key groups and may be used again.

        Each increment of such a chain has all key groups. Chains of several stores may differ in their length; another
        increment on them together would follow none of them.
        """
        handles = (*full, *increments)
        own = all(handle.shared and _is_within(handle.key_groups, self._range) for handle in full)
        chain = all(handle.shared and handle.key_groups == self._range for handle in increments)
        if handles and own and chain and scope.restored is not None:
            self._log.build_on(StoredSnapshot(0, scope.restored, handles, len(increments)))

    @property
    def changes_since(self) -> int | None:
        """The version on which an increment may build, or of what was restored."""
        return self._log.base_version

    def write_task(self, checkpoint: CheckpointId, captured: Captured, writer: StateWriter) -> WriteTask:
        """Return what writes an increment, or a full snapshot that later ones may build on."""
        version = self._version
        self._log.begin(version)
        if not isinstance(writer, SharingStateWriter):
            return super().write_task(checkpoint, captured, writer)
        return IncrementTask(
            captured,
            self._slices,
            self._compression,
            lambda: self._release(version),
            self._log.planned(version, checkpoint, writer),
        )

    def confirm(self, checkpoint: CheckpointId) -> None:
        """Build on this checkpoint from now on."""
        self._log.confirm(checkpoint)

    def abort(self, checkpoint: CheckpointId) -> None:
        """Cancel the checkpoint's asynchronous part if it has not ended, and never build on it (COO-2)."""
        super().abort(checkpoint)
        self._log.abort(checkpoint)


def _is_within(part: KeyGroupRange, whole: KeyGroupRange) -> bool:
    return whole.start <= part.start and part.end <= whole.end
