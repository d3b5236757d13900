"""What a strategy is: it gives each trial its plan, and may learn from what the trials before it reached.

A strategy depends on the root seed and on the results that it learned, never on the time at which it learned them. One
that learns works in generations: the plans of a generation follow from what all trials of the generations before
reached. So a trial has the same plan in one process, in several, and after an interruption.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from barrier_tck.harness.draw.plans_alike import DrawnPlan, PlanSpace
from barrier_tck.harness.draw.strategies import draw_plan


class Search(Protocol):
    """Gives trials their plans. Trials are counted from 0, and only those whose plans are drawn."""

    @property
    def learns(self) -> bool:
        """Whether ``learn`` is to be called with what trials reached."""

    def drawn(self, number: int, space: PlanSpace) -> DrawnPlan:
        """Return a trial's plan, drawn from ``space``, or nearly like an earlier plan and from the space of that."""

    def waits_before(self, number: int) -> bool:
        """Return whether the plan of a trial follows from results that are not known yet."""

    def learn(
        self, number: int, reached: Iterable[str], promising: bool, sought: bool = False
    ) -> tuple[str, ...]:
        """Learn what a trial reached, in the order of the trials; return those names that were seldom reached before.

        ``promising``: whether plans like this one may be tried. ``sought``: whether the trial did what is looked for,
        for instance ran the lines of a patch, so that such plans are worth more. When a campaign is resumed, the
        returned names are enough for ``reached``.
        """


class EachByItself:
    """What strategies have in common that learn nothing: each plan follows from the seed and its number."""

    learns = False

    def waits_before(self, number: int) -> bool:
        return False

    def learn(
        self, number: int, reached: Iterable[str], promising: bool, sought: bool = False
    ) -> tuple[str, ...]:
        return ()


class Uniform(EachByItself):
    """Draws each plan as its profile says."""

    def __init__(self, first_seed: int) -> None:
        """``first_seed`` is that of trial 0; those of the others follow."""
        self._first_seed = first_seed

    def drawn(self, number: int, space: PlanSpace) -> DrawnPlan:
        seed = self._first_seed + number
        return DrawnPlan(draw_plan(seed, space.profile, space.constraints, space.kinds), space)
