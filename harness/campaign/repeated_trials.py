"""Says whether a plan fails where its runs differ: it is run several times, and one failure is enough."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
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


GONE_BACK_TO = 3
"""So many plans that were accepted before are run again at least, however little of the effort is left."""

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

    def how_often(self, plan: TrialPlan, what: str = "the smallest") -> tuple[int, int]:
        """Return in how many of how many runs a plan fails. It may take as many runs again as a candidate."""
        failed = 0
        for number in range(1, self.effort.times + 1):
            self.trials += 1
            self.begins(f"run {number} of {self.effort.times} of {what}")
            failed += self.still_fails(plan)
        return failed, self.effort.times

    def newest_failing_again(self, accepted: Sequence[TrialPlan]) -> FailsAgain | None:
        """Return the newest of these plans that fails when it is run again; None if none of those that are run does.

        They come in the order in which they were accepted, each because it failed once, which may have been chance.
        Some are run even when the effort is spent: otherwise all of it was for nothing.
        """
        what = "the smallest"
        for number, plan in enumerate(reversed(accepted)):
            if self.spent and number > GONE_BACK_TO:
                return None
            failed_runs, runs = self.how_often(plan, what)
            if failed_runs:
                return FailsAgain(plan, failed_runs, runs)
            what = f"the one accepted before, as {'that' if number else 'the smallest'} did not fail again"
        return None


@dataclass(frozen=True, slots=True)
class FailsAgain:
    """A plan that failed in so many of so many runs, after it had been accepted."""

    plan: TrialPlan
    failed_runs: int
    runs: int
