"""Profiles by name: the standard ones, and the plug-ins of systems and workloads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from barrier_tck.harness.draw.profile import Profile
from barrier_tck.harness.draw.profiles import PROFILES
from barrier_tck.harness.support.errors import UsageError, UsageProblem
from barrier_tck.harness.support.strict_input import nearest

DEFAULT_PROFILE = "standard"
"""The profile of a campaign that names none and whose system brings none."""


@runtime_checkable
class ProvidesProfiles(Protocol):
    """What a system or a workload may add: profiles on its own time scale, with faults that it can suffer."""

    @property
    def profiles(self) -> Sequence[Profile]:
        """Return the profiles; a campaign that names none draws from the first one of its system."""


def profiles_of(owner: object) -> tuple[Profile, ...]:
    """Return the profiles that a system or a workload brings."""
    return tuple(owner.profiles) if isinstance(owner, ProvidesProfiles) else ()


def chosen_profile(name: str, system: object, workload: object) -> Profile:
    """Return the profile of a name; for an empty name, the system's first profile, or else the standard one.

    Raises UsageProblem, with the nearest name, if no profile has the name, and UsageError if two have it.
    """
    own = profiles_of(system)
    known = (*PROFILES, *own, *profiles_of(workload))
    if not name:
        name = own[0].name if own else DEFAULT_PROFILE
    found = [profile for profile in known if profile.name == name]
    if not found:
        raise UsageProblem(
            f"there is no profile {name!r}{nearest(name, [profile.name for profile in known])}"
        )
    if len(found) > 1:
        raise UsageError(f"{len(found)} profiles are called {name!r}; give each of yours a name of its own")
    return found[0]
