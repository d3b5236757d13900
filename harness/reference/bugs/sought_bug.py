"""A planted bug that is looked for among drawn plans, as if nobody knew it: how soon does a strategy find it?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, repeat

from barrier_tck.harness.draw.not_drawn import NotDrawn
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.reference.bugs.bug_file import PlantedBug
from barrier_tck.harness.reference.bugs.drawn_plans import DrawnPlans


@dataclass
class SoughtBug:
    """A planted bug with drawn plans instead of its own. No strategy learns whether its lines run in a trial."""

    bug: PlantedBug
    drawn: DrawnPlans
    trials: int
    """How many plans are tried at the most."""

    @property
    def id(self) -> str:
        return self.bug.id

    @property
    def clause(self) -> str:
        return self.bug.clause

    @property
    def description(self) -> str:
        return self.bug.description

    @property
    def worlds(self) -> tuple[str, ...]:
        return (self.drawn.system.world,)

    @property
    def learns(self) -> bool:
        """Whether the strategy learns from what trials reach."""
        return self.drawn.search.learns

    def ran_since_asked(self) -> None:
        """Return None, for not known."""

    def planted_in(self, plan: TrialPlan) -> TrialPlan:
        return self.bug.planted_in(plan)

    def plans(self, _world: str) -> Iterator[TrialPlan | NotDrawn]:
        """Yield the plans to try."""
        return islice(self.drawn.plans(repeat(None)), self.trials)

    def learn(self, reached: tuple[str, ...], promising: bool) -> None:
        self.drawn.learn(reached, promising)
