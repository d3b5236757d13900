"""PCT: plans as ever, and in the simulator's schedule processes have random priorities that change a few times."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import msgspec

from barrier_tck.harness.draw.plans_alike import DrawnPlan, PlanSpace, drawn_plan
from barrier_tck.harness.draw.search.search import EachByItself

CHANGE_POINTS = (0, 1, 1, 2, 3, 5)
"""How often a priority changes: each of these is equally likely."""


class Priorities(EachByItself):
    """Draws each plan by itself."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def drawn(self, number: int, space: PlanSpace) -> DrawnPlan:
        random = Random(f"{self._seed}/pct/{number}")
        drawn = drawn_plan(space, random)
        network = msgspec.structs.replace(drawn.plan.network, change_points=random.choice(CHANGE_POINTS))
        return replace(drawn, plan=msgspec.structs.replace(drawn.plan, network=network))
