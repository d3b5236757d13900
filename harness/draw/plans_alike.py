"""Plans with the choices by which they were drawn, and plans that are drawn by nearly the same choices as another.

A plan that is changed afterwards may ask too much: what can happen in it is only known to what draws it. So it is the
choices that are changed, and the plan is drawn again: it is one that could have been drawn anyway, with another
probability. Choices are compared within a stage, and by their bounds: what has no counterpart is drawn anew.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from hypothesis.internal.conjecture.data import ConjectureData

from barrier_tck.harness.draw.constraints import ANYWHERE, Constraints
from barrier_tck.harness.draw.profile import Profile
from barrier_tck.harness.draw.stages import Stage
from barrier_tck.harness.draw.strategies import PlainProvider, trial_plans
from barrier_tck.harness.plan.trial_plan import FilledPlan
from barrier_tck.harness.support.garbage_collection import no_collection

LOOKS_AHEAD = 12
"""A choice without its counterpart at the same place is looked for among so many of the following ones."""
NEIGHBOURS = 0.5
"""The share of changed numbers that become the next one, up or down; the others become any."""


Bounds = tuple[Any, ...]
"""The kind of a choice, and between what it was made."""


@dataclass(frozen=True, slots=True)
class PlanSpace:
    """From what plans are drawn."""

    profile: Profile
    constraints: Constraints = ANYWHERE
    kinds: tuple[str, ...] | None = None
    """The kind of each fault, in order; None: drawn by the weights of the profile."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One choice: its value, and the bounds within which it was made."""

    value: bool | int | bytes
    bounds: Bounds


Place = tuple[Stage, int]
"""A stage and which one of its kind it is, from 0: there is one of faults for each fault, after one for all."""
Choices = Mapping[Place, tuple[Choice, ...]]


@dataclass(frozen=True, slots=True)
class DrawnPlan:
    """A plan, and how it was drawn."""

    plan: FilledPlan
    space: PlanSpace
    choices: Choices = field(default_factory=dict, repr=False)
    """Empty if they were not noted."""


def drawn_plan(space: PlanSpace, random: Random) -> DrawnPlan:
    """Draw a plan with numbers of ``random``."""
    return _drawn(space, random, {}, {})


def drawn_like(
    space: PlanSpace, random: Random, choices: Choices, changed: Mapping[Place, Sequence[int]]
) -> DrawnPlan:
    """Draw a plan by given choices, but for those that are to be ``changed``: of a stage, by their numbers."""
    return _drawn(space, random, choices, changed)


def _drawn(
    space: PlanSpace, random: Random, choices: Choices, changed: Mapping[Place, Sequence[int]]
) -> DrawnPlan:
    data = ConjectureData(
        random=random, provider=_Following, provider_kw={"choices": choices, "changed": changed}
    )
    with no_collection():
        plan = data.draw(trial_plans(space.profile, space.constraints, space.kinds))
    assert isinstance(data.provider, _Following)
    return DrawnPlan(plan, space, data.provider.made())


class _Following(PlainProvider):
    """Makes the choices that it is given, and notes all that are made."""

    def __init__(
        self, data: ConjectureData, /, choices: Choices, changed: Mapping[Place, Sequence[int]]
    ) -> None:
        super().__init__(data)
        self._given = choices
        self._changed = changed
        self._made: dict[Place, list[Choice]] = {}
        self._within = False
        """Whether a choice is being made that Hypothesis makes up of several."""
        self._own: list[Choice] = []
        self._theirs: tuple[Choice, ...] = ()
        self._to_change: Sequence[int] = ()
        self._next = 0

    def begins(self, stage: Stage) -> None:
        """Take the choices of the next stage."""
        place = (stage, sum(stage is known for known, _ in self._made))
        self._own = self._made[place] = []
        self._theirs = self._given.get(place, ())
        self._to_change = self._changed.get(place, ())
        self._next = 0

    def made(self) -> Choices:
        """Return all choices."""
        return {place: tuple(made) for place, made in self._made.items() if made}

    def draw_boolean(self, p: float = 0.5) -> bool:
        if self._within or p <= 0 or p >= 1:
            return super().draw_boolean(p)
        return bool(self._choose(("boolean", p), lambda: super(_Following, self).draw_boolean(p)))

    def draw_integer(self, min_value: int | None = None, max_value: int | None = None, **others: Any) -> int:
        if self._within or min_value == max_value:
            return super().draw_integer(min_value, max_value, **others)
        return int(
            self._choose(
                ("integer", min_value, max_value),
                lambda: super(_Following, self).draw_integer(min_value, max_value, **others),
            )
        )

    def draw_bytes(self, min_size: int = 0, max_size: int = 8) -> bytes:
        return bytes(
            self._choose(
                ("bytes", min_size, max_size), lambda: super(_Following, self).draw_bytes(min_size, max_size)
            )
        )

    def _choose(self, bounds: Bounds, anew: Callable[[], Any]) -> Any:
        """Return the given choice that comes next if it fits, and otherwise make it anew."""
        place = next(
            (
                place
                for place in range(self._next, min(self._next + LOOKS_AHEAD, len(self._theirs)))
                if self._theirs[place].bounds == bounds
            ),
            None,
        )
        if place is None:
            value = self._made_anew(anew)
        else:
            self._next = place + 1
            value = self._theirs[place].value
            if place in self._to_change:
                value = self._other(value, bounds, anew)
        self._own.append(Choice(value, bounds))
        return value

    def _made_anew(self, anew: Callable[[], Any]) -> Any:
        self._within = True
        try:
            return anew()
        finally:
            self._within = False

    def _other(self, value: Any, bounds: Bounds, anew: Callable[[], Any]) -> Any:
        """Return another value: often the one beside a number, else any."""
        assert self._random is not None
        if isinstance(value, bool):
            return not value
        if isinstance(value, int) and self._random.random() < NEIGHBOURS:
            _, least, most = bounds
            beside = [other for other in (value - 1, value + 1) if least <= other <= most]
            return self._random.choice(beside)
        return self._made_anew(anew)
