"""Asynchronous parts may outlast the timeout a little: checkpoints expire, and are acknowledged late (COO-2)."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from barrier_tck.harness.draw.profile import Profile
from barrier_tck.harness.draw.scenario import Part, Scenario

TOLERATED_MIN = 3
"""How many checkpoints in a row may fail if they are meant to expire, so that not every attempt ends with one."""


def _profile(_: st.DrawFn, profile: Profile) -> Profile:
    """Of many subtasks, every second checkpoint is late. The timeout is the shortest one, so that not all checkpoints
    can expire until progress is demanded."""
    checkpoints = profile.checkpoints
    timeout_ms = min(checkpoints.timeouts_ms)
    late_ms = timeout_ms + timeout_ms // checkpoints.late_part
    tolerated = tuple(max(number, TOLERATED_MIN) for number in checkpoints.tolerated_failures)
    late = replace(
        checkpoints, timeouts_ms=(timeout_ms,), async_ms_max=(late_ms, late_ms), tolerated_failures=tolerated
    )
    return replace(profile, checkpoints=late)


SCENARIO = Scenario(settles=frozenset({Part.PACE}), per_mille=80, profile=_profile)
