"""Injects process faults: kills what a deployment exposes, and proves that it is dead.

Knows nothing about the system but ``barrier_tck.faults.targets``: the same code kills a simulated executor and a real
one.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from barrier_tck.faults.injectors.injection import Injection, proved, skipped, unproved
from barrier_tck.faults.targets import ProcessTarget, TargetGone


def kill_process(
    target: ProcessTarget | None,
    role: str,
    wait: Callable[[float], None] = time.sleep,
    lose_unsynced: bool = False,
) -> Injection:
    """Kill a process; ``role`` says whose for the log, ``wait`` waits (seconds) between questions for the proof."""
    if target is None:
        return skipped(role)
    description = target.description
    try:
        target.kill(lose_unsynced=lose_unsynced)
    except TargetGone as gone:
        return Injection("not_fired", description, f"the target was already dead: {gone}")
    if not proved(target.is_dead, wait):
        return unproved(description, "the target was still alive")
    return Injection("fired", description)
