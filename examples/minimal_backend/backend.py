"""The smallest complete state backend: a dict, written whole at every snapshot."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from barrier_tck.harness import (
    BatchedStateStore,
    CheckpointId,
    CorruptStateError,
    FinishedSnapshot,
    JobUsageError,
    KeyedStateStore,
    SnapshotFuture,
    StateCapability,
    StateHandle,
    StateReader,
    StateScope,
    StateWriter,
    refuse_overlaps,
    require_in_range,
)

Entries = dict[tuple[str, int, bytes], bytes]
"""(state name, key group, key) -> value."""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[tuple[str, int, bytes, bytes]]).decode


class SortedDictBackend:
    """Opens stores. It has no settings, so every subtask can make its own."""

    name = "sorted-dict"
    capabilities = frozenset({StateCapability.ORDERED_SCAN, StateCapability.DETERMINISTIC_FILES})

    def open(self, scope: StateScope, restore: Sequence[StateHandle], reader: StateReader) -> KeyedStateStore:
        """Open a store with the entries that lie in the scope's key groups."""
        wanted = [handle for handle in restore if len(handle.key_groups.intersection(scope.key_groups))]
        refuse_overlaps(wanted)
        entries: Entries = {}
        for handle in wanted:
            try:
                found = _decode(reader.read(handle))
            except msgspec.MsgspecError as error:
                raise CorruptStateError(
                    f"{handle.path} is not a snapshot of a sorted dict: {error}"
                ) from error
            # After a rescaling a file holds key groups that are now another subtask's.
            entries.update({(n, g, k): v for n, g, k, v in found if g in scope.key_groups})
        return SortedDictStore(scope, entries)


class SortedDictStore(BatchedStateStore):
    """The state of one operator of one subtask; ``get_many`` and ``put_many`` come from the base."""

    def __init__(self, scope: StateScope, entries: Entries) -> None:
        """Take over the entries."""
        self._key_groups = scope.key_groups
        self._entries: Entries | None = entries

    def get(self, name: str, group: int, key: bytes) -> bytes | None:
        """Return the value, or None if there is none."""
        return self._checked(name, group).get((name, group, key))

    def put(self, name: str, group: int, key: bytes, value: bytes) -> None:
        """Set the value."""
        self._checked(name, group)[name, group, key] = value

    def delete(self, name: str, group: int, key: bytes) -> None:
        """Remove the value; a missing one is not an error."""
        self._checked(name, group).pop((name, group, key), None)

    def scan(self, name: str, group: int) -> Iterator[tuple[bytes, bytes]]:
        """Iterate over a copy, so that writes meanwhile do not disturb it."""
        entries = self._checked(name, group)
        return iter(sorted((k, v) for (n, g, k), v in entries.items() if (n, g) == (name, group)))

    def snapshot(
        self, checkpoint: CheckpointId, writer: StateWriter
    ) -> SnapshotFuture[tuple[StateHandle, ...]]:
        """Write everything now: a purely synchronous snapshot, whose future is already finished (SNP-1)."""
        entries = self._opened("")
        if not entries:
            return FinishedSnapshot(())
        content = _encode([(n, g, k, v) for (n, g, k), v in sorted(entries.items())])
        return FinishedSnapshot((writer.write("state", [content], self._key_groups),))

    def confirm(self, checkpoint: CheckpointId) -> None:
        """Do nothing: nothing is kept for a checkpoint."""

    def abort(self, checkpoint: CheckpointId) -> None:
        """Do nothing: nothing is kept for a checkpoint."""

    def close(self) -> None:
        """Drop the entries; closing twice is harmless."""
        self._entries = None

    def _opened(self, name: str) -> Entries:
        if self._entries is None:
            raise JobUsageError(f"the state {name!r} was used after its store was closed")
        return self._entries

    def _checked(self, name: str, group: int) -> Entries:
        require_in_range(group, self._key_groups)
        return self._opened(name)
