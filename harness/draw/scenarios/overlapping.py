"""Several checkpoints are in flight at once, and some of them expire while a newer one waits for its barriers (BAR-4).

What a subtask holds back for a newer checkpoint must stay held back when an older one is given up. By chance that is
seldom drawn: most timeouts are far longer than a checkpoint takes, so that only faults abort one. Here barriers
come one right behind the other, and the slowest part of a checkpoint takes about as long as it may.
"""

from __future__ import annotations

from dataclasses import replace

import msgspec
from hypothesis import strategies as st

from barrier_tck.harness.draw.constraints import Drawing
from barrier_tck.harness.draw.profile import Profile
from barrier_tck.harness.draw.scenario import Part, Scenario
from barrier_tck.harness.plan.trial_plan import TrialPlan

_RECORDS_PER_SECOND = (600, 1_000)
_TIMES_OF_A_WAY = (2, 2, 3)
"""How many times as long as its barriers travel a checkpoint may take."""


def _profile(_: st.DrawFn, profile: Profile) -> Profile:
    return replace(
        profile,
        workload=replace(
            profile.workload, batches=(20, 40), batch_records=(1, 3), records_per_second=_RECORDS_PER_SECOND
        ),
        checkpoints=replace(
            profile.checkpoints,
            interval_ms=(5, 12),
            min_pause_ms=(0,),
            max_concurrent=(3, 4),
            tolerated_failures=(1_000,),
            async_ms_max=(0, 20),
        ),
        network=replace(
            profile.network, latency_ms_max=(4, 12), slow_channel_per_mille=0, channel_capacities=(1, 2)
        ),
        # A strategy that starts a job for ever would get a timeout that suffices.
        restarts=replace(profile.restarts, strategies=("fixed_delay",)),
    )


def _load(drawing: Drawing, plan: TrialPlan) -> TrialPlan:
    """Return the plan with a timeout that some of its checkpoints outlast."""
    checkpoints, job = plan.checkpoints, plan.job
    hops = 2 + job.depth + sum(len(loop) for loop in job.loops)
    times = drawing.draw(st.sampled_from(_TIMES_OF_A_WAY))
    timeout_ms = max(checkpoints.async_ms_max, times * plan.network.latency_ms_max * hops // 2)
    return msgspec.structs.replace(
        plan, checkpoints=msgspec.structs.replace(checkpoints, timeout_ms=timeout_ms)
    )


SCENARIO = Scenario(settles=frozenset({Part.INPUT, Part.PACE}), profile=_profile, load=_load)
