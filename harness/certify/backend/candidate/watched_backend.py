"""A candidate's backend beside a model of it, during a trial: which of a backend's own promises was broken first.

A trial judges a whole job, and says what is wrong with its checkpoints and its output. The runtime in it is the
reference, so whoever certifies a backend wants to know which promise of the backend that comes from. The model changes
nothing: it only notes the first difference, and the trial is judged as if it were not there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from barrier_tck.harness.certify.backend.clauses import ISOLATED, READS, RESTORED
from barrier_tck.reference_impl.ids import CheckpointId, KeyGroupRange
from barrier_tck.reference_impl.protocol.messages import StateHandle
from barrier_tck.reference_impl.state.backend import (
    KeyedStateStore,
    SnapshotFuture,
    StateBackend,
    StateCapability,
    StateReader,
    StateScope,
    StateWriter,
)

_Place = tuple[str, int]
"""Name of a state, and key group."""
_Tables = dict[_Place, dict[bytes, bytes]]
_Handles = tuple[StateHandle, ...]


@dataclass(slots=True)
class _Snapshot:
    """What a snapshot must hold."""

    tables: _Tables
    later: dict[tuple[_Place, bytes], set[bytes | None]] = field(default_factory=dict)
    """What was written until its asynchronous part ended; None: it was deleted."""
    handles: _Handles = ()


class Watch:
    """What the stores of one trial were given, and the first promise that one of them has broken."""

    def __init__(self) -> None:
        self.broken = ""
        """The clause; empty if nothing was seen to differ."""
        self.sentence = ""
        self._snapshots: list[_Snapshot] = []
        """Those that ended, the oldest first."""

    def begin(self) -> None:
        """Forget everything: another trial begins."""
        self.broken = self.sentence = ""
        self._snapshots.clear()

    def watched(self, make: Callable[[], StateBackend]) -> Callable[[], StateBackend]:
        """Return what makes the same backend, and watches what becomes of its stores."""
        return lambda: _WatchedBackend(make(), self)

    def differs(self, clause: str, sentence: str) -> None:
        """Note a difference, unless there was one before: later ones may come from it."""
        if not self.broken:
            self.broken, self.sentence = clause, sentence

    def ended(self, snapshot: _Snapshot, handles: _Handles) -> None:
        """Note which files a snapshot has."""
        snapshot.handles = handles
        self._snapshots.append(snapshot)

    def restored(self, groups: KeyGroupRange, restore: Sequence[StateHandle]) -> tuple[_Snapshot, ...] | None:
        """Return the snapshots whose files are restored; None if no store here has written some of the files."""
        left = {handle.path for handle in restore if len(handle.key_groups.intersection(groups))}
        wanted, found = frozenset(left), []
        for snapshot in reversed(self._snapshots):
            own = {one.path for one in snapshot.handles if len(one.key_groups.intersection(groups))}
            # Of a chain of increments, the newest snapshot names the files of those before it, too.
            if own and own <= wanted and own & left:
                found.append(snapshot)
                left -= own
        return None if left else tuple(found)


class _WatchedBackend:
    def __init__(self, inner: StateBackend, watch: Watch) -> None:
        self._inner = inner
        self._watch = watch

    @property
    def name(self) -> str:
        return self._inner.name

    @property
    def capabilities(self) -> frozenset[StateCapability]:
        return self._inner.capabilities

    def open(self, scope: StateScope, restore: Sequence[StateHandle], reader: StateReader) -> KeyedStateStore:
        store = self._inner.open(scope, restore, reader)
        snapshots = self._watch.restored(scope.key_groups, restore)
        if snapshots is None:
            return store
        tables = {
            (name, group): dict(table)
            for snapshot in snapshots
            for (name, group), table in snapshot.tables.items()
            if group in scope.key_groups
        }
        for place, expected in tables.items():
            found = dict(store.scan(*place))
            if found != expected:
                self._compare(place, expected, found, snapshots)
                tables[place] = found
        return _WatchedStore(store, tables, self._watch)

    def _compare(
        self,
        place: _Place,
        expected: dict[bytes, bytes],
        found: dict[bytes, bytes],
        snapshots: Sequence[_Snapshot],
    ) -> None:
        keys = [key for key in {**expected, **found} if expected.get(key) != found.get(key)]
        changed = [
            key
            for key in keys
            if any(found.get(key) in snapshot.later.get((place, key), ()) for snapshot in snapshots)
        ]
        name, group = place
        where = f"{len(keys)} {'entry' if len(keys) == 1 else 'entries'} of state {name!r}, key group {group}"
        if changed:
            self._watch.differs(ISOLATED, f"{where}: restored as written after the snapshot had been taken")
        else:
            self._watch.differs(
                RESTORED, f"{where}: restored otherwise than the store held them when the snapshot was taken"
            )


class _WatchedStore:
    def __init__(self, inner: KeyedStateStore, tables: _Tables, watch: Watch) -> None:
        self._inner = inner
        self._tables = tables
        self._watch = watch
        self._unfinished: list[_Snapshot] = []

    def get(self, name: str, group: int, key: bytes) -> bytes | None:
        found = self._inner.get(name, group, key)
        self._read("get()", name, group, key, found)
        return found

    def get_many(self, name: str, groups: Sequence[int], keys: Sequence[bytes]) -> list[bytes | None]:
        found = self._inner.get_many(name, groups, keys)
        for group, key, value in zip(groups, keys, found, strict=False):
            self._read("get_many()", name, group, key, value)
        return found

    def scan(self, name: str, group: int) -> Iterator[tuple[bytes, bytes]]:
        found = list(self._inner.scan(name, group))
        if dict(found) != self._tables.get((name, int(group)), {}):
            self._watch.differs(
                READS, f"scan() of state {name!r}, key group {group}, is not what was written"
            )
        return iter(found)

    def put(self, name: str, group: int, key: bytes, value: bytes) -> None:
        self._inner.put(name, group, key, value)
        self._wrote(name, group, key, value)

    def put_many(
        self, name: str, groups: Sequence[int], keys: Sequence[bytes], values: Sequence[bytes]
    ) -> None:
        self._inner.put_many(name, groups, keys, values)
        for group, key, value in zip(groups, keys, values, strict=True):
            self._wrote(name, group, key, value)

    def delete(self, name: str, group: int, key: bytes) -> None:
        self._inner.delete(name, group, key)
        self._wrote(name, group, key, None)

    def snapshot(self, checkpoint: CheckpointId, writer: StateWriter) -> SnapshotFuture[_Handles]:
        # Otherwise a write that was lost, and never read again, would be taken for a snapshot that lost it.
        for place in self._tables:
            self.scan(*place)
        taken = _Snapshot({place: dict(table) for place, table in self._tables.items()})
        future = self._inner.snapshot(checkpoint, writer)
        self._unfinished.append(taken)
        return _WatchedFuture(future, lambda handles: self._ended(taken, handles))

    def confirm(self, checkpoint: CheckpointId) -> None:
        self._inner.confirm(checkpoint)

    def abort(self, checkpoint: CheckpointId) -> None:
        self._inner.abort(checkpoint)

    def close(self) -> None:
        self._inner.close()

    def _ended(self, taken: _Snapshot, handles: _Handles) -> None:
        self._unfinished = [one for one in self._unfinished if one is not taken]
        self._watch.ended(taken, handles)

    def _read(self, how: str, name: str, group: int, key: bytes, found: bytes | None) -> None:
        if found != self._tables.get((name, int(group)), {}).get(key):
            self._watch.differs(
                READS, f"{how} of state {name!r}, key group {group}, key {key!r} is not what was written last"
            )

    def _wrote(self, name: str, group: int, key: bytes, value: bytes | None) -> None:
        place = (name, int(group))
        table = self._tables.setdefault(place, {})
        if value is None:
            table.pop(key, None)
        else:
            table[key] = value
        for snapshot in self._unfinished:
            snapshot.later.setdefault((place, key), set()).add(value)


class _WatchedFuture:
    def __init__(self, inner: SnapshotFuture[_Handles], ended: Callable[[_Handles], None]) -> None:
        self._inner = inner
        self._ended: Callable[[_Handles], None] | None = ended

    @property
    def done(self) -> bool:
        return self._inner.done

    def run(self) -> _Handles:
        handles = self._inner.run()
        if self._ended is not None:
            self._ended(handles)
            self._ended = None
        return handles

    def cancel(self) -> None:
        self._inner.cancel()
