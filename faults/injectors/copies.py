"""Injects faults of state copies: damages them, or lets writes of them fail, and proves it."""

from __future__ import annotations

import time
from collections.abc import Callable

from barrier_tck.faults.injectors.injection import Injection, proved, skipped, unproved
from barrier_tck.faults.targets import CopiesTarget, TargetGone, Targets
from barrier_tck.faults.vocabulary import (
    DamageLocalCopy,
    DamagePrimary,
    FailLocalWrites,
    FailPrimaryWrites,
    Fault,
)


def harm_copies(fault: Fault, targets: Targets, wait: Callable[[float], None] = time.sleep) -> Injection:
    """Carry out a storage fault; ``wait`` waits (seconds) between questions for the proof."""
    target, role = _find(fault, targets)
    if target is None:
        return skipped(role)
    try:
        match fault:
            case DamageLocalCopy(damage=damage) | DamagePrimary(damage=damage):
                target.damage(damage)
                proof, missing = target.is_damaged, "a copy was still intact"
            case FailPrimaryWrites(checkpoints=checkpoints):
                target.refuse_writes(checkpoints)
                proof, missing = target.refuses_writes, "writes were still possible"
            case _:
                target.refuse_writes(1)
                proof, missing = target.refuses_writes, "writes were still possible"
    except TargetGone as gone:
        return Injection("not_fired", target.description, f"there was nothing to hit: {gone}")
    if not proved(proof, wait):
        return unproved(target.description, missing)
    return Injection("fired", target.description)


def _find(fault: Fault, targets: Targets) -> tuple[CopiesTarget | None, str]:
    match fault:
        case DamageLocalCopy(subtask=subtask) | FailLocalWrites(subtask=subtask):
            return targets.local_copies_of(subtask), f"local copies of {subtask}"
        case DamagePrimary(subtask=subtask) | FailPrimaryWrites(subtask=subtask):
            return targets.primary_of(subtask), f"durable copy of {subtask}"
    raise TypeError(f"{type(fault).__name__} is no fault of copies")
