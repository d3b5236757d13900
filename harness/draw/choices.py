"""The basic choices on which all drawing is built."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

from hypothesis import strategies as st
from hypothesis.internal.conjecture.data import ConjectureData

from barrier_tck.harness.draw.profile import Range

_Option = TypeVar("_Option")


@lru_cache(maxsize=1024)
def numbers(least: int, most: int) -> st.SearchStrategy[int]:
    """Return the strategy for numbers from one bound to the other; it is kept, because making one takes time."""
    return st.integers(least, most)


def between(draw: st.DrawFn, bounds: Range) -> int:
    """Draw a number between two bounds, both included."""
    return draw(numbers(*bounds))


class _Chance(st.SearchStrategy[bool]):
    """Yes with a given probability. Hypothesis has no such strategy among its public ones.

    A number that is compared with a limit would not do: Hypothesis prefers small ones, so that 400 of 1,000 were 220.
    """

    def __init__(self, per_mille: int) -> None:
        super().__init__()
        self._probability = per_mille / 1_000

    def do_draw(self, data: ConjectureData) -> bool:
        """Draw one answer."""
        return data.draw_boolean(self._probability)


@lru_cache(maxsize=1024)
def _chances(per_mille: int) -> st.SearchStrategy[bool]:
    return _Chance(per_mille)


def chance(draw: st.DrawFn, per_mille: int) -> bool:
    """Draw yes or no, yes in ``per_mille`` of 1,000 cases; the simplest answer is no."""
    return per_mille > 0 and draw(_chances(per_mille))


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
