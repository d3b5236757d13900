"""Planted bugs of candidates, and how many of them a suite catches when it runs as for a third party (CER-2)."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from barrier_tck.harness.certify.engine.certificate import PropertyOutcome, Strength
from barrier_tck.harness.support.notices import notice

NOTICE_S = 10.0
"""How often it is said how far the hunt is."""


@dataclass(frozen=True, slots=True)
class PlantedBug:
    """One planted bug."""

    id: str
    name: str
    """The class or function that has it."""
    clause: str
    source: str
    description: str
    caught_by: str
    """The property that must catch it, by the name of its clause."""
    module: str = ""
    """Where the name is, in Python."""
    scale: float = 1.0
    """The scale of that property that suffices."""
    settings: tuple[str, ...] = ()
    """What the candidate must be set to, for the bug to be there."""

    @property
    def target(self) -> str:
        """What a third party would give on the command line."""
        return f"{self.module}:{self.name}"


NOT_YET = "interrupted before it was measured"
"""The note of a strength of which only some bugs were run so far."""
NO_STRENGTH = Strength(measured=False, note=NOT_YET)
KeepStrength = Callable[[Strength], None]
"""Called after every planted bug with what was measured so far."""


def drop_strength(so_far: Strength) -> None:
    """Keep nothing until the end: a ``KeepStrength`` for those who have no place for it."""


def strength_of(
    planted: Sequence[PlantedBug],
    hunted: Callable[[PlantedBug], PropertyOutcome],
    before: Strength = NO_STRENGTH,
    keep: KeepStrength = drop_strength,
) -> Strength:
    """Hunt every bug with the property that must catch it; the score goes on the certificate.

    Bugs that were caught or missed ``before``, when the measurement was interrupted, are not hunted again.
    """
    if before.measured:
        return before
    known = dict.fromkeys(before.caught, "failed") | dict.fromkeys(before.missed, "passed")
    found = {bug.id: known[bug.id] for bug in planted if bug.id in known}
    caught = sum(status == "failed" for status in found.values())
    said = time.monotonic()
    was_run = f", {len(found)} of which were run before" if found else ""
    notice(f"measuring how strong the suite is: {len(planted)} planted bugs{was_run}")
    for bug in planted:
        if bug.id in found:
            continue
        found[bug.id] = hunted(bug).status
        caught += found[bug.id] == "failed"
        keep(_so_far(found))
        if time.monotonic() - said >= NOTICE_S:
            said = time.monotonic()
            notice(f"strength: {len(found)} of {len(planted)} planted bugs were run, {caught} caught")
    found = {bug.id: found[bug.id] for bug in planted}
    unsure = [name for name, status in found.items() if status == "unknown"]
    return Strength(
        measured=True,
        caught=tuple(name for name, status in found.items() if status == "failed"),
        missed=tuple(name for name, status in found.items() if status != "failed"),
        note=f"{', '.join(unsure)}: the machine is too slow to tell" if unsure else "",
    )


def _so_far(found: Mapping[str, str]) -> Strength:
    """Return what is known when only some bugs were hunted; one of which nothing is known is hunted again."""
    return Strength(
        measured=False,
        caught=tuple(name for name, status in found.items() if status == "failed"),
        missed=tuple(name for name, status in found.items() if status == "passed"),
        note=NOT_YET,
    )
