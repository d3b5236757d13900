"""Injects forged messages: hands them over, and proves that they were."""

from __future__ import annotations

import time
from collections.abc import Callable

from barrier_tck.faults.injectors.injection import Injection, proved, skipped, unproved
from barrier_tck.faults.targets import Forgery, MessagesTarget


def forge_acknowledgement(
    target: MessagesTarget | None,
    what: str,
    forgery: Forgery,
    wait: Callable[[float], None] = time.sleep,
) -> Injection:
    """Forge an acknowledgement; ``what`` says whose it would be, ``wait`` waits (seconds) for proof."""
    if target is None:
        return skipped(what)
    description = target.description
    target.forge(forgery)
    if not proved(target.is_forged, wait):
        return unproved(description, "the forged acknowledgement was not handed over")
    return Injection("fired", description)
