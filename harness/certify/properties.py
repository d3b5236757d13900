"""The properties that a backend must have, by level: each with its clauses, and what is played to find a breach."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from barrier_tck.harness.certify import fixed_sequences as sequences
from barrier_tck.harness.certify.declared_capabilities import (
    ASYNCHRONOUS,
    CONCURRENT,
    DETERMINISTIC,
    INCREMENTAL,
    LOCAL,
    ORDERED,
)

LEVELS = ("contract", "crash", "chaos")
"""Each level requires the levels before it."""


@dataclass(frozen=True, slots=True)
class Property:
    """One property, which is tested with a state machine or by playing fixed steps."""

    name: str
    level: str
    clauses: tuple[str, ...]
    text: str
    moves: frozenset[str] = frozenset()
    examples: int = 20
    steps_max: int = 25
    restarts_max: int = 0
    finale: str = "here"
    fixed: Callable[[float], sequences.Steps] | None = None
    """Returns steps to play once, instead of drawn steps; its argument is the scale of the run."""
    capability: str = ""
    """Only backends that declare this capability must have the property; empty if all must."""
    needs: tuple[str, ...] = ()
    """Kinds of steps that at least one example must have had; otherwise nothing was shown."""


def _property(name: str, level: str, clauses: str, text: str, moves: str = "", **rest: object) -> Property:
    return Property(name, level, tuple(clauses.split()), text, frozenset(moves.split()), **rest)  # type: ignore[arg-type]


def _listed(
    name: str, clauses: str, text: str, fixed: Callable[[float], sequences.Steps], level: str = "contract"
) -> Property:
    return Property(name, level, tuple(clauses.split()), text, fixed=fixed)


PROPERTIES: tuple[Property, ...] = (
    _property(
        "reads-see-the-writes",
        "contract",
        "BCK-1",
        "Reads, scans and batch reads give what was written last; unusual keys and values are kept unchanged.",
        "write read",
        examples=50,
        needs=("put", "delete", "put_many", "get", "scan"),
    ),
    _listed(
        "reads-in-every-form",
        "BCK-1",
        "Each form of read is right before and after each form of write, in an empty, a full and a restored store.",
        lambda _scale: sequences.reads_in_every_form(),
    ),
    _listed(
        "what-differs-stays-apart",
        "BCK-1 BCK-2",
        "Names, key groups, keys and values that are easily confused are not; scans are undisturbed and complete; all "
        "of it once more after a restore.",
        lambda _scale: sequences.what_differs(),
    ),
    _listed(
        "sizes-up-the-ladder",
        "BCK-1 BCK-2",
        "Keys and values up to megabytes, 100,000 entries, megabytes of state that is restored into other key groups, "
        "key groups up to 32,767.",
        sequences.ladder,
    ),
    _property(
        "snapshots-are-isolated",
        "contract",
        "SNP-1",
        "Changes after the synchronous part never show in the snapshot, even while its asynchronous part runs.",
        "write snapshot background verify",
        examples=50,
        needs=("snapshot", "run", "start", "finish", "verify"),
    ),
    _listed(
        "writers-run-freely",
        "SNP-1",
        "A snapshot is isolated from writes that are made without a pause while a thread stores it.",
        sequences.free_writers,
    ),
    _property(
        "a-restore-is-exact",
        "contract",
        "BCK-2",
        "A snapshot restores to exactly its content: twice, in a new process, and as a store that is used further.",
        "write checkpoint verify close",
        examples=12,
        finale="elsewhere",
        needs=("verify", "restart"),
    ),
    _listed(
        "handles-name-all-that-is-needed",
        "BCK-2",
        "A restore needs the files that the handles name and nothing else: no other file, no process, no memory.",
        lambda _scale: sequences.only_the_files(),
    ),
    _listed(
        "a-restored-store-starts-anew",
        "BCK-2",
        "After a restore of an older snapshot in the same process, nothing of the newer ones comes back.",
        lambda _scale: sequences.starts_anew(),
    ),
    _listed(
        "any-number-of-snapshots",
        "SNP-1 BCK-2",
        "Snapshots are isolated and exact after hundreds of others of the same open store, and whatever their ids are.",
        sequences.any_number,
    ),
    _property(
        "key-groups-move",
        "contract",
        "BCK-2",
        "Restored into another range of key groups, from one or two snapshots, a store holds its own groups "
        "and no others.",
        "write checkpoint rescale",
        examples=40,
        needs=("rescale",),
    ),
    _listed(
        "key-groups-part-and-meet",
        "BCK-2",
        "Stores go on with a part of a snapshot, delete and write, and meet again: what was deleted does not return.",
        lambda _scale: sequences.parted_and_joined(),
    ),
    _property(
        "redistributed-stores-go-on",
        "contract",
        "BCK-2",
        "Stores that go on with other key groups are exact, in any sequence of writes, snapshots and redistributions.",
        "write checkpoint verify rescale redistribute close",
        examples=15,
        needs=("redistribute", "rescale"),
    ),
    _listed(
        "what-is-no-snapshot-is-refused",
        "BCK-4",
        "A restore from a file that is empty, cut off, or of another format is refused; it is never a wrong state.",
        sequences.damaged_files,
    ),
    _property(
        "a-failed-checkpoint-is-forgotten",
        "contract",
        "BCK-2 BCK-3",
        "After a failed checkpoint the store goes on; after a restart on the same disk with other data "
        "nothing of the failed one comes back.",
        "write checkpoint fail snapshot close",
        examples=30,
        needs=("snapshot", "abort", "restart"),
    ),
    _property(
        "notifications-come-in-any-order",
        "contract",
        "BCK-3",
        "Confirm, abort and cancel come in any order, late and twice, while snapshots end out of order.",
        "write snapshot background notify checkpoint",
        examples=40,
        needs=("cancel", "confirm", "abort", "run"),
    ),
    _property(
        "a-cancelled-snapshot-stops",
        "contract",
        "SNP-2",
        "A cancelled asynchronous part raises SnapshotCancelled or had already succeeded, and the store goes on.",
        "write snapshot background notify",
        examples=30,
        needs=("cancel", "run"),
    ),
    _listed(
        "nothing-is-left-behind",
        "SNP-2 BCK-5",
        "After close no descriptor, thread, process, working file or partial file is left.",
        lambda _scale: sequences.lives(),
    ),
    _listed(
        "snapshots-keep-nothing",
        "BCK-5",
        "Snapshots of a state that does not grow do not make an open store hold ever more memory, descriptors, "
        "threads or files.",
        sequences.held_by_snapshots,
    ),
    _property(
        "all-at-once",
        "contract",
        "SNP-1 BCK-2",
        "All of the above in any mixture.",
        "write read snapshot background verify checkpoint rescale notify close",
        examples=30,
        steps_max=40,
    ),
    _property(
        "unfinished-snapshots-end-in-any-order",
        "contract",
        "SNP-1",
        "Several snapshots of a store are unfinished at once, end in any order, and are isolated from each other.",
        "write snapshot verify",
        examples=20,
        capability=CONCURRENT,
        needs=("snapshot", "run", "verify"),
    ),
    *(
        _property(
            name,
            "contract",
            "BCK-6",
            text,
            "promise",
            examples=4,
            steps_max=2,
            capability=capability,
            needs=("promise",),
        )
        for name, capability, text in (
            (
                "snapshots-are-asynchronous",
                ASYNCHRONOUS,
                "The synchronous part writes nothing to storage and leaves something to the asynchronous part.",
            ),
            ("scans-are-ordered", ORDERED, "Scans give entries in ascending order of their keys' bytes."),
            (
                "files-stay-in-the-working-directory",
                LOCAL,
                "State is kept in files below the working directory and nowhere else.",
            ),
            (
                "files-are-deterministic",
                DETERMINISTIC,
                "The same calls in the same order write files with the same bytes, in another process too.",
            ),
            (
                "increments-build-on-what-is-confirmed",
                INCREMENTAL,
                "A snapshot after a small change refers to confirmed files, and not to failed ones (SNP-5).",
            ),
        )
    ),
    _property(
        "increments-go-on-after-many-failures",
        "contract",
        "BCK-2",
        "However many snapshots in a row failed, or were not heard of, the next increment holds all that has changed.",
        capability=INCREMENTAL,
        fixed=sequences.failures_in_a_row,
    ),
    _property(
        "increments-part-and-meet",
        "contract",
        "BCK-2",
        "Increments of stores that part and meet are exact, and refer to nothing of stores with other key groups.",
        capability=INCREMENTAL,
        fixed=lambda _scale: sequences.parted_and_joined(incremental=True),
    ),
    _property(
        "increments-in-any-order",
        "contract",
        "BCK-2",
        "All this with stores that are asked for increments: a snapshot refers to own, confirmed or restored files.",
        "write snapshot background verify checkpoint rescale redistribute notify close",
        examples=20,
        capability=INCREMENTAL,
        needs=("snapshot", "verify"),
    ),
    _property(
        "killed-anywhere",
        "crash",
        "BCK-2",
        "After SIGKILL between two calls, inside a call or in the middle of an asynchronous part, the last "
        "completed snapshot restores to exactly its content, on the disk that the dead process left.",
        "write checkpoint snapshot background verify kill",
        examples=25,
        restarts_max=2,
        needs=("restart",),
    ),
    _property(
        "a-failed-write-fails-the-snapshot",
        "crash",
        "BCK-3",
        "If the k-th storage operation fails, is cut short or closing fails, the snapshot fails too (BE-06).",
        "write fail verify checkpoint",
        examples=50,
        needs=("snapshot", "abort"),
    ),
    _property(
        "snapshots-after-a-failed-one-are-isolated",
        "crash",
        "SNP-1 BCK-3",
        "After a failed snapshot the store is usable and the next snapshots are isolated (BE-07).",
        "write fail snapshot background verify",
        examples=150,
        needs=("snapshot", "abort", "run"),
    ),
    _listed(
        "a-failed-snapshot-keeps-nothing",
        "BCK-5",
        "Failed snapshots do not make an open store hold ever more (BE-07).",
        sequences.held_by_failed_snapshots,
        level="crash",
    ),
    _property(
        "crashes-and-failures-mixed",
        "crash",
        "SNP-1 BCK-2 BCK-3",
        "Kills, failed writes, restarts and all else in any mixture.",
        "write read snapshot background verify checkpoint rescale notify fail close kill",
        examples=20,
        steps_max=40,
        restarts_max=2,
        needs=("restart",),
    ),
)
"""The properties of the levels contract and crash; the level chaos is in ``chaos.py``."""
