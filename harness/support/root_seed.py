"""The seed from which everything of a run is drawn: one that was given, or a new one.

A run that always drew from the same seed would repeat what it already knows. So a seed is new unless one is given,
and a new seed is printed before the run, which can be repeated with it.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass

SEEDS = 2**32
"""How many seeds may be drawn; a seed must be short enough to be copied."""


@dataclass(frozen=True, slots=True)
class RootSeed:
    """A seed, and whether it was drawn."""

    value: int
    drawn: bool

    def __str__(self) -> str:
        if self.drawn:
            return f"{self.value} (drawn; to repeat: --seed {self.value})"
        return f"{self.value} (given)"


def new_seed() -> int:
    """Return a random seed."""
    return secrets.randbelow(SEEDS)


def root_seed(given: int | None) -> RootSeed:
    """Return the given seed, or a new one."""
    return RootSeed(new_seed(), True) if given is None else RootSeed(given, False)
