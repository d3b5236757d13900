"""Ways to break recovery on purpose, for control trials; each of them has really happened in a system.

A *control* runs a plan again with one of these. If the plan's own trial exercised what is broken, but
the control is not INVALID, the campaign could not have found a violation either: its VALID is vacuous.
"""

from __future__ import annotations

from enum import StrEnum


class BrokenRecovery(StrEnum):
    """What is broken."""

    READ_AGAIN = "read-again"
    STATE_DROPPED = "state-dropped"
    COMMITTED_EARLY = "committed-early"
    UNFENCED = "unfenced"

    @property
    def description(self) -> str:
        """Return what is wrong, as a clause of a sentence."""
        return _BROKEN[self][0]

    @property
    def clauses(self) -> tuple[str, ...]:
        """Return the ids of the clauses that it breaks."""
        return _BROKEN[self][1]


_BROKEN = {
    BrokenRecovery.READ_AGAIN: ("records before the restored position are read again", ("SRC-1", "REC-1")),
    BrokenRecovery.STATE_DROPPED: ("keyed state is dropped at a restore", ("REC-1",)),
    BrokenRecovery.COMMITTED_EARLY: (
        "transactions are committed before their checkpoint completes",
        ("SNK-1",),
    ),
    BrokenRecovery.UNFENCED: (
        "pending checkpoints of a failed attempt are carried into the next one",
        ("REC-2",),
    ),
}


class Vacuity(StrEnum):
    """Why a trial would not have shown a broken recovery."""

    NOT_RECOVERED = "not-recovered"
    TOO_EARLY = "too-early"
    INPUT_WAS_READ = "input-was-read"
    NOTHING_KEPT = "nothing-kept"
    NOTHING_PENDING = "nothing-pending"
    NOTHING_PREPARED = "nothing-prepared"
    NOT_COMPARED = "not-compared"
    EXCUSED = "excused"
    NOT_REPORTED = "not-reported"

    @property
    def description(self) -> str:
        """Return the reason as a clause of a sentence."""
        return _REASONS[self]


_REASONS = {
    Vacuity.NOT_RECOVERED: "no attempt after the first came to run",
    Vacuity.TOO_EARLY: "nothing was restored, for the faults struck before a checkpoint with any input was complete",
    Vacuity.INPUT_WAS_READ: "all input had been read before what was restored, so the restored state was never used",
    Vacuity.NOTHING_KEPT: "what was restored held no state, and no record before it had an effect",
    Vacuity.NOTHING_PENDING: "no checkpoint was pending when an attempt failed",
    Vacuity.NOTHING_PREPARED: "no sink had prepared output for a checkpoint that its attempt did not complete",
    Vacuity.NOT_COMPARED: "nothing was compared that would have differed",
    Vacuity.NOT_REPORTED: "the system does not report what would show it",
    Vacuity.EXCUSED: "an older checkpoint or savepoint was rightly restored, which excuses a difference",
}
