"""Checks that every backend makes of what it is given: key groups in range, sequences in step, no overlaps."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from barrier_tck.reference_impl.ids import KeyGroupRange
from barrier_tck.reference_impl.protocol.messages import StateHandle
from barrier_tck.reference_impl.runtime_errors import CorruptStateError, JobUsageError


def refuse_overlaps(handles: Sequence[StateHandle]) -> None:
    """Raise CorruptStateError if two files, of different snapshots, hold the same key group (RSC-1)."""
    by_start = sorted(handles, key=lambda handle: (handle.key_groups.start, handle.path))
    for first, second in pairwise(by_start):
        if second.key_groups.start < first.key_groups.end:
            raise CorruptStateError(
                f"{first.path} and {second.path} overlap: they hold the key groups {first.key_groups} and "
                f"{second.key_groups}, but a key group has one owner (RSC-1)"
            )


def require_in_range(group: int, key_groups: KeyGroupRange) -> None:
    """Raise JobUsageError for a key group that the store does not own."""
    if not key_groups.start <= group < key_groups.end:
        raise JobUsageError(
            f"key group {group} is not in the store's range {key_groups}; another subtask owns it"
        )


def require_same_length(first: int, second: int) -> None:
    """Raise JobUsageError for sequences that do not run in step."""
    if first != second:
        raise JobUsageError(
            f"key groups, keys and values must run in step, but their lengths are {first} and {second}"
        )
