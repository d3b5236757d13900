"""The two basic choices that all drawing is made of."""

from __future__ import annotations

from hypothesis import strategies as st

from barrier_tck.harness.draw.profiles import Range


def between(draw: st.DrawFn, bounds: Range) -> int:
    """Draw a number between two bounds, both included."""
    return draw(st.integers(*bounds))


def chance(draw: st.DrawFn, per_mille: int) -> bool:
    """Draw yes or no, yes in ``per_mille`` of 1,000 cases; the simplest answer is no."""
    return per_mille > 0 and draw(st.integers(0, 999)) >= 1_000 - per_mille
