"""A state backend that keeps state in memory, with copy-on-write snapshots (SNP-4).

Entries live in one dict per (state name, key group); keys and values are immutable bytes, so a shallow copy
of a dict is a full copy. The synchronous part of a snapshot notes which dicts exist and marks them shared;
the first later write to a shared dict copies it (BE-01). The snapshot *pins* its version until the
asynchronous part ends, fails or is cancelled; without a pin a write copies nothing (BE-07).

``heap_files`` writes and reads the files of a snapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from threading import Lock

from barrier_tck.reference_impl.config import Compression
from barrier_tck.reference_impl.ids import CheckpointId, KeyGroupRange
from barrier_tck.reference_impl.protocol.messages import StateHandle
from barrier_tck.reference_impl.runtime_errors import CorruptStateError, JobUsageError, SnapshotCancelled
from barrier_tck.reference_impl.state.backend import (
    KeyedStateStore,
    SnapshotFuture,
    StateCapability,
    StateReader,
    StateScope,
    StateWriter,
)
from barrier_tck.reference_impl.state.checks import refuse_overlaps, require_in_range, require_same_length
from barrier_tck.reference_impl.state.heap_files import CapturedState, Table, read_snapshot, serialised
from barrier_tck.reference_impl.state.snapshots import DeferredSnapshot, FinishedSnapshot

_CAPABILITIES = frozenset(
    {
        StateCapability.ASYNCHRONOUS_SNAPSHOTS,
        StateCapability.CONCURRENT_SNAPSHOTS,
        StateCapability.DETERMINISTIC_FILES,
    }
)


class HeapStateBackend:
    """Opens stores that live in memory. A value: it is shipped to subtasks."""

    @property
    def name(self) -> str:
        """Return ``heap``."""
        return "heap"

    @property
    def capabilities(self) -> frozenset[StateCapability]:
        """Return what the backend declares."""
        return _CAPABILITIES

    def open(self, scope: StateScope, restore: Sequence[StateHandle], reader: StateReader) -> KeyedStateStore:
        """Open a store with the entries of the handles that lie in the scope's key groups (RSC-1).

        Raises CorruptStateError if a file is not a heap snapshot, or if two handles hold the same key group.
        """
        store = self.new_store(scope)
        wanted = [handle for handle in restore if len(handle.key_groups.intersection(scope.key_groups))]
        refuse_overlaps(wanted)
        for handle in wanted:
            for name, group, table in read_snapshot(handle, reader.read(handle), scope.key_groups):
                store.adopt(name, group, table)
        return store

    def new_store(self, scope: StateScope) -> HeapStateStore:
        """Return an empty store; a variant of the backend overrides this."""
        return HeapStateStore(scope)


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
        """Start empty."""
        self._key_groups = scope.key_groups
        self._slices = _slices(scope.key_groups, scope.files_wanted)
        self._compression = scope.compression
        self._states: _States = _States(self, scope.key_groups)
        self._version = 0
        self._outstanding: dict[int, tuple[CheckpointId, DeferredSnapshot[tuple[StateHandle, ...]]]] = {}
        self._pins: dict[int, None] = {}
        # Pins are released by the thread that runs the asynchronous part.
        self._pin_lock = Lock()

    @property
    def pinned_versions(self) -> int:
        """Return how many snapshots still hold tables, so that a write has to copy (BE-07)."""
        return len(self._pins)

    def get(self, name: str, group: int, key: bytes) -> bytes | None:
        """Return the value, or None if there is none."""
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
        """Return the values of many keys; ``groups`` and ``keys`` run in step."""
        require_same_length(len(groups), len(keys))
        return list(map(dict.get, map(self._states[name].readable.__getitem__, groups), keys))

    def put_many(
        self, name: str, groups: Sequence[int], keys: Sequence[bytes], values: Sequence[bytes]
    ) -> None:
        """Set many values; the three sequences run in step."""
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

    def snapshot(
        self, checkpoint: CheckpointId, writer: StateWriter
    ) -> SnapshotFuture[tuple[StateHandle, ...]]:
        """Note the tables and mark them shared; the future serialises and writes them (SNP-1)."""
        if isinstance(self._states, _ClosedStates):
            raise JobUsageError(f"snapshot {checkpoint} was asked of a store that is closed")
        captured = self.capture()
        if not [tables for _, tables in captured if tables]:
            return FinishedSnapshot(())
        self._version += 1
        version = self._version
        self._pins[version] = None
        task = _WriteTask(captured, writer, self._slices, self._compression, lambda: self._release(version))
        future = DeferredSnapshot(task.run, task.cancel)
        self._outstanding[version] = (checkpoint, future)
        return future

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


class _WriteTask:
    """The asynchronous part of one snapshot: serialises the captured tables and writes them."""

    __slots__ = (
        *("_cancelled", "_captured", "_compression", "_lock"),
        *("_release", "_slices", "_started", "_writer"),
    )

    def __init__(
        self,
        captured: list[CapturedState],
        writer: StateWriter,
        slices: Sequence[KeyGroupRange],
        compression: Compression,
        release: Callable[[], None],
    ) -> None:
        self._captured = captured
        self._writer = writer
        self._slices = slices
        self._compression = compression
        self._release = release
        self._lock = Lock()
        self._started = False
        self._cancelled = False

    def run(self) -> tuple[StateHandle, ...]:
        """Write a file per slice; whatever happens, the pinned version is released."""
        with self._lock:
            self._started = True
        try:
            if len(self._slices) == 1:
                return (self._writer.write("state", self._chunks(self._captured), self._slices[0]),)
            return tuple(
                self._writer.write(f"state-{number}", self._chunks(_part(self._captured, groups)), groups)
                for number, groups in enumerate(self._slices)
            )
        finally:
            self._release()

    def cancel(self) -> None:
        """Make a running write stop at its next chunk. One that has not started releases its version here."""
        with self._lock:
            self._cancelled = True
            started = self._started
        if not started:
            self._release()

    def _chunks(self, captured: Sequence[CapturedState]) -> Iterator[bytes]:
        for chunk in serialised(captured, self._compression):
            self._check_cancelled()
            yield chunk
        self._check_cancelled()

    def _check_cancelled(self) -> None:
        if self._cancelled:
            raise SnapshotCancelled("the asynchronous part of a heap snapshot was cancelled")


def _slices(key_groups: KeyGroupRange, wanted: int) -> tuple[KeyGroupRange, ...]:
    """Cut a range into as many parts as are wanted, at least one, none of them empty."""
    count = max(1, min(wanted, len(key_groups)))
    cuts = [key_groups.start + len(key_groups) * number // count for number in range(count + 1)]
    return tuple(KeyGroupRange(start, end) for start, end in pairwise(cuts))


def _part(captured: Sequence[CapturedState], key_groups: KeyGroupRange) -> list[CapturedState]:
    return [(name, {g: table for g, table in tables.items() if g in key_groups}) for name, tables in captured]
