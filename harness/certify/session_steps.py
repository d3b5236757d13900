"""What can be done with a candidate, as data: a failing sequence is printed as such steps and replayed from JSON."""

from __future__ import annotations

import msgspec

from barrier_tck.harness.certify.candidate_wire import StorageFault


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
    """Write several values, perhaps one key twice."""

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
    """Run the synchronous part; storage may fail during the whole snapshot."""

    store: int
    checkpoint: int
    fault: StorageFault | None = None
    reuse_from: int = 0
    """The oldest checkpoint whose files it may use if that was confirmed or restored; 0: it is a full snapshot."""


class Run(SessionStep, frozen=True, tag="run"):
    """Run the asynchronous part."""

    store: int
    checkpoint: int


class Start(SessionStep, frozen=True, tag="start"):
    """Start the asynchronous part in the background; it stops before a storage operation."""

    store: int
    checkpoint: int
    stop_at: int


class Finish(SessionStep, frozen=True, tag="finish"):
    """Let a started asynchronous part continue to its end."""

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
    """Tell the store that the checkpoint failed, and delete its files as a runtime does."""

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

    The checkpoint 0 means that this store's snapshot is left out.
    """

    checkpoints: tuple[int, int]
    start: int
    end: int


class Redistribute(SessionStep, frozen=True, tag="redistribute"):
    """Close both stores and restore both stores' snapshots into two stores with other key groups, which go on.

    The checkpoint 0 means that this store's snapshot is left out. Earlier snapshots are dropped.
    """

    checkpoints: tuple[int, int]
    ranges: tuple[tuple[int, int], tuple[int, int]]


class Restart(SessionStep, frozen=True, tag="restart"):
    """End both stores and restore each from a checkpoint (0: empty). ``how``: ``close``: close them and continue in
    the same process; ``kill``: kill the process between two calls; ``call``: kill it in the middle of a call;
    ``bare``: kill it with all that it started, and keep only the files that the handles name.
    """

    checkpoints: tuple[int, int]
    how: str = "close"


class Crowd(SessionStep, frozen=True, tag="crowd"):
    """Repeat: overwrite ``count`` values of ``size`` bytes each, take a snapshot whose storage fails, and abort it.

    The process must not grow.
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
    """Check a declared capability with a separate store, into which these keys are written in this order."""

    capability: str
    keys: tuple[bytes, ...]
    checkpoint: int
    """Id of the snapshot that it takes."""


class Layout(SessionStep, frozen=True, tag="layout"):
    """Close both stores and open two empty ones with these key groups; earlier snapshots are dropped."""

    ranges: tuple[tuple[int, int], tuple[int, int]]
    files_wanted: int = 1
    """The scope's hint: the number of files into which a snapshot should be split."""
    incremental: bool = False
    """Whether these stores, and those restored from them, are asked for increments (SNP-5)."""


class Fill(SessionStep, frozen=True, tag="fill"):
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


class ReadAll(SessionStep, frozen=True, tag="read_all"):
    """Read everything that the store must hold, in every form of read; also read keys that it must not hold."""

    store: int


class DisturbedScan(SessionStep, frozen=True, tag="disturbed_scan"):
    """Read a scan to its end while one key is added, one is changed and one is deleted."""

    store: int
    name: str
    group: int
    added: bytes
    changed: bytes
    deleted: bytes


class Foreign(SessionStep, frozen=True, tag="foreign"):
    """Call for a key group that is not the store's: the first one after its own."""

    store: int
    call: str


class Unseen(SessionStep, frozen=True, tag="unseen"):
    """Confirm or abort a checkpoint that the store never saw."""

    store: int
    what: str


class Race(SessionStep, frozen=True, tag="race"):
    """Repeat: take a snapshot, write without a pause while another thread runs its asynchronous part, restore it and
    compare.
    """

    store: int
    checkpoint: int
    """Id of the first snapshot; each round uses the next one, and so does a round that is run again."""
    name: str
    groups: tuple[int, ...]
    rounds: int


class Steady(SessionStep, frozen=True, tag="steady"):
    """Repeat: overwrite ``count`` values of ``size`` bytes each, take a snapshot, confirm it, and delete the previous
    one. The process must not grow.
    """

    store: int
    checkpoint: int
    """Id of the first snapshot; each round uses the next one."""
    count: int
    size: int
    rounds: int


class Damaged(SessionStep, frozen=True, tag="damaged"):
    """Restore a completed snapshot with one damaged file; the file's handle fits the damaged content."""

    store: int
    checkpoint: int
    file: int
    """The number of the file, counted from 0; negative numbers count from the last."""
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
    | Redistribute
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
