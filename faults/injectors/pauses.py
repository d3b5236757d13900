"""Injects pauses: stops a process, proves that it stands still, and lets it go on later.

A process that was replaced while it stood still is a zombie when it goes on (REC-2).
"""

from __future__ import annotations

import time
from collections.abc import Callable

from barrier_tck.faults.injectors.injection import Injection, proved, skipped, unproved
from barrier_tck.faults.targets import PausableTarget, ProcessTarget, TargetGone


def pause_process(
    target: ProcessTarget | None, role: str, wait: Callable[[float], None] = time.sleep
) -> Injection:
    """Stop a process; ``wait`` waits (seconds) between questions for the proof."""
    if target is None:
        return skipped(role)
    description = target.description
    if not isinstance(target, PausableTarget):
        return Injection("skipped", description, f"the system's {role} cannot be paused")
    try:
        target.pause()
    except TargetGone as gone:
        return Injection("not_fired", description, f"the target was already dead: {gone}")
    if not proved(target.is_paused, wait):
        target.resume()
        return unproved(description, "the target still ran")
    return Injection("fired", description, heal=target.resume)
