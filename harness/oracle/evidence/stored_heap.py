"""Reads how the key groups in a state file of the heap are compressed, by the documented format (SNP-6).

It shares no code with what writes such files (docs/checkpoint-files.md). Each block is unpacked by itself, so that a
file whose key groups can only be read together is no good one.
"""

from __future__ import annotations

import msgspec
import pyarrow as pa

PLAIN = "none"
"""The codec of a file whose blocks are not compressed."""
_BEGINNINGS = (b"heapsnap", b"heapinc")
_MARK = b"INDX"
_FOOTER_BYTES = 16


def packing_of(content: bytes) -> tuple[str, str]:
    """Return the codec of a file of the heap, and what is wrong with it; two empty texts for any other file."""
    if not content.startswith(_BEGINNINGS):
        return "", ""
    footer = content[-_FOOTER_BYTES:]
    start, version = int.from_bytes(footer[:8], "little"), int.from_bytes(footer[8:12], "little")
    if footer[12:] != _MARK or version not in (1, 2):
        return "", "its footer is not what the format says"
    try:
        index = msgspec.msgpack.decode(content[start:-_FOOTER_BYTES])
        if version == 1:
            return PLAIN, ""
        codec, entries = str(index[0]), index[1]
        for state, group, offset, length, held, size, _ in entries:
            block = pa.decompress(content[offset : offset + length], decompressed_size=size, codec=codec)
            if len(msgspec.msgpack.decode(block, type=dict[bytes, bytes])) != held:
                return codec, f"key group {group} of {state!r} does not hold {held} entries"
    except (msgspec.MsgspecError, OSError, ValueError, TypeError, LookupError) as error:
        return "", f"its key groups cannot be read one by one: {type(error).__name__}: {error}"
    return codec, ""
