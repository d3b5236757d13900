"""Planted bugs of state backends that write files of blocks: an earlier suite certified them (CER-2)."""

from __future__ import annotations

import os
import struct
import threading
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import ClassVar

import msgspec

from barrier_tck.harness.reference.mutants.held_out_backend_bugs import Handles, Variant
from barrier_tck.reference_impl.ids import CheckpointId, KeyGroupRange
from barrier_tck.reference_impl.protocol.messages import StateHandle
from barrier_tck.reference_impl.runtime_errors import CorruptStateError
from barrier_tck.reference_impl.state.backend import (
    KeyedStateStore,
    SnapshotFuture,
    StateReader,
    StateScope,
    StateWriter,
)
from barrier_tck.reference_impl.state.heap import HeapStateBackend, HeapStateStore
from barrier_tck.reference_impl.state.heap_files import CapturedState, Table
from barrier_tck.reference_impl.state.snapshots import DeferredSnapshot

_LENGTH = struct.Struct(">I")
_BEGIN, _END = b"blocks", _LENGTH.pack(0)
_encode = msgspec.msgpack.Encoder().encode
_decode_block = msgspec.msgpack.Decoder(tuple[str, int, dict[bytes, bytes]]).decode


# --- files of blocks ----------------------------------------------------------------------------------------


def _blocks(captured: Callable[[], list[CapturedState]]) -> Iterator[bytes]:
    yield _BEGIN
    for name, tables in captured():
        for group, table in tables.items():
            block = _encode((name, group, table))
            yield _LENGTH.pack(len(block)) + block
    yield _END


def _unblocked(content: bytes) -> Iterator[tuple[str, int, Table]]:
    if content[: len(_BEGIN)] != _BEGIN or content[-len(_END) :] != _END:
        raise CorruptStateError("this is not a complete file of blocks")
    position, end = len(_BEGIN), len(content) - len(_END)
    try:
        while position < end:
            (length,) = _LENGTH.unpack_from(content, position)
            position += _LENGTH.size
            yield _decode_block(content[position : position + length])
            position += length
    except (struct.error, msgspec.MsgspecError) as error:
        raise CorruptStateError(f"these are not blocks: {error}") from error


def _from_blocks(
    backend: HeapStateBackend, scope: StateScope, restore: Sequence[StateHandle], reader: StateReader
) -> HeapStateStore:
    store = backend.new_store(scope)
    for handle in restore:
        for name, group, table in _unblocked(reader.read(handle)):
            if group in scope.key_groups:
                store.adopt(name, group, table)
    return store


class _BlockStore(HeapStateStore):
    """Writes files of blocks; each subclass has a bug in doing so."""

    def snapshot(self, checkpoint: CheckpointId, writer: StateWriter) -> SnapshotFuture[Handles]:
        captured = [(name, {g: dict(t) for g, t in tables.items()}) for name, tables in self.capture()]
        return self.registered(
            checkpoint, DeferredSnapshot(lambda: self.written(captured, writer, checkpoint))
        )

    def registered(
        self, checkpoint: CheckpointId, future: DeferredSnapshot[Handles]
    ) -> DeferredSnapshot[Handles]:
        """Register the snapshot, so that an abort cancels it."""
        self._version += 1
        self._outstanding[self._version] = (checkpoint, future)
        return future

    def written(
        self, captured: list[CapturedState], writer: StateWriter, checkpoint: CheckpointId
    ) -> Handles:
        """Write one file."""
        return (writer.write("state", _blocks(lambda: captured), self._key_groups),)


class _UnorderedStore(_BlockStore):
    def written(
        self, captured: list[CapturedState], writer: StateWriter, checkpoint: CheckpointId
    ) -> Handles:
        places = {(name, group) for name, tables in captured for group in tables}
        tables = dict(captured)
        one_by_one = [(name, {group: tables[name][group]}) for name, group in places]
        return (writer.write("state", _blocks(lambda: one_by_one), self._key_groups),)


class WritesInTheOrderOfASet(Variant):
    """SB-10-order: the content of files follows the order of a set, but is declared to be deterministic."""

    store = _UnorderedStore

    def open(self, scope: StateScope, restore: Sequence[StateHandle], reader: StateReader) -> KeyedStateStore:
        """Restore from blocks."""
        return _from_blocks(self, scope, restore, reader)


_HASHES = "hashes of "


class _HashedStore(_BlockStore):
    """Finds restored entries by their key's hash from the process that wrote them."""

    def __init__(self, scope: StateScope) -> None:
        super().__init__(scope)
        self.known: dict[tuple[str, int], dict[int, bytes]] = {}

    def written(
        self, captured: list[CapturedState], writer: StateWriter, checkpoint: CheckpointId
    ) -> Handles:
        hashes = [
            (
                f"hashes of {name}",
                {g: {b"%d" % hash(key): key for key in table} for g, table in tables.items()},
            )
            for name, tables in captured
        ]
        return (writer.write("state", _blocks(lambda: [*captured, *hashes]), self._key_groups),)

    def get(self, name: str, group: int, key: bytes) -> bytes | None:
        known = self.known.get((name, group))
        if known is not None and hash(key) not in known:
            return None
        return super().get(name, group, key)

    def put(self, name: str, group: int, key: bytes, value: bytes) -> None:
        super().put(name, group, key, value)
        self.known.get((name, group), {})[hash(key)] = key

    def put_many(
        self, name: str, groups: Sequence[int], keys: Sequence[bytes], values: Sequence[bytes]
    ) -> None:
        for group, key, value in zip(groups, keys, values, strict=True):
            self.put(name, group, key, value)


class LooksUpByHash(Variant):
    """SB-10: after a restore, single keys are looked up by a hash that differs from process to process."""

    store = _HashedStore

    def open(self, scope: StateScope, restore: Sequence[StateHandle], reader: StateReader) -> KeyedStateStore:
        """Restore the entries and their hashes from blocks."""
        store = _HashedStore(scope)
        for handle in restore:
            for name, group, table in _unblocked(reader.read(handle)):
                if group not in scope.key_groups:
                    continue
                if name.startswith(_HASHES):
                    found = {int(number): key for number, key in table.items()}
                    store.known[name.removeprefix(_HASHES), group] = found
                else:
                    store.adopt(name, group, table)
        return store


class _MisplacingStore(_BlockStore):
    """Writes an index after the blocks; after a flush, its offsets count from the end of the flushed buffer."""

    BUFFER_BYTES = 1 << 20

    def written(
        self, captured: list[CapturedState], writer: StateWriter, checkpoint: CheckpointId
    ) -> Handles:
        index: list[tuple[int, int]] = []

        def chunks() -> Iterator[bytes]:
            buffer = b""
            for name, tables in captured:
                for group, table in tables.items():
                    block = _encode((name, group, table))
                    index.append((group, len(buffer)))
                    buffer += _LENGTH.pack(len(block)) + block
                    if len(buffer) >= self.BUFFER_BYTES:
                        yield buffer
                        buffer = b""
            body = _encode(index)
            yield buffer + body + _LENGTH.pack(len(body))

        return (writer.write("state", chunks(), self._key_groups),)


class MisplacesBlocks(Variant):
    """SB-13: offsets in the file are wrong after a buffer was flushed; only a restore of some key groups uses them."""

    store = _MisplacingStore

    def open(self, scope: StateScope, restore: Sequence[StateHandle], reader: StateReader) -> KeyedStateStore:
        """Read the whole file in order, or only the wanted key groups by the index."""
        store = self.new_store(scope)
        for handle in restore:
            content = reader.read(handle)
            try:
                (length,) = _LENGTH.unpack(content[-_LENGTH.size :])
                end = len(content) - _LENGTH.size - length
                index = msgspec.msgpack.decode(content[end : -_LENGTH.size], type=list[tuple[int, int]])
                whole = handle.key_groups.intersection(scope.key_groups) == handle.key_groups
                blocks = content[:end] if whole else _chosen(content, index, scope.key_groups)
                blocks = _BEGIN + blocks + _END
            except (struct.error, msgspec.MsgspecError) as error:
                raise CorruptStateError(f"{handle.path} is not a file of blocks: {error}") from error
            for name, group, table in _unblocked(blocks):
                if group in scope.key_groups:
                    store.adopt(name, group, table)
        return store


def _chosen(content: bytes, index: list[tuple[int, int]], wanted: KeyGroupRange) -> bytes:
    """Return the blocks of the wanted key groups."""
    found = b""
    for group, offset in index:
        if group in wanted:
            (length,) = _LENGTH.unpack_from(content, offset)
            found += content[offset : offset + _LENGTH.size + length]
    return found


# --- of our own ---------------------------------------------------------------------------------------------


class _BesideStore(_BlockStore):
    def written(
        self, captured: list[CapturedState], writer: StateWriter, checkpoint: CheckpointId
    ) -> Handles:
        place = Path.cwd().parent / "entries"
        place.mkdir(exist_ok=True)
        content = b"".join(_blocks(lambda: captured))
        name = f"{zlib.crc32(content):08x}"
        (place / name).write_bytes(content)
        return (writer.write("pointer", [name.encode()], self._key_groups),)


class KeepsStateElsewhere(Variant):
    """SB-03: the files that the handles name only point to a directory on the same machine, which has the entries."""

    store = _BesideStore

    def open(self, scope: StateScope, restore: Sequence[StateHandle], reader: StateReader) -> KeyedStateStore:
        """Follow the pointers."""
        store = self.new_store(scope)
        for handle in restore:
            file = Path.cwd().parent / "entries" / reader.read(handle).decode("ascii", "replace")
            if not file.is_file():
                raise CorruptStateError(f"{handle.path} points to {file.name!r}, which is not there")
            for name, group, table in _unblocked(file.read_bytes()):
                if group in scope.key_groups:
                    store.adopt(name, group, table)
        return store


class _BoastingStore(_BlockStore):
    def written(
        self, captured: list[CapturedState], writer: StateWriter, checkpoint: CheckpointId
    ) -> Handles:
        return (writer.write("state", _blocks(lambda: captured), KeyGroupRange(0, 1 << 15)),)


class NamesForeignGroups(Variant):
    """SB-04: handles name all key groups of the job instead of their store's key groups."""

    store = _BoastingStore

    def open(self, scope: StateScope, restore: Sequence[StateHandle], reader: StateReader) -> KeyedStateStore:
        """Restore from blocks, whatever their handles name."""
        return _from_blocks(self, scope, restore, reader)


class _ReusingStore(_BlockStore):
    """Uploads each file once, but takes a file with the number and length of an earlier file for that file."""

    uploaded: ClassVar[dict[tuple[str, int, int, int], StateHandle]] = {}

    def __init__(self, scope: StateScope) -> None:
        super().__init__(scope)
        self._scope = scope
        self._numbers = 0

    def written(
        self, captured: list[CapturedState], writer: StateWriter, checkpoint: CheckpointId
    ) -> Handles:
        content = b"".join(_blocks(lambda: captured))
        self._numbers += 1
        known = (os.getcwd(), self._scope.subtask_index, self._numbers, len(content))
        if known not in self.uploaded:
            self.uploaded[known] = writer.write("state", [content], self._key_groups)
        return (self.uploaded[known],)


class ReusesOldFiles(Variant):
    """SB-05: after a restore, a file from before the restore is reused if it has the same number and length."""

    store = _ReusingStore

    def open(self, scope: StateScope, restore: Sequence[StateHandle], reader: StateReader) -> KeyedStateStore:
        """Restore from blocks."""
        return _from_blocks(self, scope, restore, reader)


class AcceptsCutFiles(Variant):
    """SB-11: an empty file is taken for an empty state, and a truncated file is read as far as it goes."""

    store = _BlockStore

    def open(self, scope: StateScope, restore: Sequence[StateHandle], reader: StateReader) -> KeyedStateStore:
        """Restore whatever the files contain."""
        store = self.new_store(scope)
        for handle in restore:
            content = reader.read(handle)
            if content and not content.startswith(_BEGIN):
                raise CorruptStateError(f"{handle.path} is not a file of blocks")
            position = len(_BEGIN)
            while position + _LENGTH.size < len(content):
                (length,) = _LENGTH.unpack_from(content, position)
                position += _LENGTH.size
                block = content[position : position + length]
                position += length
                if len(block) == length:
                    name, group, table = _decode_block(block)
                    if group in scope.key_groups:
                        store.adopt(name, group, table)
        return store


class EndsBehindAnyBlock(Variant):
    """SB-45: the mark of the end is not asked for, so a file that ends behind one of its blocks is complete."""

    store = _BlockStore

    def open(self, scope: StateScope, restore: Sequence[StateHandle], reader: StateReader) -> KeyedStateStore:
        """Restore the blocks that are there; what is no block is refused."""
        store = self.new_store(scope)
        for handle in restore:
            content = reader.read(handle).removesuffix(_END)
            position = len(_BEGIN)
            while position < len(content):
                block = content[position + _LENGTH.size :]
                length = int.from_bytes(content[position : position + _LENGTH.size], "big")
                if len(block) < length or not length:
                    raise CorruptStateError(f"{handle.path} ends in the middle of a block")
                name, group, table = _decode_block(block[:length])
                if group in scope.key_groups:
                    store.adopt(name, group, table)
                position += _LENGTH.size + length
            if not content.startswith(_BEGIN):
                raise CorruptStateError(f"{handle.path} is not a file of blocks")
        return store


_MEETING_S = 0.05
"""How long a copy waits for a write that it must not see, in seconds."""


class _UnlockedStore(HeapStateStore):
    """A write before the snapshot's thread begins saves the old table for it; later, the thread has its own copies."""

    def __init__(self, scope: StateScope) -> None:
        super().__init__(scope)
        self._waiting: dict[int, dict[tuple[str, int], Table]] = {}
        self._written = threading.Event()

    def _save(self, name: str, group: int) -> None:
        for saved in list(self._waiting.values()):
            if (name, group) not in saved:
                saved[name, group] = dict(self._states[name].readable[group])

    def put(self, name: str, group: int, key: bytes, value: bytes) -> None:
        self._save(name, group)
        super().put(name, group, key, value)
        self._written.set()

    def delete(self, name: str, group: int, key: bytes) -> None:
        self._save(name, group)
        super().delete(name, group, key)
        self._written.set()

    def put_many(
        self, name: str, groups: Sequence[int], keys: Sequence[bytes], values: Sequence[bytes]
    ) -> None:
        for group in groups:
            self._save(name, group)
        super().put_many(name, groups, keys, values)
        self._written.set()

    def snapshot(self, checkpoint: CheckpointId, writer: StateWriter) -> SnapshotFuture[Handles]:
        places = [(name, group) for name, tables in self.capture() for group in tables]
        saved: dict[tuple[str, int], Table] = {}
        self._version += 1
        version = self._version
        self._waiting[version] = saved

        def taken() -> list[CapturedState]:
            # From here on the writer saves nothing more, but the copies are made one after the other. While this
            # thread waits, the writer runs, if there is one: so the two meet on a busy machine as well.
            self._written.clear()
            del self._waiting[version]
            self._written.wait(_MEETING_S)
            captured: dict[str, dict[int, Table]] = {}
            for name, group in places:
                table = saved.get((name, group))
                if table is None:
                    table = {key: value for key, value in self._states[name].readable[group].items()}  # noqa: C416
                captured.setdefault(name, {})[group] = table
            return list(captured.items())

        def write() -> Handles:
            return (writer.write("state", _blocks(taken), self._key_groups),)

        def give_up() -> None:
            self._waiting.pop(version, None)

        future = DeferredSnapshot(write, give_up)
        self._outstanding[version] = (checkpoint, future)
        return future


class CopiesWithoutALock(Variant):
    """SB-08: the writer changes tables in place while the snapshot's thread copies them."""

    store = _UnlockedStore

    def open(self, scope: StateScope, restore: Sequence[StateHandle], reader: StateReader) -> KeyedStateStore:
        """Restore from blocks."""
        return _from_blocks(self, scope, restore, reader)
