"""Crossed: each plan has parts of two profiles, so that what is drawn in one of them meets what is drawn in another.

A profile is made for one thing, and has the options that matter for it. What needs one option of two profiles would
never be drawn. As in swarms, about half of the scenarios of both are off, and those that are left come more often.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from random import Random
from typing import Any, TypeVar

from barrier_tck.harness.draw.catalogue import known_scenarios
from barrier_tck.harness.draw.plans_alike import DrawnPlan, PlanSpace, drawn_plan
from barrier_tck.harness.draw.profile import Profile
from barrier_tck.harness.draw.profiles import OF_WORLD, profile_named
from barrier_tck.harness.draw.search.search import EachByItself

_PARTS = ("deployment", "storage", "network", "restarts", "faults", "savepoints", "elastic")
"""What may come from either profile as a whole."""
_OF_CHECKPOINTS = ("protocol", "modes")
"""What depends on the jobs of the profile, and stays."""
_OF_WORKLOADS = ("keys", "start_offset", "batch_records")
"""What may come from either profile; names and lengths belong together."""
_PURPOSE_PER_MILLE = 800
"""A scenario of so many plans of a profile is what the profile is for."""

_Part = TypeVar("_Part")


class Crossed(EachByItself):
    """Draws each plan from its profile and another one."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def drawn(self, number: int, space: PlanSpace) -> DrawnPlan:
        random = Random(f"{self._seed}/crossed/{number}")
        other = random.choice(_others(space.profile))
        return drawn_plan(replace(space, profile=crossed(space.profile, other, random)), random)


def _others(profile: Profile) -> tuple[Profile, ...]:
    """Return the profiles that may be the other one: those of the default campaigns of its world.

    A profile that is none of them (a plug-in's, or one for jobs without faults) means what it says: only its own
    scenarios are chosen from.
    """
    family = next((names for names in OF_WORLD.values() if profile.name in names), ())
    return tuple(profile_named(name) for name in family if name != profile.name) or (profile,)


def crossed(profile: Profile, other: Profile, random: Random) -> Profile:
    """Return a profile with the jobs of the first one, and parts and scenarios of both."""
    parts: dict[str, Any] = {name: getattr(random.choice((profile, other)), name) for name in _PARTS}
    kept = tuple(field.name for field in fields(profile.checkpoints) if field.name not in _OF_CHECKPOINTS)
    return replace(
        profile,
        **parts,
        checkpoints=_mixed(profile.checkpoints, other.checkpoints, kept, random),
        workload=_mixed(profile.workload, other.workload, _OF_WORKLOADS, random),
        scenarios=tuple(_shares(profile, other, random).items()),
    )


def _mixed(part: _Part, other: _Part, names: Sequence[str], random: Random) -> _Part:
    chosen: dict[str, Any] = {name: getattr(random.choice((part, other)), name) for name in names}
    return replace(part, **chosen)  # type: ignore[type-var]


def _shares(profile: Profile, other: Profile, random: Random) -> dict[str, int]:
    """Return the share of each scenario: none, where the profile itself says so, and for half of the others."""
    own, others = (_shares_in(each) for each in (profile, other))
    shares: dict[str, int] = {}
    for name, share in own.items():
        if share >= _PURPOSE_PER_MILLE:
            shares[name] = share
        elif random.random() < 0.5 and dict(profile.scenarios).get(name) != 0:
            shares[name] = min(3 * max(share, others[name]), 1_000)
        else:
            shares[name] = 0
    return shares


def _shares_in(profile: Profile) -> dict[str, int]:
    usual = {name: scenario.per_mille for name, scenario in known_scenarios().items()}
    return {**usual, **dict(profile.scenarios)}
