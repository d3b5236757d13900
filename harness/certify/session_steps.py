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
    """Restore a completed snapshot into a store of its own, here or in a new process, and compare."""

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
    same process; ``kill`` the process between two calls; kill it in the middle of a ``call``.
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


class Distinctions(SessionStep, frozen=True, tag="distinctions"):
    """Write listed names, key groups and keys that are easily confused into a store of its own; read them in every
    way, and once more after a restore.
    """

    checkpoint: int
    """Id of the snapshot that it takes."""


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
    | Distinctions
)
"""Any step."""

_HOW = {
    "close": "close both stores",
    "kill": "SIGKILL the process",
    "call": "SIGKILL the process in the middle of put_many()",
}


def words(step: AnyStep) -> str:
    """Return a step as a line for people."""
    match step:
        case Put():
            return f"{_at(step.store)}.put({step.name!r}, {step.group}, {_short(step.key)}, {_short(step.value)})"
        case Delete() | Get():
            call = "delete" if isinstance(step, Delete) else "get"
            return f"{_at(step.store)}.{call}({step.name!r}, {step.group}, {_short(step.key)})"
        case Scan():
            return f"{_at(step.store)}.scan({step.name!r}, {step.group})"
        case PutMany():
            keys, values = _all_short(step.keys), _all_short(step.values)
            return f"{_at(step.store)}.put_many({step.name!r}, {list(step.groups)}, {keys}, {values})"
        case GetMany():
            return f"{_at(step.store)}.get_many({step.name!r}, {list(step.groups)}, {_all_short(step.keys)})"
        case Snapshot(fault=None):
            return f"{_at(step.store)}.snapshot({step.checkpoint})"
        case Snapshot():
            assert step.fault is not None
            return (
                f"{_at(step.store)}.snapshot({step.checkpoint})   [storage: {step.fault.kind} at operation "
                f"{step.fault.at}]"
            )
        case Run():
            return f"{_at(step.store)}: run the asynchronous part of {step.checkpoint}"
        case Start():
            return (
                f"{_at(step.store)}: start the asynchronous part of {step.checkpoint}; it waits before "
                f"storage operation {step.stop_at}"
            )
        case Finish():
            return f"{_at(step.store)}: the asynchronous part of {step.checkpoint} goes on to its end"
        case Cancel():
            return f"{_at(step.store)}: cancel the asynchronous part of {step.checkpoint}"
        case Confirm():
            return f"{_at(step.store)}.confirm({step.checkpoint})"
        case AbortSnapshot():
            return f"{_at(step.store)}.abort({step.checkpoint})"
        case Verify():
            where = "in a new process" if step.elsewhere else "in a second store"
            return f"restore snapshot {step.checkpoint} of {_at(step.store)} {where} and read it"
        case Rescale():
            return (
                f"restore the snapshots {list(step.checkpoints)} of both stores into one store of key groups "
                f"[{step.start}, {step.end}) and read it"
            )
        case Restart():
            sources = " and ".join(str(number) if number else "nothing" for number in step.checkpoints)
            return f"{_HOW[step.how]}; restore them from {sources}"
        case Crowd():
            return (
                f"{_at(step.store)}: {step.rounds} times overwrite {step.count} values of {step.size} bytes, "
                "take a snapshot whose storage fails, abort it"
            )
        case Promise():
            return f"is {step.capability} so, in a store into which {_all_short(step.keys)} are put in this order?"
        case Distinctions():
            return "write names, key groups and keys that are easily confused; read them, restore and read them again"
        case Resources():
            return f"open, write, snapshot and close stores, {step.rounds} times"


def _at(store: int) -> str:
    return f"store{store}"


def _all_short(values: tuple[bytes, ...]) -> str:
    return f"[{', '.join(_short(value) for value in values)}]"


def _short(value: bytes) -> str:
    return repr(value) if len(value) <= 40 else f"{value[:8]!r}... ({len(value)} bytes)"
