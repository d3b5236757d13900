"""A right backend whose snapshots have a file for each key group; an increment refers to those that did not change."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from barrier_tck.reference_impl.ids import CheckpointId, KeyGroupRange
from barrier_tck.reference_impl.protocol.messages import StateHandle
from barrier_tck.reference_impl.state.backend import (
    SharingStateWriter,
    SnapshotFuture,
    StateCapability,
    StateReader,
    StateScope,
    StateWriter,
)
from barrier_tck.reference_impl.state.snapshots import FinishedSnapshot
from examples.minimal_backend.backend import Entries, SortedDictBackend, SortedDictStore

Files = dict[int, tuple[bytes, StateHandle]]
"""Key group -> content and handle of its file."""


class Grouped(SortedDictBackend):
    """The backend of the guide, with a file for each key group."""

    capabilities = SortedDictBackend.capabilities | {StateCapability.INCREMENTAL_SNAPSHOTS}

    def open(self, scope: StateScope, restore: Sequence[StateHandle], reader: StateReader) -> _GroupedStore:
        """Open a store with the entries that lie in the scope's key groups."""
        opened = super().open(scope, restore, reader)
        assert isinstance(opened, SortedDictStore)
        return _GroupedStore(scope, opened._opened(""))


class _GroupedStore(SortedDictStore):
    def __init__(self, scope: StateScope, entries: Entries) -> None:
        super().__init__(scope, entries)
        self._written: dict[CheckpointId, Files] = {}
        self._base: tuple[CheckpointId, Files] = CheckpointId(0), {}

    def snapshot(
        self, checkpoint: CheckpointId, writer: StateWriter
    ) -> SnapshotFuture[tuple[StateHandle, ...]]:
        """Write the groups that changed, and refer to the others."""
        sharing = isinstance(writer, SharingStateWriter)
        number, known = self._base
        usable = known if isinstance(writer, SharingStateWriter) and writer.may_reuse(number) else {}
        files: Files = {}
        by_group: dict[int, list[tuple[str, int, bytes, bytes]]] = {}
        for (name, group, key), value in sorted(self._opened("").items()):
            by_group.setdefault(group, []).append((name, group, key, value))
        for group, entries in sorted(by_group.items()):
            content = msgspec.msgpack.encode(entries)
            if group in usable and usable[group][0] == content:
                assert isinstance(writer, SharingStateWriter)
                files[group] = content, writer.reuse(usable[group][1])
                continue
            write = writer.write_shared if isinstance(writer, SharingStateWriter) else writer.write
            handle = write(f"group-{group}", [content], KeyGroupRange(group, group + 1))
            files[group] = content, handle
        if sharing:
            self._written[checkpoint] = files
        return FinishedSnapshot(tuple(handle for _, handle in files.values()))

    def confirm(self, checkpoint: CheckpointId) -> None:
        """Build on it, unless a newer one was confirmed before."""
        if checkpoint in self._written and checkpoint > self._base[0]:
            self._base = checkpoint, self._written.pop(checkpoint)

    def abort(self, checkpoint: CheckpointId) -> None:
        """Forget what was written for it."""
        self._written.pop(checkpoint, None)
