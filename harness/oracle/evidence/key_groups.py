"""The key group of a key that is one text, and who owns a key group (RSC-1), by the documented rule.

It shares no code with the runtime: the CRC-32 of the key in MessagePack, mixed by SplitMix64, scaled to the number of
groups; the groups are dealt out in contiguous ranges.
"""

from __future__ import annotations

from functools import lru_cache
from zlib import crc32

import msgspec

_ALL = (1 << 64) - 1


@lru_cache(maxsize=1 << 14)
def group_of_text(key: str, groups: int) -> int:
    """Return the key group of a key with one column that is a text."""
    value = (crc32(msgspec.msgpack.encode([key])) + 0x9E3779B97F4A7C15) & _ALL
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        value = (value ^ (value >> shift)) * factor & _ALL
    value ^= value >> 31
    return (value >> 32) * groups >> 32


def owner_of_group(group: int, parallelism: int, groups: int) -> int:
    """Return which of so many subtasks owns a key group."""
    return group * parallelism // groups


def owner_of_text(key: str, parallelism: int, groups: int) -> int:
    """Return which of so many subtasks owns a key."""
    return owner_of_group(group_of_text(key, groups), parallelism, groups)
