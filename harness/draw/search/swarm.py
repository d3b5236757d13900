"""Swarm: in each plan about half of all features are off, and those that are left come together more often.

With all features on, each plan has a little of everything, and what one feature shows another one may hide: a
coordinator that crashes, for instance, ends the checkpoint that would have failed otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import TypeVar

from barrier_tck.harness.draw.catalogue import known_scenarios
from barrier_tck.harness.draw.plans_alike import DrawnPlan, PlanSpace, drawn_plan
from barrier_tck.harness.draw.profile import Profile
from barrier_tck.harness.draw.search.search import EachByItself

_PURPOSE_PER_MILLE = 800
"""A scenario of so many plans of a profile is what the profile is for, and stays on."""

_Feature = TypeVar("_Feature")


class Swarm(EachByItself):
    """Draws each plan from a profile of its own."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def drawn(self, number: int, space: PlanSpace) -> DrawnPlan:
        random = Random(f"{self._seed}/swarm/{number}")
        return drawn_plan(replace(space, profile=swarmed(space.profile, random)), random)


def swarmed(profile: Profile, random: Random) -> Profile:
    """Return the profile with about half of its features; each plan still has as many of them on average."""
    shares = {name: scenario.per_mille for name, scenario in known_scenarios().items()}
    shares |= dict(profile.scenarios)
    for name, share in shares.items():
        if 0 < share < _PURPOSE_PER_MILLE:
            shares[name] = min(2 * share, 1_000) if random.random() < 0.5 else 0
    checkpoints, storage = profile.checkpoints, profile.storage
    return replace(
        profile,
        scenarios=tuple(shares.items()),
        faults=replace(
            profile.faults,
            kinds=_half(random, profile.faults.kinds),
            points=_half(random, profile.faults.points),
        ),
        checkpoints=replace(
            checkpoints,
            modes=_half(random, checkpoints.modes),
            storages=_half(random, checkpoints.storages),
            tolerated_failures=_half(random, checkpoints.tolerated_failures),
        ),
        storage=replace(storage, on_unreadable=_half(random, storage.on_unreadable)),
        restarts=replace(profile.restarts, strategies=_half(random, profile.restarts.strategies)),
        workload=replace(
            profile.workload, records_per_second=_half(random, profile.workload.records_per_second)
        ),
    )


def _half(random: Random, features: Sequence[_Feature]) -> tuple[_Feature, ...]:
    """Return about half of some features, in their order; at least one of them."""
    kept = tuple(feature for feature in features if random.random() < 0.5)
    return kept or (random.choice(features),) if features else ()
