"""What a candidate still holds: after failed snapshots, after many that succeeded, and after close.

Memory and descriptors vary by themselves, because of allocators, caches and compactions. So growth is the *least* that
the process holds towards the end minus the *most* that it held at the beginning.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from barrier_tck.harness.certify.backend import clauses, steps, wire
from barrier_tck.harness.certify.backend.calls import CHECKED_STORE, CandidateCalls
from barrier_tck.harness.certify.backend.free_writes import entry_value
from barrier_tck.harness.certify.backend.model import COMPRESSIONS, NAMES
from barrier_tck.harness.certify.backend.pool import CandidateRaised
from barrier_tck.harness.certify.engine.violation import Violation

_WARM_UP_ROUNDS = 3
"""Rounds that are not counted, because allocators first grow to their working size."""
_RESTORED_STORE = CHECKED_STORE + 1
"""Number of a store that is restored while the checked one is open."""
_SHARE_OF_ROUNDS = 0.3
"""This many more descriptors, threads or files per snapshot count as growth; of memory, this share of the state."""
_FEWEST = 4
"""Fewer additional descriptors, threads or files than this do not count as growth."""
_GROUPS = (0, 6)
_MANY_ENTRIES = 5_000
"""Entries of a store that is closed in the middle of a snapshot."""
_LARGE_STORES, _LARGE_VALUES, _LARGE_BYTES = 12, 200, 20_000
"""Stores that are closed one after the other, and the values of each with their length."""


def after_failed_snapshots(session: CandidateCalls, step: steps.Crowd) -> None:
    """Take snapshots whose storage fails; raise Violation if the process grows."""
    _held_over_rounds(session, step, _failed_snapshot, f"{step.rounds} failed snapshots")


def after_snapshots(session: CandidateCalls, step: steps.Steady) -> None:
    """Take snapshots of a state that does not grow; raise Violation if the process does."""
    _held_over_rounds(session, step, _whole_snapshot, f"{step.rounds} snapshots")


def after_dropped_snapshots(session: CandidateCalls, step: steps.Dropped) -> None:
    """Take snapshots that come to nothing, in every way, and one that is confirmed; raise Violation if the process
    grows.
    """
    what = f"{step.rounds} times {len(_DROPPED)} snapshots that were cancelled, aborted or deleted, and one more,"
    _held_over_rounds(session, step, _dropped_snapshots, what, ids=len(_DROPPED) + 1)


def _held_over_rounds(
    session: CandidateCalls,
    step: steps.Rounds,
    take: Callable[[CandidateCalls, int], None],
    what: str,
    ids: int = 1,
) -> None:
    """Take snapshots of a separate store that stays open all the time; ``ids`` in each round."""
    session.call(wire.OpenRequest(CHECKED_STORE, *_GROUPS, 0, session.attempt + 1))
    samples = []
    for number in range(_WARM_UP_ROUNDS + step.rounds):
        _overwrite(session, step, number)
        take(session, step.checkpoint + ids * number)
        if number >= _WARM_UP_ROUNDS:
            samples.append(session.resources(settle=False))
    session.call(wire.DiscardRequest(CHECKED_STORE, step.checkpoint + ids * (number + 1) - 1))
    session.call(wire.CloseRequest(CHECKED_STORE))
    growing = grown(samples, step.count * step.size)
    if growing:
        taken = f"{what} of {step.count * step.size:,} bytes each, in a store that stayed open,"
        raise Violation(f"{taken} made the process grow: {'; '.join(growing)}", clauses.KEPT)


def _failed_snapshot(session: CandidateCalls, checkpoint: int) -> None:
    try:
        session.call(wire.SnapshotRequest(CHECKED_STORE, checkpoint, wire.StorageFault(2)))
        session.run(wire.RunRequest(CHECKED_STORE, checkpoint))
    except CandidateRaised as error:
        if error.kind != "storage":
            raise
    session.call(wire.NotifyRequest(CHECKED_STORE, checkpoint, "abort"))
    session.call(wire.DiscardRequest(CHECKED_STORE, checkpoint))


def _dropped_snapshots(session: CandidateCalls, checkpoint: int) -> None:
    for number, end in enumerate(_DROPPED):
        end(session, checkpoint + number)
        session.call(wire.DiscardRequest(CHECKED_STORE, checkpoint + number))
    last = checkpoint + len(_DROPPED)
    _whole_snapshot(session, last)
    session.call(wire.DiscardRequest(CHECKED_STORE, last))


def _cancelled_and_never_run(session: CandidateCalls, checkpoint: int) -> None:
    session.call(wire.SnapshotRequest(CHECKED_STORE, checkpoint))
    session.call(wire.NotifyRequest(CHECKED_STORE, checkpoint, "cancel"))


def _cancelled_before(session: CandidateCalls, checkpoint: int) -> None:
    _cancelled_and_never_run(session, checkpoint)
    _until_cancelled(session, wire.RunRequest(CHECKED_STORE, checkpoint))


def _cancelled_amid(session: CandidateCalls, checkpoint: int) -> None:
    session.call(wire.SnapshotRequest(CHECKED_STORE, checkpoint))
    session.call(wire.StartRequest(CHECKED_STORE, checkpoint, 2))
    session.call(wire.NotifyRequest(CHECKED_STORE, checkpoint, "cancel", elsewhere=True))
    _until_cancelled(session, wire.FinishRequest(CHECKED_STORE, checkpoint))


def _aborted_and_never_run(session: CandidateCalls, checkpoint: int) -> None:
    session.call(wire.SnapshotRequest(CHECKED_STORE, checkpoint))
    session.call(wire.NotifyRequest(CHECKED_STORE, checkpoint, "abort"))


def _deleted_without_a_word(session: CandidateCalls, checkpoint: int) -> None:
    session.call(wire.SnapshotRequest(CHECKED_STORE, checkpoint))
    session.run(wire.RunRequest(CHECKED_STORE, checkpoint))


def _until_cancelled(session: CandidateCalls, request: wire.EndingRequest) -> None:
    try:
        session.run(request)
    except CandidateRaised as error:
        if error.kind != "cancelled":
            message = f"the asynchronous part of snapshot {request.checkpoint}, which was called off, raised {error}"
            raise Violation(f"{message} instead of SnapshotCancelled", clauses.CANCELLED) from error


_DROPPED = (
    _cancelled_and_never_run,
    _cancelled_before,
    _cancelled_amid,
    _aborted_and_never_run,
    _deleted_without_a_word,
)
"""Snapshots that no checkpoint needs, and how each comes to its end."""
_SNAPSHOTS_OF_A_LIFE = len(_DROPPED) + 5


def _whole_snapshot(session: CandidateCalls, checkpoint: int) -> None:
    """Take a snapshot and delete the previous one, like a runtime that retains one checkpoint."""
    session.call(wire.SnapshotRequest(CHECKED_STORE, checkpoint))
    session.run(wire.RunRequest(CHECKED_STORE, checkpoint))
    session.call(wire.NotifyRequest(CHECKED_STORE, checkpoint, "confirm"))
    session.call(wire.DiscardRequest(CHECKED_STORE, checkpoint - 1))


def _overwrite(session: CandidateCalls, step: steps.Rounds, number: int) -> None:
    groups = tuple(_GROUPS[0] + each % (_GROUPS[1] - _GROUPS[0]) for each in range(step.count))
    keys = tuple(b"held-%06d" % each for each in range(step.count))
    values = tuple(entry_value(each, step.size, number) for each in range(step.count))
    session.call(wire.PutManyRequest(CHECKED_STORE, NAMES[0], groups, keys, values))


def grown(samples: Sequence[wire.Held], state_bytes: int) -> list[str]:
    """Return what grows: things of which the least in the last third clearly exceeds the most in the first third."""
    third = len(samples) // 3
    first, last = samples[:third], samples[-third:]
    found = []
    for what, count in _COUNTED:
        more = min(map(count, last)) - max(map(count, first))
        if more > max(_FEWEST, _SHARE_OF_ROUNDS * third):
            found.append(f"{more} more {what} after {len(samples) - third} of them")
    more = min(one.memory_bytes for one in last) - max(one.memory_bytes for one in first)
    if more > _SHARE_OF_ROUNDS * third * state_bytes:
        found.append(f"{more:,} more bytes of memory after {len(samples) - third} of them")
    return found


_COUNTED: tuple[tuple[str, Callable[[wire.Held], int]], ...] = (
    ("descriptors", lambda held: len(held.descriptors)),
    ("threads", lambda held: held.threads),
    ("child processes", lambda held: held.children),
    ("files in the working directory", lambda held: len(held.work_files)),
    ("files in storage", lambda held: len(held.storage_files)),
)


def after_close(session: CandidateCalls, rounds: int, groups: tuple[int, int], checkpoint: int) -> int:
    """Open, use and close stores; raise Violation if anything is left. Returns the next free checkpoint.

    A first round is not counted, because libraries keep some things open after their first use.
    """
    for number in range(rounds + 1):
        for compression in COMPRESSIONS:
            _life(session, groups, checkpoint, compression)
            _large_life(session, groups, checkpoint + _SNAPSHOTS_OF_A_LIFE - 1, compression)
            checkpoint += _SNAPSHOTS_OF_A_LIFE
        if not number:
            before = session.resources()
    left = left_behind(before, session.resources())
    if left:
        partial = all("storage" in what for what in left)
        message = "after every store was closed, these are left: " + "; ".join(left)
        raise Violation(message, clauses.CANCELLED if partial else clauses.KEPT)
    return _memory_of_closed(session, groups, checkpoint)


def _memory_of_closed(session: CandidateCalls, groups: tuple[int, int], checkpoint: int) -> int:
    """Fill and close stores; raise Violation if their state stays in memory. Returns the next free checkpoint."""
    samples = []
    keys = tuple(b"%d" % number for number in range(_LARGE_VALUES))
    for number in range(_WARM_UP_ROUNDS + _LARGE_STORES):
        session.call(wire.OpenRequest(CHECKED_STORE, *groups, 0, session.attempt + 1))
        values = tuple(entry_value(each, _LARGE_BYTES, number) for each in range(len(keys)))
        session.call(wire.PutManyRequest(CHECKED_STORE, NAMES[0], (groups[0],) * len(keys), keys, values))
        _deleted_without_a_word(session, checkpoint + number)
        session.call(wire.DiscardRequest(CHECKED_STORE, checkpoint + number))
        session.call(wire.CloseRequest(CHECKED_STORE))
        if number >= _WARM_UP_ROUNDS:
            samples.append(session.resources(settle=False))
    growing = grown(samples, _LARGE_VALUES * _LARGE_BYTES)
    if growing:
        stores = (
            f"{_LARGE_STORES} stores of {_LARGE_VALUES * _LARGE_BYTES:,} bytes each, one after the other,"
        )
        raise Violation(
            f"{stores} made the process grow although each was closed: {'; '.join(growing)}", clauses.KEPT
        )
    return checkpoint + _WARM_UP_ROUNDS + _LARGE_STORES


def _life(session: CandidateCalls, groups: tuple[int, int], base: int, compression: str) -> None:
    """Play the life of a store, with snapshots that end in every possible way; the store is closed at the end."""
    call, start, attempt = session.call, groups[0], session.attempt + 1
    call(wire.OpenRequest(CHECKED_STORE, *groups, 0, attempt, compression=compression))
    call(wire.PutRequest(CHECKED_STORE, NAMES[0], start, b"first", b"v" * 100))
    for checkpoint, end in enumerate(_DROPPED, base):
        end(session, checkpoint)
        call(wire.DiscardRequest(CHECKED_STORE, checkpoint))
    for number in range(4):
        checkpoint = base + len(_DROPPED) + number
        call(wire.PutRequest(CHECKED_STORE, NAMES[0], start, b"k%d" % number, b"v" * 100))
        try:
            fault = wire.StorageFault(2) if number == 1 else None
            taken = call(wire.SnapshotRequest(CHECKED_STORE, checkpoint, fault))
            if number == 3 and not taken["done"]:
                continue  # closed with a snapshot under way
            if number == 2:
                call(wire.NotifyRequest(CHECKED_STORE, checkpoint, "cancel"))
            ran = session.run(wire.RunRequest(CHECKED_STORE, checkpoint))
            if number == 0:
                call(wire.OpenRequest(_RESTORED_STORE, *groups, 0, attempt, ran.handles))
                call(wire.ScanRequest(_RESTORED_STORE, NAMES[0], start))
                call(wire.CloseRequest(_RESTORED_STORE))
        except CandidateRaised as error:
            # A purely synchronous backend writes, and fails, in snapshot().
            if error.kind not in ("storage", "cancelled"):
                raise
        call(wire.NotifyRequest(CHECKED_STORE, checkpoint, "abort" if number else "confirm"))
        call(wire.DiscardRequest(CHECKED_STORE, checkpoint))
    call(wire.CloseRequest(CHECKED_STORE, times=2))


def _large_life(session: CandidateCalls, groups: tuple[int, int], checkpoint: int, compression: str) -> None:
    """Fill a store with thousands of entries, and close it while another thread runs a snapshot's asynchronous part."""
    call, start = session.call, groups[0]
    call(wire.OpenRequest(CHECKED_STORE, *groups, 0, session.attempt + 1, compression=compression))
    keys = tuple(b"%06d" % number for number in range(_MANY_ENTRIES))
    call(wire.PutManyRequest(CHECKED_STORE, NAMES[0], (start,) * len(keys), keys, keys))
    call(wire.SnapshotRequest(CHECKED_STORE, checkpoint))
    call(wire.StartRequest(CHECKED_STORE, checkpoint, 2))
    _until_cancelled(session, wire.CloseAmidRequest(CHECKED_STORE, checkpoint))
    call(wire.DiscardRequest(CHECKED_STORE, checkpoint, subtask=0))


def left_behind(before: wire.Held, after: wire.Held, files: bool = True) -> list[str]:
    """Return what a process holds after close that it did not hold before; ``files``: no working file may be left."""
    left = []
    new = list(after.descriptors)
    for known in before.descriptors:
        if known in new:
            new.remove(known)
    if len(after.descriptors) > len(before.descriptors):
        left.append(f"{len(after.descriptors) - len(before.descriptors)} descriptors, among them {new[:3]}")
    if after.threads > before.threads:
        left.append(f"{after.threads - before.threads} threads")
    if after.children > 0:
        left.append(f"{after.children} child processes")
    if after.work_files and (files or len(after.work_files) > len(before.work_files)):
        left.append(
            f"{len(after.work_files)} files in the working directory, among them {after.work_files[:3]}"
        )
    if after.storage_files:
        left.append(f"{len(after.storage_files)} files in storage, among them {after.storage_files[:3]}")
    return left
