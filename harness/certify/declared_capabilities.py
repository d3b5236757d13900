"""What a backend declares is a promise: each capability is checked in a store that is opened for it."""

from __future__ import annotations

from collections.abc import Callable

from barrier_tck.harness.certify import candidate_wire as wire
from barrier_tck.harness.certify import session_steps as steps
from barrier_tck.harness.certify.candidate_calls import CHECKED_STORE, Broken, CandidateCalls

ASYNCHRONOUS = "asynchronous-snapshots"
CONCURRENT = "concurrent-snapshots"
ORDERED = "ordered-scan"
LOCAL = "local-files"
DETERMINISTIC = "deterministic-files"

CAPABILITIES = (ASYNCHRONOUS, CONCURRENT, ORDERED, LOCAL, DETERMINISTIC)
"""All capabilities that can be declared, by the names that reports use."""
_NAME = "totals"
_GROUPS = (0, 6)
_GROUP = 0
_UNSORTED = (b"m", b"c\x00", b"x", b"\xff", b"c", b"")
"""Keys that are written in any case."""
_STATES = 5
"""Names of states whose order in a file shows whether it follows their hashes."""


def broken(session: CandidateCalls, step: steps.Promise) -> Broken:
    """Return what shows that the backend breaks a promise, or None."""
    return _CHECKS[step.capability](session, step)


def _asynchronous(session: CandidateCalls, step: steps.Promise) -> Broken:
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


def _ordered(session: CandidateCalls, step: steps.Promise) -> Broken:
    """Check the order of scans, also in a restored store."""
    _fill(session, step)
    found = _scanned(session)
    session.call(wire.SnapshotRequest(CHECKED_STORE, step.checkpoint))
    handles = session.run(wire.RunRequest(CHECKED_STORE, step.checkpoint)).handles
    session.call(wire.CloseRequest(CHECKED_STORE))
    session.call(wire.OpenRequest(CHECKED_STORE, *_GROUPS, 0, session.attempt + 1, handles))
    restored = _scanned(session)
    _forget(session, step)
    if found != sorted(found):
        return f"scan() gave the keys in the order {found!r}"
    if restored != sorted(restored):
        return f"scan() of a restored store gave the keys in the order {restored!r}"
    return None


def _scanned(session: CandidateCalls) -> list[bytes]:
    return [key for key, _ in session.call(wire.ScanRequest(CHECKED_STORE, _NAME, _GROUP))]


def _local(session: CandidateCalls, step: steps.Promise) -> Broken:
    """Check the temporary directory, where files that are outside the store's own directory would appear."""
    _fill(session, step)
    session.call(wire.SnapshotRequest(CHECKED_STORE, step.checkpoint))
    files = session.resources().work_files
    session.call(wire.RunRequest(CHECKED_STORE, step.checkpoint))
    _forget(session, step)
    outside = [name for name in files if not name.startswith(wire.STORE_PREFIX)]
    return f"{len(outside)} files are outside the working directory: {outside[:3]}" if outside else None


def _deterministic(session: CandidateCalls, step: steps.Promise) -> Broken:
    """Also in another process, where the hashes of keys and names are others."""
    here = _digests(session, step)
    again = _digests(session, step)
    if here != again:
        return f"the same calls wrote different files: {', '.join(here)}, then {', '.join(again)}"
    with session.in_another_process() as other:
        there = _digests(other, step)
    if here == there:
        return None
    return f"the same calls wrote different files in another process: {', '.join(here)}, there {', '.join(there)}"


def _digests(session: CandidateCalls, step: steps.Promise) -> list[str]:
    _fill(session, step)
    for number in range(_STATES * _GROUPS[1]):
        place = (f"state {number % _STATES}", number % _GROUPS[1])
        session.call(wire.PutRequest(CHECKED_STORE, *place, b"%d" % number, b"value"))
    session.call(wire.SnapshotRequest(CHECKED_STORE, step.checkpoint))
    handles = session.run(wire.RunRequest(CHECKED_STORE, step.checkpoint)).handles
    digests = [session.call(wire.DigestRequest(handle)) for handle in handles]
    _forget(session, step)
    return digests


def _fill(session: CandidateCalls, step: steps.Promise) -> None:
    """Open the store and write: some entries, those of the step, one of them again, and one that is deleted."""
    session.call(wire.OpenRequest(CHECKED_STORE, *_GROUPS, 0, session.attempt + 1))
    for key in (*_UNSORTED, *step.keys, step.keys[0]):
        session.call(wire.PutRequest(CHECKED_STORE, _NAME, _GROUP, key, key * 2))
    session.call(wire.PutRequest(CHECKED_STORE, _NAME, _GROUP, b"deleted", b""))
    session.call(wire.DeleteRequest(CHECKED_STORE, _NAME, _GROUP, b"deleted"))


def _forget(session: CandidateCalls, step: steps.Promise) -> None:
    session.call(wire.DiscardRequest(CHECKED_STORE, step.checkpoint))
    session.call(wire.CloseRequest(CHECKED_STORE))


_CHECKS: dict[str, Callable[[CandidateCalls, steps.Promise], Broken]] = {
    ASYNCHRONOUS: _asynchronous,
    ORDERED: _ordered,
    LOCAL: _local,
    DETERMINISTIC: _deterministic,
}
"""Capability -> its check. Concurrent snapshots have none: all properties draw them if they are declared."""
