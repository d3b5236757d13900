"""A state backend with incremental snapshots: a file for each key group, written again only if the group changed.

It is the smallest backend with a dict, with ``snapshot``, ``confirm`` and ``abort`` of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from barrier_tck.harness import (
    CheckpointId,
    FinishedSnapshot,
    KeyGroupRange,
    SharingStateWriter,
    SnapshotFuture,
    StateCapability,
    StateHandle,
    StateReader,
    StateScope,
    StateWriter,
)
from examples.minimal_backend.backend import Entries, SortedDictBackend, SortedDictStore

Files = dict[int, StateHandle]
"""Key group -> the file that holds it."""

_encode = msgspec.msgpack.Encoder().encode


class IncrementalDictBackend(SortedDictBackend):
    """Opens stores whose snapshots refer to files of the newest confirmed one."""

    name = "incremental-dict"
    capabilities = SortedDictBackend.capabilities | {StateCapability.INCREMENTAL_SNAPSHOTS}

    def open(
        self, scope: StateScope, restore: Sequence[StateHandle], reader: StateReader
    ) -> IncrementalDictStore:
        """Open a store; what it was restored from counts as confirmed if ``scope.restored`` names its checkpoint."""
        opened = super().open(scope, restore, reader)
        assert isinstance(opened, SortedDictStore)
        # A file that was written with `write` belongs to its checkpoint alone: it is written again.
        base = {handle.key_groups.start: handle for handle in restore if handle.shared}
        return IncrementalDictStore(scope, opened._opened(""), base)  # noqa: SLF001 - its own base class's


class IncrementalDictStore(SortedDictStore):
    """Notes for each unfinished snapshot which groups changed since, and builds on the newest that was confirmed."""

    def __init__(self, scope: StateScope, entries: Entries, base: Files) -> None:
        """Take over the entries, and the files that hold them."""
        super().__init__(scope, entries)
        self._base, self._base_files = scope.restored, base
        self._changed: dict[int, None] = {}
        """The key groups that changed since the base was taken."""
        self._waiting: dict[CheckpointId, tuple[Files, dict[int, None]]] = {}
        """Snapshot that is neither confirmed nor aborted -> its files, and what changed since it was taken."""

    def put(self, name: str, group: int, key: bytes, value: bytes) -> None:
        """Set the value."""
        super().put(name, group, key, value)
        self._note(group)

    def delete(self, name: str, group: int, key: bytes) -> None:
        """Remove the value. A group whose last entry goes has no file in the next snapshot: that is the deletion."""
        super().delete(name, group, key)
        self._note(group)

    def _note(self, group: int) -> None:
        self._changed[group] = None
        for _, changed in self._waiting.values():
            changed[group] = None

    def snapshot(
        self, checkpoint: CheckpointId, writer: StateWriter
    ) -> SnapshotFuture[tuple[StateHandle, ...]]:
        """Write the groups that changed since the base, and refer to its files for the others (SNP-1, SNP-5)."""
        by_group: dict[int, list[tuple[str, int, bytes, bytes]]] = {}
        for (name, group, key), value in sorted(self._opened("").items()):
            by_group.setdefault(group, []).append((name, group, key, value))
        if not isinstance(writer, SharingStateWriter):  # a savepoint, or increments were not asked for
            return FinishedSnapshot(
                tuple(writer.write(f"group-{g}", [_encode(e)], _only(g)) for g, e in by_group.items())
            )
        # Asked for each snapshot: the checkpoint's files may have been deleted since the last one.
        usable = self._base is not None and writer.may_reuse(self._base)
        files: Files = {}
        for group, entries in by_group.items():
            if usable and group in self._base_files and group not in self._changed:
                files[group] = writer.reuse(self._base_files[group])
            else:
                files[group] = writer.write_shared(f"group-{group}", [_encode(entries)], _only(group))
        self._waiting[checkpoint] = files, {}
        return FinishedSnapshot(tuple(files.values()))

    def confirm(self, checkpoint: CheckpointId) -> None:
        """Build on it from now on, unless a newer one was confirmed before. Older ones cannot become the base."""
        if checkpoint in self._waiting:
            self._base = checkpoint
            self._base_files, self._changed = self._waiting[checkpoint]
            self._waiting = {n: noted for n, noted in self._waiting.items() if n > checkpoint}

    def abort(self, checkpoint: CheckpointId) -> None:
        """Forget it. The base is what it was, and so is what changed since."""
        self._waiting.pop(checkpoint, None)


def _only(group: int) -> KeyGroupRange:
    return KeyGroupRange(group, group + 1)
