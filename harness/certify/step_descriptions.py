"""Steps as lines for people."""

from __future__ import annotations

from barrier_tck.harness.certify.candidate_wire import DAMAGED_HOW
from barrier_tck.harness.certify.session_steps import (
    AbortSnapshot,
    AnyStep,
    Cancel,
    Confirm,
    Crowd,
    Damaged,
    Delete,
    DisturbedScan,
    Fill,
    Finish,
    Foreign,
    Get,
    GetMany,
    Layout,
    Promise,
    Put,
    PutMany,
    Race,
    ReadAll,
    Redistribute,
    Rescale,
    Resources,
    Restart,
    Run,
    Scan,
    Snapshot,
    Start,
    Steady,
    Unseen,
    Verify,
)

_HOW = {
    "close": "close both stores",
    "kill": "SIGKILL the process",
    "call": "SIGKILL the process in the middle of put_many()",
    "bare": "SIGKILL the process and remove all files but those that the handles name",
}


def description_of(step: AnyStep) -> str:
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
            return f"{_at(step.store)}.snapshot({step.checkpoint}){_reusing(step)}"
        case Snapshot():
            assert step.fault is not None
            return (
                f"{_at(step.store)}.snapshot({step.checkpoint}){_reusing(step)}   [storage: {step.fault.kind} at "
                f"operation {step.fault.at}]"
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
        case Redistribute():
            ranges = " and ".join(f"[{start}, {end})" for start, end in step.ranges)
            return (
                f"close both stores; restore the snapshots {list(step.checkpoints)} into stores of {ranges}"
            )
        case Restart():
            sources = " and ".join(str(number) if number else "nothing" for number in step.checkpoints)
            return f"{_HOW[step.how]}; restore them from {sources}"
        case Crowd():
            return (
                f"{_at(step.store)}: {step.rounds} times overwrite {step.count} values of {step.size} bytes, "
                "take a snapshot whose storage fails, and abort it"
            )
        case Promise():
            return (
                f"check {step.capability} in a store into which {_all_short(step.keys)} are put in this order"
            )
        case Layout():
            files = f", snapshots in {step.files_wanted} files" if step.files_wanted > 1 else ""
            ranges = " and ".join(f"[{start}, {end})" for start, end in step.ranges)
            increments = ", for increments" if step.incremental else ""
            return f"open both stores empty, with the key groups {ranges}{files}{increments}"
        case Fill():
            return (
                f"{_at(step.store)}.put_many({step.name!r}, ...): {step.count:,} keys of {step.key_bytes:,} bytes, "
                f"values of {step.value_bytes:,}, in {_groups(step.groups)}{_again(step.salt)}"
            )
        case ReadAll():
            return f"{_at(step.store)}: read everything by get(), get_many() and scan()"
        case DisturbedScan():
            return (
                f"{_at(step.store)}.scan({step.name!r}, {step.group}); while it is read, {_short(step.added)} is "
                f"added, {_short(step.changed)} changed and {_short(step.deleted)} deleted"
            )
        case Foreign():
            return f"{_at(step.store)}.{step.call}() of a key group that is not the store's"
        case Unseen():
            return f"{_at(step.store)}.{step.what}() of a checkpoint that it never saw"
        case Race():
            return (
                f"{_at(step.store)}: {step.rounds} times take a snapshot, write without a pause while a thread runs "
                "its asynchronous part, restore it and read it"
            )
        case Steady():
            return (
                f"{_at(step.store)}: {step.rounds} times overwrite {step.count} values of {step.size:,} bytes and "
                "take a snapshot, the one before is deleted"
            )
        case Damaged():
            return (
                f"restore snapshot {step.checkpoint} of {_at(step.store)}, whose file number {step.file} "
                f"{DAMAGED_HOW[step.damage]}"
            )
        case Resources():
            return f"open, write, snapshot and close stores, {step.rounds} times"


def _reusing(step: Snapshot) -> str:
    return f"   [may use files of checkpoints from {step.reuse_from} on]" if step.reuse_from else ""


def _groups(groups: tuple[int, ...]) -> str:
    if len(groups) <= 4:
        return f"key group{'s' * (len(groups) > 1)} {', '.join(map(str, groups))}"
    return f"{len(groups)} key groups from {groups[0]} to {groups[-1]}"


def _again(salt: int) -> str:
    return f" (values number {salt})" if salt else ""


def _at(store: int) -> str:
    return f"store{store}"


def _all_short(values: tuple[bytes, ...]) -> str:
    return f"[{', '.join(_short(value) for value in values)}]"


def _short(value: bytes) -> str:
    return repr(value) if len(value) <= 40 else f"{value[:8]!r}... ({len(value)} bytes)"
