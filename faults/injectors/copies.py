"""Injects faults of stored state: damages copies, or lets writes fail or be late, and proves it."""

from __future__ import annotations

import time
from collections.abc import Callable

from barrier_tck.faults.injectors.injection import Injection, proved, skipped, unproved
from barrier_tck.faults.targets import (
    CopiesTarget,
    Damage,
    DisturbableWrites,
    TargetGone,
    WriteFault,
    WritesTarget,
)


def damage_copies(
    target: CopiesTarget | None, role: str, damage: Damage, wait: Callable[[float], None] = time.sleep
) -> Injection:
    """Damage the copies that exist; ``wait`` waits (seconds) between questions for the proof."""
    if target is None:
        return skipped(role)
    try:
        target.damage(damage)
    except TargetGone as gone:
        return Injection("not_fired", target.description, f"there was nothing to hit: {gone}")
    return _proved_of(target, target.is_damaged, "a copy was still intact", wait)


def refuse_writes(
    target: WritesTarget | None, role: str, checkpoints: int, wait: Callable[[float], None] = time.sleep
) -> Injection:
    """Let further writes fail, for ``checkpoints`` checkpoints if they are durable; ``wait`` as above."""
    if target is None:
        return skipped(role)
    try:
        target.refuse_writes(checkpoints)
    except TargetGone as gone:
        return Injection("not_fired", target.description, f"there was nothing to hit: {gone}")
    return _proved_of(target, target.refuses_writes, "writes were still possible", wait)


def disturb_writes(
    target: DisturbableWrites | None,
    trouble: WriteFault,
    times: int,
    latency_ms: int,
    wait: Callable[[float], None] = time.sleep,
) -> Injection:
    """Disturb the next writes, which is proved by one that was disturbed; ``wait`` as above."""
    if target is None:
        return skipped("writes of checkpoint files")
    try:
        target.disturb(trouble, times, latency_ms)
    except TargetGone as gone:
        return Injection("not_fired", target.description, f"no process could write: {gone}")
    if not proved(target.is_struck, wait):
        return unproved(target.description, "no write was disturbed")
    return Injection("fired", target.description, met=target.has_met)


def _proved_of(
    target: WritesTarget, proof: Callable[[], bool], missing: str, wait: Callable[[float], None]
) -> Injection:
    if not proved(proof, wait):
        return unproved(target.description, missing)
    return Injection("fired", target.description, files=target.files)
