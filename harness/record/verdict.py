"""Three-valued verdicts. Composing takes the worst; a checker that crashes is UNKNOWN, never VALID."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Any

import msgspec


class Verdict(StrEnum):
    """What a checker says of one property in one trial."""

    VALID = "valid"
    UNKNOWN = "unknown"
    INVALID = "invalid"

    @property
    def severity(self) -> int:
        """Return 0 for valid, 1 for unknown, 2 for invalid."""
        return (Verdict.VALID, Verdict.UNKNOWN, Verdict.INVALID).index(self)

    @staticmethod
    def worst(verdicts: Iterable[Verdict]) -> Verdict:
        """Compose verdicts; without any verdict the result is UNKNOWN, because nothing was checked."""
        return max(verdicts, key=lambda verdict: verdict.severity, default=Verdict.UNKNOWN)


EXERCISED = "chances"
"""The count by which a checker says how often a fault exercised what it judged."""


class Evidence(msgspec.Struct, frozen=True, omit_defaults=True):
    """The first thing in a trial that shows that one clause is broken, and where it was seen."""

    clause: str
    """The clause that it breaks."""
    sentence: str
    """What was seen."""
    sign: str = ""
    """Of which kind it is: a row of the table in ``docs/checkers.md`` that leads from what is seen to a clause."""
    place: str = ""
    """The vertex, subtask, channel or file where it was seen; empty if it has no place."""
    checkpoint: int | None = None
    attempt: int | None = None
    operation: int | None = None
    """Which line of the history shows it first, from 0; None if only the end of the trial does."""
    at_ms: float | None = None
    """When that was, on the trial's clock."""
    after: str = ""
    """The fault that had struck before, with its time; empty if none had."""

    @property
    def where(self) -> str:
        """Place, checkpoint, attempt and time in words; empty if nothing of them is known."""
        found = (
            self.place and f"at {self.place}",
            self.checkpoint is not None and f"in checkpoint {self.checkpoint}",
            self.attempt is not None and f"of attempt {self.attempt}",
            self.at_ms is not None and f"at {self.at_ms:g} ms",
        )
        return " ".join(part for part in found if part)

    @property
    def description(self) -> str:
        """What was seen, where, and after which fault, as a sentence: what a reader should see first."""
        what = self.sign or self.sentence
        where = f", {self.where}" if self.where else ""
        return f"{what}{where}" + (f"; before it: {self.after}" if self.after else "")


class Finding(msgspec.Struct, frozen=True):
    """One checker's result: like a bank statement, with counts and the first, worst and last example."""

    checker: str
    """Name of the property, for instance ``exactly-once-output``."""
    clauses: tuple[str, ...]
    """Clause ids that the property covers. If it is broken, the clause that the evidence breaks first is the first."""
    verdict: Verdict
    summary: str
    """One sentence."""
    counts: dict[str, int] = {}
    examples: tuple[str, ...] = ()
    """At most ten, the first, the worst and the last among them."""
    details: dict[str, Any] = {}
    evidence: tuple[Evidence, ...] = ()
    """If INVALID: what shows which clause to be broken, one entry for each such clause, in the order in which it
    happened. Empty in records of versions before 0.2."""

    @property
    def broken(self) -> str:
        """The clause that was broken first; empty if the finding is not INVALID or names none."""
        if self.verdict is not Verdict.INVALID:
            return ""
        return self.evidence[0].clause if self.evidence else next(iter(self.clauses), "")

    @property
    def also(self) -> tuple[str, ...]:
        """The other clauses for which an INVALID finding speaks: broken later, or perhaps."""
        return tuple(clause for clause in self.clauses if clause != self.broken) if self.broken else ()

    @property
    def named_clauses(self) -> str:
        """The clauses in words: the one that was broken first, and which else are covered."""
        if not self.also:
            return ", ".join(self.clauses)
        return f"{self.broken}; also {', '.join(self.also)}"

    @property
    def first(self) -> Evidence | None:
        """What broke the first clause; None if the finding is not INVALID, or of a version before 0.2."""
        return next(iter(self.evidence), None)
