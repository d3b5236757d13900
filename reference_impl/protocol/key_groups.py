"""Who owns a key group (RSC-1): contiguous ranges, computed from the parallelism alone."""

from __future__ import annotations

from functools import lru_cache

from barrier_tck.reference_impl.ids import KeyGroupRange


@lru_cache(maxsize=4096)
def key_group_range(index: int, parallelism: int, max_parallelism: int) -> KeyGroupRange:
    """Return the key groups that subtask ``index`` owns: contiguous, each owned exactly once (RSC-1)."""
    return KeyGroupRange(
        (index * max_parallelism + parallelism - 1) // parallelism,
        ((index + 1) * max_parallelism + parallelism - 1) // parallelism,
    )


def owner_of(group: int, parallelism: int, max_parallelism: int) -> int:
    """Return the index of the subtask that owns a key group; the inverse of ``key_group_range``."""
    return group * parallelism // max_parallelism
