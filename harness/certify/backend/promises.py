"""Checks, with stores of their own, of what the guide for authors of backends promises: of closed stores, of restores
that are refused, of several stores that are open at once, and of a store that is restored from many snapshots.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from barrier_tck.harness.certify.backend import clauses, steps, wire
from barrier_tck.harness.certify.backend.calls import CHECKED_STORE, CandidateCalls, Entries
from barrier_tck.harness.certify.backend.free_writes import entry_value
from barrier_tck.harness.certify.backend.leftovers import left_behind
from barrier_tck.harness.certify.backend.model import COMPRESSED, COMPRESSIONS
from barrier_tck.harness.certify.backend.pool import CandidateRaised
from barrier_tck.harness.certify.backend.readings import first_difference
from barrier_tck.harness.certify.engine.violation import Violation

_NAME = "totals"
_GROUPS = (0, 6)
_REPEATED, _PAUSE_S = 60, 0.06
"""Entries of a store in which calls are repeated; what a thread of the store's own would be given for each snapshot."""
_FIRST_STORE = CHECKED_STORE + 2
_AMID_ENTRIES, _AMID_BYTES = 2_000, 400
"""What a store holds that is closed in the middle of a snapshot: enough for several chunks."""


def after_close(session: CandidateCalls, step: steps.Closed) -> None:
    """Close a store with an unfinished snapshot: the snapshot must be cancelled, and later calls refused."""
    store, call, at = CHECKED_STORE, session.call, (_NAME, 1)
    call(wire.OpenRequest(store, *_GROUPS, 0, session.attempt + 1))
    call(wire.PutRequest(store, *at, b"k", b"v"))
    for what, wrong in (
        ("get_many() of two keys and one key group", wire.GetManyRequest(store, _NAME, (1,), (b"k", b"l"))),
        ("put_many() without values", wire.PutManyRequest(store, _NAME, (1,), (b"k",), ())),
        (
            "put_many() of two keys in one key group",
            wire.PutManyRequest(store, _NAME, (1,), (b"k", b"l"), (b"", b"")),
        ),
    ):
        _refused(call, wrong, what)
    done = call(wire.SnapshotRequest(store, step.checkpoint))["done"]
    call(wire.CloseRequest(store, keep=True))
    if not done:
        try:
            session.run(wire.RunRequest(store, step.checkpoint))
        except CandidateRaised as error:
            if error.kind != "cancelled":
                message = f"a snapshot that close() cancelled raised {error} instead of SnapshotCancelled"
                raise Violation(message, clauses.CANCELLED) from error
        else:
            raise Violation("a snapshot ran although its store was closed before it began", clauses.CANCELLED)
    calls: tuple[wire.AnyRequest, ...] = (
        wire.GetRequest(store, *at, b"k"),
        wire.PutRequest(store, *at, b"k", b"w"),
        wire.DeleteRequest(store, *at, b"k"),
        wire.ScanRequest(store, *at),
        wire.GetManyRequest(store, _NAME, (1,), (b"k",)),
        wire.PutManyRequest(store, _NAME, (1,), (b"k",), (b"w",)),
        wire.SnapshotRequest(store, step.checkpoint + 1),
    )
    for request in calls:
        _refused(call, request, f"{type(request).__struct_config__.tag}() of a closed store")
    call(wire.CloseRequest(store))
    call(wire.DiscardRequest(store, step.checkpoint, subtask=0))


def closed_amid(session: CandidateCalls, step: steps.ClosedAmid) -> bool:
    """Close a store while another thread runs the asynchronous part of its snapshot. Tell whether that was cancelled.

    It may also come too late for a part that was nearly done; then the snapshot is whole.
    """
    store, call = CHECKED_STORE, session.call
    call(wire.OpenRequest(store, *_GROUPS, 0, session.attempt + 1))
    content: Entries = {
        (_NAME, number % _GROUPS[1], b"%05d" % number): entry_value(number, _AMID_BYTES, 0)
        for number in range(_AMID_ENTRIES)
    }
    _write(call, store, content)
    call(wire.SnapshotRequest(store, step.checkpoint))
    call(wire.StartRequest(store, step.checkpoint, step.stop_at))
    try:
        handles = session.run(wire.CloseAmidRequest(store, step.checkpoint)).handles
    except CandidateRaised as error:
        if error.kind != "cancelled":
            message = f"a snapshot that was under way when its store was closed raised {error}"
            raise Violation(f"{message} instead of SnapshotCancelled", clauses.CANCELLED) from error
        return True
    else:
        call(wire.OpenRequest(store, *_GROUPS, 0, session.attempt + 1, handles))
        what = "a snapshot that came to its end although its store was closed"
        _compare(call, store, content, what, clauses.RESTORED)
        call(wire.CloseRequest(store))
        return False
    finally:
        call(wire.DiscardRequest(store, step.checkpoint, subtask=0))


def _refused(call: Any, request: wire.AnyRequest, what: str) -> None:
    try:
        call(request)
    except CandidateRaised as error:
        if error.kind != "usage":
            raise Violation(f"{what} raised {error} instead of JobUsageError", clauses.READS) from error
    else:
        raise Violation(f"{what} was not refused with JobUsageError", clauses.READS)


def after_refused_opens(session: CandidateCalls, rounds: int, requests: Sequence[wire.OpenRequest]) -> int:
    """Open stores from damaged files; raise Violation if the process keeps anything open; return how many were refused.

    Resources are compared with those after an extra first round, because libraries keep some open after first use.
    """
    refused = 0
    for number in range(rounds + 1):
        for request in requests:
            try:
                session.call(request)
                session.call(wire.CloseRequest(request.store))
            except CandidateRaised as error:
                if error.kind not in ("corrupt", "storage"):
                    raise
                refused += 1
        if not number:
            before = session.resources()
    left = left_behind(before, msgspec.structs.replace(session.resources(), storage_files=()), files=False)
    if left:
        message = f"after {rounds} rounds of restores that were refused, these are left: {'; '.join(left)}"
        raise Violation(message, clauses.KEPT)
    return refused


def names_the_file(message: str, handle: wire.Handle) -> bool:
    """Return whether a message names the file of a handle; a longer name that begins with it is another file's."""
    return re.search(rf"{re.escape(Path(handle.path).name)}(?![\w-])", message) is not None


def side_by_side(session: CandidateCalls, step: steps.SideBySide) -> None:
    """Open stores of several jobs, vertices, operators and subtasks at once; require that each has its own content."""
    call, contents = session.call, []
    all_names = [steps.SIDE_BY_SIDE[number] for number in step.stores]
    numbers = range(_FIRST_STORE, _FIRST_STORE + len(all_names))
    for number, names in zip(numbers, all_names, strict=True):
        call(_opened(session, number, names, ()))
        content = {(_NAME, group, b"k%d" % group): b"%d of %d" % (group, number) for group in range(*_GROUPS)}
        _write(call, number, content)
        contents.append(content)
    for number in numbers:
        call(wire.SnapshotRequest(number, step.checkpoint))
    for number in numbers:
        _write(call, number, dict.fromkeys(contents[0], _later(number)))
    handles = [session.run(wire.RunRequest(number, step.checkpoint)).handles for number in reversed(numbers)]
    handles.reverse()
    for position, number in enumerate(numbers):
        later = dict.fromkeys(contents[0], _later(number))
        what = f"store {position + 1} of {len(all_names)} that are open at once"
        _compare(call, number, later, what, clauses.READS)
        call(wire.CloseRequest(number))
    # Each store is restored twice, and all restored stores are open at once.
    twice = [(number, position) for position, number in enumerate(numbers)]
    twice += [(number + len(all_names), position) for number, position in twice]
    for number, position in twice:
        call(_opened(session, number, all_names[position], handles[position]))
    for number, position in twice:
        what = f"store {position + 1}, one of {len(twice)} that are restored side by side,"
        _compare(call, number, contents[position], what, clauses.RESTORED, later=_later(numbers[position]))
        _write(call, number, {(_NAME, 0, b"k0"): b"own %d" % number})
    for number, position in twice:
        own = contents[position] | {(_NAME, 0, b"k0"): b"own %d" % number}
        _compare(call, number, own, f"store {position + 1}, beside others that were closed,", clauses.READS)
        call(wire.CloseRequest(number))
    for subtask in sorted({subtask for _, _, _, subtask in all_names}):
        call(wire.DiscardRequest(_FIRST_STORE, step.checkpoint, subtask=subtask))


def without_own_threads(session: CandidateCalls, step: steps.Repeated) -> None:
    """Make the same calls in two stores that may have no threads of their own, one after the other.

    In the second, time passes between the calls; what only calls do is the same nevertheless.
    """
    found = [_files_of(session, step, pause_s) for pause_s in (0.0, _PAUSE_S)]
    for number, (first, second) in enumerate(zip(*found, strict=True)):
        if first == second:
            continue
        message = (
            f"of stores without threads of their own, the same calls left other files in snapshot "
            f"{step.checkpoint + number} when time passed between them: {_listed(first)}, then {_listed(second)}"
        )
        raise Violation(message, clauses.DECLARED)


def _files_of(session: CandidateCalls, step: steps.Repeated, pause_s: float) -> list[list[tuple[str, int]]]:
    """Return name and size of each file of each snapshot."""
    call, found = session.call, list[list[tuple[str, int]]]()
    request = wire.OpenRequest(CHECKED_STORE, *_GROUPS, 0, session.attempt + 1, incremental=step.incremental)
    call(msgspec.structs.replace(request, own_threads=False))
    groups = tuple(number % _GROUPS[1] for number in range(_REPEATED))
    keys = tuple(b"%05d" % number for number in range(_REPEATED))
    call(wire.PutManyRequest(CHECKED_STORE, _NAME, groups, keys, (b"value" * 20,) * _REPEATED))
    numbers = range(step.checkpoint, step.checkpoint + step.rounds)
    for number in numbers:
        changed = range(number % 3, _REPEATED, 3)
        values = tuple(b"%d" % number * 30 for _ in changed)
        place = tuple(groups[each] for each in changed), tuple(keys[each] for each in changed)
        call(wire.PutManyRequest(CHECKED_STORE, _NAME, *place, values))
        gone = range(number % 6, _REPEATED, 6)
        place = tuple(groups[each] for each in gone), tuple(keys[each] for each in gone)
        call(wire.DeleteManyRequest(CHECKED_STORE, _NAME, *place))
        # The certifier waits, so that the candidate has nothing to do but what it does by itself.
        time.sleep(pause_s)
        reuse_from = max(1, number - 1) if step.incremental else 0
        call(wire.SnapshotRequest(CHECKED_STORE, number, reuse_from=reuse_from))
        handles = session.run(wire.RunRequest(CHECKED_STORE, number)).handles
        found.append([(handle.path, handle.size) for handle in handles])
        call(wire.NotifyRequest(CHECKED_STORE, number, "confirm"))
    for number in numbers:
        call(wire.DiscardRequest(CHECKED_STORE, number))
    call(wire.CloseRequest(CHECKED_STORE))
    return found


def _listed(files: list[tuple[str, int]]) -> str:
    return " and ".join(f"{Path(path).name} of {size:,} bytes" for path, size in files) or "none"


def many_sources(session: CandidateCalls, step: steps.ManySources) -> None:
    """Restore a store from the snapshots of many stores, in several orders, with other hints than those stores had."""
    call, whole, parts = session.call, dict[Any, bytes](), []
    for number, (start, end) in enumerate(zip(step.bounds, step.bounds[1:], strict=False)):
        request = wire.OpenRequest(CHECKED_STORE, start, end, number, session.attempt + 1)
        compression = COMPRESSIONS[number % len(COMPRESSIONS)]
        call(msgspec.structs.replace(request, files_wanted=step.files_wanted, compression=compression))
        content: Entries = {
            (name, group, b"%d of %d" % (each, number)): b"value %d" % each
            for name in (_NAME, f"only in {number}")
            for group in range(start, end)
            for each in range(3)
        }
        _write(call, CHECKED_STORE, content)
        call(wire.SnapshotRequest(CHECKED_STORE, step.checkpoint))
        parts.append(session.run(wire.RunRequest(CHECKED_STORE, step.checkpoint)).handles)
        call(wire.CloseRequest(CHECKED_STORE))
        whole |= content
    order = range(len(parts))
    for sources in (order, reversed(order), [*order[1::2], *order[::2]]):
        handles = tuple(handle for number in sources for handle in parts[number])
        for start, end in ((step.bounds[0], step.bounds[-1]), (step.bounds[0] + 1, step.bounds[-1] - 1)):
            request = wire.OpenRequest(CHECKED_STORE, start, end, 0, session.attempt + 2, handles)
            call(msgspec.structs.replace(request, compression=COMPRESSED))
            wanted = {place: value for place, value in whole.items() if start <= place[1] < end}
            what = f"a restore from {len(parts)} snapshots"
            _compare(call, CHECKED_STORE, wanted, what, clauses.RESTORED, (start, end))
            call(wire.CloseRequest(CHECKED_STORE))
    for number in order:
        call(wire.DiscardRequest(CHECKED_STORE, step.checkpoint, subtask=number))


def _opened(
    session: CandidateCalls, number: int, names: tuple[str, str, str, int], handles: tuple[wire.Handle, ...]
) -> wire.OpenRequest:
    job, vertex, operator, subtask = names
    return wire.OpenRequest(
        *(number, *_GROUPS, subtask, session.attempt + 1, handles), job=job, vertex=vertex, operator=operator
    )


def _write(call: Any, store: int, entries: Entries) -> None:
    names = dict.fromkeys(name for name, _, _ in entries)
    for name in names:
        own = {place: value for place, value in entries.items() if place[0] == name}
        groups, keys = tuple(place[1] for place in own), tuple(place[2] for place in own)
        call(wire.PutManyRequest(store, name, groups, keys, tuple(own.values())))


def _later(number: int) -> bytes:
    """Return what is written into a store after the synchronous part of its snapshot."""
    return b"later in %d" % number


def _compare(
    call: Any,
    store: int,
    wanted: Entries,
    what: str,
    clause: str,
    groups: tuple[int, int] = _GROUPS,
    later: bytes | None = None,
) -> None:
    """Require that a store has this content; ``later``: the value written after the snapshot that it restored."""
    found = first_difference(call, store, groups, wanted, (_NAME,), scan_first=store % 2 == 0)
    if found is not None:
        if later is not None and found.found == later:
            clause = clauses.ISOLATED
        raise Violation(found.sentence(what), clauses.READS if found.right_by or found.twice else clause)
