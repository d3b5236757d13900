"""The store itself: finds what was kept, keeps more, and moves what passes now.

A store helps a campaign and is never needed by it. What cannot be read or written is said once, as a notice, and the
campaign goes on: its own findings are in its run directory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from msgspec.structs import replace

from barrier_tck.harness.campaign.plan_store.places import Place
from barrier_tck.harness.campaign.plan_store.stored_plan import (
    KeptBecause,
    Shown,
    StoredPlan,
    stored_plan_of,
)
from barrier_tck.harness.campaign.shrinking import sort_key
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.support.environment import environment
from barrier_tck.harness.support.errors import EnvironmentProblem, UsageProblem

TRIED_FIRST_MAX = 100
"""How many plans a campaign tries before its own; of each finding first the smallest one."""

NEW_FIRST_MAX = 20
"""How many plans that reached something new a campaign tries before its own, at the most."""

NEW_FIRST_SHARE = 10
"""One of them for so many trials of its budget."""

NEW_FIRST_IN_TIME = 5
"""How many, if the budget is a time."""

PASSES_MIN = 3
"""Where runs of a plan differ, in how many campaigns it must have passed until it counts as passing."""

WhyNot = Callable[[TrialPlan], str]
"""Says why a stored plan may not run here; empty if it may."""


@dataclass(frozen=True, slots=True)
class FoundPlan:
    """A plan that was found in the store, ready to run."""

    name: str
    """Of its file."""
    entry: StoredPlan
    plan: TrialPlan


class PlanStore:
    """Plans in a place."""

    def __init__(self, place: Place, why_not: WhyNot = lambda _: "") -> None:
        """``why_not`` says which plans may not run: those that name code which the command line does not."""
        self._place = place
        self._why_not = why_not
        self._writable = True
        self.notices: list[str] = []
        """Sentences that a user should read: what could not be read, and what was not run."""

    @property
    def location(self) -> str:
        return self._place.location

    def failed(self, system: str) -> tuple[FoundPlan, ...]:
        """Return the plans that failed on a system and may run, the smallest of each finding first."""
        failed = self._entries(KeptBecause.FAILED, system)
        found = sorted(self._runnable(failed), key=lambda one: (sort_key(one.plan), one.name))
        ranks: dict[Shown | None, int] = {}
        ranked = []
        for one in found:
            rank = ranks[one.entry.shown] = ranks.get(one.entry.shown, -1) + 1
            ranked.append((rank, one))
        ranked.sort(key=lambda entry: entry[0])
        if len(ranked) > TRIED_FIRST_MAX:
            self._say(
                f"{self.location} has {len(ranked)} plans that failed; {TRIED_FIRST_MAX} are tried first"
            )
        return tuple(one for _, one in ranked[:TRIED_FIRST_MAX])

    def reaching_most(self, system: str, most: int) -> tuple[FoundPlan, ...]:
        """Return so many plans that reached something new on a system and may run: each reaches the most of what those
        before it do not."""
        left = dict(self._entries(KeptBecause.NEW, system)) if most > 0 else {}
        known: dict[str, None] = {}
        chosen: list[FoundPlan] = []
        while left and len(chosen) < most:
            name = max(left, key=lambda name: (len(set(left[name].reached) - known.keys()), name))
            entry = left.pop(name)
            for one in self._runnable([(name, entry)]):
                chosen.append(one)
                known |= dict.fromkeys(entry.reached)
        return tuple(chosen)

    def reached(self, system: str) -> dict[str, None]:
        """Return all that stored plans have reached on a system."""
        return {what: None for _, entry in self._entries(KeptBecause.NEW, system) for what in entry.reached}

    def keep(self, entry: StoredPlan) -> bool:
        """Store a plan; return whether it is stored."""
        return self._written(lambda: self._place.write(entry.because.value, entry.name, entry.encoded()))

    def remove(self, because: KeptBecause, name: str) -> None:
        """Remove a plan that another one has replaced."""
        self._written(lambda: self._place.remove(because.value, name))

    def passes(self, found: FoundPlan, certain: bool) -> bool:
        """Note that a plan that failed has passed; return whether it counts as passing from now on.

        ``certain``: its runs do not differ, so one is enough. A plan that two campaigns see pass at once is reported by
        the one that moves it.
        """
        times = found.entry.passed_in_a_row + 1
        entry = replace(found.entry, passed_in_a_row=times, on_version=environment()["barrier-tck"])
        folder, moved = KeptBecause.FAILED.value, [False]
        if not certain and times < PASSES_MIN:
            self._written(lambda: self._place.write(folder, found.name, entry.encoded()))
            return False

        def move() -> None:
            passed = replace(entry, because=KeptBecause.PASSED)
            self._place.write(passed.because.value, found.name, passed.encoded())
            moved[0] = self._place.remove(folder, found.name)

        return self._written(move) and moved[0]

    def _runnable(self, entries: Iterable[tuple[str, StoredPlan]]) -> Iterator[FoundPlan]:
        for name, entry in entries:
            source = self._place.source(entry.because.value, name)
            try:
                plan = entry.trial_plan(source)
            except UsageProblem as problem:
                self._say(f"{problem}; it is left out")
                continue
            why = self._why_not(plan)
            if why:
                self._say(f"{source} is not tried: {why}")
            else:
                yield FoundPlan(name, entry, plan)

    def _entries(self, because: KeptBecause, system: str) -> Iterator[tuple[str, StoredPlan]]:
        folder = because.value
        try:
            names = self._place.names(folder)
        except EnvironmentProblem as problem:
            self._say(str(problem))
            return
        for name in names:
            try:
                content = self._place.read(folder, name)
                entry = None if content is None else stored_plan_of(content, self._place.source(folder, name))
            except (UsageProblem, EnvironmentProblem) as problem:
                self._say(f"{problem}; it is left out")
                continue
            if entry is not None and entry.system == system:
                yield name, entry

    def _written(self, write: Callable[[], object]) -> bool:
        """Change the store, unless it could not be changed before; return whether it was changed."""
        if not self._writable:
            return False
        try:
            write()
        except EnvironmentProblem as problem:
            self._writable = False
            self._say(f"{problem}; from here on nothing is stored, and all findings are in the run directory")
            return False
        return True

    def _say(self, notice: str) -> None:
        if notice not in self.notices:
            self.notices.append(notice)
