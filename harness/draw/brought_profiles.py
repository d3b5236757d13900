"""Profiles by name: the standard ones, and those that a system or a workload brings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from barrier_tck.harness.draw.profiles import PROFILES, Profile
from barrier_tck.harness.support.errors import UsageError, UsageProblem
from barrier_tck.harness.support.strict_input import nearest

DEFAULT_PROFILE = "standard"
"""What a campaign draws from if it names no profile, and its system brings none."""


@runtime_checkable
class BringsProfiles(Protocol):
    """What a system or a workload may add: profiles in its own scale, with what it can suffer."""

    @property
    def profiles(self) -> Sequence[Profile]:
        """Return them; a campaign that names no profile draws from the first one of its system."""


def brought_by(owner: object) -> tuple[Profile, ...]:
    """Return the profiles that a system or a workload brings."""
    return tuple(owner.profiles) if isinstance(owner, BringsProfiles) else ()


def chosen_profile(name: str, system: object, workload: object) -> Profile:
    """Return the profile of a name; without one, the first that the system brings, or else the standard one.

    Raises UsageProblem, with the nearest name, if there is none, and UsageError if two have it.
    """
    own = brought_by(system)
    known = (*PROFILES, *own, *brought_by(workload))
    if not name:
        name = own[0].name if own else DEFAULT_PROFILE
    found = [profile for profile in known if profile.name == name]
    if not found:
        raise UsageProblem(
            f"there is no profile {name!r}{nearest(name, [profile.name for profile in known])}"
        )
    if len(found) > 1:
        raise UsageError(f"{len(found)} profiles are called {name!r}; give each of your own another name")
    return found[0]
