"""One way to wait in tests: for a condition, with a limit that only a defect exceeds, however busy the machine is."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

PATIENCE_S = 300.0
"""How long to wait for what takes milliseconds on an idle machine."""


def eventually(what: str, condition: Callable[[], T], within_s: float = PATIENCE_S) -> T:
    """Ask until the condition returns something true, and return that; fail with `what` after `within_s` seconds."""
    deadline = time.monotonic() + within_s
    while not (result := condition()):
        assert time.monotonic() < deadline, f"not within {within_s:g} s: {what}"
        time.sleep(0.005)
    return result
