"""Guided: a plan whose trial reached what was seldom reached before is kept, and plans nearly like it are tried.

Of each generation some plans are drawn as ever. The others are drawn by the choices of a plan that is kept, but for a
few: faults, the seed of the schedule, times and sizes, or all faults of another plan. Plans are chosen by how seldom
what they reached has been reached since, and by how many plans like them have been tried already.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import sqrt
from random import Random

from barrier_tck.harness.draw.plans_alike import (
    Choices,
    DrawnPlan,
    Place,
    PlanSpace,
    drawn_like,
    drawn_plan,
)
from barrier_tck.harness.draw.stages import Stage
from barrier_tck.harness.support.errors import InternalError

GENERATION = 20
"""How many trials a generation has."""
ALIKE_PER_MILLE = 600
"""How many plans of a generation after the first are nearly like earlier ones."""
SELDOM = 8
"""What fewer trials reached was reached seldom."""
SOUGHT = 5.0
"""What a plan whose trial did what is looked for is worth beside what it reached: one name is worth 1 at the most."""
KEPT_MAX = 400
"""How many plans are kept; beyond that, those that are worth the least are given up."""

_WAYS = (("schedule", 3), ("faults", 5), ("times", 4), ("faults of another", 3), ("anything", 2))
"""In what a plan differs from the one that it is like, with weights."""
_TIMES = (Stage.SETTINGS, Stage.LOAD, Stage.LATER_JOBS, Stage.REST)


@dataclass(slots=True)
class _Kept:
    """A plan that reached something seldom."""

    number: int
    drawn: DrawnPlan
    seldom: tuple[str, ...]
    """What it reached that was seldom reached."""
    sought: bool
    """Whether its trial did what is looked for."""
    tried: int = 0
    """How many plans like it were tried."""


class Guided:
    """Draws plans like those that reached something new."""

    learns = True

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._drawn: dict[int, DrawnPlan] = {}
        """Trials whose results are not known yet."""
        self._learned = 0
        """How many trials it has learned from."""
        self._times: Counter[str] = Counter()
        """Name -> in how many trials it was reached, up to ``SELDOM``."""
        self._new: list[_Kept] = []
        """Plans of this generation that will be kept."""
        self._kept: list[_Kept] = []
        self._weights: list[float] = []

    def waits_before(self, number: int) -> bool:
        return number % GENERATION == 0 and self._learned < number

    def drawn(self, number: int, space: PlanSpace) -> DrawnPlan:
        if self.waits_before(number):
            raise InternalError(f"the plan of trial {number} follows from results that are not known yet")
        if number % GENERATION == 0:
            self._begin_generation()
        random = Random(f"{self._seed}/guided/{number}")
        drawn = self._alike(random) if self._kept and random.randrange(1_000) < ALIKE_PER_MILLE else None
        if drawn is None:
            drawn = drawn_plan(space, random)
        self._drawn[number] = drawn
        return drawn

    def learn(
        self, number: int, reached: Iterable[str], promising: bool, sought: bool = False
    ) -> tuple[str, ...]:
        if number != self._learned:
            raise InternalError(f"trial {number} is to be learned from, but {self._learned} is the next one")
        self._learned += 1
        drawn = self._drawn.pop(number, None)  # None: it could not be drawn
        seldom = tuple(name for name in reached if self._times[name] < SELDOM)
        self._times.update(seldom)
        if (seldom or sought) and promising and drawn is not None:
            self._new.append(_Kept(number, drawn, seldom, sought))
        return seldom

    def _begin_generation(self) -> None:
        self._kept += self._new
        self._new = []
        worth = {kept.number: self._worth(kept) for kept in self._kept}
        self._kept.sort(key=lambda kept: (-worth[kept.number], kept.number))
        del self._kept[KEPT_MAX:]
        self._weights = list(accumulate(worth[kept.number] for kept in self._kept))

    def _worth(self, kept: _Kept) -> float:
        """Return how often plans like this one are to be tried, compared with others."""
        reached = sum(1 / self._times[name] ** 2 for name in kept.seldom)
        return (reached + SOUGHT * kept.sought) / sqrt(1 + kept.tried)

    def _alike(self, random: Random) -> DrawnPlan | None:
        """Draw a plan nearly like one that is kept; None if nothing came of it but the same plan."""
        kept, other = random.choices(self._kept, cum_weights=self._weights, k=2)
        kept.tried += 1
        choices, changed = _differing(kept.drawn.choices, other.drawn.choices, random)
        drawn = drawn_like(kept.drawn.space, random, choices, changed)
        return None if drawn.plan == kept.drawn.plan else drawn


def _differing(own: Choices, others: Choices, random: Random) -> tuple[Choices, dict[Place, list[int]]]:
    """Return the choices by which a plan like another is drawn, and which of them are to be changed."""
    (way,) = random.choices([name for name, _ in _WAYS], [weight for _, weight in _WAYS])
    of_faults = [place for place in own if place[0] is Stage.FAULTS]
    match way:
        case "schedule":
            return own, {(Stage.SEED, 0): [0]}
        case "faults" if of_faults:
            return own, _some(own, of_faults, random)
        case "times":
            return own, _some(own, [place for place in own if place[0] in _TIMES], random)
        case "faults of another":
            rest = {place: made for place, made in own.items() if place[0] is not Stage.FAULTS}
            return rest | {place: made for place, made in others.items() if place[0] is Stage.FAULTS}, {}
    return own, _some(own, list(own), random)


def _some(own: Choices, places: Sequence[Place], random: Random) -> dict[Place, list[int]]:
    """Return one to three of the choices at some places."""
    all_of_them = [(place, index) for place in places for index in range(len(own[place]))]
    chosen: dict[Place, list[int]] = {}
    for place, index in random.sample(all_of_them, min(random.choice((1, 1, 2, 3)), len(all_of_them))):
        chosen.setdefault(place, []).append(index)
    return chosen
