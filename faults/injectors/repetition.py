"""Injects faults of control messages: makes them arrive twice, proves that this is in force, and ends it."""

from __future__ import annotations

import time
from collections.abc import Callable

from barrier_tck.faults.injectors.injection import Injection, proved, skipped, unproved
from barrier_tck.faults.targets import Direction, MessagesTarget


def repeat_messages(
    target: MessagesTarget | None,
    what: str,
    direction: Direction,
    late_ms: float,
    wait: Callable[[float], None] = time.sleep,
) -> Injection:
    """Make messages arrive again, ``late_ms`` later; ``what`` says whose, ``wait`` waits (seconds) for proof."""
    if target is None:
        return skipped(what)
    description = target.description
    target.repeat(direction, late_ms)
    if not proved(target.is_repeating, wait):
        target.stop()
        return unproved(description, "its messages were not repeated")
    return Injection("fired", description, heal=target.stop)
