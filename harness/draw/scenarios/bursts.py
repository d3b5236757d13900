"""Records come in bursts, with little room behind the operators that hold them back, and then none for long (STA-1).

A timer that is due while an output channel is full waits for room. In other plans the next record comes soon, and with
it all timers of its subtask are looked at again, so one that was forgotten meanwhile goes off hardly late. Here the
sources are quiet for longer than a timer may be late, and no fault strikes.
"""

from __future__ import annotations

from dataclasses import replace

import msgspec
from hypothesis import strategies as st

from barrier_tck.harness.draw.choices import between
from barrier_tck.harness.draw.constraints import Drawing
from barrier_tck.harness.draw.profile import Profile
from barrier_tck.harness.draw.scenario import Part, Scenario
from barrier_tck.harness.draw.scenarios import windows
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.system.system_under_test import Capability

_WORKLOAD = "lineage"
_QUIET_MS = (1_000, 1_600)
"""How long the sources are quiet after each burst; a timer that full channels hold up is late by much less."""
_INTERVAL_MS = (100, 250)
_IN_TIME_MS = (2_000,)


def _possible(profile: Profile, capabilities: frozenset[Capability]) -> bool:
    return (
        _WORKLOAD in profile.workload.names
        and profile.faults.number[0] == 0
        # Where time is not virtual, timers may be late by more than the sources are quiet.
        and Capability.DETERMINISTIC_REPLAY in capabilities
        and windows.SCENARIO.possible(profile, capabilities)
    )


def _profile(_: st.DrawFn, profile: Profile) -> Profile:
    return replace(
        profile,
        workload=replace(
            profile.workload,
            names=(_WORKLOAD,),
            batches=(2, 3),
            batch_records=(6, 16),
            keys=(4, 12),
            records_per_second=profile.workload.slowest,
        ),
        job=replace(profile.job, window_ms=(5, 10, 20)),
        checkpoints=replace(
            profile.checkpoints, interval_ms=_INTERVAL_MS, min_pause_ms=(0,), timeouts_ms=_IN_TIME_MS
        ),
        network=replace(
            profile.network, latency_ms_max=(4, 10), slow_channel_per_mille=0, channel_capacities=(1,)
        ),
        faults=replace(profile.faults, number=(0, 0)),
    )


def _load(drawing: Drawing, plan: TrialPlan) -> TrialPlan:
    """Let each source read a batch, and then be quiet."""
    workload = plan.workload
    rate = max(1, workload.batch_records * 1_000 // between(drawing.draw, _QUIET_MS))
    return msgspec.structs.replace(plan, workload=msgspec.structs.replace(workload, records_per_second=rate))


SCENARIO = Scenario(
    settles=frozenset({Part.INPUT, Part.OPERATORS, Part.PACE, Part.FAULTS}),
    per_mille=40,
    possible=_possible,
    profile=_profile,
    load=_load,
    last=windows.SCENARIO.last,
)
