"""The files of the heap backend's snapshots: each key group can be read, and unpacked, on its own (SNP-6).

A snapshot is one file, or as many as the scope asks for, each with a part of the key groups (none at all if the
state is empty). A file is, in this order::

    magic   8 bytes   b"heapsnap"
    blocks            one per non-empty (state name, key group): a MessagePack map, that is the number of
                      entries, then each key and value as MessagePack ``bin``, its length in front
    index             MessagePack, says where each block is; see below
    footer  16 bytes  little-endian: offset of the index (8 bytes), version (4 bytes), b"INDX"

In **version 1** no block is compressed, and the index is an array of [state name, key group, offset, length, entries],
one per block, sorted by name and group. Offsets count from the start of the file, lengths are in bytes. In **version
2** every block is compressed by itself, and the index is [codec, array of [state name, key group, offset, length,
entries, unpacked length, CRC-32 of the block as it is in the file]]. The codec is ``zstd``. What is not compressed is
written in version 1, and both are read.

An **increment** (SNP-5) has the same form, but begins with b"heapinc" and one byte: its position in the chain, 1 for
the first one after a full snapshot. It has up to two blocks per (state name, key group). That of the name with ``+``
in front holds the entries that were set, that with ``-`` the keys that were removed, each with an empty value.

The index comes last, as in Parquet, so that a snapshot streams to storage without being held in memory twice. Whoever
wants one key group reads the footer, the index and the group's blocks. The CRC-32 vouches for a block whose file was
not read as a whole. MessagePack does the encoding because it does it in C.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import Protocol

import msgspec
import pyarrow as pa

from barrier_tck.reference_impl.config import Compression
from barrier_tck.reference_impl.ids import KeyGroupRange
from barrier_tck.reference_impl.protocol.messages import StateHandle
from barrier_tck.reference_impl.runtime_errors import CorruptStateError

Table = dict[bytes, bytes]
"""The entries of one state in one key group."""
CapturedState = tuple[str, dict[int, Table]]
"""What a snapshot notes of one state: its name and its tables by key group."""

_MAGIC = b"heapsnap"
_INCREMENT = b"heapinc"
POSITION_MAX = 255
"""The last position in a chain of increments that fits its byte."""
_SET, _REMOVED = "+", "-"
_FOOTER = struct.Struct("<QI4s")
_FOOTER_MARK = b"INDX"
_PLAIN, _COMPRESSED = 1, 2
"""Versions of the format."""
_CHUNK_BYTES = 256 * 1024
"""Blocks are gathered until a chunk has this size: few writes, and a cancel is noticed between any two."""

_PlainEntry = tuple[str, int, int, int, int]
_CompressedEntry = tuple[str, int, int, int, int, int, int]
_CompressedIndex = tuple[str, list[_CompressedEntry]]
_encode = msgspec.msgpack.Encoder().encode
_decode_table = msgspec.msgpack.Decoder(dict[bytes, bytes]).decode
_decode_plain = msgspec.msgpack.Decoder(list[_PlainEntry]).decode
_decode_compressed = msgspec.msgpack.Decoder(_CompressedIndex).decode


class SlicedBytes(Protocol):
    """A file's bytes, of which slices are asked for: ``bytes``, a memory map, or what fetches ranges."""

    def __len__(self) -> int:
        """Return the size of the file, in bytes."""

    def __getitem__(self, wanted: slice, /) -> bytes | memoryview:
        """Return the bytes from ``start`` to ``stop``."""


class _Block(msgspec.Struct, frozen=True):
    """One block, as either version describes it. Lengths in bytes."""

    state: str
    group: int
    offset: int
    length: int
    entries: int
    unpacked: int | None = None
    """Length without compression; None: it is not compressed."""
    checksum: int = 0


Change = tuple[str, int, Table, list[bytes]]
"""What an increment holds of one state in one key group: its name, the group, the entries set, the keys removed."""


def serialised_increment(
    changes: Sequence[Change], position: int, compression: Compression = Compression.NONE
) -> Iterator[bytes]:
    """Yield the file of an increment in chunks; ``position`` is its place in the chain, 1 to ``POSITION_MAX``."""
    captured: list[CapturedState] = []
    for name, group, entries, removed in changes:
        captured.append((_SET + name, {group: entries}))
        captured.append((_REMOVED + name, {group: dict.fromkeys(removed, b"")}))
    return serialised(captured, compression, _INCREMENT + bytes([position]))


def position_of(content: bytes) -> int:
    """Return the position of an increment in its chain; 0 if the file does not claim to be an increment."""
    head = content[: len(_MAGIC)]
    return head[-1] if len(head) == len(_MAGIC) and head.startswith(_INCREMENT) else 0


def read_increment(handle: StateHandle, content: bytes, key_groups: KeyGroupRange) -> Iterator[Change]:
    """Yield what an increment changes, of the wanted key groups only; raises like ``read_snapshot``."""
    for name, group, table in read_snapshot(handle, content, key_groups, content[: len(_MAGIC)]):
        if name[:1] == _SET:
            yield name[1:], group, table, []
        elif name[:1] == _REMOVED:
            yield name[1:], group, {}, list(table)
        else:
            raise CorruptStateError(
                f"{handle.path} is an increment, but {name!r} says neither set nor removed"
            )


def serialised(
    captured: Sequence[CapturedState],
    compression: Compression = Compression.NONE,
    magic: bytes = _MAGIC,
) -> Iterator[bytes]:
    """Yield the file of a snapshot in chunks; the format is described at the head of this module."""
    plain: list[_PlainEntry] = []
    compressed: list[_CompressedEntry] = []
    pending = [magic]
    pending_bytes = offset = len(magic)
    for name, tables in sorted(captured, key=itemgetter(0)):
        for group in sorted(tables):
            table = tables[group]
            if not table:
                continue
            block = _encode(table)
            if compression is not Compression.NONE:
                unpacked = len(block)
                block = pa.compress(block, codec=compression.value, asbytes=True)
                place = (name, group, offset, len(block), len(table))
                compressed.append((*place, unpacked, zlib.crc32(block)))
            else:
                plain.append((name, group, offset, len(block), len(table)))
            pending.append(block)
            offset += len(block)
            pending_bytes += len(block)
            if pending_bytes >= _CHUNK_BYTES:
                yield b"".join(pending)
                pending, pending_bytes = [], 0
    if compression is Compression.NONE:
        index, version = _encode(plain), _PLAIN
    else:
        index, version = _encode((compression.value, compressed)), _COMPRESSED
    pending += [index, _FOOTER.pack(offset, version, _FOOTER_MARK)]
    yield b"".join(pending)


def read_snapshot(
    handle: StateHandle, content: SlicedBytes, key_groups: KeyGroupRange, magic: bytes = _MAGIC
) -> Iterator[tuple[str, int, Table]]:
    """Yield (state name, key group, entries) of a snapshot file, of the wanted key groups only.

    Of ``content`` only the head, the footer, the index and the blocks of these key groups are asked for (SNP-6). Raises
    CorruptStateError, with the path, if the content is not of this format or contradicts its index.
    """
    view: SlicedBytes = memoryview(content) if isinstance(content, bytes) else content
    try:
        codec, blocks, index_offset = _read_index(view, magic)
        for block in blocks:
            if block.group not in handle.key_groups:
                raise ValueError(
                    f"it holds key group {block.group}, outside of its range {handle.key_groups}"
                )
            if block.group not in key_groups:
                continue
            end = block.offset + block.length
            if not len(_MAGIC) <= block.offset <= end <= index_offset:
                raise ValueError(f"its index points to bytes {block.offset} to {end}, outside of the blocks")
            table = _decode_table(_unpacked(view[block.offset : end], block, codec))
            if len(table) != block.entries:
                raise ValueError(
                    f"key group {block.group} of {block.state!r} has {len(table)} entries instead of {block.entries}"
                )
            yield block.state, block.group, table
    except (ValueError, msgspec.MsgspecError) as error:
        raise CorruptStateError(f"{handle.path} is not a readable heap snapshot: {error}") from error


def _unpacked(data: bytes | memoryview, block: _Block, codec: str) -> bytes | memoryview:
    """Return a block as it was before compression; raises ValueError if it is damaged."""
    if block.unpacked is None:
        return data
    if zlib.crc32(data) != block.checksum:
        raise ValueError(f"key group {block.group} of {block.state!r} does not match its checksum")
    try:
        unpacked: bytes = pa.decompress(data, decompressed_size=block.unpacked, codec=codec, asbytes=True)
    except OSError as error:
        raise ValueError(f"key group {block.group} of {block.state!r} cannot be unpacked: {error}") from error
    return unpacked


def _read_index(view: SlicedBytes, magic: bytes) -> tuple[str, list[_Block], int]:
    """Return the codec, the blocks, and where the index begins."""
    size = len(view)
    if size < len(_MAGIC) + _FOOTER.size or view[: len(magic)] != magic:
        raise ValueError(f"it does not begin with {magic!r}")
    index_offset, version, mark = _FOOTER.unpack(view[size - _FOOTER.size : size])
    if mark != _FOOTER_MARK or not len(_MAGIC) <= index_offset <= size - _FOOTER.size:
        raise ValueError("its footer is damaged")
    index = view[index_offset : size - _FOOTER.size]
    if version == _PLAIN:
        return "", [_Block(*entry) for entry in _decode_plain(index)], index_offset
    if version == _COMPRESSED:
        codec, entries = _decode_compressed(index)
        if codec not in [known.value for known in Compression if known is not Compression.NONE]:
            raise ValueError(f"it is compressed with {codec!r}, which this release does not know")
        return codec, [_Block(*entry) for entry in entries], index_offset
    raise ValueError(
        f"it has format version {version}; this release reads the versions {_PLAIN} and {_COMPRESSED}"
    )
