"""Signs: kinds of evidence, each of which breaks one clause, and what a checker saw of them.

A checker that speaks for several clauses has a sign for each way in which it can say INVALID. The table of all signs in
``docs/checkers.md`` is made from them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


@dataclass(frozen=True, slots=True)
class Sign:
    """A kind of evidence."""

    seen: str
    """What is seen, as the beginning of a sentence: 'records are missing that were in flight'."""
    clause: str
    """The clause that is broken if it is seen."""


class Directness(IntEnum):
    """How near to its cause a checker looks: of evidence at one moment, the nearer one names the trial's clause."""

    OPERATIONS = 0
    """At what processes do: an operation breaks a rule by itself."""
    MESSAGES = 1
    """At the messages between them."""
    CONTENT = 2
    """At what checkpoints and output hold."""
    ABSENCE = 3
    """At what did not happen although it was due."""


@dataclass(frozen=True, slots=True)
class Breach:
    """One thing that is wrong in a trial."""

    sign: Sign
    sentence: str
    operation: int | None = None
    """Which line of the history shows it; None if only the end of the trial does."""
    place: str = ""
    checkpoint: int | None = None
    attempt: int | None = None
