"""What differs stays apart: names, key groups and keys that a careless encoding takes for the same.

Drawn examples seldom hold two long keys that differ in the last byte, or a state whose name is the beginning of
another's; so these are listed. They go into one store with many key groups, are read in every way that there is, and
once more after a restore. Each check is a sentence of the interface (docs/guide/state-backend.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from barrier_tck.harness.certify import candidate_wire as wire
from barrier_tck.harness.certify.candidate_calls import CHECKED_STORE, Broken, CandidateCalls, Entries
from barrier_tck.harness.certify.pool import CandidateRaised

GROUPS = (0, 300)
"""Key groups of the store: more than a byte holds, and numbers that begin with each other."""
_NARROW = (10, 18)
_NAMES = (
    *(
        "state",
        "state1",
        "state_1",
        "state/1",
        "stat",
        "State",
        "a b",
        "a_b",
        "a.b",
        "a/b",
        "größe",
        "grosse",
    ),
    *("n" * 300 + "1", "n" * 300 + "2", "long " * 20 + "x", "long " * 20 + "y"),
)
_NUMBERS = (0, 1, 10, 11, 16, 17, 100, 101, 255, 256, 257, 299)
_KEYS = (
    *(b"", b"k", b"\x00", b"\x00\x00", b"k\x00", b"k\x00\x00", b"\x00k", b"\xff", b"\xff\xff", b"K"),
    *(b"0", b"0k", b"1", b"1k", b"_k", b"1_k", b"/k", b"1/k", b"0/k", b"k ", b" k"),
)
_LENGTHS = (31, 63, 127, 254, 255, 510, 511, 1_023, 4_095, 65_534, 65_535, 70_000)
"""Of keys that differ in their last byte only: limits of well-known stores and of length fields lie among them."""
_MANY = 6_000
"""Entries of one state in one key group: more than a page of any scan."""
_UNSEEN = 1 << 40
"""A checkpoint that no store ever saw."""

_PART = 50
"""Entries in one call."""

Place = tuple[str, int, bytes]
"""State name, key group and key."""


def broken(session: CandidateCalls, checkpoint: int) -> Broken:
    """Return the first thing that is not as the interface says, or None; takes one snapshot."""
    entries = _entries()
    session.call(wire.OpenRequest(CHECKED_STORE, *GROUPS, 0, session.attempt + 1))
    _write(session, entries)
    found = (
        _read(session, entries, "")
        or _disturbed_scan(session, entries)
        or _unseen_checkpoints(session)
        or _foreign_group(session)
    )
    if found is not None:
        return found
    taken = dict(entries)
    session.call(wire.SnapshotRequest(CHECKED_STORE, checkpoint))
    # Values of the same length, so that who writes in place writes into the snapshot.
    _write(session, {place: bytes(len(value)) for place, value in entries.items()})
    handles = session.run(wire.RunRequest(CHECKED_STORE, checkpoint)).handles
    session.call(wire.CloseRequest(CHECKED_STORE))
    session.call(wire.OpenRequest(CHECKED_STORE, *GROUPS, 0, session.attempt + 1, handles))
    found = _read(session, taken, " after a restore")
    session.call(wire.CloseRequest(CHECKED_STORE))
    if found is not None:
        return found
    session.call(wire.OpenRequest(CHECKED_STORE, *_NARROW, 0, session.attempt + 1, handles))
    narrow = {place: value for place, value in taken.items() if _NARROW[0] <= place[1] < _NARROW[1]}
    found = _read(
        session, narrow, f" after a restore of key groups {_NARROW[0]} to {_NARROW[1] - 1}", _NARROW
    )
    session.call(wire.DiscardRequest(CHECKED_STORE, checkpoint))
    session.call(wire.CloseRequest(CHECKED_STORE))
    return found


def _entries() -> Entries:
    """Return what is written, every value another one."""
    places = [(name, group, b"k") for name in _NAMES for group in (0, 1, 10)]
    places += [("state", group, b"k") for group in _NUMBERS]
    places += [("state", group, key) for group in (1, 10) for key in _KEYS]
    places += [("long", 2, b"L" * length + last) for length in _LENGTHS for last in (b"1", b"2")]
    places += [("many", 5, b"%d" % number) for number in range(_MANY)]
    return {place: b"value %06d" % number for number, place in enumerate(dict.fromkeys(places))}


def _write(session: CandidateCalls, entries: Entries) -> None:
    """Write, by ``put_many`` of several key groups and by ``put``."""
    for name, places in _by_state(entries).items():
        for number, part in enumerate(_parts(places)):
            groups, keys = tuple(place[1] for place in part), tuple(place[2] for place in part)
            values = tuple(entries[place] for place in part)
            if number or len(places) > 3:
                session.call(wire.PutManyRequest(CHECKED_STORE, name, groups, keys, values))
            else:
                for group, key, value in zip(groups, keys, values, strict=True):
                    session.call(wire.PutRequest(CHECKED_STORE, name, group, key, value))


def _parts(places: Sequence[Place]) -> Iterator[Sequence[Place]]:
    for start in range(0, len(places), _PART):
        yield places[start : start + _PART]


def _by_state(entries: Entries) -> dict[str, list[Place]]:
    states: dict[str, list[Place]] = {}
    for place in entries:
        states.setdefault(place[0], []).append(place)
    return states


def _read(session: CandidateCalls, entries: Entries, when: str, within: tuple[int, int] = GROUPS) -> Broken:
    """Compare all entries, one by one, together, and by scans; and that nothing lies beside them."""
    absent = [("absent", within[0], b"k"), ("state", within[0], b"absent"), ("long", within[0], b"L" * 511)]
    for name, places in _by_state(entries).items():
        for part in _parts(places):
            groups, keys = tuple(place[1] for place in part), tuple(place[2] for place in part)
            found = session.call(wire.GetManyRequest(CHECKED_STORE, name, groups, keys))
            for place, value in zip(part, found, strict=True):
                if value != entries[place]:
                    return _difference("get_many()", place, value, entries[place], when)
        for place in places[:40]:
            value = session.call(wire.GetRequest(CHECKED_STORE, *place))
            if value != entries[place]:
                return _difference("get()", place, value, entries[place], when)
    for place in absent:
        value = session.call(wire.GetRequest(CHECKED_STORE, *place))
        if value is not None:
            return _difference("get()", place, value, None, when)
    scanned = dict.fromkeys([(name, group) for name, group, _ in entries] + [place[:2] for place in absent])
    for name, group in scanned:
        wanted = {key: value for (n, g, key), value in entries.items() if (n, g) == (name, group)}
        problem = _scan_differs(
            session.call(wire.ScanRequest(CHECKED_STORE, name, group)), wanted, name, group, when
        )
        if problem is not None:
            return problem
    return None


def _scan_differs(
    listed: list[list[bytes]], wanted: dict[bytes, bytes], name: str, group: int, when: str
) -> Broken:
    found = {entry[0]: entry[1] for entry in listed}
    where = f"scan() of state {_short(name)}, key group {group}{when}"
    if len(found) != len(listed):
        return f"{where} lists a key twice"
    for key in sorted(found.keys() | wanted.keys()):
        if found.get(key) != wanted.get(key):
            return f"{where}: key {_short(key)} is {found.get(key)!r}, expected {wanted.get(key)!r}"
    return None


def _disturbed_scan(session: CandidateCalls, entries: Entries) -> Broken:
    """A scan gives the entries as they were when it was called; the writes that disturb it are made undone."""
    name, group = "state", 10
    wanted = {key: value for (n, g, key), value in entries.items() if (n, g) == (name, group)}
    request = wire.DisturbedScanRequest(
        CHECKED_STORE, name, group, added=b"added", changed=b"k", deleted=b"0"
    )
    listed = session.call(request)
    for key in (b"k", b"0"):
        session.call(wire.PutRequest(CHECKED_STORE, name, group, key, entries[name, group, key]))
    session.call(wire.DeleteRequest(CHECKED_STORE, name, group, b"added"))
    return _scan_differs(listed, wanted, name, group, ", while other calls wrote,")


def _unseen_checkpoints(session: CandidateCalls) -> Broken:
    for what in ("confirm", "abort"):
        try:
            session.call(wire.NotifyRequest(CHECKED_STORE, _UNSEEN, what))
        except CandidateRaised as error:
            return f"{what}() of a checkpoint that the store never saw raised {error}"
    return None


def _foreign_group(session: CandidateCalls) -> Broken:
    own, foreign = GROUPS[0], GROUPS[1]
    calls: tuple[tuple[str, wire.AnyRequest], ...] = (
        ("get", wire.GetRequest(CHECKED_STORE, "state", foreign, b"k")),
        ("put", wire.PutRequest(CHECKED_STORE, "state", foreign, b"k", b"v")),
        ("delete", wire.DeleteRequest(CHECKED_STORE, "state", foreign, b"k")),
        ("scan", wire.ScanRequest(CHECKED_STORE, "state", foreign)),
        ("get_many", wire.GetManyRequest(CHECKED_STORE, "state", (own, foreign), (b"k", b"k"))),
        ("put_many", wire.PutManyRequest(CHECKED_STORE, "absent", (foreign,), (b"k",), (b"v",))),
    )
    for name, request in calls:
        try:
            session.call(request)
        except CandidateRaised as error:
            if error.kind != "usage":
                return f"{name}() of a key group outside of the store's raised {error}, and not JobUsageError"
        else:
            return f"{name}() of a key group outside of the store's was not refused with JobUsageError"
    return None


def _difference(call: str, place: Place, found: bytes | None, wanted: bytes | None, when: str) -> str:
    name, group, key = place
    return (
        f"{call} of state {_short(name)}, key group {group}, key {_short(key)}{when} gives {found!r}, "
        f"expected {wanted!r}"
    )


def _short(text: str | bytes) -> str:
    return repr(text) if len(text) <= 40 else f"{text[:8]!r}... and {text[-1:]!r}, {len(text)} long"
