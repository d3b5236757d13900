"""Opens a RocksDB database with the entries of one or more snapshots (RSC-1); ``rocksdb`` writes them."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec
from rocksdict import Rdict, WriteBatch

from barrier_tck.reference_impl.ids import KeyGroupRange
from barrier_tck.reference_impl.protocol.messages import StateHandle
from barrier_tck.reference_impl.runtime_errors import CorruptStateError, StorageError
from barrier_tck.reference_impl.state.backend import LocalStateReader, StateReader
from barrier_tck.reference_impl.state.checks import refuse_overlaps
from barrier_tck.reference_impl.state.rocksdb_library import (
    Failures,
    close_database,
    entries_from,
    make_directory,
    open_database,
)
from barrier_tck.reference_impl.state.rocksdb_tables import Tables
from barrier_tck.reference_impl.state.working_directory import remove_tree

_MAGIC = b"rockssnp"
_VERSION = 1
_BATCH_ENTRIES = 10_000
TABLE = ".sst"
"""Suffix of the files that hold entries."""
GROUP = struct.Struct(">I")
"""What a key in the database begins with: its key group."""
_DATABASE = "db"

_Index = tuple[int, list[tuple[str, str]]]
_encode = msgspec.msgpack.Encoder().encode
_decode_index = msgspec.msgpack.Decoder(_Index).decode


def encoded_index(files: Sequence[tuple[str, str]]) -> bytes:
    """Return the index of a snapshot: each file's name in the database, and its path in checkpoint storage."""
    return _MAGIC + _encode((_VERSION, files))


def restored_database(
    working: Path,
    snapshots: Sequence[Snapshot],
    reader: StateReader,
    key_groups: KeyGroupRange,
    own_threads: bool = True,
) -> Rdict:
    """Open a database with the snapshots' entries of these key groups; leaves nothing open on an error."""
    path = working / _DATABASE
    if snapshots:
        # The first snapshot's files become the database; only what others hold has to be copied over.
        download(snapshots[0], reader, path)
    database = open_database(path, own_threads)
    try:
        if snapshots:
            _drop_foreign_groups(database, snapshots[0][0].key_groups, key_groups)
        for number, snapshot in enumerate(snapshots[1:], 2):
            part = working / f"restored-{number}"
            download(snapshot, reader, part)
            _copy_groups(part, database, snapshot[0].key_groups.intersection(key_groups))
            remove_tree(part)
    except BaseException:
        close_database(database)
        raise
    return database


Snapshot = tuple[StateHandle, list[tuple[str, StateHandle]]]
"""The index of a snapshot, and its files by their names in the database."""


def snapshots_of(
    handles: Sequence[StateHandle], reader: StateReader, key_groups: KeyGroupRange
) -> list[Snapshot]:
    """Sort handles into the snapshots they come from, those of foreign key groups left out."""
    wanted = [handle for handle in handles if len(handle.key_groups.intersection(key_groups))]
    by_path = {handle.path: handle for handle in wanted}
    snapshots: list[Snapshot] = []
    claimed: dict[str, None] = {}
    for handle in wanted:
        if handle.path in claimed:
            continue
        files = []
        for name, path in _read_index(handle, reader.read(handle)):
            if path not in by_path or path in claimed:
                raise CorruptStateError(
                    f"{handle.path} names {path}, which is not among the restored files, or not once but twice"
                )
            claimed[path] = None
            files.append((name, by_path[path]))
        snapshots.append((handle, files))
    refuse_overlaps([index for index, _ in snapshots])
    return snapshots


def shared_tables(files: Iterable[tuple[str, StateHandle]]) -> Tables:
    """Return the table files among a snapshot's files that later ones may refer to (SNP-5)."""
    return {name: handle for name, handle in files if name.endswith(TABLE) and handle.shared}


def _read_index(handle: StateHandle, content: bytes) -> list[tuple[str, str]]:
    try:
        if content[: len(_MAGIC)] != _MAGIC:
            raise ValueError(f"it does not begin with {_MAGIC!r}")
        decoded: _Index = _decode_index(content[len(_MAGIC) :])
        version, files = decoded
        if version != _VERSION:
            raise ValueError(f"it has format version {version}; this release reads version {_VERSION}")
        for name, _ in files:
            if name in ("", ".", "..") or "/" in name:
                raise ValueError(f"{name!r} is not the name of a file")
    except (ValueError, msgspec.MsgspecError) as error:
        raise CorruptStateError(f"{handle.path} is not the index of a RocksDB snapshot: {error}") from error
    return list(files)


def download(snapshot: Snapshot, reader: StateReader, target: Path) -> None:
    """Make a directory with the files of a snapshot under their names in the database; raises StorageError."""
    make_directory(target)
    linking = reader if isinstance(reader, LocalStateReader) else None
    for name, handle in snapshot[1]:
        # Only table files are linked: RocksDB never changes them, and may well write to the others.
        local = linking.local_file(handle) if linking is not None and name.endswith(TABLE) else None
        if local is None:
            _copy(handle, reader, target / name)
            continue
        try:
            os.link(local, target / name)
        except OSError as error:
            raise StorageError(f"cannot write {target / name}: {error}") from error


def _copy(handle: StateHandle, reader: StateReader, target: Path) -> None:
    """Write a file of a snapshot to disk. When this returns it is not in memory any more: table files are large."""
    content = reader.read(handle)
    try:
        target.write_bytes(content)
    except OSError as error:
        raise StorageError(f"cannot write {target}: {error}") from error


def _drop_foreign_groups(database: Rdict, held: KeyGroupRange, kept: KeyGroupRange) -> None:
    with Failures("write to"):
        if held.start < kept.start:
            database.delete_range(GROUP.pack(held.start), GROUP.pack(kept.start))
        if kept.end < held.end:
            database.delete_range(GROUP.pack(kept.end), GROUP.pack(held.end))


def _copy_groups(part: Path, database: Rdict, key_groups: KeyGroupRange) -> None:
    source = open_database(part)
    end = GROUP.pack(key_groups.end)
    try:
        batch = WriteBatch(raw_mode=True)
        with Failures("copy restored state into"):
            for key, value in entries_from(source, GROUP.pack(key_groups.start)):
                if key >= end:
                    break
                batch.put(key, value)
                if batch.len() >= _BATCH_ENTRIES:
                    database.write(batch)
                    batch = WriteBatch(raw_mode=True)
            database.write(batch)
    finally:
        close_database(source)
