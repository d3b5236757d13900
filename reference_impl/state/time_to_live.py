"""State with a time to live: entries that have not been used for a time are not seen any more, and are removed (EVT-5).

Time is processing time. An entry is what a state holds for one key: one value, or a list or a map as a whole. It notes
when it was used last, and that is the only time that counts: a restore, or a move to another subtask, gives nothing
more to live.

An entry that is over is removed when it is read, and ahead of each snapshot, whether it is read or not. The snapshot is
the right moment for that: every keyed function takes part in it, also one that has no timers; a checkpoint never holds
what no restore could show; and state that grew from one checkpoint to the next would be seen there. A queue of times
finds what is over, so that the cost is that of what is removed, and not that of all that is kept. It is in memory, with
one time for each entry, and made anew from the state when the operator opens.

In the store, such an entry begins with the byte ``C1``, which MessagePack never uses, and the time of its last use
(ms) in eight bytes, big-endian. Entries of states without a time to live are as they ever were.
"""

from __future__ import annotations

import heapq
import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum

from barrier_tck.reference_impl.runtime_errors import JobUsageError
from barrier_tck.reference_impl.state.backend import KeyedStateStore

TAG = 0xC1
"""First byte of an entry with a time to live."""
_USED = struct.Struct(">Bq")


class RefreshedBy(Enum):
    """What counts as a use of an entry."""

    WRITING = "writing"
    """Only a change."""
    READING = "reading"
    """A change, and a ``get`` or ``items`` of its cell; ``NamedState.cells`` alone does not read."""


@dataclass(frozen=True, slots=True)
class TimeToLive:
    """How long an entry lives after its last use."""

    ms: int
    refreshed_by: RefreshedBy = RefreshedBy.WRITING

    def __post_init__(self) -> None:
        if self.ms <= 0:
            raise JobUsageError(
                f"TimeToLive: ms must be above 0, not {self.ms}; leave ttl out if nothing ends"
            )


class LimitedEntries:
    """The entries of one state with a time to live, in place of the operator's store."""

    def __init__(
        self,
        store: KeyedStateStore,
        name: str,
        ttl: TimeToLive,
        groups: Iterable[int],
        now_ms: Callable[[], float],
    ) -> None:
        """Take the store, the state's name, its key groups, and what gives the time now, in ms of the epoch.

        Raises JobUsageError if the restored state was written without a time to live.
        """
        self._store = store
        self._name = name
        self._ttl = ttl
        self._now_ms = now_ms
        self._queue = [
            (self._end_of(data), group, key) for group in groups for key, data in store.scan(name, group)
        ]
        """When each entry is over as far as was known when it was put here; a later use shows when its turn comes."""
        heapq.heapify(self._queue)
        self._queued = {(group, key): end_ms for end_ms, group, key in self._queue}

    def get(self, name: str, group: int, key: bytes) -> bytes | None:
        """Return what an entry holds, or None if there is none, or none that is not over; such a one is removed."""
        data = self._store.get(name, group, key)
        if data is None:
            return None
        now_ms = self._now()
        if self._end_of(data) <= now_ms:
            self._store.delete(name, group, key)
            return None
        content = data[_USED.size :]
        if self._ttl.refreshed_by is RefreshedBy.READING:
            self._write(group, key, content, now_ms)
        return content

    def put(self, name: str, group: int, key: bytes, value: bytes) -> None:
        """Set what an entry holds; that is a use."""
        self._write(group, key, value, self._now())

    def delete(self, name: str, group: int, key: bytes) -> None:
        """Remove an entry; a missing one is no error."""
        self._store.delete(name, group, key)

    def scan(self, name: str, group: int) -> Iterator[tuple[bytes, bytes]]:
        """Iterate over the entries of a key group that are not over."""
        now_ms = self._now()
        for key, data in self._store.scan(name, group):
            if self._end_of(data) > now_ms:
                yield key, data[_USED.size :]

    def remove_what_is_over(self) -> None:
        """Remove every entry whose time is over."""
        now_ms = self._now()
        while self._queue and self._queue[0][0] <= now_ms:
            queued_ms, group, key = heapq.heappop(self._queue)
            if self._queued.get((group, key)) != queued_ms:
                continue  # it was put here again, for an earlier time
            data = self._store.get(self._name, group, key)
            end_ms = None if data is None else self._end_of(data)
            if end_ms is not None and end_ms > now_ms:
                self._put_in_queue(end_ms, group, key)
                continue
            del self._queued[group, key]
            if end_ms is not None:
                self._store.delete(self._name, group, key)

    def _write(self, group: int, key: bytes, content: bytes, now_ms: int) -> None:
        self._store.put(self._name, group, key, _USED.pack(TAG, now_ms) + content)
        end_ms = now_ms + self._ttl.ms
        # The clock may be behind that of the host on which the entry was used before.
        if end_ms < self._queued.get((group, key), end_ms + 1):
            self._put_in_queue(end_ms, group, key)

    def _put_in_queue(self, end_ms: int, group: int, key: bytes) -> None:
        self._queued[group, key] = end_ms
        heapq.heappush(self._queue, (end_ms, group, key))

    def _end_of(self, data: bytes) -> int:
        """Return when an entry is over (ms)."""
        if data[0] != TAG:
            raise JobUsageError(
                f"the state {self._name!r} has a time to live, and entries in the checkpoint that do not say when they "
                "were used, because it had none; leave ttl out, or give the state another name"
            )
        used_ms: int = _USED.unpack_from(data)[1]
        return used_ms + self._ttl.ms

    def _now(self) -> int:
        return int(self._now_ms())
