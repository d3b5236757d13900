"""The input has no record, or exactly one."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from barrier_tck.harness.draw.profile import Profile
from barrier_tck.harness.draw.scenario import Part, Scenario


def _profile(_: st.DrawFn, profile: Profile) -> Profile:
    tiny = replace(
        profile.workload,
        batches=(0, 1),
        batch_records=(1, 1),
        start_offset=(0, 0),
        records_per_second=(None,),
    )
    return replace(profile, workload=tiny)


SCENARIO = Scenario(settles=frozenset({Part.INPUT}), per_mille=50, profile=_profile)
