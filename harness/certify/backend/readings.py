"""Compares the results of every form of read with what a state must hold, and names the first difference."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import msgspec

from barrier_tck.harness.certify.backend import wire
from barrier_tck.harness.certify.backend.calls import Entries, Place

_ALL_GROUPS_MAX = 64
"""In a store with more key groups, only those that hold entries and their neighbours are scanned."""
_ABSENT_MAX = 20
"""For this many entries of a state, similar keys that must be absent are read too."""
_GONE_MAX = 40
"""So many keys of a state that were deleted are read too."""
_SINGLES_MAX = 60
"""This many keys of a state are also read one by one."""


@dataclass(frozen=True, slots=True)
class Difference:
    """The first wrong value."""

    place: Place
    form: str
    """The call that returned it: ``scan``, ``get`` or ``get_many``."""
    found: bytes | None
    wanted: bytes | None
    right_by: str = ""
    """Another call that returns the right value; then the store holds it, and only this read is wrong."""
    twice: bool = False
    """Whether a scan lists the key twice."""

    def sentence(self, what: str) -> str:
        """Return it as a sentence; ``what`` says what was read."""
        name, group, key = self.place
        where = f"state {shown(name)}, key group {group}, key {shown(key)}"
        if self.twice:
            return f"{what}: {self.form}() lists a key twice: {where}"
        beside = f", which {self.right_by}() gives" if self.right_by else ""
        return (
            f"{what}: {where} is {shown(self.found)} by {self.form}(), expected {shown(self.wanted)}{beside}"
        )


def first_difference(
    call: Callable[[wire.AnyRequest], Any],
    store: int,
    groups: tuple[int, int],
    wanted: Entries,
    names: Iterable[str],
    scan_first: bool,
    gone: Iterable[Place] = (),
) -> Difference | None:
    """Read a store in every form and compare; ``call`` raises what a candidate raises.

    ``gone`` are places where something was once and must not be now; some of each state are read.
    """
    by_name: dict[str, list[Place]] = {name: [] for name in names}
    for place in wanted:
        by_name.setdefault(place[0], []).append(place)
    gone_by_name: dict[str, list[Place]] = {}
    for place in gone:
        if place not in wanted and groups[0] <= place[1] < groups[1]:
            gone_by_name.setdefault(place[0], []).append(place)
            by_name.setdefault(place[0], [])
    for name, places in by_name.items():
        scanned = _scanned(groups, places)
        once = gone_by_name.get(name, [])
        deleted = [once[number] for number in wire.sampled(len(once), _GONE_MAX)]
        asked = list(dict.fromkeys((*places, *deleted, *_absent(places, groups, wanted))))
        request = wire.ReadAllRequest(
            *(store, name, scanned),
            groups=tuple(place[1] for place in asked),
            keys=tuple(place[2] for place in asked),
            singles=_SINGLES_MAX,
            scan_first=scan_first,
        )
        readings = msgspec.convert(call(request), wire.Readings)
        found = _compared(name, scanned, asked, readings, wanted)
        if found is not None and found.form == "scan" and not found.right_by and not found.twice:
            # Keys that nothing wrote are read last.
            single = call(wire.GetRequest(store, *found.place))
            if single == found.wanted:
                found = Difference(found.place, found.form, found.found, found.wanted, "get")
        if found is not None:
            return found
    return None


def _scanned(groups: tuple[int, int], places: list[Place]) -> tuple[int, ...]:
    start, end = groups
    if end - start <= _ALL_GROUPS_MAX:
        return tuple(range(start, end))
    near = {each for _, group, _ in places for each in (group - 1, group, group + 1)} | {start, end - 1}
    return tuple(sorted(group for group in near if start <= group < end))


def _absent(places: list[Place], groups: tuple[int, int], wanted: Entries) -> list[Place]:
    """Return places that are similar to others and must be empty."""
    found: dict[Place, None] = {}
    for number in wire.sampled(len(places), _ABSENT_MAX):
        name, group, key = places[number]
        for like in ((name, group, key + b"\x00"), (name, group, key[:-1]), (name, group + 1, key)):
            if like not in wanted and groups[0] <= like[1] < groups[1]:
                found[like] = None
    return list(found)


def _compared(
    name: str, scanned: tuple[int, ...], asked: list[Place], readings: wire.Readings, wanted: Entries
) -> Difference | None:
    many: dict[Place, bytes | None] = dict(zip(asked, readings.many, strict=True))
    singles: dict[Place, bytes | None] = {
        asked[number]: value
        for number, value in zip(wire.sampled(len(asked), _SINGLES_MAX), readings.singles, strict=True)
    }
    scans: dict[Place, bytes] = {}
    for group, entries in zip(scanned, readings.scans, strict=True):
        for key, value in entries:
            if (name, group, key) in scans:
                return Difference((name, group, key), "scan", None, None, twice=True)
            scans[name, group, key] = value
    within = set(scanned)
    expected = [place for place in asked if place in wanted and place[1] in within]
    for place in (*expected, *(each for each in scans if each not in wanted)):
        if scans.get(place) != wanted.get(place):
            right = [
                form
                for form, gave in (("get", singles), ("get_many", many))
                if place in gave and gave[place] == wanted.get(place)
            ]
            return Difference(place, "scan", scans.get(place), wanted.get(place), right[0] if right else "")
    for form, values in (("get_many", many), ("get", singles)):
        for place, found in values.items():
            if found != wanted.get(place):
                # The scans were right for the key groups that were scanned.
                right_by = "scan" if place[1] in within else ""
                return Difference(place, form, found, wanted.get(place), right_by)
    return None


def shown(value: str | bytes | None) -> str:
    """Return a name, key or value as a short text in ASCII, so that names which look alike differ."""
    if value is None or len(value) <= 60:
        return ascii(value)
    return f"{value[:16]!a}... and {value[-4:]!a}, {len(value):,} long"
