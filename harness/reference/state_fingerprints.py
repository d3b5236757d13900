"""What a state file holds, whatever its format: so that copies in two formats can be compared (LOC-7)."""

from __future__ import annotations

import hashlib

import msgspec

from barrier_tck.reference_impl.ids import KeyGroupRange
from barrier_tck.reference_impl.protocol.messages import StateHandle
from barrier_tck.reference_impl.runtime_errors import CorruptStateError
from barrier_tck.reference_impl.state.heap_files import read_snapshot

_ALL = KeyGroupRange(0, 1 << 15)
_encode = msgspec.msgpack.Encoder().encode


def fingerprint_of(content: bytes) -> str:
    """Return a digest of the entries of a file of the heap, compressed or not; empty for any other file."""
    digest = hashlib.sha256()
    try:
        for name, group, table in read_snapshot(StateHandle("", 0, "", _ALL), content, _ALL):
            digest.update(_encode((name, group, sorted(table.items()))))
    except CorruptStateError:
        return ""
    return digest.hexdigest()
