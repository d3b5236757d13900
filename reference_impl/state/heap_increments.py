"""What an increment of the heap backend holds: which keys have changed since the snapshot that it builds on (SNP-5).

The keys that change between two snapshots are noted under the version of the later one. An increment holds, of all
keys noted since its base, the entries that the captured tables have, and the keys that they do not have any more. Its
base is the newest snapshot that was *confirmed*. What failed in between does not matter: its keys are still noted,
and the increment has their values of now.

A chain of increments is ended by a full snapshot when it has ``INCREMENTS_MAX`` of them, or when they are larger than
the full snapshot that they build on, or when more keys have changed than there are entries: then another increment
saves little, and each one costs a restore time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from threading import Lock

from barrier_tck.reference_impl.config import Compression
from barrier_tck.reference_impl.ids import CheckpointId, KeyGroupRange
from barrier_tck.reference_impl.protocol.messages import StateHandle
from barrier_tck.reference_impl.runtime_errors import CorruptStateError
from barrier_tck.reference_impl.state.backend import SharingStateWriter
from barrier_tck.reference_impl.state.heap_files import Change, serialised_increment
from barrier_tck.reference_impl.state.heap_write_task import Captured, Release, WriteTask

INCREMENTS_MAX = 10
"""Most increments on one full snapshot."""
EPOCHS_MAX = 64
"""Most snapshots whose changes are noted apart; older ones are noted together, which only makes increments larger."""

ChangedKeys = defaultdict[str, defaultdict[int, dict[bytes, None]]]
"""State name -> key group -> keys."""


@dataclass(frozen=True, slots=True)
class StoredSnapshot:
    """A snapshot whose files are written, and on which increments can build once it is confirmed."""

    version: int
    """Its number among the snapshots of the store; 0 for what was restored."""
    checkpoint: CheckpointId
    handles: tuple[StateHandle, ...]
    position: int
    """How many increments there are on its full snapshot."""

    @property
    def is_long_enough(self) -> bool:
        """Whether the next snapshot should be a full one."""
        increments = self.handles[len(self.handles) - self.position :]
        size = sum(handle.size for handle in increments)
        return self.position >= INCREMENTS_MAX or size > sum(handle.size for handle in self.handles) - size


class ChangeLog:
    """Which keys of a store have changed since which snapshot. ``stored`` may be called by any thread."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._now = _no_keys()
        self._epochs: dict[int, ChangedKeys] = {}
        self._base: StoredSnapshot | None = None
        self._stored: dict[int, StoredSnapshot] = {}

    def note(self, name: str, group: int, key: bytes) -> None:
        """Note that an entry was set or removed."""
        self._now[name][group][key] = None

    def build_on(self, snapshot: StoredSnapshot) -> None:
        """Build on what was restored."""
        self._base = snapshot

    @property
    def base_version(self) -> int:
        """The version of the snapshot on which the next one builds, or 0; no later one builds on an older one."""
        return self._base.version if self._base is not None else 0

    def begin(self, version: int) -> None:
        """The synchronous part of a snapshot is being done: changes belong to the next one from now on."""
        self._epochs[version], self._now = self._now, _no_keys()
        if len(self._epochs) > EPOCHS_MAX:
            first, second = sorted(self._epochs)[:2]
            self._epochs[second] = _together([self._epochs.pop(first), self._epochs[second]])

    def planned(self, version: int, checkpoint: CheckpointId, writer: SharingStateWriter) -> PlannedSnapshot:
        """Decide what the snapshot that was just begun builds on."""
        base = self._base
        if base is not None and (base.is_long_enough or not writer.may_reuse(base.checkpoint)):
            base = None
        since = base.version if base is not None else version
        epochs = [self._epochs[number] for number in sorted(self._epochs) if since < number <= version]
        return PlannedSnapshot(self, version, checkpoint, writer, base, tuple(epochs))

    def stored(self, snapshot: StoredSnapshot) -> None:
        """The files of a snapshot are written. Nothing builds on it if a newer one was confirmed meanwhile.

        What had changed between the two is not noted any more.
        """
        with self._lock:
            if self._base is None or self._base.version < snapshot.version:
                self._stored[snapshot.version] = snapshot

    def confirm(self, checkpoint: CheckpointId) -> None:
        """Build on a checkpoint, unless a newer snapshot was confirmed before."""
        with self._lock:
            found = [one for one in self._stored.values() if one.checkpoint == checkpoint]
            newest = max(found, key=lambda one: one.version, default=None)
            if newest is None:
                return
            self._base = newest
            self._stored = {n: one for n, one in self._stored.items() if n > newest.version}
        self._epochs = {n: keys for n, keys in self._epochs.items() if n > newest.version}

    def abort(self, checkpoint: CheckpointId) -> None:
        """Forget what was written for a checkpoint; what had changed by then stays noted."""
        with self._lock:
            self._stored = {n: one for n, one in self._stored.items() if one.checkpoint != checkpoint}


@dataclass(frozen=True, slots=True)
class PlannedSnapshot:
    """A snapshot of which it is decided what it builds on."""

    log: ChangeLog
    version: int
    checkpoint: CheckpointId
    writer: SharingStateWriter
    base: StoredSnapshot | None
    epochs: tuple[ChangedKeys, ...]
    """The keys that have changed since the base; complete."""


class IncrementTask(WriteTask):
    """The asynchronous part of an incremental snapshot: writes an increment on the base, or a full snapshot."""

    def __init__(
        self,
        captured: Captured,
        slices: Sequence[KeyGroupRange],
        compression: Compression,
        release: Release,
        planned: PlannedSnapshot,
    ) -> None:
        super().__init__(captured, planned.writer, slices, compression, release)
        self._planned = planned
        self._whole = KeyGroupRange(slices[0].start, slices[-1].end)

    def write(self) -> tuple[StateHandle, ...]:
        """Write what is decided, and offer the result as a base."""
        planned, position = self._planned, 0
        base = planned.base
        changes = self._changes(base) if base is not None else None
        if base is None or changes is None:
            handles = self.write_full(self._write_shared)
        else:
            reused = tuple(planned.writer.reuse(handle) for handle in base.handles)
            handles, position = (
                (*reused, *self._write_increment(base, changes)),
                base.position + bool(changes),
            )
        planned.log.stored(StoredSnapshot(planned.version, planned.checkpoint, handles, position))
        return handles

    def _write_increment(self, base: StoredSnapshot, changes: list[Change]) -> tuple[StateHandle, ...]:
        if not changes:
            return ()
        chunks = serialised_increment(changes, base.position + 1, self.compression)
        return (self._write_shared("increment", self.cancellable(chunks), self._whole),)

    def _write_shared(self, name: str, chunks: Iterable[bytes], key_groups: KeyGroupRange) -> StateHandle:
        return self._planned.writer.write_shared(f"{name}-v{self._planned.version}", chunks, key_groups)

    def _changes(self, base: StoredSnapshot) -> list[Change] | None:
        """Return what the increment holds; None if more keys have changed than there are entries."""
        changed = _together(self._planned.epochs)
        tables, frozen = dict(self.captured.tables), self.captured.frozen
        entries = sum(len(table) for groups in tables.values() for table in groups.values())
        touched = sum(len(keys) for groups in changed.values() for keys in groups.values())
        if touched + frozen.count(base.version) > entries + frozen.count(None):
            return None
        changes = [
            (
                name,
                group,
                {key: table[key] for key in keys if key in table},
                [key for key in keys if key not in table],
            )
            for name, groups in changed.items()
            for group, keys in groups.items()
            for table in (tables.get(name, {}).get(group, {}),)
        ]
        held: dict[tuple[str, int], Change] = {}
        for part in frozen.entries(base.version):
            name, group = part.name, part.group
            change = held.setdefault((name, group), (name, group, {}, []))
            change[2].update(zip(part.keys, part.values, strict=True))
            change[3].extend(part.removed)
        return [*changes, *held.values()]


def require_next(handle: StateHandle, before: int, position: int) -> None:
    """Raise CorruptStateError unless an increment follows the one before it; 0: its full snapshot, -1: nothing."""
    if before < 0 or position != before + 1:
        found = {-1: "nothing", 0: "a full snapshot"}.get(before, f"increment {before}")
        raise CorruptStateError(
            f"{handle.path} is increment {position} on a full snapshot, but {found} was restored before it (SNP-5)"
        )


def _no_keys() -> ChangedKeys:
    return defaultdict(lambda: defaultdict(dict))


def _together(parts: Sequence[ChangedKeys]) -> ChangedKeys:
    """Return all keys of several parts, in a fixed order."""
    whole = _no_keys()
    for part in parts:
        for name, groups in part.items():
            for group, keys in groups.items():
                whole[name][group].update(keys)
    return whole
