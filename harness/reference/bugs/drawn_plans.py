"""The plans of a hunt that nobody wrote: they are drawn from several profiles in turn, as a strategy says."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count

from barrier_tck.harness.draw.constraints import Constraints
from barrier_tck.harness.draw.not_drawn import NotDrawn
from barrier_tck.harness.draw.plans_alike import DrawnPlan, PlanSpace
from barrier_tck.harness.draw.profiles import profile_named
from barrier_tck.harness.draw.search.search import Search
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.system.system_under_test import SystemUnderTest
from barrier_tck.harness.system.taken_settings import takes_settings

_SELDOM = 8
"""A profile none of whose plans ran the patched lines has its turn so much more seldom than one whose plans all did."""


@dataclass
class _Turns:
    """How often a profile had its turn, and how many of its plans ran the patched lines."""

    space: PlanSpace
    tried: int = 0
    ran: int = 0

    @property
    def waits(self) -> float:
        """Return by what the profiles are put in order: the one with the smallest number is next."""
        return self.tried / max(self.ran / max(1, self.tried), 1 / _SELDOM)


@dataclass
class DrawnPlans:
    """The plans of one hunt. After each plan it learns the result of the trial."""

    profiles: Sequence[str]
    system: SystemUnderTest
    search: Search
    _told: tuple[tuple[str, ...], bool] = field(default=((), False), init=False)
    """What the latest trial reached, and whether plans like its plan may be tried."""

    def plans(self, ran: Iterable[bool | None]) -> Iterator[TrialPlan | NotDrawn]:
        """Yield plans without end, more of those profiles whose plans run the patched lines; one that cannot be drawn
        counts as one that is tried. ``ran`` gives whether the lines ran in the trial of the latest plan.
        """
        constraints = Constraints(
            self.system.job, self.system.capabilities, takes=partial(takes_settings, self.system)
        )
        turns = [_Turns(PlanSpace(profile_named(name), constraints)) for name in self.profiles]
        latest = iter(ran)
        for number in count():
            turn = min(turns, key=lambda each: each.waits)
            drawn = self._drawn(number, turn.space)
            yield drawn.plan if isinstance(drawn, DrawnPlan) else drawn
            did_run = next(latest)
            if isinstance(drawn, NotDrawn) or drawn.space is turn.space or not self.search.learns:
                turn.tried += 1
                turn.ran += did_run is not False
            if self.search.learns:
                names, promising = self._told
                if did_run:
                    # What comes together with the patched lines is worth as much as what comes at all.
                    names += tuple(f"{name}, and the patched lines ran" for name in names)
                self.search.learn(number, names, promising, sought=bool(did_run))
            self._told = (), False

    def learn(self, reached: tuple[str, ...], promising: bool) -> None:
        """Take what the trial of the latest plan reached."""
        self._told = reached, promising

    def _drawn(self, number: int, space: PlanSpace) -> DrawnPlan | NotDrawn:
        try:
            return self.search.drawn(number, space)
        except Exception as error:  # noqa: BLE001 - it is counted and shown, and the other plans are tried
            return NotDrawn(error)
