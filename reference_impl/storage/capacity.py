"""What a checkpoint storage may tell of the room that it has; a storage need not have either (STA-2)."""

from __future__ import annotations

from typing import Protocol, runtime_checkable


@runtime_checkable
class HasCapacityLimit(Protocol):
    """A storage that refuses to hold more than some bytes, of all jobs together."""

    @property
    def limit_bytes(self) -> int:
        """Return the most bytes that it holds."""


@runtime_checkable
class ReportsUsage(Protocol):
    """A storage that knows how many bytes it holds."""

    @property
    def held_bytes(self) -> int:
        """Return how many bytes it holds now, of all jobs together: those that count for its limit, if it has one."""
