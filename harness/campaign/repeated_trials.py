"""Says whether a plan fails where its runs differ: it is run several times, and one failure is enough."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from barrier_tck.harness.campaign.shrinking import StillFails
from barrier_tck.harness.plan.trial_plan import TrialPlan


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is done to make the plans of a campaign's failing trials smaller."""

    times: int
    """How often a candidate is run at most until it fails."""
    trials: int
    """How many trials all of this may take."""
    seconds: float
    """How long it may take, by the clock."""


IN_REAL_TIME = Effort(times=3, trials=30, seconds=300.0)
"""Where a trial takes seconds and its runs differ."""


@dataclass(slots=True)
class Repeated:
    """Runs candidates of one shrinking; when the effort is spent, every candidate counts as one that does not fail."""

    still_fails: StillFails
    effort: Effort
    begins: Callable[[str], None] = lambda _: None
    """Is told before each run which it is."""
    trials: int = 0
    _until: float = field(init=False)

    def __post_init__(self) -> None:
        self._until = time.monotonic() + self.effort.seconds

    @property
    def spent(self) -> bool:
        """Whether no further trial may begin."""
        return self.trials >= self.effort.trials or time.monotonic() >= self._until

    def fails(self, plan: TrialPlan) -> bool:
        """Return whether a plan fails at least once."""
        for _ in range(self.effort.times):
            if self.spent:
                return False
            self.trials += 1
            self.begins(f"run {self.trials} of at most {self.effort.trials}")
            if self.still_fails(plan):
                return True
        return False

    def how_often(self, plan: TrialPlan) -> tuple[int, int]:
        """Return in how many of how many runs a plan fails. It may take as many runs again as a candidate."""
        failed = 0
        for number in range(1, self.effort.times + 1):
            self.trials += 1
            self.begins(f"run {number} of {self.effort.times} of the smallest")
            failed += self.still_fails(plan)
        return failed, self.effort.times
