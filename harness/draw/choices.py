"""The basic choices on which all drawing is built."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

from hypothesis import strategies as st

from barrier_tck.harness.draw.profile import Range

_Option = TypeVar("_Option")


@lru_cache(maxsize=1024)
def numbers(least: int, most: int) -> st.SearchStrategy[int]:
    """Return the strategy for numbers from one bound to the other; it is kept, because making one takes time."""
    return st.integers(least, most)


def between(draw: st.DrawFn, bounds: Range) -> int:
    """Draw a number between two bounds, both included."""
    return draw(numbers(*bounds))


def chance(draw: st.DrawFn, per_mille: int) -> bool:
    """Draw yes or no, yes in ``per_mille`` of 1,000 cases; the simplest answer is no."""
    return per_mille > 0 and draw(numbers(0, 999)) >= 1_000 - per_mille


@dataclass(frozen=True, slots=True)
class DrawnChoices:
    """Hypothesis as the chooser of ``barrier_tck.faults.drawing``."""

    draw: st.DrawFn

    def between(self, bounds: Range) -> int:
        """Choose a number."""
        return between(self.draw, bounds)

    def one_of(self, options: Sequence[_Option]) -> _Option:
        """Choose one of several."""
        return self.draw(st.sampled_from(options))

    def chance(self, per_mille: int) -> bool:
        """Choose yes or no."""
        return chance(self.draw, per_mille)
