"""What can be done with a candidate, as data: a failing sequence is printed as such steps and replayed from JSON."""

from __future__ import annotations

import itertools
from typing import ClassVar

from barrier_tck.harness.certify.backend import clauses
from barrier_tck.harness.certify.backend.wire import DAMAGED_HOW, StorageFault
from barrier_tck.harness.certify.engine.steps import Step

_ENDS = {
    "close": "close both stores",
    "kill": "SIGKILL the process",
    "call": "SIGKILL the process in the middle of put_many()",
    "bare": "SIGKILL the process and remove all files but those that the handles name",
}
"""How both stores end."""


_LISTED_MAX = 12
"""So many keys or values of a call are listed."""
UNSORTED = (b"m", b"c\x00", b"x", b"\xff", b"c", b"")
"""Keys that the check of a capability writes in any case, before those of its step."""


Place = tuple[str, str, str, int]
"""Job, vertex, operator and subtask of a store; an empty name stands for the default one."""
_DIFFERENT: tuple[Place, ...] = (
    ("", "", "", 0),
    ("", "", "", 1),
    ("", "", "operator-1", 0),
    ("", "", "Operator", 0),
    ("", "keyed-operator", "", 0),
    ("certified-keyed", "", "", 0),
)
SEPARATORS = ("-", "_", ".", ":", "/", " ", "|", "")
"""Between names that are joined; the last one is none."""


def _joined_alike(separator: str) -> tuple[Place, ...]:
    """Return stores whose names give the same text when they are joined with a separator."""
    ab, bc, cd = (separator.join(pair) for pair in ("ab", "bc", "cd"))
    alike: tuple[Place, ...] = ((ab, "c", "d", 0), ("a", bc, "d", 0), ("a", "b", cd, 0))
    return alike if separator else (*alike, ("a", "b", "d1", 0), ("a", "b", "d", 10))


_ALIKE = tuple(_joined_alike(separator) for separator in SEPARATORS)
SIDE_BY_SIDE = (*_DIFFERENT, *itertools.chain.from_iterable(_ALIKE))
"""Stores that are open at once."""
JOINED_ALIKE = tuple(tuple(SIDE_BY_SIDE.index(place) for place in alike) for alike in _ALIKE)
"""For each separator, the numbers of its stores among ``SIDE_BY_SIDE``."""


class BackendStep(Step, frozen=True, tag_field="do", forbid_unknown_fields=True):
    """Base of all steps. ``store`` 0 and 1 are two subtasks of one operator, each with its own key groups."""

    clause: ClassVar[str] = clauses.READS
    """The clause that is broken if the step raises something that it must not."""


class Put(BackendStep, frozen=True, tag="put"):
    """Write a value."""

    store: int
    name: str
    group: int
    key: bytes
    value: bytes

    def description(self) -> str:
        return f"{_at(self.store)}.put({self.name!a}, {self.group}, {_short(self.key)}, {_short(self.value)})"


class Delete(BackendStep, frozen=True, tag="delete"):
    """Delete a value that may not exist."""

    store: int
    name: str
    group: int
    key: bytes

    def description(self) -> str:
        return f"{_at(self.store)}.delete({self.name!a}, {self.group}, {_short(self.key)})"


class Get(BackendStep, frozen=True, tag="get"):
    """Read a value and compare."""

    store: int
    name: str
    group: int
    key: bytes

    def description(self) -> str:
        return f"{_at(self.store)}.get({self.name!a}, {self.group}, {_short(self.key)})"


class Scan(BackendStep, frozen=True, tag="scan"):
    """Read one state of one key group and compare."""

    store: int
    name: str
    group: int

    def description(self) -> str:
        return f"{_at(self.store)}.scan({self.name!a}, {self.group})"


class PutMany(BackendStep, frozen=True, tag="put_many"):
    """Write several values, perhaps one key twice."""

    store: int
    name: str
    groups: tuple[int, ...]
    keys: tuple[bytes, ...]
    values: tuple[bytes, ...]

    def description(self) -> str:
        keys, values = _all_short(self.keys), _all_short(self.values)
        return f"{_at(self.store)}.put_many({self.name!a}, {list(self.groups)}, {keys}, {values})"


class GetMany(BackendStep, frozen=True, tag="get_many"):
    """Read several values and compare."""

    store: int
    name: str
    groups: tuple[int, ...]
    keys: tuple[bytes, ...]

    def description(self) -> str:
        return f"{_at(self.store)}.get_many({self.name!a}, {list(self.groups)}, {_all_short(self.keys)})"


class Snapshot(BackendStep, frozen=True, tag="snapshot"):
    """Run the synchronous part; storage may fail during the whole snapshot."""

    clause: ClassVar[str] = clauses.WHOLE
    store: int
    checkpoint: int
    fault: StorageFault | None = None
    reuse_from: int = 0
    """The oldest checkpoint whose files it may use if that was confirmed or restored; 0: it is a full snapshot."""

    def description(self) -> str:
        reused = f"   [may use files of checkpoints from {self.reuse_from} on]" if self.reuse_from else ""
        fault = f"   [storage: {self.fault.kind} at operation {self.fault.at}]" if self.fault else ""
        return f"{_at(self.store)}.snapshot({self.checkpoint}){reused}{fault}"


class Run(BackendStep, frozen=True, tag="run"):
    """Run the asynchronous part."""

    clause: ClassVar[str] = clauses.WHOLE
    store: int
    checkpoint: int
    here: bool = False
    """On the thread that writes, instead of another one."""

    def description(self) -> str:
        where = " on the thread that writes" if self.here else ""
        return f"{_at(self.store)}: run the asynchronous part of {self.checkpoint}{where}"


class Start(BackendStep, frozen=True, tag="start"):
    """Start the asynchronous part in the background; it stops before a storage operation."""

    clause: ClassVar[str] = clauses.WHOLE
    store: int
    checkpoint: int
    stop_at: int

    def description(self) -> str:
        part = f"the asynchronous part of {self.checkpoint}"
        return f"{_at(self.store)}: start {part}; it waits before storage operation {self.stop_at}"


class Finish(BackendStep, frozen=True, tag="finish"):
    """Let a started asynchronous part continue to its end."""

    clause: ClassVar[str] = clauses.WHOLE
    store: int
    checkpoint: int

    def description(self) -> str:
        return f"{_at(self.store)}: the asynchronous part of {self.checkpoint} goes on to its end"


class Cancel(BackendStep, frozen=True, tag="cancel"):
    """Cancel the asynchronous part."""

    clause: ClassVar[str] = clauses.CANCELLED
    store: int
    checkpoint: int
    elsewhere: bool = False
    """From a thread that neither writes nor runs it."""

    def description(self) -> str:
        where = " from another thread" if self.elsewhere else ""
        return f"{_at(self.store)}: cancel the asynchronous part of {self.checkpoint}{where}"


class Confirm(BackendStep, frozen=True, tag="confirm"):
    """Tell the store that the checkpoint completed."""

    clause: ClassVar[str] = clauses.WHOLE
    store: int
    checkpoint: int

    def description(self) -> str:
        return f"{_at(self.store)}.confirm({self.checkpoint})"


class AbortSnapshot(BackendStep, frozen=True, tag="abort"):
    """Tell the store that the checkpoint failed, and delete its files as a runtime does."""

    clause: ClassVar[str] = clauses.WHOLE
    store: int
    checkpoint: int

    def description(self) -> str:
        return f"{_at(self.store)}.abort({self.checkpoint})"


class Verify(BackendStep, frozen=True, tag="verify"):
    """Restore a completed snapshot into a store of its own, here or in a new process that finds nothing but the files
    that the handles name, and compare.
    """

    clause: ClassVar[str] = clauses.RESTORED
    store: int
    checkpoint: int
    elsewhere: bool = False
    compression: str = ""
    """The compression that the other store is asked for; empty: that of the live one."""
    read_only: bool = False
    """Whether the other store is told that it will only be read."""
    second: bool = False
    """Whether it is restored from the second copies of its files; if there are none, nothing is done."""

    def description(self) -> str:
        where = "in a new process" if self.elsewhere else "in a second store"
        hints = [f"compression {self.compression!r}"] if self.compression else []
        hints += ["read_only"] if self.read_only else []
        scope = f" with {' and '.join(hints)}" if hints else ""
        copy = "the second copy of " if self.second else ""
        return f"restore {copy}snapshot {self.checkpoint} of {_at(self.store)} {where}{scope} and read it"


class Rescale(BackendStep, frozen=True, tag="rescale"):
    """Restore both stores' snapshots into one store with another range of key groups, and compare.

    The checkpoint 0 means that this store's snapshot is left out.
    """

    clause: ClassVar[str] = clauses.RESTORED
    checkpoints: tuple[int, int]
    start: int
    end: int

    def description(self) -> str:
        return (
            f"restore the snapshots {list(self.checkpoints)} of both stores into one store of key groups "
            f"[{self.start}, {self.end}) and read it"
        )


class Redistribute(BackendStep, frozen=True, tag="redistribute"):
    """Close both stores and restore both stores' snapshots into two stores with other key groups, which go on.

    The checkpoint 0 means that this store's snapshot is left out. Earlier snapshots are dropped.
    """

    clause: ClassVar[str] = clauses.RESTORED
    checkpoints: tuple[int, int]
    ranges: tuple[tuple[int, int], tuple[int, int]]

    def description(self) -> str:
        into = f"into stores of {_ranges(self.ranges)}"
        return f"close both stores; restore the snapshots {list(self.checkpoints)} {into}"


class Restart(BackendStep, frozen=True, tag="restart"):
    """End both stores and restore each from a checkpoint (0: empty). ``how``: ``close``: close them and continue in
    the same process; ``kill``: kill the process between two calls; ``call``: kill it in the middle of a call;
    ``bare``: kill it with all that it started, and keep only the files that the handles name.
    """

    clause: ClassVar[str] = clauses.RESTORED
    checkpoints: tuple[int, int]
    how: str = "close"
    compression: str = ""
    """The compression that they are asked for from now on; empty: as before."""

    def description(self) -> str:
        sources = " and ".join(str(number) if number else "nothing" for number in self.checkpoints)
        scope = f" with compression {self.compression!r}" if self.compression else ""
        return f"{_ENDS[self.how]}; restore them from {sources}{scope}"


class Rounds(BackendStep, frozen=True):
    """Base of steps that overwrite ``count`` values of ``size`` bytes each in every round, and take snapshots.

    The process must not grow.
    """

    clause: ClassVar[str] = clauses.KEPT
    store: int
    checkpoint: int
    """Id of the first snapshot; each round uses the next ones."""
    count: int
    size: int
    rounds: int


class Crowd(Rounds, frozen=True, tag="crowd"):
    """Repeat: overwrite ``count`` values of ``size`` bytes each, take a snapshot whose storage fails, and abort it.

    The process must not grow.
    """

    def description(self) -> str:
        return (
            f"{_at(self.store)}: {self.rounds} times overwrite {self.count} values of {self.size} bytes, "
            "take a snapshot whose storage fails, and abort it"
        )


class Dropped(Rounds, frozen=True, tag="dropped"):
    """Repeat: overwrite ``count`` values of ``size`` bytes each, take snapshots that end in every way but a good one,
    and one that is confirmed. The process must not grow.
    """

    def description(self) -> str:
        return (
            f"{_at(self.store)}: {self.rounds} times overwrite {self.count} values of {self.size:,} bytes; take "
            "snapshots that are cancelled before and while they run, aborted, and deleted without a word; confirm one"
        )


class Steady(Rounds, frozen=True, tag="steady"):
    """Repeat: overwrite ``count`` values of ``size`` bytes each, take a snapshot, confirm it, and delete the previous
    one. The process must not grow.
    """

    def description(self) -> str:
        return (
            f"{_at(self.store)}: {self.rounds} times overwrite {self.count} values of {self.size:,} bytes and "
            "take a snapshot, the one before is deleted"
        )


class Resources(BackendStep, frozen=True, tag="resources"):
    """Open, use and close stores ``rounds`` times, then compare what the process holds with before."""

    clause: ClassVar[str] = clauses.KEPT
    rounds: int

    def description(self) -> str:
        return (
            f"{self.rounds} times open, write, snapshot and close a store with the keys first and k0 to k3 of "
            f"'totals', and one with thousands of keys (000000, ...); then stores with large values at the keys "
            "0, 1, ..., whose memory is counted"
        )


class CheckCapability(BackendStep, frozen=True, tag="promise"):
    """Check a declared capability with a separate store, into which these keys are written in this order."""

    clause: ClassVar[str] = clauses.DECLARED
    capability: str
    keys: tuple[bytes, ...]
    checkpoint: int
    """Id of the snapshot that it takes."""

    def description(self) -> str:
        if self.capability == "incremental-snapshots":
            return (
                f"check {self.capability}: take four snapshots of a store with ids from {self.checkpoint} on, each "
                "after one put and one delete; confirm the first and the second, abort the third, restore the fourth"
            )
        keys = _all_short((*UNSORTED, *self.keys))
        return f"check {self.capability} in a store into which {keys} are put in this order"


class Layout(BackendStep, frozen=True, tag="layout"):
    """Close both stores and open two empty ones with these key groups; earlier snapshots are dropped."""

    clause: ClassVar[str] = clauses.RESTORED
    ranges: tuple[tuple[int, int], tuple[int, int]]
    files_wanted: int = 1
    """The scope's hint: the number of files into which a snapshot should be split."""
    incremental: bool = False
    """Whether these stores, and those restored from them, are asked for increments (SNP-5)."""
    compression: str = "none"
    """The compression that they are asked for (SNP-6)."""
    own_threads: bool = True
    """Whether they may work in threads of their own between calls."""
    second: str = ""
    """The compression of a second copy of their snapshots' files (LOC-7); empty: there is none."""

    def description(self) -> str:
        files = f", snapshots in {self.files_wanted} files" if self.files_wanted > 1 else ""
        increments = ", for increments" if self.incremental else ""
        compressed = f", compression {self.compression!r}" if self.compression != "none" else ""
        threads = "" if self.own_threads else ", without threads of their own"
        second = f", a second copy of each file with compression {self.second!r}" if self.second else ""
        hints = f"{files}{increments}{compressed}{second}{threads}"
        return f"open both stores empty, with the key groups {_ranges(self.ranges)}{hints}"


class Fill(BackendStep, frozen=True, tag="fill"):
    """Write many entries by ``put_many``; their keys and values have the given lengths and are made from ``salt``."""

    store: int
    name: str
    groups: tuple[int, ...]
    """Entry i goes into the i-th of them, counted round and round."""
    count: int
    key_bytes: int
    value_bytes: int
    salt: int = 0
    """A different salt gives the same keys different values of the same length."""

    def description(self) -> str:
        again = f" (values number {self.salt})" if self.salt else ""
        keys = "key" if self.count == 1 else "keys"
        return (
            f"{_at(self.store)}.put_many({self.name!a}, ...): {self.count:,} {keys} of {self.key_bytes:,} bytes, "
            f"values of {self.value_bytes:,}, in {_groups(self.groups)}{again}"
        )


class ManyStates(BackendStep, frozen=True, tag="many_states"):
    """Write one value into each of ``count`` states, whose names differ in a number; key groups take turns."""

    store: int
    count: int

    def description(self) -> str:
        return f"{_at(self.store)}.put('state N', ...): a value in each of {self.count} states"


class DeleteMany(BackendStep, frozen=True, tag="delete_many"):
    """Delete entries that `Fill` wrote, one after the other: those whose numbers are ``first``, ``first + apart`` and
    so on, below ``end``.
    """

    store: int
    name: str
    groups: tuple[int, ...]
    """Those of the `Fill`."""
    key_bytes: int
    first: int
    end: int
    apart: int = 1

    def description(self) -> str:
        count = len(range(self.first, self.end, self.apart))
        which = f"{count:,} of them, each {self.apart}th" if self.apart > 1 else f"{count:,} of them"
        return f"{_at(self.store)}.delete({self.name!a}, ...): {which}, in {_groups(self.groups)}"


class Series(BackendStep, frozen=True, tag="series"):
    """Repeat: write a value, take a snapshot, overwrite the value, run the asynchronous part, and confirm the snapshot.

    The first snapshot, each fiftieth after it, and the last two are restored and compared.
    """

    clause: ClassVar[str] = clauses.WHOLE
    store: int
    checkpoint: int
    """Id of the first snapshot; each round uses the next one."""
    name: str
    group: int
    rounds: int

    def description(self) -> str:
        return (
            f"{_at(self.store)}: {self.rounds} times put a value at b'newest' of {self.name!a}, key group "
            f"{self.group}, take a snapshot ({self.checkpoint}, ...), overwrite the value, run the asynchronous part "
            "and confirm it; restore the first, each fiftieth and the last two"
        )


class Failures(BackendStep, frozen=True, tag="failures"):
    """Repeat: change one entry of those that `Fill` wrote, delete another, and take a snapshot; most are cancelled
    before they run and aborted, some succeed and are aborted, and some of these are never heard of again.
    """

    clause: ClassVar[str] = clauses.WHOLE
    store: int
    checkpoint: int
    """Id of the first snapshot; each round uses the next one."""
    name: str
    groups: tuple[int, ...]
    count: int
    key_bytes: int
    """Groups, number of entries and length of keys of the `Fill`."""
    rounds: int
    reuse_from: int = 0

    def description(self) -> str:
        return (
            f"{_at(self.store)}: {self.rounds} times change an entry, delete another and take a snapshot "
            f"({self.checkpoint}, ...) that is cancelled, aborted or never heard of again"
        )


class Chain(BackendStep, frozen=True, tag="chain"):
    """Repeat: change, delete and write again some of the entries that `Fill` wrote, take a snapshot, restore and
    compare it, and confirm it. Each may refer to the files of the one before, and of no older one.
    """

    clause: ClassVar[str] = clauses.RESTORED
    store: int
    checkpoint: int
    """Id of the first snapshot; each round uses the next one."""
    name: str
    groups: tuple[int, ...]
    count: int
    key_bytes: int
    """Groups, number of entries and length of keys of the `Fill`."""
    rounds: int

    def description(self) -> str:
        return (
            f"{_at(self.store)}: {self.rounds} times change an entry, delete two, write one again that was deleted; "
            f"take, restore, read and confirm a snapshot ({self.checkpoint}, ...) that may use files of the one before"
        )


class ReadAll(BackendStep, frozen=True, tag="read_all"):
    """Read everything that the store must hold, in every form of read; also read keys that it must not hold."""

    store: int

    def description(self) -> str:
        return f"{_at(self.store)}: read everything by get(), get_many() and scan()"


class DisturbedScan(BackendStep, frozen=True, tag="disturbed_scan"):
    """Begin scans and read none, one or two of their entries, also of other states and key groups; one key is added,
    one is changed and one is deleted; begin another scan, and read all of them to their ends, by turns.
    """

    store: int
    name: str
    group: int
    added: bytes
    changed: bytes
    deleted: bytes

    def description(self) -> str:
        return (
            f"{_at(self.store)}.scan({self.name!a}, {self.group}); while it is read, {_short(self.added)} is "
            f"added, {_short(self.changed)} changed and {_short(self.deleted)} deleted"
        )


class Foreign(BackendStep, frozen=True, tag="foreign"):
    """Call for a key group that is not the store's: the first one after its own."""

    store: int
    call: str

    def description(self) -> str:
        return f"{_at(self.store)}.{self.call}() of a key group that is not the store's"


class Unseen(BackendStep, frozen=True, tag="unseen"):
    """Confirm or abort a checkpoint that the store never saw."""

    clause: ClassVar[str] = clauses.WHOLE
    store: int
    what: str
    checkpoint: int = 1 << 40

    def description(self) -> str:
        return f"{_at(self.store)}.{self.what}({self.checkpoint}) of a checkpoint that it never saw"


class Race(BackendStep, frozen=True, tag="race"):
    """Repeat: take a snapshot, write without a pause while another thread runs its asynchronous part, restore it and
    compare.
    """

    of_threads: ClassVar[bool] = True
    """Whether what it does differs from run to run."""

    clause: ClassVar[str] = clauses.ISOLATED
    store: int
    checkpoint: int
    """Id of the first snapshot; each round uses the next one, and so does a round that is run again."""
    name: str
    groups: tuple[int, ...]
    rounds: int
    cancelled: bool = False
    """Whether a third thread cancels each of them; one that succeeds nevertheless is compared."""

    def description(self) -> str:
        if self.cancelled:
            return (
                f"{_at(self.store)}: {self.rounds} times take a snapshot and write without a pause while a thread runs "
                "its asynchronous part and another one cancels it; read the store"
            )
        return (
            f"{_at(self.store)}: {self.rounds} times take a snapshot, write without a pause while a thread runs "
            "its asynchronous part, restore it and read it"
        )


class Damaged(BackendStep, frozen=True, tag="damaged"):
    """Restore a completed snapshot with one damaged file, alone or with a snapshot of the other store; the file's
    handle fits the damaged content.
    """

    clause: ClassVar[str] = clauses.REFUSED
    store: int
    checkpoint: int
    file: int
    """The number of the file, counted from 0; negative numbers count from the last."""
    damage: str
    """One of `candidate_wire.DAMAGES`."""
    beside: int = 0
    """The snapshot of the other store that is restored with it; 0: none."""

    def description(self) -> str:
        beside = f" with snapshot {self.beside} of {_at(1 - self.store)}" if self.beside else ""
        return (
            f"restore snapshot {self.checkpoint} of {_at(self.store)}{beside}, of which file number {self.file} "
            f"{DAMAGED_HOW[self.damage]}"
        )


class CutOff(BackendStep, frozen=True, tag="cut_off"):
    """Restore a completed snapshot again and again, each time with one of its files cut off at another length; the
    file's handle fits what is left.
    """

    clause: ClassVar[str] = clauses.REFUSED
    store: int
    checkpoint: int
    file: int
    """The number of the file, as in `Damaged`."""
    at_most: int
    """The number of lengths."""

    def description(self) -> str:
        return (
            f"{self.at_most} times, or less often if the file is shorter: restore snapshot {self.checkpoint} of "
            f"{_at(self.store)}, of which file number {self.file} is cut off at another length"
        )


class Closed(BackendStep, frozen=True, tag="closed"):
    """Close a store of its own with an unfinished snapshot; then call it, and run the snapshot."""

    checkpoint: int
    """Id of the snapshot; that of a refused one is one more."""

    def description(self) -> str:
        return (
            "open a store and put b'v' at b'k' of 'totals' in key group 1; call get_many() and put_many() with "
            f"sequences out of step; begin snapshot {self.checkpoint} and close the store; run the snapshot, call "
            "every method, and close it once more"
        )


class ClosedAmid(BackendStep, frozen=True, tag="closed_amid"):
    """Close a store of its own while another thread runs the asynchronous part of its snapshot, which is then before a
    storage operation.
    """

    clause: ClassVar[str] = clauses.CANCELLED
    checkpoint: int
    stop_at: int
    """The number of that operation, from 1."""

    def description(self) -> str:
        return (
            "close a store while another thread, before storage operation "
            f"{self.stop_at}, runs the asynchronous part of its snapshot {self.checkpoint}"
        )


class Refusals(BackendStep, frozen=True, tag="refusals"):
    """Restore a completed snapshot with one file that is cut off, that does not fit its handle either, or that is gone,
    ``rounds`` times for each file and way; nothing may stay open.
    """

    clause: ClassVar[str] = clauses.KEPT
    store: int
    checkpoint: int
    rounds: int

    def description(self) -> str:
        return (
            f"{self.rounds} times restore snapshot {self.checkpoint} of {_at(self.store)} with a file that is cut off, "
            "with one that the reader refuses, and with one that is gone; count what the process holds"
        )


class SideBySide(BackendStep, frozen=True, tag="side_by_side"):
    """Open stores of several jobs, vertices, operators and subtasks at once, write to each, take their snapshots,
    restore each twice, and compare all.
    """

    clause: ClassVar[str] = clauses.RESTORED
    checkpoint: int
    """Id of the snapshot of each of them."""

    stores: tuple[int, ...] = tuple(range(len(_DIFFERENT)))
    """Which of them: their numbers in ``SIDE_BY_SIDE``."""

    def description(self) -> str:
        which = ", ".join(_side_by_side(number) for number in self.stores)
        return (
            f"open stores of these jobs, vertices, operators and subtasks at once: {which}; into each put a "
            "key of 'totals' in each of the key groups 0 to 5 (k0, ..., k5); take all their snapshots "
            f"({self.checkpoint}), overwrite all values, run the asynchronous parts, the last first; read and close "
            "them; restore each twice, all at once, and read them, overwriting k0 of each"
        )


class Repeated(BackendStep, frozen=True, tag="repeated"):
    """Open a store of its own, without threads of its own, and make the same calls in it twice, the second time with
    pauses between them. The files of its snapshots must have the same names and sizes.
    """

    clause: ClassVar[str] = clauses.DECLARED
    checkpoint: int
    """Id of its first snapshot; each round uses the next one."""
    rounds: int
    incremental: bool = False

    def description(self) -> str:
        increments = ", each of which may use files of the one before," if self.incremental else ""
        last = self.checkpoint + self.rounds - 1
        return (
            "twice, the second time with pauses between calls: open a store without threads of its own, put 60 entries "
            "(00000, ...) of 'totals' into it, change 20 and delete 10 of them before each snapshot from "
            f"{self.checkpoint} to {last}{increments} and close it"
        )


class ManySources(BackendStep, frozen=True, tag="many_sources"):
    """Take a snapshot of each of several stores; restore all of them into one store, in several orders."""

    clause: ClassVar[str] = clauses.RESTORED
    bounds: tuple[int, ...]
    """The key groups of the stores: each store ends where the next begins."""
    checkpoint: int
    """Id of the snapshot of each of them."""
    files_wanted: int = 1

    def description(self) -> str:
        files = f", in {self.files_wanted} files each" if self.files_wanted > 1 else ""
        return (
            f"one after the other, open stores that meet at the key groups {list(self.bounds)}, every second one with "
            "compression; put three keys into each key group, in 'totals' and in a state of each store's own; take "
            f"snapshots ({self.checkpoint}){files}; restore all into one store, with and without the outermost key "
            "groups, in three orders"
        )


AnyStep = (
    Put
    | Delete
    | Get
    | Scan
    | PutMany
    | GetMany
    | Snapshot
    | Run
    | Start
    | Finish
    | Cancel
    | Confirm
    | AbortSnapshot
    | Verify
    | Rescale
    | Redistribute
    | Restart
    | Crowd
    | Dropped
    | Resources
    | CheckCapability
    | Layout
    | Fill
    | ManyStates
    | DeleteMany
    | Series
    | Failures
    | Chain
    | ReadAll
    | DisturbedScan
    | Foreign
    | Unseen
    | Race
    | Steady
    | Damaged
    | CutOff
    | Closed
    | ClosedAmid
    | Refusals
    | SideBySide
    | Repeated
    | ManySources
)
"""Any step."""


def _side_by_side(number: int) -> str:
    """Return what is special about one of the stores that are open side by side."""
    job, vertex, operator, subtask = SIDE_BY_SIDE[number]
    named = (("job", job), ("vertex", vertex), ("operator", operator))
    others = [f"{what} {name!r}" for what, name in named if name]
    return " ".join([*others, f"subtask {subtask}"] if subtask or not others else others)


def _at(store: int) -> str:
    return f"store{store}"


def _ranges(ranges: tuple[tuple[int, int], tuple[int, int]]) -> str:
    return " and ".join(f"[{start}, {end})" for start, end in ranges)


def _groups(groups: tuple[int, ...]) -> str:
    if len(groups) <= 4:
        return f"key group{'s' * (len(groups) > 1)} {', '.join(map(str, groups))}"
    return f"{len(groups)} key groups from {groups[0]} to {groups[-1]}"


def _all_short(values: tuple[bytes, ...]) -> str:
    more = f", ... ({len(values)} in all)" if len(values) > _LISTED_MAX else ""
    return f"[{', '.join(_short(value) for value in values[:_LISTED_MAX])}{more}]"


def _short(value: bytes) -> str:
    return repr(value) if len(value) <= 40 else f"{value[:8]!r}... ({len(value)} bytes)"
