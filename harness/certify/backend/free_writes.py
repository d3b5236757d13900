"""Computes the writes during a snapshot and the entries of large states, for certifier and candidate's process
alike."""

from __future__ import annotations

import hashlib

_AT_A_PLACE = 20
"""The number of writes in one key group before the writes move on to the next key group."""
_APART = 7
_NEW_KEYS, _OLD_KEYS = 8, 50
"""The number of new keys in a key group that are added and deleted, and of older keys that are overwritten."""
FREE_KEY_BYTES = 12
"""Length of the keys that the store had before."""


def entry_key(number: int, length: int) -> bytes:
    """Return a key of this length; keys of one length differ in their last bytes only."""
    tail = b"%08d" % number
    return (b"k" * max(0, length - len(tail)) + tail)[-length:] if length else b""


def entry_value(number: int, length: int, salt: int) -> bytes:
    """Return a value of this length, without a pattern that would hide cut, moved or repeated bytes."""
    return hashlib.shake_128(b"%d %d" % (number, salt)).digest(length)


def free_write(
    number: int, groups: tuple[int, ...], checkpoint: int
) -> tuple[str, tuple[int, ...], tuple[bytes, ...]]:
    """Return the call, the key groups and the keys of a write; its values are the number in eight bytes.

    Each checkpoint's writes begin at another key group; those of every second checkpoint go through the groups
    backwards.
    """
    walked = number // _AT_A_PLACE
    at = (_APART * checkpoint + (-walked if checkpoint % 2 else walked)) % len(groups)
    group, turn = groups[at], number // 4
    if number % 4 == 0:
        return "put", (group,), (b"new %d" % (turn % _NEW_KEYS),)
    if number % 4 == 1:
        old = [at + len(groups) * ((turn + step) % _OLD_KEYS) for step in range(3)]
        return "put_many", (group,) * 3, tuple(entry_key(each, FREE_KEY_BYTES) for each in old)
    if number % 4 == 2:
        return "delete", (group,), (b"new %d" % ((turn + _NEW_KEYS // 2) % _NEW_KEYS),)
    return "delete", (group,), (entry_key(at + len(groups) * (turn % _OLD_KEYS), FREE_KEY_BYTES),)
