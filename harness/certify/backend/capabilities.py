"""What a backend declares: each capability is checked in a store that is opened for it."""

from __future__ import annotations

import time
from collections.abc import Callable

from barrier_tck.harness.certify.backend import steps, wire
from barrier_tck.harness.certify.backend.calls import CHECKED_STORE, Broken, CandidateCalls
from barrier_tck.harness.certify.backend.model import COMPRESSIONS, PLAIN

ASYNCHRONOUS = "asynchronous-snapshots"
CONCURRENT = "concurrent-snapshots"
ORDERED = "ordered-scan"
LOCAL = "local-files"
DETERMINISTIC = "deterministic-files"
INCREMENTAL = "incremental-snapshots"

CAPABILITIES = (ASYNCHRONOUS, CONCURRENT, ORDERED, LOCAL, DETERMINISTIC, INCREMENTAL)
"""All capabilities that can be declared, by the names that reports use."""
_NAME = "totals"
_GROUPS = (0, 6)
_GROUP = 0
_STATES = 5
"""Names of states whose order in a file shows whether it follows their hashes."""


def broken(session: CandidateCalls, step: steps.CheckCapability) -> Broken:
    """Return what shows that the backend has not what it declares, or None."""
    return _CHECKS[step.capability](session, step)


def _asynchronous(session: CandidateCalls, step: steps.CheckCapability) -> Broken:
    """Something must be left to do after the synchronous part, because the state is not empty."""
    _fill(session, step)
    taken = session.call(wire.SnapshotRequest(CHECKED_STORE, step.checkpoint))
    session.call(wire.RunRequest(CHECKED_STORE, step.checkpoint))
    _forget(session, step)
    if taken["operations"]:
        return f"snapshot() wrote to storage before it returned: {taken['operations']} storage operations"
    if taken["done"]:
        return "snapshot() returned a future that is done: nothing was left for the asynchronous part"
    return None


def _ordered(session: CandidateCalls, step: steps.CheckCapability) -> Broken:
    """Check the order of scans: as written, while a snapshot is unfinished, and in a restored store; each also after
    writes between, before and behind what is there."""
    _fill(session, step)
    found = {"": _scanned(session)}
    session.call(wire.SnapshotRequest(CHECKED_STORE, step.checkpoint))
    _write_between(session, step)
    found[" of a store with an unfinished snapshot"] = _scanned(session)
    handles = session.run(wire.RunRequest(CHECKED_STORE, step.checkpoint)).handles
    found[" once the snapshot had ended"] = _scanned(session)
    session.call(wire.CloseRequest(CHECKED_STORE))
    session.call(wire.OpenRequest(CHECKED_STORE, *_GROUPS, 0, session.attempt + 1, handles))
    found[" of a restored store"] = _scanned(session)
    _write_between(session, step)
    found[" of a restored store that was written"] = _scanned(session)
    _forget(session, step)
    for when, keys in found.items():
        if keys != sorted(keys):
            return f"scan(){when} gave the keys in the order {keys!r}"
    return None


def _write_between(session: CandidateCalls, step: steps.CheckCapability) -> None:
    """Change every other key, delete some, and add keys before, between and behind them."""
    for number, key in enumerate((*steps.UNSORTED, *step.keys)):
        for other in (key[:-1], key + b"\x00", key + b"\xff"):
            session.call(wire.PutRequest(CHECKED_STORE, _NAME, _GROUP, other, b"later"))
        if number % 2:
            session.call(wire.PutRequest(CHECKED_STORE, _NAME, _GROUP, key, b"changed"))
        elif number % 3:
            session.call(wire.DeleteRequest(CHECKED_STORE, _NAME, _GROUP, key))


def _scanned(session: CandidateCalls) -> list[bytes]:
    return [key for key, _ in session.call(wire.ScanRequest(CHECKED_STORE, _NAME, _GROUP))]


def _local(session: CandidateCalls, step: steps.CheckCapability) -> Broken:
    """Check the temporary directory, where files that are outside the store's own directory would appear: of a store
    that is written, and of restored ones that may be written or are only read."""
    _fill(session, step)
    session.call(wire.SnapshotRequest(CHECKED_STORE, step.checkpoint))
    files = {"": session.resources().work_files}
    handles = session.run(wire.RunRequest(CHECKED_STORE, step.checkpoint)).handles
    session.call(wire.CloseRequest(CHECKED_STORE))
    for read_only, when in ((False, " of a restored store"), (True, " of a store that is only read")):
        session.call(
            wire.OpenRequest(CHECKED_STORE, *_GROUPS, 0, session.attempt + 1, handles, read_only=read_only)
        )
        _scanned(session)
        files[when] = session.resources().work_files
        if not read_only:
            session.call(wire.CloseRequest(CHECKED_STORE))
    _forget(session, step)
    for when, names in files.items():
        outside = [name for name in names if not name.startswith(wire.STORE_PREFIX)]
        if outside:
            return f"{len(outside)} files{when} are outside the working directory: {outside[:3]}"
    return None


def _deterministic(session: CandidateCalls, step: steps.CheckCapability) -> Broken:
    """Also in another process, where the hashes of keys and names are others; with and without compression."""
    here = {each: _digests(session, step, each) for each in COMPRESSIONS}
    _wait_for_another_second()
    again = {each: _digests(session, step, each) for each in COMPRESSIONS}
    with session.in_another_process() as other:
        there = {each: _digests(other, step, each) for each in COMPRESSIONS}
    for compression, first in here.items():
        asked = "" if compression == PLAIN else f", with compression {compression}"
        for where, digests in (("", again[compression]), (" in another process", there[compression])):
            if digests != first:
                both = f"{', '.join(first)}, then {', '.join(digests)}"
                return f"the same calls wrote different files{where}{asked}: {both}"
    return None


def _wait_for_another_second() -> None:
    """Wait until the time of day is another one, to the second: a file may have it in its header."""
    second = int(time.time())
    while int(time.time()) == second:
        time.sleep(0.02)


def _digests(session: CandidateCalls, step: steps.CheckCapability, compression: str) -> list[str]:
    _fill(session, step, compression)
    for number in range(_STATES * _GROUPS[1]):
        place = (f"state {number % _STATES}", number % _GROUPS[1])
        session.call(wire.PutRequest(CHECKED_STORE, *place, b"%d" % number, b"value"))
    session.call(wire.SnapshotRequest(CHECKED_STORE, step.checkpoint))
    handles = session.run(wire.RunRequest(CHECKED_STORE, step.checkpoint)).handles
    digests = [session.call(wire.DigestRequest(handle)) for handle in handles]
    _forget(session, step)
    return digests


_UNCHANGED = 2_000
"""Entries that an increment need not write again."""
_BESIDE_CHANGES = 50
"""So many of them are in the key group where something changes: a backend may write a file for each few key groups."""
_MIDDLE, _MOVED = 3, 200
"""The key group where two stores meet, and the entries of each."""
_APART = 1_000_000
"""The snapshots of one check have ids that are so far apart, so that no other step has them."""


def _incremental(session: CandidateCalls, step: steps.CheckCapability) -> Broken:
    """Change little between snapshots: what was confirmed is referred to, nothing else is, and restores are exact."""
    chain = _Chain(session, step)
    problem = chain.broken()
    chain.forget()
    return problem or _redistributed(session, step)


class _Chain:
    """Snapshots of one store, each after a small change."""

    def __init__(self, session: CandidateCalls, step: steps.CheckCapability) -> None:
        self._session = session
        self._ids = [step.checkpoint + number * _APART for number in range(4)]
        self._entries: dict[bytes, bytes] = {}
        self._changed_before: dict[bytes, int] = {}
        """Entry -> the snapshot before which it was put or deleted."""

    def broken(self) -> Broken:
        """Return what is wrong with the second to fourth snapshot; the third is never confirmed, the others are."""
        session, ids = self._session, self._ids
        session.call(wire.OpenRequest(CHECKED_STORE, *_GROUPS, 0, session.attempt + 1, incremental=True))
        keys = tuple(b"%05d" % number for number in range(_UNCHANGED))
        values = tuple(key * 8 for key in keys)
        groups = tuple(
            _GROUP if number < _BESIDE_CHANGES else _GROUP + 1 + number % (_GROUPS[1] - 1)
            for number in range(_UNCHANGED)
        )
        session.call(wire.PutManyRequest(CHECKED_STORE, _NAME, groups, keys, values))
        self._entries = dict(zip(keys, values, strict=True))
        full = self._taken(0)
        session.call(wire.NotifyRequest(CHECKED_STORE, ids[0], "confirm"))
        second = self._taken(1)
        session.call(wire.NotifyRequest(CHECKED_STORE, ids[1], "confirm"))
        third = self._taken(2)
        session.call(wire.NotifyRequest(CHECKED_STORE, ids[2], "abort"))
        fourth = self._taken(3)
        if not [handle for handle in second if self._is_of(handle, 0)]:
            return "a snapshot after a small change refers to no file of the confirmed one"
        before, after = (
            sum(h.size for h in taken if self._is_of(h, n)) for n, taken in ((0, full), (1, second))
        )
        if after * 2 > before:
            return f"a snapshot after a small change wrote {after} bytes, the full one before it {before}"
        stray = [handle.path for handle in fourth if self._is_of(handle, 2)]
        if stray:
            return f"a snapshot refers to {stray[0]}, which belongs to a checkpoint that failed"
        return self._restored(fourth) or (None if third else "a snapshot of a filled store names no file")

    def _taken(self, number: int) -> tuple[wire.Handle, ...]:
        """Change two entries, and take a snapshot that may refer to all that was confirmed."""
        session = self._session
        changed, gone = b"changed %d" % number, b"%05d" % number
        session.call(wire.PutRequest(CHECKED_STORE, _NAME, _GROUP, changed, b"new"))
        session.call(wire.DeleteRequest(CHECKED_STORE, _NAME, _GROUP, gone))
        self._entries[changed] = b"new"
        del self._entries[gone]
        self._changed_before |= {changed: number, gone: number}
        session.call(wire.SnapshotRequest(CHECKED_STORE, self._ids[number], reuse_from=self._ids[0]))
        return session.run(wire.RunRequest(CHECKED_STORE, self._ids[number])).handles

    def _is_of(self, handle: wire.Handle, number: int) -> bool:
        return f"/chk-{self._ids[number]}/" in handle.path

    def _restored(self, handles: tuple[wire.Handle, ...]) -> Broken:
        session = self._session
        session.call(wire.CloseRequest(CHECKED_STORE))
        request = wire.OpenRequest(CHECKED_STORE, *_GROUPS, 0, session.attempt + 1, handles)
        session.call(request)
        scans = [session.call(wire.ScanRequest(CHECKED_STORE, _NAME, group)) for group in range(*_GROUPS)]
        found = dict(entry for scan in scans for entry in scan)
        wrong = [key for key in {**found, **self._entries} if found.get(key) != self._entries.get(key)]
        return self._explained(wrong, found) if wrong else None

    def _explained(self, wrong: list[bytes], found: dict[bytes, bytes]) -> str:
        """Say what is wrong with the first of some entries, and since which snapshot it should be otherwise."""
        key = wrong[0]
        is_now = f"is {found[key]!r}" if key in found else "is missing"
        expected = f"expected {self._entries[key]!r}" if key in self._entries else "expected nothing"
        before = self._changed_before.get(key)
        when = "before the first snapshot"
        if before is not None:
            base = "" if before == 0 else f", after {self._ids[min(before, 2) - 1]} was confirmed"
            when = f"before snapshot {self._ids[before]}{base}"
        what = "put" if key in self._entries else "deleted"
        others = f" ({len(wrong)} entries are wrong)" if len(wrong) > 1 else ""
        first, *_, last = self._ids
        return (
            f"the increments from {first} to {last} restore state {_NAME!r}, key {key!r} wrong: it {is_now}, "
            f"{expected}; it was {what} {when}{others}"
        )

    def forget(self) -> None:
        """Delete the files and close the store."""
        for checkpoint in self._ids:
            self._session.call(wire.DiscardRequest(CHECKED_STORE, checkpoint))
        self._session.call(wire.CloseRequest(CHECKED_STORE))


def _redistributed(session: CandidateCalls, step: steps.CheckCapability) -> Broken:
    """Let chains of two stores, of unequal length, come together in one store, and part again (RSC-2)."""
    first, second, third = (step.checkpoint + (4 + number) * _APART for number in range(3))
    parts: list[wire.Handle] = []
    for subtask, (start, end) in enumerate(((_GROUPS[0], _MIDDLE), (_MIDDLE, _GROUPS[1]))):
        session.call(
            wire.OpenRequest(CHECKED_STORE, start, end, subtask, session.attempt + 1, incremental=True)
        )
        groups = (start,) * _MOVED
        keys = tuple(b"%05d" % number for number in range(_MOVED))
        session.call(wire.PutManyRequest(CHECKED_STORE, _NAME, groups, keys, keys))
        _stored(session, first, first)
        session.call(wire.NotifyRequest(CHECKED_STORE, first, "confirm"))
        if subtask == 0:
            session.call(wire.PutRequest(CHECKED_STORE, _NAME, start, b"changed", b"in one of them"))
        parts += _stored(session, second, first)
        session.call(wire.CloseRequest(CHECKED_STORE))
    request = wire.OpenRequest(
        CHECKED_STORE, *_GROUPS, 0, session.attempt + 1, tuple(parts), incremental=True
    )
    session.call(request)
    for group in (_GROUPS[0], _MIDDLE):
        session.call(wire.PutRequest(CHECKED_STORE, _NAME, group, b"together", b"changed"))
    joined = _stored(session, third, first)
    for checkpoint in (first, second, third):
        session.call(wire.DiscardRequest(CHECKED_STORE, checkpoint))
    session.call(wire.CloseRequest(CHECKED_STORE))
    stray = [handle.path for handle in joined if f"/chk-{third}/" not in handle.path]
    return f"a snapshot refers to {stray[0]}, which a store with other key groups wrote" if stray else None


def _stored(session: CandidateCalls, checkpoint: int, reuse_from: int) -> tuple[wire.Handle, ...]:
    session.call(wire.SnapshotRequest(CHECKED_STORE, checkpoint, reuse_from=reuse_from))
    return session.run(wire.RunRequest(CHECKED_STORE, checkpoint)).handles


def _fill(session: CandidateCalls, step: steps.CheckCapability, compression: str = PLAIN) -> None:
    """Open the store and write: some entries, those of the step, one of them again, and one that is deleted."""
    session.call(wire.OpenRequest(CHECKED_STORE, *_GROUPS, 0, session.attempt + 1, compression=compression))
    for key in (*steps.UNSORTED, *step.keys, step.keys[0]):
        session.call(wire.PutRequest(CHECKED_STORE, _NAME, _GROUP, key, key * 2))
    session.call(wire.PutRequest(CHECKED_STORE, _NAME, _GROUP, b"deleted", b""))
    session.call(wire.DeleteRequest(CHECKED_STORE, _NAME, _GROUP, b"deleted"))


def _forget(session: CandidateCalls, step: steps.CheckCapability) -> None:
    session.call(wire.DiscardRequest(CHECKED_STORE, step.checkpoint))
    session.call(wire.CloseRequest(CHECKED_STORE))


_CHECKS: dict[str, Callable[[CandidateCalls, steps.CheckCapability], Broken]] = {
    ASYNCHRONOUS: _asynchronous,
    ORDERED: _ordered,
    LOCAL: _local,
    DETERMINISTIC: _deterministic,
    INCREMENTAL: _incremental,
}
"""Capability -> its check. Concurrent snapshots have none: all properties draw them if they are declared."""
