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


class Finding(msgspec.Struct, frozen=True):
    """One checker's result: like a bank statement, with counts and the first, worst and last example."""

    checker: str
    """Name of the property, for instance ``exactly-once-output``."""
    clauses: tuple[str, ...]
    """Clause ids that the property covers."""
    verdict: Verdict
    summary: str
    """One sentence."""
    counts: dict[str, int] = {}
    examples: tuple[str, ...] = ()
    """At most ten, the first, the worst and the last among them."""
    details: dict[str, Any] = {}
