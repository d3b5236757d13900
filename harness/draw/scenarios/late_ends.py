"""The end of a channel comes late, behind barriers of several newer checkpoints on the other channels (BAR-6).

A subtask that has finished sends no barrier. Until its receivers learn that it has, they wait for one, and then several
snapshots may be due at once. By chance that is next to never drawn: it needs a source that ends early, a slow channel
out of just that one, and several checkpoints in flight.
"""

from __future__ import annotations

from dataclasses import replace

import msgspec
from hypothesis import strategies as st

from barrier_tck.harness.draw.constraints import Drawing
from barrier_tck.harness.draw.profile import Profile
from barrier_tck.harness.draw.scenario import Part, Scenario
from barrier_tck.harness.draw.scenarios.early_ends import ended_early, with_early_ends
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.system.system_under_test import Capability


def _possible(_: Profile, capabilities: frozenset[Capability]) -> bool:
    return Capability.CHECKPOINTS in capabilities


def _profile(_: st.DrawFn, profile: Profile) -> Profile:
    return replace(
        profile,
        workload=replace(
            profile.workload, batches=(20, 40), batch_records=(1, 2), records_per_second=(150, 300)
        ),
        job=replace(profile.job, sources=(2, 3)),
        checkpoints=replace(
            profile.checkpoints,
            interval_ms=(5, 12),
            min_pause_ms=(0,),
            max_concurrent=(2, 4),
            timeouts_ms=(max(profile.checkpoints.timeouts_ms),),
            tolerated_failures=(max(profile.checkpoints.tolerated_failures),),
            async_ms_max=(0, 6),
        ),
        network=replace(profile.network, latency_ms_max=(2, 4), slow_factors=(8, 15)),
    )


def _load(drawing: Drawing, plan: TrialPlan) -> TrialPlan:
    """Let sources end early, and make a channel slow that leads out of one of them."""
    plan = with_early_ends(drawing, plan)
    ended = ended_early(plan)
    slow = [number for number, (sender, _) in enumerate(plan.job.channels) if sender in ended]
    if not slow:
        return plan
    network = msgspec.structs.replace(plan.network, slow_channel=drawing.draw(st.sampled_from(slow)))
    return msgspec.structs.replace(plan, network=network)


SCENARIO = Scenario(
    settles=frozenset({Part.INPUT, Part.PACE}), possible=_possible, profile=_profile, load=_load
)
