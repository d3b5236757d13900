"""Named child streams of one root seed, so that a draw added in one place does not reshuffle all others."""

from __future__ import annotations

import random


def stream(seed: int, name: str) -> random.Random:
    """Return the child stream of ``seed`` with this name; the same under any PYTHONHASHSEED."""
    return random.Random(f"{seed}/{name}")
