"""What a scenario is: a purpose for which a plan is made, for instance that a job loses several executors.

A plan that shows something rare must be made for it, because by chance its parts next to never meet. A scenario is one
value that says when it is possible, which parts of a plan it settles, and what it does to the profile, to the plan and
to its faults. Each scenario is a module below ``scenarios/``; only profiles name it, with its share.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import cache
from random import Random

from hypothesis import strategies as st

from barrier_tck.faults.catalogue import FaultKind
from barrier_tck.faults.vocabulary import ScheduledFault
from barrier_tck.harness.draw.constraints import Drawing
from barrier_tck.harness.draw.drawn_job import DrawnJob
from barrier_tck.harness.draw.profile import Profile
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.support.errors import UsageProblem
from barrier_tck.harness.support.strict_input import nearest
from barrier_tck.harness.system.system_under_test import Capability


class Part(Enum):
    """A part of a plan that one scenario at most may settle."""

    INPUT = auto()
    """How long the input is, and where it ends."""
    OPERATORS = auto()
    """What operators with keyed state do."""
    PACE = auto()
    """When checkpoints come, and how long they may take."""
    SLOW_VERTEX = auto()
    """Which vertex is slow."""
    SAVEPOINTS = auto()
    """Which savepoints are asked for."""
    FAULTS = auto()
    """How many faults strike, and which. A campaign that gives the kinds of all faults has settled this."""


Possible = Callable[[Profile, frozenset[Capability]], bool]
"""Returns whether plans of a profile can be part of a scenario in a system with these capabilities."""
ChangeProfile = Callable[[st.DrawFn, Profile], Profile]
Change = Callable[[Drawing, TrialPlan], TrialPlan]
"""Changes a plan whose job is filled in."""
DrawFaults = Callable[[Drawing, DrawnJob, Sequence[FaultKind]], Sequence[ScheduledFault]]


def _always(_: Profile, __: frozenset[Capability]) -> bool:
    return True


def _same_profile(_: st.DrawFn, profile: Profile) -> Profile:
    return profile


def _unchanged(_: Drawing, plan: TrialPlan) -> TrialPlan:
    return plan


def _no_faults(*_: object) -> Sequence[ScheduledFault]:
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One purpose, and all that is done for it. The changes come in the order of the fields."""

    settles: frozenset[Part] = field(default_factory=frozenset)
    """Scenarios that settle the same part are never combined; all others may be."""
    per_mille: int = 0
    """Of how many plans in 1,000 it is part, in profiles that do not name it."""
    possible: Possible = _always
    """Whether a profile and a system allow for it."""
    profile: ChangeProfile = _same_profile
    """Narrows the ranges from which all else is drawn."""
    job: Change = _unchanged
    """Changes the job, before the network is drawn for it."""
    load: Change = _unchanged
    """Changes the input, its length, a slow vertex, or a timeout; network and job are there."""
    savepoints: Change = _unchanged
    """Asks for savepoints; what the job becomes after each stop is drawn afterwards."""
    slots: Change = _unchanged
    """Changes executors and slots, when all jobs of the trial are known."""
    faults: DrawFaults = _no_faults
    """Draws all faults of the plan, with the kinds of faults that the job may suffer by its profile. Without any, the
    plan gets such faults as plans without a scenario have."""
    add_faults: Change = _unchanged
    """Adds faults to those that are drawn, and changes what depends on them."""
    last: Change = _unchanged
    """Changes what nothing else depends on."""

    def excludes(self, other: Scenario) -> bool:
        """Return whether the two settle the same part of a plan."""
        return bool(self.settles & other.settles)


def shares_of(
    profile: Profile, capabilities: frozenset[Capability], known: dict[str, Scenario]
) -> dict[str, int]:
    """Return the share in 1,000 of every scenario that is possible, in the order of ``known``.

    Raises UsageProblem, with the nearest name, if the profile names a scenario that does not exist.
    """
    named = dict(profile.scenarios)
    for name in named:
        if name not in known:
            raise UsageProblem(
                f"the profile {profile.name!r} names a scenario {name!r}, which does not exist{nearest(name, known)}"
            )
    shares = {name: named.get(name, scenario.per_mille) for name, scenario in known.items()}
    return {
        name: share for name, share in shares.items() if share and known[name].possible(profile, capabilities)
    }


def pick(
    draw: st.DrawFn, shares: dict[str, int], known: dict[str, Scenario], settled: frozenset[Part]
) -> tuple[Scenario, ...]:
    """Pick the scenarios of which a plan is part; none that settles what is settled already.

    The share of a scenario is a share of all plans, including plans of other scenarios (``fitted_shares``). Each
    scenario is picked with a random number of its own, so adding a scenario or changing a share does not change the
    picks of the others, unless it excludes them. Scenarios that settle most parts are picked first, because the others
    can still be picked for more of the plans. The simplest choice is no scenario.
    """
    entropy = draw(_ENTROPY)
    wanted = tuple(
        (name, share, known[name].settles) for name, share in fitted_shares(shares, known, settled).items()
    )
    done = frozenset[Part]()
    picked: list[str] = []
    for name, chance, settles in _chances(wanted):
        if not settles & done and _fraction(entropy, name) < chance:
            picked.append(name)
            done |= settles
    return tuple(known[name] for name in known if name in picked)


def fitted_shares(
    shares: dict[str, int], known: dict[str, Scenario], settled: frozenset[Part]
) -> dict[str, float]:
    """Return the share in 1,000 plans that each scenario gets which settles nothing that is settled already.

    Where scenarios that settle the same part ask for more than all plans, their shares are lowered in proportion. A
    share of 1,000 asks for every plan that is left at its turn.
    """
    free = {name: share for name, share in shares.items() if not known[name].settles & settled}
    asked = {
        part: sum(share for name, share in free.items() if share < _ALL and part in known[name].settles)
        for part in Part
    }
    return {
        name: share / max([1, *(asked[part] / _ALL for part in known[name].settles)])
        if share < _ALL
        else _ALL
        for name, share in free.items()
    }


_ALL = 1_000


@cache
def _chances(
    wanted: tuple[tuple[str, float, frozenset[Part]], ...],
) -> tuple[tuple[str, float, frozenset[Part]], ...]:
    """Return each scenario with the chance at which it must be picked where nothing excludes it, in the order of picks.

    Of the plans in which nothing excludes it, it must be part of so many that it has its share of all plans. How many
    these are is computed from the chance of every set of parts that may be settled by those before it.
    """
    settled_before = {frozenset[Part](): 1.0}
    chances: list[tuple[str, float, frozenset[Part]]] = []
    for name, share, settles in sorted(wanted, key=lambda one: -len(one[2])):
        left = sum(chance for parts, chance in settled_before.items() if not parts & settles)
        taken = min(1.0, share / _ALL / left) if left else 0.0
        chances.append((name, taken, settles))
        after: dict[frozenset[Part], float] = {}
        for parts, chance in settled_before.items():
            part_of_it = 0.0 if parts & settles else taken
            after[parts] = after.get(parts, 0.0) + chance * (1 - part_of_it)
            if part_of_it:
                after[parts | settles] = after.get(parts | settles, 0.0) + chance * part_of_it
        settled_before = after
    return tuple(chances)


_ENTROPY = st.binary(min_size=8, max_size=8)


def _fraction(entropy: bytes, name: str) -> float:
    """Return a number from 0 up to 1 that depends on the scenario; for the simplest entropy it is the largest."""
    return Random(f"{entropy.hex()}/{name}").random() if any(entropy) else _LARGEST


_LARGEST = 1 - 1e-9
