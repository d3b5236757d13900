"""Takes a second copy of each file of a snapshot, in another format if the backend can write it (LOC-7)."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from barrier_tck.harness.certify.backend import wire
from barrier_tck.reference_impl.config import Compression
from barrier_tck.reference_impl.ids import KeyGroupRange
from barrier_tck.reference_impl.protocol.messages import StateHandle
from barrier_tck.reference_impl.state.backend import StateWriter
from barrier_tck.reference_impl.storage.metadata import checksum_text


class SecondCopies:
    """The writer of one snapshot; implements ``TwoFormatStateWriter``. One thread uses it."""

    def __init__(self, primary: StateWriter, storage: str, compression: Compression) -> None:
        """Write with ``primary`` into a storage directory. ``compression`` is the format of the second copy."""
        self._primary = primary
        self._storage = Path(storage)
        self._compression = compression
        self._own: dict[str, bytes] = {}
        """Path of a handle -> the content of the second copy, where it is not that of the first."""

    @property
    def second_compression(self) -> Compression:
        """Return how the second copy is to be compressed."""
        return self._compression

    def write(self, name: str, chunks: Iterable[bytes], key_groups: KeyGroupRange) -> StateHandle:
        """Write one file, whose second copy has the same bytes."""
        return self._primary.write(name, chunks, key_groups)

    def write_twice(
        self, name: str, chunks: Iterable[bytes], second: Iterable[bytes], key_groups: KeyGroupRange
    ) -> StateHandle:
        """Write one file, whose second copy has another format; the copy is written first, as by the runtime."""
        own = b"".join(second)
        handle = self._primary.write(name, chunks, key_groups)
        self._own[handle.path] = own
        return handle

    def finish(self, handles: Sequence[StateHandle]) -> tuple[StateHandle, ...]:
        """Store the second copies of a snapshot's files beside the storage directory, and return their handles."""
        if not self._own:
            return ()
        return tuple(self._stored(handle) for handle in handles)

    def _stored(self, handle: StateHandle) -> StateHandle:
        own = self._own.get(handle.path)
        content = own if own is not None else (self._storage / wire.CHECKPOINTS / handle.path).read_bytes()
        path = wire.second_storage(self._storage) / wire.CHECKPOINTS / handle.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return msgspec.structs.replace(handle, size=len(content), checksum=checksum_text(zlib.crc32(content)))
