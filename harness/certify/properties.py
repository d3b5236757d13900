"""The properties that a backend must have, by level: each with its clauses, and how it is hunted."""

from __future__ import annotations

import time
from dataclasses import dataclass

import msgspec

from barrier_tck.harness.certify import session_steps as steps
from barrier_tck.harness.certify.comparison import Session, Violation
from barrier_tck.harness.certify.declared_capabilities import (
    ASYNCHRONOUS,
    CONCURRENT,
    DETERMINISTIC,
    LOCAL,
    ORDERED,
)
from barrier_tck.harness.certify.machine import SHRINK_S_MAX, Hunt, hunt_with_machine
from barrier_tck.harness.certify.pool import CandidateDied, CandidateRaised, Pool
from barrier_tck.harness.certify.smaller import make_smaller

LEVELS = ("contract", "crash", "chaos")
"""Each requires the ones before it."""
DELETION_FACTOR = 4.0
"""After Hypothesis, needless steps are left out for so much longer."""


@dataclass(frozen=True, slots=True)
class Property:
    """One property that is hunted with a state machine, or by playing fixed steps."""

    name: str
    level: str
    clauses: tuple[str, ...]
    text: str
    moves: frozenset[str] = frozenset()
    examples: int = 20
    steps_max: int = 25
    restarts_max: int = 0
    finale: str = "here"
    fixed: tuple[steps.AnyStep, ...] = ()
    """Steps to play once, instead of drawn ones."""
    capability: str = ""
    """Only backends that declare it are held to the property; empty: all are."""
    needs: tuple[str, ...] = ()
    """What must have happened in at least one example, by kind of step: otherwise nothing was shown."""


NOT_DRAWN = "the drawn examples had no step of the kind"
"""How a reason begins when examples were too few to show anything."""


class PropertyOutcome(msgspec.Struct, frozen=True):
    """What became of one property."""

    name: str
    level: str
    clauses: tuple[str, ...]
    text: str
    status: str
    """``passed``, ``failed``, ``unknown``, or ``skipped``."""
    reason: str = ""
    """Why it failed, was skipped, or nothing can be said."""
    examples: int = 0
    calls: int = 0
    processes: int = 0
    seconds: float = 0.0
    seed: int = 0
    sequence: tuple[str, ...] = ()
    """The smallest failing sequence, for people."""
    replay: str | None = None
    """Name of the file that repeats it."""
    optional: bool = False
    """The backend may leave it out by not declaring a capability; where it was run, it must have passed."""


def _property(name: str, level: str, clauses: str, text: str, moves: str = "", **rest: object) -> Property:
    return Property(name, level, tuple(clauses.split()), text, frozenset(moves.split()), **rest)  # type: ignore[arg-type]


PROPERTIES: tuple[Property, ...] = (
    _property(
        "reads-see-the-writes",
        "contract",
        "STA-1",
        "Reads, scans and batch reads give what was written last; odd keys and values are kept as they are.",
        "write read",
        examples=50,
        needs=("put", "delete", "put_many", "get", "scan"),
    ),
    _property(
        "what-differs-stays-apart",
        "contract",
        "STA-1 SNP-1 REC-1 RSC-2",
        "Names, key groups and keys that are easily confused are not; scans are undisturbed and complete; all of it "
        "once more after a restore.",
        fixed=(steps.Distinctions(1),),
    ),
    _property(
        "snapshots-are-isolated",
        "contract",
        "SNP-1",
        "Changes after the synchronous part never show in the snapshot, also while its asynchronous part runs.",
        "write snapshot background verify",
        examples=50,
        needs=("snapshot", "run", "start", "finish", "verify"),
    ),
    _property(
        "a-restore-is-exact",
        "contract",
        "REC-1 STA-3",
        "A snapshot restores to exactly its content: twice, in a new process, and as a store to go on with.",
        "write checkpoint verify close",
        examples=12,
        finale="elsewhere",
        needs=("verify", "restart"),
    ),
    _property(
        "key-groups-move",
        "contract",
        "RSC-1 RSC-2",
        "Restored into another range of key groups, from one or two snapshots, a store holds its own groups "
        "and no others.",
        "write checkpoint rescale",
        examples=40,
        needs=("rescale",),
    ),
    _property(
        "a-failed-checkpoint-is-forgotten",
        "contract",
        "COO-2 REC-1",
        "After a failed checkpoint the store goes on; after a restart on the same disk with other data "
        "nothing of the failed one comes back.",
        "write checkpoint fail snapshot close",
        examples=30,
        needs=("snapshot", "abort", "restart"),
    ),
    _property(
        "notifications-come-in-any-order",
        "contract",
        "COO-2 COO-3",
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
    _property(
        "nothing-is-left-behind",
        "contract",
        "SNP-2",
        "After close no descriptor, thread, process, working file or partial file is left.",
        fixed=(steps.Resources(5),),
    ),
    _property(
        "all-at-once",
        "contract",
        "SNP-1 REC-1 COO-2",
        "All of the above in any mixture.",
        "write read snapshot background verify checkpoint rescale notify close",
        examples=30,
        steps_max=40,
    ),
    _property(
        "unfinished-snapshots-end-in-any-order",
        "contract",
        "SNP-1 BAR-4",
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
            clauses,
            text,
            "promise",
            examples=5,
            steps_max=6,
            capability=capability,
            needs=("promise",),
        )
        for name, clauses, capability, text in (
            (
                "snapshots-are-asynchronous",
                "SNP-1",
                ASYNCHRONOUS,
                "The synchronous part writes nothing to storage and leaves something to the asynchronous part.",
            ),
            (
                "scans-are-ordered",
                "STA-1",
                ORDERED,
                "Scans give entries in ascending order of their keys' bytes.",
            ),
            (
                "files-stay-in-the-working-directory",
                "STA-2",
                LOCAL,
                "State is kept in files below the working directory and nowhere else.",
            ),
            (
                "files-are-deterministic",
                "STA-3",
                DETERMINISTIC,
                "The same calls in the same order write files with the same bytes.",
            ),
        )
    ),
    _property(
        "killed-anywhere",
        "crash",
        "REC-1 STA-3",
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
        "SNP-3 COO-2",
        "If the k-th storage operation fails, is cut short or closing fails, the snapshot fails too (BE-06).",
        "write fail verify checkpoint",
        examples=50,
        needs=("snapshot", "abort"),
    ),
    _property(
        "snapshots-after-a-failed-one-are-isolated",
        "crash",
        "SNP-1 COO-2",
        "After a failed snapshot the store is usable and the next snapshots are isolated (BE-07).",
        "write fail snapshot background verify",
        examples=60,
        needs=("snapshot", "abort", "run"),
    ),
    _property(
        "a-failed-snapshot-keeps-nothing",
        "crash",
        "SNP-2",
        "Failed snapshots do not make the process grow (BE-07).",
        fixed=(
            steps.Crowd(0, 1, 2000, 1024, 12),
            steps.Snapshot(0, 40),
            steps.Run(0, 40),
            steps.Verify(0, 40),
        ),
    ),
    _property(
        "crashes-and-failures-mixed",
        "crash",
        "REC-1 SNP-1 COO-2",
        "Kills, failed writes, restarts and all else in any mixture.",
        "write read snapshot background verify checkpoint rescale notify fail close kill",
        examples=20,
        steps_max=40,
        restarts_max=2,
        needs=("restart",),
    ),
)
"""Contract and crash; the chaos level is in ``chaos.py``."""


class Failure(msgspec.Struct, frozen=True):
    """A failing sequence that can be replayed: the content of a replay file."""

    target: str
    property: str
    violation: str
    steps: tuple[steps.AnyStep, ...]
    version: int = 1


def check(
    one: Property,
    pool: Pool,
    seed: int,
    scale: float = 1.0,
    shrink_s: float = SHRINK_S_MAX,
    declared: tuple[str, ...] = (),
) -> tuple[PropertyOutcome, Failure | None]:
    """Hunt one property; ``scale`` multiplies the number of examples, a failing sequence is
    made smaller for a few times ``shrink_s`` seconds at most, 0: not at all. ``declared`` has the names of the
    capabilities that the backend declares: what it does not declare is not asked of it.
    """
    if one.capability and one.capability not in declared:
        return skipped(one, f"the backend does not declare {one.capability}", optional=True), None
    began = time.monotonic()
    hunt = Hunt(pool, shrink_s=shrink_s)
    if one.fixed:
        _play_fixed(one, hunt)
    else:
        examples = max(1, round(one.examples * scale))
        hunt_with_machine(
            *(hunt, one.moves, seed, examples, one.steps_max, one.restarts_max, one.finale),
            capability=one.capability,
            concurrent=CONCURRENT in declared,
        )
    status, reason = "passed", ""
    missing = [kind for kind in one.needs if not hunt.kinds.get(kind)]
    failure = None
    if hunt.failure is not None:
        sequence, violation = _smallest(hunt, shrink_s)
        failure = Failure(pool.target, one.name, violation, sequence)
        status, reason = "failed", violation
    elif pool.remaining_s < 0:
        status, reason = "unknown", "the total time was used up before all examples had run"
    elif missing or not hunt.steps_played:
        status, reason = "unknown", f"{NOT_DRAWN} {', '.join(missing)}"
    return (
        PropertyOutcome(
            name=one.name,
            level=one.level,
            clauses=one.clauses,
            text=one.text,
            status=status,
            reason=reason,
            examples=hunt.examples,
            calls=hunt.calls,
            processes=hunt.processes,
            seconds=round(time.monotonic() - began, 2),
            seed=seed,
            sequence=tuple(steps.words(step) for step in failure.steps) if failure else (),
        ),
        failure,
    )


def skipped(one: Property, reason: str, optional: bool = False) -> PropertyOutcome:
    """Return the outcome of a property that is not run."""
    return PropertyOutcome(one.name, one.level, one.clauses, one.text, "skipped", reason, optional=optional)


def play(pool: Pool, sequence: tuple[steps.AnyStep, ...]) -> str | None:
    """Play steps in a new process; return what is violated, or None. Raises nothing of the candidate's."""
    try:
        session = Session(pool)
    except Violation as violation:
        return str(violation)
    except (CandidateDied, CandidateRaised) as error:
        return f"the backend could not be made: {error}"
    try:
        for step in sequence:
            session.apply(step)
        session.close()
    except Violation as violation:
        return str(violation)
    finally:
        session.abandon()
    return None


def _smallest(hunt: Hunt, shrink_s: float) -> tuple[tuple[steps.AnyStep, ...], str]:
    """Return the smallest failing sequence that also fails in a process of its own, and what it violates."""
    assert hunt.failure is not None
    found, violation = hunt.failure
    if not shrink_s or hunt.hung or len(found) < 2:
        return found, violation
    smaller, _ = make_smaller(hunt, found, violation, DELETION_FACTOR * shrink_s)
    repeated = play(hunt.pool, smaller)
    return (smaller, repeated) if repeated is not None else (found, violation)


def _play_fixed(one: Property, hunt: Hunt) -> None:
    session = None
    try:
        session = hunt.begin()
        for step in one.fixed:
            session.apply(step)
        session.close()
        hunt.ended(session)
    except Violation as violation:
        if session is None:
            hunt.failure = (), str(violation)
        else:
            hunt.failed(session, violation)
    finally:
        hunt.close()
