"""The smallest few of very many values, without keeping the others."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any, Generic, TypeVar

_Value = TypeVar("_Value")


class Smallest(Generic[_Value]):
    """Keeps the smallest values that it was given, by a key, and counts all."""

    def __init__(self, most: int, key: Callable[[_Value], Any]) -> None:
        """Take how many are kept, and by what they are ordered; two values should not have the same key."""
        self._most = most
        self._key = key
        self._kept: list[_Value] = []
        self.count = 0
        """How many values were given."""

    def add(self, value: _Value) -> None:
        """Take one more value."""
        self.count += 1
        self._kept.append(value)
        # Twice as many may wait, so that each value costs a constant time on average.
        if len(self._kept) >= 2 * self._most:
            self._kept = heapq.nsmallest(self._most, self._kept, self._key)

    def values(self) -> tuple[_Value, ...]:
        """Return the smallest, the smallest first."""
        return tuple(heapq.nsmallest(self._most, self._kept, self._key))
