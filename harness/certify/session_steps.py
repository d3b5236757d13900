"""What can be done to a candidate, as data: a failing sequence is printed as these and replayed from JSON."""

from __future__ import annotations

import msgspec

from barrier_tck.harness.certify.candidate_wire import StorageTrouble


class SessionStep(msgspec.Struct, frozen=True, tag_field="do", forbid_unknown_fields=True):
    """Base of all steps. ``store`` 0 and 1 are two subtasks of one operator, each with its own key groups."""


class Put(SessionStep, frozen=True, tag="put"):
    """Write a value."""

    store: int
    name: str
    group: int
    key: bytes
    value: bytes


class Delete(SessionStep, frozen=True, tag="delete"):
    """Delete a value that may not exist."""

    store: int
    name: str
    group: int
    key: bytes


class Get(SessionStep, frozen=True, tag="get"):
    """Read a value and compare."""

    store: int
    name: str
    group: int
    key: bytes


class Scan(SessionStep, frozen=True, tag="scan"):
    """Read one state of one key group and compare."""

    store: int
    name: str
    group: int


class PutMany(SessionStep, frozen=True, tag="put_many"):
    """Write several values, the same key perhaps twice."""

    store: int
    name: str
    groups: tuple[int, ...]
    keys: tuple[bytes, ...]
    values: tuple[bytes, ...]


class GetMany(SessionStep, frozen=True, tag="get_many"):
    """Read several values and compare."""

    store: int
    name: str
    groups: tuple[int, ...]
    keys: tuple[bytes, ...]


class Snapshot(SessionStep, frozen=True, tag="snapshot"):
    """Do the synchronous part; storage may fail during the whole snapshot."""

    store: int
    checkpoint: int
    fault: StorageTrouble | None = None


class Run(SessionStep, frozen=True, tag="run"):
    """Do the asynchronous part."""

    store: int
    checkpoint: int


class Start(SessionStep, frozen=True, tag="start"):
    """Start the asynchronous part in the background; it stands still before a storage operation."""

    store: int
    checkpoint: int
    stop_at: int


class Finish(SessionStep, frozen=True, tag="finish"):
    """Let a started asynchronous part go on to its end."""

    store: int
    checkpoint: int


class Cancel(SessionStep, frozen=True, tag="cancel"):
    """Cancel the asynchronous part."""

    store: int
    checkpoint: int


class Confirm(SessionStep, frozen=True, tag="confirm"):
    """Tell the store that the checkpoint completed."""

    store: int
    checkpoint: int


class AbortSnapshot(SessionStep, frozen=True, tag="abort"):
    """Tell the store that the checkpoint failed; its files are deleted, as a runtime does."""

    store: int
    checkpoint: int


class Verify(SessionStep, frozen=True, tag="verify"):
    """Restore a completed snapshot into a store of its own, here or in a new process that finds nothing but the files
    that the handles name, and compare.
    """

    store: int
    checkpoint: int
    elsewhere: bool = False


class Rescale(SessionStep, frozen=True, tag="rescale"):
    """Restore both stores' snapshots into one store with another range of key groups, and compare.

    A checkpoint of 0 means: without that store's snapshot.
    """

    checkpoints: tuple[int, int]
    start: int
    end: int


class Restart(SessionStep, frozen=True, tag="restart"):
    """End both stores and restore each from a checkpoint (0: empty). ``how``: ``close`` them and go on in the
    same process; ``kill`` the process between two calls; kill it in the middle of a ``call``; ``bare``: kill it with
    all that it started, and keep nothing but the files that the handles name.
    """

    checkpoints: tuple[int, int]
    how: str = "close"


class Crowd(SessionStep, frozen=True, tag="crowd"):
    """Again and again: overwrite ``count`` values of ``size`` bytes each, take a snapshot whose storage fails,
    abort it. The process must not grow.
    """

    store: int
    checkpoint: int
    """Id of the first snapshot; each round uses the next one."""
    count: int
    size: int
    rounds: int


class Resources(SessionStep, frozen=True, tag="resources"):
    """Open, use and close stores ``rounds`` times, then compare what the process holds with before."""

    rounds: int


class Promise(SessionStep, frozen=True, tag="promise"):
    """Check a declared capability with a store of its own, into which these keys are written in this order."""

    capability: str
    keys: tuple[bytes, ...]
    checkpoint: int
    """Id of the snapshot that it takes."""


class Layout(SessionStep, frozen=True, tag="layout"):
    """Close both stores and open two empty ones with these key groups; earlier snapshots are given up."""

    ranges: tuple[tuple[int, int], tuple[int, int]]
    files_wanted: int = 1
    """The hint of the scope: into how many files a snapshot is usefully split."""


class Fill(SessionStep, frozen=True, tag="fill"):
    """Write many entries, by ``put_many``: their keys and values are long as asked, and made from ``salt``."""

    store: int
    name: str
    groups: tuple[int, ...]
    """Entry i goes into the i-th of them, round and round."""
    count: int
    key_bytes: int
    value_bytes: int
    salt: int = 0
    """With another salt the same keys get other values of the same length."""


class ReadAll(SessionStep, frozen=True, tag="read_all"):
    """Read all that the store must hold, one by one, many at once and by scans; and what it must not hold."""

    store: int


class DisturbedScan(SessionStep, frozen=True, tag="disturbed_scan"):
    """Read a scan to its end while a key is added, one is changed, and one is deleted."""

    store: int
    name: str
    group: int
    added: bytes
    changed: bytes
    deleted: bytes


class Foreign(SessionStep, frozen=True, tag="foreign"):
    """Call for a key group that is not the store's: the first one behind its own."""

    store: int
    call: str


class Unseen(SessionStep, frozen=True, tag="unseen"):
    """Confirm or abort a checkpoint that the store never saw."""

    store: int
    what: str


class Race(SessionStep, frozen=True, tag="race"):
    """Again and again: take a snapshot, write without a pause while another thread does its asynchronous part,
    restore it and compare.
    """

    store: int
    checkpoint: int
    """Id of the first snapshot; each round uses the next one."""
    name: str
    groups: tuple[int, ...]
    rounds: int


class Steady(SessionStep, frozen=True, tag="steady"):
    """Again and again: overwrite ``count`` values of ``size`` bytes each, take a snapshot, confirm it, delete the one
    before. The process must not come to hold more.
    """

    store: int
    checkpoint: int
    """Id of the first snapshot; each round uses the next one."""
    count: int
    size: int
    rounds: int


class Damaged(SessionStep, frozen=True, tag="damaged"):
    """Restore a completed snapshot one file of which is not what was written, though its handle fits it."""

    store: int
    checkpoint: int
    file: int
    """Which of its files, counted from 0; negative: from the last."""
    damage: str
    """One of `candidate_wire.DAMAGES`."""


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
    | Restart
    | Crowd
    | Resources
    | Promise
    | Layout
    | Fill
    | ReadAll
    | DisturbedScan
    | Foreign
    | Unseen
    | Race
    | Steady
    | Damaged
)
"""Any step."""
