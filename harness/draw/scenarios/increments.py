"""Checkpoints are incremental in a profile that draws them so otherwise (SNP-5)."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from barrier_tck.harness.draw.profile import Profile
from barrier_tck.harness.draw.scenario import Scenario


def _profile(_: st.DrawFn, profile: Profile) -> Profile:
    return replace(profile, checkpoints=replace(profile.checkpoints, incremental_per_mille=1_000))


SCENARIO = Scenario(per_mille=80, profile=_profile)
