"""Sequences of steps that are listed, not drawn: what drawn examples reach too seldom, or never.

They consist of ordinary steps, so a failing sequence is made smaller like any other. A ``scale`` below 1 leaves out the
largest sizes and most of the rounds: then less is shown.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import pickle
import zlib
from collections.abc import Iterator, Sequence
from itertools import chain, count, product

import msgspec
import pyarrow as pa

from barrier_tck.harness.certify.backend import steps
from barrier_tck.harness.certify.backend.free_writes import FREE_KEY_BYTES, entry_key, entry_value
from barrier_tck.harness.certify.backend.model import COMPRESSIONS, NAMES, RANGES
from barrier_tck.harness.certify.backend.wire import DAMAGES

_NAME = NAMES[0]
_READS = ("get", "get_many", "scan")
_WRITES = ("put", "put_many", "delete")

Steps = tuple[steps.AnyStep, ...]


# --- reads in every form --------------------------------------------------------------------------------------


def reads_in_every_form() -> Steps:
    """Read in each form, write in each form, and read in each form again: in an empty, a full and a restored store.

    A store with a cache for one form of access must keep it up to date for all others.
    """
    numbers = count(1)
    played: list[steps.AnyStep] = []
    for life in range(2):
        for state in ("absent", "present"):
            for before, write, after in product(("", *_READS), _WRITES, _READS):
                group = RANGES[0][0] + next(numbers) % 3
                key = f"{life} {state} {before} {write} {after}".encode()
                if state == "present" or life:
                    played.append(steps.PutMany(0, _NAME, (group,), (key,), (b"old",)))
                if before:
                    played.append(_read(before, group, key))
                played += [_write(write, group, key), _read(after, group, key)]
        if not life:
            played += _restored_with_unread_keys()
    return (*played, steps.ReadAll(0))


def _restored_with_unread_keys() -> Iterator[steps.AnyStep]:
    """Continue from a snapshot; then read, write and read keys that nothing has touched since the restore."""
    chosen = [(before, write, after) for before, write, after in product(("", *_READS), _WRITES, _READS)]
    keys = [f"kept {' '.join(one)}".encode() for one in chosen]
    groups = tuple(RANGES[0][0] + number % 3 for number in range(len(keys)))
    yield steps.PutMany(0, _NAME, groups, tuple(keys), (b"old",) * len(keys))
    yield from (steps.Snapshot(0, 1), steps.Run(0, 1), steps.Confirm(0, 1), steps.Restart((1, 0)))
    for (before, write, after), group, key in zip(chosen, groups, keys, strict=True):
        if before:
            yield _read(before, group, key)
        yield _write(write, group, key)
        yield _read(after, group, key)


def _read(form: str, group: int, key: bytes) -> steps.AnyStep:
    if form == "get":
        return steps.Get(0, _NAME, group, key)
    if form == "get_many":
        return steps.GetMany(0, _NAME, (group,), (key,))
    return steps.Scan(0, _NAME, group)


def _write(form: str, group: int, key: bytes) -> steps.AnyStep:
    if form == "put":
        return steps.Put(0, _NAME, group, key, b"new")
    if form == "put_many":
        return steps.PutMany(0, _NAME, (group,), (key,), (b"new",))
    return steps.Delete(0, _NAME, group, key)


# --- what differs stays apart ---------------------------------------------------------------------------------

_MANY_GROUPS = ((0, 300), (300, 310))
"""More key groups than a byte can number, and numbers that are prefixes of each other."""
_LIKE_NAMES = (
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
        "gro\u0308ße",
        "GRÖSSE",
        "grosse",
        "",
        " state",
        "state ",
    ),
    # Some of these are one name to a normal form, or without what cannot be seen.
    *(
        "\ufb01ne",
        "fine",
        "m\u00b2",
        "m2",
        "\uff53tate",
        "stra\u00dfe",
        "strasse",
        "\u212b",
        "\u00c5",
        "A\u030a",
    ),
    *("state\x00", "state\n", "state\u200b", "\U0001f600", "state.", "%73tate", "None", "STATE"),
    *("n" * 300 + "1", "n" * 300 + "2", "long " * 20 + "x", "long " * 20 + "y"),
    # Their lengths have the same last byte, and each begins with those before it.
    *("m", "m" * 0x101, "m" * 0x201),
)
_LIKE_GROUPS = (0, 1, 10, 11, 16, 17, 100, 101, 255, 256, 257, 299)
_LIKE_KEYS = (
    *(b"", b"k", b"\x00", b"\x00\x00", b"k\x00", b"k\x00\x00", b"\x00k", b"\xff", b"\xff\xff", b"K"),
    *(b"0", b"0k", b"1", b"1k", b"_k", b"1_k", b"/k", b"1/k", b"0/k", b"k ", b" k"),
)
_LENGTHS = (31, 63, 127, 254, 255, 510, 511, 1_023, 4_095, 65_534, 65_535, 70_000)
"""Lengths of keys that differ only in their last byte, among them limits of well-known stores and of length fields."""
_IN_A_CALL = 20
_VALUE_LENGTHS = (1, 16, 17, 256, 4_097, 65_537)
"""Lengths of values that differ in one byte."""
_TEXT = b"a text that occurs again and again; " * 30
_NOTHING: tuple[object, ...] = (None, False, 0, b"", [], {"k": b"v"})
"""Values that are nothing, or little, to a serialiser."""
_LIKE_FORMATS: dict[str, bytes] = {
    **{f"zlib {level}": zlib.compress(_TEXT, level) for level in (0, 1, 6, 9)},
    "zlib of little": zlib.compress(b"v"),
    "deflate": zlib.compress(_TEXT)[2:-4],
    "gzip": gzip.compress(_TEXT, mtime=0),
    "bzip2": bz2.compress(_TEXT),
    "xz": lzma.compress(_TEXT),
    **{codec: pa.compress(_TEXT, codec=codec, asbytes=True) for codec in ("zstd", "lz4", "snappy", "brotli")},
    "magic of zstd": b"\x28\xb5\x2f\xfd",
    "magic of gzip": b"\x1f\x8b\x08",
    "magic of zlib": b"x\x9c",
    **{f"pickle {protocol}": pickle.dumps({"k": [None, 1]}, protocol) for protocol in (0, 2, 4)},
    "pickle of None": pickle.dumps(None),
    **{f"MessagePack {value!r}": msgspec.msgpack.encode(value) for value in _NOTHING},
    **{
        f"text {text!r}": text
        for text in (b"null", b"None", b"{}", b"[]", b'{"k": 1}', b'""', b"0", b"1.0", b"true")
    },
    **{
        f"text {text!r}": text
        for text in (b"deleted", b"tombstone", b"\n", b" ", b"a b\r\n", b"%00", b"\\x00")
    },
    "zeros": bytes(300),
    "one zero": b"\x00",
    "ones": b"\xff" * 300,
    "UTF-8": "gr\u00f6\u00dfer als \U0001f600".encode(),
    "UTF-8 with its mark": b"\xef\xbb\xbfv",
    "UTF-16": "v\u00e4".encode("utf-16"),
    "Latin-1": "gr\u00f6\u00dfe".encode("latin-1"),
    "surrogate": b"\xed\xa0\x80",
    "base64": b"dmFsdWU=",
    "hexadecimal": b"76616c7565",
    "empty": b"",
}
"""Values that a backend may take for something of its own, or for nothing, and what each looks like."""


def what_differs() -> Steps:
    """Names, key groups and keys that a careless encoding takes for the same, each with a value of its own; and values
    that a careless comparison takes for the same."""
    places = [(name, group, b"k") for name in _LIKE_NAMES for group in (0, 1, 10)]
    places += [("state", group, b"k") for group in _LIKE_GROUPS]
    places += [("state", group, key) for group in (1, 10) for key in _LIKE_KEYS]
    places += [("long", 2, b"L" * length + last) for length in _LENGTHS for last in (b"1", b"2")]
    places = list(dict.fromkeys(places))
    calls = ("get", "put", "delete", "scan", "get_many", "put_many")
    return (
        steps.Layout(_MANY_GROUPS),
        *_written(places, b"value %06d"),
        *_written_nearly_equal(b"1"),
        *_written_nearly_equal(b"2"),
        *_written_in_formats(4),
        steps.ReadAll(0),
        steps.DisturbedScan(0, "state", 10, added=b"added", changed=b"k", deleted=b"0"),
        *(steps.Unseen(0, what) for what in ("confirm", "abort")),
        *(steps.Foreign(0, call) for call in calls),
        steps.Snapshot(0, 1),
        # Values have the same length, so a store that writes in place changes the snapshot.
        *_written(places, b"other %06d"),
        *_written_nearly_equal(b"3"),
        # The same while a snapshot is unfinished, whose entries may be elsewhere than what was written since.
        steps.DisturbedScan(0, "state", 10, added=b"added later", changed=b"k", deleted=b"1"),
        steps.DisturbedScan(0, "state", 255, added=b"added", changed=b"k", deleted=b"~"),
        steps.Run(0, 1),
        steps.Verify(0, 1),
        steps.Snapshot(0, 2),
        steps.Run(0, 2),
        steps.Verify(0, 2),
        steps.Rescale((1, 0), 10, 18),
    )


def _written_nearly_equal(byte: bytes) -> Iterator[steps.AnyStep]:
    """Write values of which only one byte is this one: the first, one in the middle, or the last."""
    for length in _VALUE_LENGTHS:
        places = tuple(dict.fromkeys((0, length // 2, length - 1)))
        keys = tuple(b"%d at %d" % (length, place) for place in places)
        values = tuple(b"v" * place + byte + b"v" * (length - place - 1) for place in places)
        yield steps.Put(0, "equal", 3, b"put " + keys[-1], values[-1])
        yield steps.PutMany(0, "equal", (3,) * len(places), keys, values)


def _written_in_formats(group: int) -> Iterator[steps.AnyStep]:
    """Write values that look like something, by both forms of write, and the same bytes as keys."""
    keys = tuple(what.encode() for what in _LIKE_FORMATS)
    values = tuple(_LIKE_FORMATS.values())
    for what, value in _LIKE_FORMATS.items():
        yield steps.Put(0, "formats", group, b"put " + what.encode(), value)
    yield steps.PutMany(0, "formats", (group,) * len(keys), keys, values)
    yield steps.PutMany(0, "as keys", (group,) * len(keys), values, keys)


def _written(places: Sequence[tuple[str, int, bytes]], value: bytes) -> Iterator[steps.AnyStep]:
    """Write, by ``put`` and by ``put_many`` of several key groups."""
    by_name: dict[str, list[tuple[int, tuple[str, int, bytes]]]] = {}
    for number, place in enumerate(places):
        by_name.setdefault(place[0], []).append((number, place))
    for name, numbered in by_name.items():
        for start in range(0, len(numbered), _IN_A_CALL):
            part = numbered[start : start + _IN_A_CALL]
            groups, keys = tuple(place[1] for _, place in part), tuple(place[2] for _, place in part)
            values = tuple(value % number for number, _ in part)
            if len(part) > 3:
                yield steps.PutMany(0, name, groups, keys, values)
            else:
                yield from (steps.Put(0, name, *entry) for entry in zip(groups, keys, values, strict=True))


# --- the ladder of sizes --------------------------------------------------------------------------------------


def ladder(scale: float) -> Steps:
    """Keys, values, entries, state and key groups, each four to ten times as large as before.

    Each rung begins with empty stores, so the first that fails shows from which size on.
    """
    checkpoints = count(1)
    played: list[steps.AnyStep] = []
    for size in _rungs(1 << 12, 1 << 20, 4, scale):
        played += _rung(next(checkpoints), steps.Fill(0, _NAME, (1, 2), 4, size + 1, 8))
    for size in _rungs(1 << 14, 1 << 22, 4, scale):
        played += _rung(next(checkpoints), steps.Fill(0, _NAME, (1, 2), 3, 8, size + 1))
    for entries in _rungs(1_000, 100_000, 10, scale):
        played += _rung(next(checkpoints), steps.Fill(0, _NAME, (3,), entries, 12, 8))
    for size in _rungs(1 << 20, 1 << 23, 8, scale):
        played += _moved(next(checkpoints), next(checkpoints), size)
    for size in _rungs(1 << 21, 1 << 25, 4, scale):
        played += _written_over(next(checkpoints), size)
    played += _powers_of_two(next(checkpoints), scale)
    played += _long_scan(max(300, round(_SCANNED * scale)))
    next(checkpoints)
    next(checkpoints)
    played += _many_states(next(checkpoints))
    return (*played, *_high_key_groups(next(checkpoints)))


def _rungs(first: int, last: int, factor: int, scale: float) -> Iterator[int]:
    size = first
    while size <= last * min(1.0, scale) or size == first:
        yield size
        size *= factor


def _rung(checkpoint: int, fill: steps.Fill) -> Steps:
    return (
        steps.Layout(RANGES),
        fill,
        steps.ReadAll(0),
        steps.Snapshot(0, checkpoint),
        steps.Run(0, checkpoint),
        steps.Verify(0, checkpoint),
        steps.Rescale((checkpoint, 0), 2, 5),
    )


_OVER_ENTRIES, _OVER_VALUE_BYTES = 16, 1 << 16


def _written_over(checkpoint: int, size: int) -> Steps:
    """A state that is written over and over while its snapshot is unfinished, this many bytes altogether.

    A store that keeps a log rewrites it some time, and what an unfinished snapshot reads must stay where it is.
    """
    fill = steps.Fill(0, _NAME, (1, 2), _OVER_ENTRIES, 12, _OVER_VALUE_BYTES)
    rounds = max(1, size // (_OVER_ENTRIES * _OVER_VALUE_BYTES))
    return (
        steps.Layout(RANGES),
        fill,
        steps.Snapshot(0, checkpoint),
        *(msgspec.structs.replace(fill, salt=number) for number in range(1, rounds + 1)),
        steps.Run(0, checkpoint),
        steps.Verify(0, checkpoint),
        steps.ReadAll(0),
    )


_POWERS_MAX, _POWERS_OF_KEYS_MAX, _POWERS_OF_FILLS_MAX = 21, 20, 19
"""The length of the largest values, keys, and values of ``put_many`` whose length is near a power of two, as that
power."""
_STATES = 300
"""More named states than a byte can count."""


def _powers_of_two(checkpoint: int, scale: float) -> Steps:
    """Values one byte below, at, and one byte above each power of two; keys of these lengths, by ``put`` and by
    ``put_many``; values by ``put_many``, two of each length; and so many entries in one ``put_many`` and ``get_many``.
    """
    numbers = [number for number in _near_powers_of_two(12 if scale >= 1 else 9) if number]
    values, keys, fills = (
        _near_powers_of_two(last if scale >= 1 else min(last, 17))
        for last in (_POWERS_MAX, _POWERS_OF_KEYS_MAX, _POWERS_OF_FILLS_MAX)
    )
    return (
        steps.Layout(RANGES),
        *(steps.Put(0, _NAME, 1, b"%08d" % length, entry_value(length, length, 0)) for length in values),
        *(steps.Put(0, NAMES[1], 2, entry_key(length, length), b"%d" % length) for length in keys),
        *_read_live_and_restored(checkpoint),
        steps.Layout(RANGES),
        # A key of fewer bytes does not tell two entries apart.
        *(steps.Fill(0, _NAME, (2, 3), 2, length, 8) for length in keys if length),
        *(steps.Fill(0, f"values of {length}", (3, 4), 2, 12, length) for length in fills),
        *_read_live_and_restored(checkpoint + 1),
        steps.Layout(RANGES),
        *chain.from_iterable(_written_and_read_at_once(number) for number in numbers),
        *_read_live_and_restored(checkpoint + 2),
    )


def _written_and_read_at_once(entries: int) -> Steps:
    name, numbers = f"{entries} at once", range(entries)
    return (
        steps.Fill(0, name, (1, 2), entries, 12, 8),
        steps.GetMany(
            *(0, name),
            groups=tuple(1 + number % 2 for number in numbers),
            keys=tuple(entry_key(number, 12) for number in numbers),
        ),
    )


def _near_powers_of_two(last: int) -> list[int]:
    return list(dict.fromkeys((1 << bits) + more for bits in range(last + 1) for more in (-1, 0, 1)))


_SCANNED = 5_000
"""Entries of a scan that is read while others write: more than a backend fetches at once."""


def _long_scan(entries: int) -> Steps:
    """Write at the end of what is scanned, after its first entry was read."""
    last, before, behind = (entry_key(number, 12) for number in (entries - 1, entries - 2, entries))
    return (
        steps.Layout(RANGES),
        steps.Fill(0, _NAME, (2,), entries, 12, 8),
        steps.DisturbedScan(0, _NAME, 2, added=behind, changed=last, deleted=before),
        steps.ReadAll(0),
    )


def _many_states(checkpoint: int) -> Steps:
    return steps.Layout(RANGES), steps.ManyStates(0, _STATES), *_read_live_and_restored(checkpoint)


def _read_live_and_restored(checkpoint: int) -> Steps:
    return (
        steps.ReadAll(0),
        steps.Snapshot(0, checkpoint),
        steps.Run(0, checkpoint),
        steps.Verify(0, checkpoint),
    )


_WIDE = ((0, 40), (40, 64))


def _moved(first: int, second: int, size: int) -> Steps:
    """Two stores with this much state together, in several files if the backend wants, restored into other ranges."""
    value_bytes = 2_000
    entries = size // value_bytes
    return (
        steps.Layout(_WIDE, files_wanted=3),
        steps.Fill(0, _NAME, tuple(range(*_WIDE[0])), entries * 5 // 8, 12, value_bytes),
        steps.Fill(1, _NAME, tuple(range(*_WIDE[1])), entries * 3 // 8, 12, value_bytes),
        steps.Snapshot(0, first),
        steps.Run(0, first),
        steps.Snapshot(1, second),
        steps.Run(1, second),
        steps.Rescale((first, 0), 7, 23),
        steps.Rescale((first, second), 30, 50),
        steps.Verify(1, second),
    )


_HIGH = ((0, 32_767), (32_767, 32_768))
"""As many key groups as Flink allows."""


def _high_key_groups(checkpoint: int) -> Steps:
    powers = [1 << bits for bits in range(1, 15)]
    groups = sorted({0, 32_766, *powers, *(power - 1 for power in powers), *(power + 1 for power in powers)})
    keys, values = (b"k",) * len(groups), tuple(b"of %d" % group for group in groups)
    return (
        steps.Layout(_HIGH),
        steps.PutMany(0, _NAME, tuple(groups), keys, values),
        steps.Put(1, _NAME, 32_767, b"k", b"last"),
        steps.ReadAll(0),
        steps.ReadAll(1),
        steps.Snapshot(0, checkpoint),
        steps.Run(0, checkpoint),
        steps.Snapshot(1, checkpoint + 1),
        steps.Run(1, checkpoint + 1),
        steps.Verify(0, checkpoint),
        steps.Verify(1, checkpoint + 1),
        steps.Rescale((checkpoint, checkpoint + 1), 16_000, 32_768),
    )


# --- snapshots and restores -----------------------------------------------------------------------------------


def free_writers(scale: float) -> Steps:
    """Snapshots that are stored while a writer runs freely. The tables are large enough for the two to overlap."""
    groups = tuple(range(*_WIDE[0]))
    rounds = max(10, round(40 * min(1.0, scale)))
    return (
        steps.Layout(_WIDE),
        steps.Fill(0, _NAME, groups, 4_000, FREE_KEY_BYTES, 24),
        steps.Race(0, 1, _NAME, groups, rounds),
    )


def only_the_files() -> Steps:
    """Restore, write, snapshot and restore again, each time with only the files that the handles name."""
    return (
        steps.Fill(0, _NAME, (0, 1), 200, 12, 30),
        steps.Fill(1, NAMES[2], (7, 9), 50, 12, 30),
        *_checkpoint(0, 1),
        *_checkpoint(1, 2),
        steps.Verify(0, 1, elsewhere=True),
        steps.Restart((1, 2), "bare"),
        steps.ReadAll(0),
        steps.ReadAll(1),
        steps.Fill(0, _NAME, (0, 1), 100, 12, 30, salt=1),
        *_checkpoint(0, 3),
        steps.Restart((3, 2), "bare"),
        steps.ReadAll(0),
        steps.ReadAll(1),
    )


def starts_anew() -> Steps:
    """Go back one snapshot in the same process, write different values of the same length, and snapshot again.

    A backend that recognises files by number, name or length takes an old file for a new one.
    """
    played: list[steps.AnyStep] = []
    checkpoints = count(1)
    for back, how in ((1, "close"), (0, "close"), (2, "close"), (1, "kill")):
        taken = [next(checkpoints) for _ in range(3)]
        played.append(steps.Layout(RANGES))
        for salt, checkpoint in enumerate(taken):
            played += [steps.Fill(0, _NAME, (0, 1, 2), 30, 12, 20, salt=salt), *_checkpoint(0, checkpoint)]
        played.append(steps.Restart((taken[-1 - back], 0), how))
        for salt in range(10, 13):
            checkpoint = next(checkpoints)
            played += [
                steps.Fill(0, _NAME, (0, 1, 2), 30, 12, 20, salt=salt),
                *_checkpoint(0, checkpoint),
                steps.Verify(0, checkpoint),
            ]
    return tuple(played)


def hints() -> Steps:
    """Take and restore snapshots with all hints that a scope may give, and with others than the store before had.

    Whatever they are, they change no content: each store is written, read, restored elsewhere, and goes on.
    """
    checkpoints = count(1)
    played: list[steps.AnyStep] = []
    for (files_wanted, own_threads), before, after in product(
        ((1, True), (3, False)), COMPRESSIONS, COMPRESSIONS
    ):
        groups, keys = (0, 2, 5), (b"kept", b"changed", b"deleted")
        played += [
            steps.Layout(
                *(RANGES, files_wanted),
                compression=before,
                own_threads=own_threads,
                second=next(other for other in COMPRESSIONS if other != before),
            ),
            # Compressed, and not made shorter by it.
            steps.Fill(0, _NAME, groups, 30, 12, 40),
            steps.Put(0, NAMES[1], 1, b"long", _TEXT),
            steps.PutMany(0, NAMES[1], (2,) * len(keys), keys, (b"old",) * len(keys)),
            *_changed_amid(next(checkpoints), b"new"),
            *_restored_with_hints(checkpoint := next(checkpoints)),
            steps.Restart((checkpoint, 0), compression=after),
            steps.ReadAll(0),
            steps.Delete(0, NAMES[1], 1, b"long"),
            steps.Put(0, NAMES[1], 2, b"deleted", b"put again"),
            *_changed_amid(next(checkpoints), b"newer"),
            *_restored_with_hints(next(checkpoints)),
            steps.ReadAll(0),
        ]
    return tuple(played)


def _changed_amid(checkpoint: int, value: bytes) -> Steps:
    """Change and delete between both parts of a snapshot, and compare it."""
    return (
        steps.Snapshot(0, checkpoint),
        steps.Put(0, NAMES[1], 2, b"changed", value),
        steps.Delete(0, NAMES[1], 2, b"deleted"),
        steps.Put(0, _NAME, 2, b"beside", value),
        steps.Run(0, checkpoint),
        steps.Confirm(0, checkpoint),
        steps.Verify(0, checkpoint),
        steps.Verify(0, checkpoint, second=True),
    )


def _restored_with_hints(checkpoint: int) -> Steps:
    """Take a snapshot, and restore it into stores that are only read, with each compression, and into a part."""
    return (
        *_checkpoint(0, checkpoint),
        *(
            steps.Verify(0, checkpoint, compression=compression, read_only=read_only)
            for compression in COMPRESSIONS
            for read_only in (True, False)
        ),
        steps.Verify(0, checkpoint, second=True),
        steps.Rescale((checkpoint, 0), 2, 4),
    )


def without_own_threads(incremental: bool = False) -> Steps:
    """Make the same calls twice in stores that may have no threads of their own."""
    return (steps.Repeated(1, 8, incremental),)


_MANY = 262
"""More snapshots of one store than a byte can count."""
_ID_LIMITS = (1 << 16, 1 << 31, 1 << 32, 1 << 53)
"""The least ids that some field of two or four bytes, or a floating-point number, cannot hold."""


def any_number(scale: float) -> Steps:
    """More snapshots of one store than a byte can count, with ids on both sides of what common fields can hold.

    Between both parts of each snapshot its newest value is overwritten, so it must still be isolated.
    """
    many = _MANY if scale >= 1 else 12
    newest = _ID_LIMITS[-1] + 1
    return (
        steps.Fill(0, _NAME, (0, 1, 2), 10, 12, 20),
        steps.Series(0, 1, _NAME, 1, many),
        *(steps.Series(0, limit - 1, _NAME, 1, 3) for limit in _ID_LIMITS),
        steps.Restart((newest, 0)),
        steps.ReadAll(0),
        *_checkpoint(0, newest + 1),
        steps.Verify(0, newest + 1),
    )


def _checkpoint(store: int, checkpoint: int, reuse_from: int = 0) -> Steps:
    snapshot = steps.Snapshot(store, checkpoint, reuse_from=reuse_from)
    return snapshot, steps.Run(store, checkpoint), steps.Confirm(store, checkpoint)


_PARTED = (
    ((0, 16), (16, 20)),
    ((0, 8), (8, 16)),
    ((0, 3), (3, 16)),
    ((0, 16), (16, 20)),
    ((0, 15), (15, 16)),
)
"""Key groups of two stores, one after the other."""


def parted_and_joined(incremental: bool = False) -> Steps:
    """Let stores with other key groups go on from what was restored: delete, write, snapshot, and join what they have.

    What such a store keeps of foreign key groups would come back when another one has deleted it.
    """
    checkpoints = count(1)
    played: list[steps.AnyStep] = [steps.Layout(_PARTED[0], incremental=incremental)]
    for name in NAMES[:2]:
        for group in range(16):
            keys = tuple(b"%02d %02d" % (group, number) for number in range(10))
            played.append(steps.PutMany(0, name, (group,) * len(keys), keys, (b"old",) * len(keys)))
    for number, after in enumerate(_PARTED[1:]):
        taken = next(checkpoints), next(checkpoints)
        for store in (0, 1):
            played += _checkpoint(store, taken[store], int(incremental))
        played.append(steps.Redistribute(taken, after))
        first = next(checkpoints)
        for store, (start, end) in enumerate(after):
            # An increment has something to build on only if something was confirmed since the redistribution.
            played += _checkpoint(store, first, int(incremental))
            for group in range(start, min(end, 16)):
                played += _changed(store, group, number)
        last = next(checkpoints)
        for store in (0, 1):
            played += _checkpoint(store, last, first * incremental)
            played += [steps.ReadAll(store), steps.Verify(store, last)]
        played += [steps.Rescale((last, last), 0, 16), steps.Rescale((last, last), 5, 10)]
    return tuple(played)


def _changed(store: int, group: int, number: int) -> Iterator[steps.AnyStep]:
    """Delete, overwrite and add keys of a group; ``number`` makes them others than before."""
    for name in NAMES[:2]:
        keys = (b"%02d %02d" % (group, 2 * number), b"new %d" % number)
        yield steps.Delete(store, name, group, b"%02d %02d" % (group, 2 * number + 1))
        yield steps.PutMany(store, name, (group, group), keys, (b"changed %d" % number,) * 2)


_FAILURES = 300
"""More failed snapshots in a row than a backend may want to remember."""


def failures_in_a_row(scale: float) -> Steps:
    """Increments after hundreds of snapshots that failed or were never heard of, with changes before each of them."""
    many = _FAILURES if scale >= 1 else 80
    groups, entries = (0, 1, 2), 6 * many
    last = many + 2
    return (
        steps.Layout(RANGES, incremental=True),
        steps.Fill(0, _NAME, groups, entries, 12, 30),
        *_checkpoint(0, 1, 1),
        steps.Failures(0, 2, _NAME, groups, entries, 12, many, reuse_from=1),
        *_checkpoint(0, last, 1),
        steps.Verify(0, last),
        steps.Put(0, _NAME, 0, b"newest", b"newest"),
        *_checkpoint(0, last + 1, 1),
        steps.Verify(0, last + 1),
        steps.Restart((last + 1, 0)),
        steps.ReadAll(0),
        steps.Put(0, _NAME, 1, b"restored", b"restored"),
        *_checkpoint(0, last + 2, last + 1),
        steps.Verify(0, last + 2),
    )


_CHAIN = 14
"""More increments in a row than a backend may want to restore one after the other."""


def long_chain(scale: float) -> Steps:
    """Increments of which each refers to the one before, with deletions between them; all are restored.

    A backend that merges some of them must not lose what the others need. The chain goes on after a restore, and after
    a kill.
    """
    many, entries = _CHAIN if scale >= 1 else 8, 300
    groups = (0, 1, 2)
    chain = [
        steps.Chain(0, first, _NAME, groups, entries, 12, rounds)
        for first, rounds in ((1, many), (many + 1, 7), (many + 8, 7))
    ]
    return (
        steps.Layout(RANGES, incremental=True),
        steps.Fill(0, _NAME, groups, entries, 12, 30),
        steps.Fill(0, NAMES[1], (3, 4), entries, 12, 30),
        chain[0],
        steps.Restart((many, 0)),
        steps.ReadAll(0),
        chain[1],
        steps.Restart((many + 7, 0), "kill"),
        steps.ReadAll(0),
        chain[2],
    )


_DELETED = 6_000
"""Entries of which thousands are deleted between two snapshots."""


_UNKNOWN_BEFORE, _UNKNOWN_AFTER = 1, 1 << 40
"""Ids below and above those of all snapshots of the sequence below."""


def words_amid() -> Steps:
    """Write a key last before a snapshot and first after it, with a word about another checkpoint in between.

    Whatever protects what the snapshot holds from later writes must outlast the word.
    """
    numbers = count(10, 3)
    played: list[steps.AnyStep] = []
    for word, other, form in product(("confirm", "abort"), ("before", "older", "newer", "after"), _WRITES):
        older = next(numbers)
        taken, newer = older + 1, older + 2
        group, key = RANGES[0][0] + older % 3, b"key %d" % older
        about = {"older": older, "newer": newer}.get(other)
        played += [
            steps.Put(0, _NAME, group, key, b"oldest"),
            *((steps.Snapshot(0, older), steps.Run(0, older)) if other == "older" else ()),
            steps.Put(0, _NAME, group, key, b"old"),
            steps.Snapshot(0, taken),
            *((steps.Snapshot(0, newer), steps.Run(0, newer)) if other == "newer" else ()),
            *_word(word, about, _UNKNOWN_BEFORE if other == "before" else _UNKNOWN_AFTER),
            _write(form, group, key),
            steps.Put(0, _NAME, group, b"beside %d" % older, b"new"),
            steps.Run(0, taken),
            steps.Verify(0, taken),
            steps.Confirm(0, taken),
        ]
    return (*played, steps.ReadAll(0))


_BATCHES = (2, 16, 100, 256, 1_000, 4_096)
"""How many entries are written over by one call."""


def batches_written_over(scale: float, incremental: bool = False) -> Steps:
    """Write over all entries of an earlier call by one call, in one key group and in several, while up to three
    snapshots are unfinished; the third has the values of the first.

    A store that has a quick way for large batches must not write into what a snapshot holds; and one that knows files
    by their content must not take the last snapshot's for the first one's.
    """
    numbers = count(1)
    played: list[steps.AnyStep] = [steps.Layout(RANGES, incremental=incremental)]
    sizes = _BATCHES if scale >= 1 else _BATCHES[:4]
    confirmed = 0
    for size, several in product(sizes, (False, True)):
        name, groups = NAMES[several], tuple(range(*RANGES[0])) if several else RANGES[0][:1]
        taken = [next(numbers) for _ in range(3)]
        for number, salt in zip(taken, (0, 1, 0), strict=True):
            fill = steps.Fill(0, name, groups, size, 12, 30, salt)
            played += [fill, steps.Snapshot(0, number, reuse_from=max(1, confirmed) * incremental)]
        played.append(steps.Fill(0, name, groups, size, 12, 30, 2))
        for number in reversed(taken):
            played += [steps.Run(0, number), steps.Verify(0, number)]
        played.append(steps.Confirm(0, taken[-1]))
        confirmed = taken[-1]
    return (*played, steps.ReadAll(0))


def contents_that_come_again() -> Steps:
    """Take increments of which each has what the last but one had: values, and entries that are deleted and written.

    Each is restored, so a file that is known by its content or its size is not taken for an earlier one.
    """
    numbers = count(1)
    group, newest = RANGES[0][0], 0
    played: list[steps.AnyStep] = [steps.Layout(RANGES, incremental=True)]
    for size, confirms in product((1, 100), (False, True)):
        again = steps.Fill(0, _NAME, (group,), size, 12, 30)
        deleted = steps.DeleteMany(0, _NAME, (group,), 12, 0, size, 1)
        other = steps.Fill(0, _NAME, (group,), size, 12, 30, 1)
        for change in (again, other, again, other, deleted, again, deleted, again):
            number = next(numbers)
            # Without a word, each builds on the one that was confirmed before.
            played += [change, steps.Snapshot(0, number, reuse_from=newest or 1), steps.Run(0, number)]
            if confirms:
                played.append(steps.Confirm(0, number))
                newest = number
            played.append(steps.Verify(0, number))
        played.append(steps.Verify(0, number, elsewhere=True))
        if not confirms:
            played.append(steps.Confirm(0, number))
            newest = number
    return (*played, steps.Restart((newest, 0)), steps.ReadAll(0))


def _word(word: str, about: int | None, unknown: int) -> Steps:
    """Confirm or abort a snapshot or, without one, a checkpoint that the store never saw."""
    if about is None:
        return (steps.Unseen(0, word, unknown),)
    return (steps.Confirm(0, about) if word == "confirm" else steps.AbortSnapshot(0, about),)


def increments_beside_unheard() -> Steps:
    """Take increments after others that were stored and of which the store has not heard: confirmed too late, aborted
    too late, or never.

    Each changes one key group, so a store that refers to the newest file of each refers to files of those others.
    """
    numbers = count(2)
    groups = tuple(range(*RANGES[0]))
    played: list[steps.AnyStep] = [
        steps.Layout(RANGES, files_wanted=len(groups), incremental=True),
        steps.Fill(0, _NAME, groups, 20 * len(groups), 12, 30),
        *_checkpoint(0, 1, 1),
    ]
    newest = 1
    for word, unheard in product(("", "confirm", "abort"), (1, 3)):
        taken = [next(numbers) for _ in range(unheard + 1)]
        for number in taken:
            key = b"changed before %d" % number
            played += [
                steps.Put(0, _NAME, groups[number % len(groups)], key, b"new"),
                steps.Delete(0, _NAME, groups[number % len(groups)], b"changed before %d" % (number - 6)),
                steps.Snapshot(0, number, reuse_from=newest),
                steps.Run(0, number),
                steps.Verify(0, number),
            ]
        *before, last = taken
        if word == "confirm":
            played += [steps.Confirm(0, last), *(steps.Confirm(0, number) for number in before)]
            newest = last
        elif word == "abort":
            played += [steps.AbortSnapshot(0, number) for number in before]
        played += [*_checkpoint(0, number := next(numbers), newest), steps.Verify(0, number)]
        newest = number
    return (*played, steps.Restart((newest, 0)), steps.ReadAll(0))


def many_deletes(scale: float, incremental: bool = False) -> Steps:
    """Delete thousands of entries between two snapshots: every second one, those of a key group, of a state, and all.

    Some are written again before the next snapshot. After each deletion stores are opened from what is left.
    """
    many, groups, reuse = _DELETED if scale >= 1 else 1_500, (0, 1, 2), int(incremental)
    return (
        steps.Layout(RANGES, incremental=incremental),
        steps.Fill(0, _NAME, groups, many, 12, 20),
        steps.Fill(0, NAMES[1], (3, 4), 400, 12, 20),
        *_checkpoint(0, 1, reuse),
        steps.Snapshot(0, 2, reuse_from=reuse),
        # The snapshot that is unfinished has them all.
        steps.DeleteMany(0, _NAME, groups, 12, 0, many, 2),
        steps.Run(0, 2),
        steps.Confirm(0, 2),
        steps.Verify(0, 2),
        steps.Fill(0, _NAME, groups, many // 4, 12, 20, salt=1),
        steps.Delete(0, _NAME, 1, b"newest"),
        steps.Put(0, _NAME, 1, b"newest", b"put"),
        steps.Delete(0, _NAME, 1, b"newest"),
        steps.Put(0, _NAME, 2, b"newest", b"deleted"),
        steps.Delete(0, _NAME, 2, b"newest"),
        steps.Put(0, _NAME, 2, b"newest", b"put again"),
        steps.DisturbedScan(0, _NAME, 2, added=b"~", changed=b"newest", deleted=b"~"),
        steps.ReadAll(0),
        *_checkpoint(0, 3, reuse),
        steps.Verify(0, 3),
        steps.DeleteMany(0, _NAME, groups, 12, 1, many, len(groups)),
        steps.Delete(0, _NAME, 1, b"newest"),
        steps.DeleteMany(0, NAMES[1], (3, 4), 12, 0, 400),
        *_checkpoint(0, 4, reuse),
        steps.Verify(0, 4),
        steps.Rescale((4, 0), 1, 5),
        steps.Restart((4, 0)),
        steps.ReadAll(0),
        steps.Put(0, _NAME, 1, b"newest", b"after it was opened again"),
        *_checkpoint(0, 5, reuse),
        steps.Verify(0, 5),
        *_all_deleted(6, 7, groups, many, reuse),
    )


def _all_deleted(empty: int, after: int, groups: tuple[int, ...], many: int, reuse: int) -> Steps:
    """Delete what is left; open the store from a snapshot of nothing, with a kill and without, and go on."""
    return (
        steps.DeleteMany(0, _NAME, groups, 12, 0, many),
        *(steps.Delete(0, _NAME, place, key) for place in groups for key in (b"newest", b"~")),
        steps.ReadAll(0),
        *_checkpoint(0, empty, reuse),
        steps.Verify(0, empty),
        steps.Restart((empty, 0)),
        steps.ReadAll(0),
        steps.Put(0, _NAME, 1, b"newest", b"the only one"),
        *_checkpoint(0, after, reuse),
        steps.Verify(0, after),
        steps.Restart((after, 0), "kill"),
        steps.ReadAll(0),
    )


def any_thread() -> Steps:
    """Asynchronous parts that run on the thread that writes, and cancels from a third thread at every moment."""
    groups = tuple(range(*_WIDE[0]))
    key = b"written meanwhile"
    return (
        steps.Layout(_WIDE),
        steps.Fill(0, _NAME, groups, 4_000, FREE_KEY_BYTES, 24),
        steps.Put(0, _NAME, 1, key, b"0"),
        steps.Snapshot(0, 1),
        steps.Cancel(0, 1, elsewhere=True),
        steps.Put(0, _NAME, 1, key, b"1"),
        steps.Run(0, 1),
        steps.Snapshot(0, 2),
        steps.Start(0, 2, 3),
        steps.Put(0, _NAME, 1, key, b"2"),
        steps.Cancel(0, 2, elsewhere=True),
        steps.Finish(0, 2),
        steps.Snapshot(0, 3),
        *[steps.Cancel(0, 3, elsewhere=True)] * 2,
        steps.Run(0, 3, here=True),
        steps.ReadAll(0),
        steps.Snapshot(0, 4),
        steps.Put(0, _NAME, 1, key, b"3"),
        steps.Run(0, 4),
        steps.Cancel(0, 4, elsewhere=True),
        steps.Verify(0, 4),
        steps.Snapshot(0, 5),
        steps.Put(0, _NAME, 1, key, b"4"),
        steps.Run(0, 5, here=True),
        steps.Verify(0, 5),
        # What fails here can do without all that was before.
        steps.Layout(_WIDE),
        steps.Fill(0, _NAME, groups, 4_000, FREE_KEY_BYTES, 24),
        steps.Race(0, 100, _NAME, groups, 12, cancelled=True),
        steps.Snapshot(0, 200),
        steps.Put(0, _NAME, 1, key, b"5"),
        steps.Run(0, 200),
        steps.Verify(0, 200),
        steps.ReadAll(0),
    )


_LENGTHS_CUT_TO, _LENGTHS_OF_A_LARGE_FILE = 240, 120
"""To how many lengths a file is cut, unless it is shorter."""


def damaged_files(scale: float) -> Steps:
    """Files that the backend did not write, each in place of a file of a snapshot; also of one that is not restored
    alone.
    """
    files = (0, 1, 2, -1) if scale >= 1 else (0, -1)
    return (
        steps.Fill(0, _NAME, (0, 1, 2), 60, 12, 30),
        steps.Fill(0, NAMES[1], (1, 4), 60, 12, 30),
        *_checkpoint(0, 1),
        *(steps.Damaged(0, 1, file, damage) for file in files for damage in DAMAGES),
        *(steps.CutOff(0, 1, file, _LENGTHS_CUT_TO) for file in files),
        steps.Verify(0, 1),
        steps.Fill(1, _NAME, (6, 9, 15), 60, 12, 30),
        *_checkpoint(1, 2),
        *(steps.Damaged(store, 1 + store, -1, "half", 2 - store) for store in (0, 1)),
        steps.Layout(RANGES, files_wanted=3),
        steps.Fill(0, _NAME, (0, 2, 5), 60, 12, 30),
        *_checkpoint(0, 3),
        *(steps.Damaged(0, 3, file, "half") for file in files),
        # What is large may be read in another way.
        steps.Layout(RANGES),
        steps.Fill(0, _NAME, (0, 1, 2), 30_000 if scale >= 1 else 4_000, 12, 30),
        *_checkpoint(0, 4),
        steps.CutOff(0, 4, 0, _LENGTHS_OF_A_LARGE_FILE),
        *(steps.Damaged(0, 4, 0, damage) for damage in DAMAGES),
        steps.Verify(0, 4),
    )


def closed_stores() -> Steps:
    """Calls of a store that is closed, of one that is closed in the middle of a snapshot, and of one whose sequences
    are out of step.
    """
    amid = (steps.ClosedAmid(10 + stop_at, stop_at) for stop_at in (1, 2, 3, 4, 6))
    return (steps.Closed(1), *amid)


def refused_opens() -> Steps:
    """Restores that are refused after some files were read."""
    return (
        steps.Layout(_WIDE, files_wanted=3),
        steps.Fill(0, _NAME, tuple(range(*_WIDE[0])), 200, 12, 30),
        *_checkpoint(0, 1),
        steps.Refusals(0, 1, 6),
    )


def stores_side_by_side() -> Steps:
    """Stores that are open at once, and one that is restored from many."""
    return (
        steps.SideBySide(1),
        *(steps.SideBySide(1, stores) for stores in steps.JOINED_ALIKE),
        steps.ManySources((0, 3, 4, 9, 16), 2),
        steps.ManySources(tuple(range(0, 21, 2)), 3, files_wanted=7),
        steps.Fill(0, _NAME, (0, 1), 20, 12, 8),
        *_checkpoint(0, 4),
        steps.Verify(0, 4),
        steps.SideBySide(5),
        steps.ReadAll(0),
    )


def held_by_snapshots(scale: float) -> Steps:
    """Many snapshots of a state that does not grow, in a store that stays open."""
    return (steps.Steady(0, 1, 500, 2_048, rounds=45 if scale >= 1 else 24),)


def held_by_failed_snapshots(scale: float) -> Steps:
    """The same with a storage that fails."""
    return (steps.Crowd(0, 1, 500, 2_048, rounds=45 if scale >= 1 else 24),)


def held_by_dropped_snapshots(scale: float) -> Steps:
    """The same with snapshots that come to nothing."""
    return (steps.Dropped(0, 1, 500, 2_048, rounds=30 if scale >= 1 else 20),)


def lives() -> Steps:
    """Stores that are opened, used and closed."""
    return (steps.Resources(5),)
