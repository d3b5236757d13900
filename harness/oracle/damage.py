"""What a trial did to durable storage, so that a system is not blamed for it."""

from __future__ import annotations

import re

from barrier_tck.faults.fault import CopyPlace, Fault
from barrier_tck.harness.oracle.checker import TrialContext

_SEPARATORS = re.compile(r"[\s,:]+")


def damaged_primaries(context: TrialContext) -> tuple[str, ...]:
    """Return what durable storage was damaged, as the fault records say: a system may find it unreadable (REC-4)."""
    return tuple(
        record.target
        for record in context.faults
        if record.outcome == "fired" and _damages_primaries(context.planned_faults[record.index].fault)
    )


def _damages_primaries(fault: Fault) -> bool:
    hit = fault.copies_hit
    return hit is not None and hit.place is CopyPlace.DURABLE and hit.damage is not None


def blames_what_was_harmed(problem: str, context: TrialContext) -> bool:
    """Tell whether a problem names a file of durable storage that the trial damaged."""
    harmed = [
        path for target in damaged_primaries(context) for path in _paths(target.partition(":")[2]) if path
    ]
    named = _paths(problem)
    return any(name == path or name.endswith(f"/{path}") for path in harmed for name in named)


def _paths(text: str) -> list[str]:
    return _SEPARATORS.split(text.strip())
