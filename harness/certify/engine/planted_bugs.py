"""Planted bugs of candidates, and how many of them a suite catches when it runs as for a third party (CER-2)."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
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


def strength_of(planted: Sequence[PlantedBug], hunted: Callable[[PlantedBug], PropertyOutcome]) -> Strength:
    """Hunt every bug with the property that must catch it; the score goes on the certificate."""
    found, caught = dict[str, str](), 0
    said = time.monotonic()
    notice(f"measuring how strong the suite is: {len(planted)} planted bugs")
    for bug in planted:
        found[bug.id] = hunted(bug).status
        caught += found[bug.id] == "failed"
        if time.monotonic() - said >= NOTICE_S:
            said = time.monotonic()
            notice(f"strength: {len(found)} of {len(planted)} planted bugs were run, {caught} caught")
    unsure = [name for name, status in found.items() if status == "unknown"]
    return Strength(
        measured=True,
        caught=tuple(name for name, status in found.items() if status == "failed"),
        missed=tuple(name for name, status in found.items() if status != "failed"),
        note=f"{', '.join(unsure)}: the machine is too slow to tell" if unsure else "",
    )
