"""Totals are emitted when they have changed, or at the end: the default way to emit of the job API (SNK-1, REC-1).

The workload is another one than the profile's, because what it emits depends on the barriers, and so is judged in a way
of its own. What a checkpoint may hold twice would be emitted at other moments too, so the mode is an exact one. In
many of these plans fewer keys may be in memory than there are: what is yet to be emitted then waits in the store.
"""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from barrier_tck.harness.draw.profile import Profile
from barrier_tck.harness.draw.scenario import Part, Scenario
from barrier_tck.harness.plan.trial_plan import CheckpointingMode
from barrier_tck.harness.system.system_under_test import Capability
from barrier_tck.harness.workloads.changed_totals import ChangedTotals

_IN_PLACE_OF = ("keyed-totals", "lineage")
"""Profiles with one of these workloads draw this one, too."""
_CACHED_KEYS = (None, None, 1, 2, 3)
"""How many keys may be in memory, in profiles that do not say so themselves."""
_INEXACT = "at_least_once"


def _exact(profile: Profile) -> tuple[CheckpointingMode, ...]:
    return tuple(mode for mode in profile.checkpoints.modes if mode != _INEXACT)


def _possible(profile: Profile, capabilities: frozenset[Capability]) -> bool:
    alike = any(name in _IN_PLACE_OF for name in profile.workload.names)
    return alike and bool(_exact(profile)) and Capability.EMISSION in capabilities


def _profile(_: st.DrawFn, profile: Profile) -> Profile:
    return replace(
        profile,
        workload=replace(profile.workload, names=(ChangedTotals.name,)),
        deployment=replace(profile.deployment, cached_keys=profile.deployment.cached_keys or _CACHED_KEYS),
        checkpoints=replace(profile.checkpoints, modes=_exact(profile)),
    )


SCENARIO = Scenario(settles=frozenset({Part.OPERATORS}), per_mille=90, possible=_possible, profile=_profile)
