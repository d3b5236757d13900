"""Savepoints fail while the job goes on, the last one of a job that is to be stopped, too (COO-5).

By chance that is next to never drawn: a savepoint fails only together with its attempt, as a rule. Here the timeout is
just about as long as a checkpoint of the drawn job takes, so that some expire and others complete. In most of these
plans no number of failed checkpoints ends an attempt; in the others few do, and savepoints count for nothing in that
row (COO-2). A stop is asked for again and again, now and then while an ordinary savepoint is pending, and newer
checkpoints follow at once.
"""

from __future__ import annotations

from dataclasses import replace

import msgspec
from hypothesis import strategies as st

from barrier_tck.harness.draw.choices import between, chance
from barrier_tck.harness.draw.constraints import Drawing
from barrier_tck.harness.draw.profile import Profile
from barrier_tck.harness.draw.scenario import Part, Scenario
from barrier_tck.harness.draw.scenarios.early_ends import with_early_ends
from barrier_tck.harness.plan.trial_plan import SavepointPlan, TrialPlan
from barrier_tck.harness.system.system_under_test import Capability
from barrier_tck.harness.workloads.kind_catalogue import keeps_by_key

_FAULTS_MAX = 1
_STOPS = (2, 4)
_AFTER = (0, 2)
"""After how many more completed checkpoints each stop is asked for."""
_DELAY_MS = (0, 25)
_PENDING_PER_MILLE = 290
"""How many stops in 1,000 are asked for while an ordinary savepoint is likely to be pending."""
_LATER_MS = (1, 12)
_EARLY_ENDS_PER_MILLE = 380
"""In how many of these plans in 1,000 some sources end early."""
_FEW_TOLERATED = (2, 1)
_NEVER_TOO_MANY = 6
"""So many plans tolerate any number of failed checkpoints in a row, for one that tolerates each of these numbers."""
_IN_TIME = (0.02, 0.1, 0.3)
"""Which share of the checkpoints should be in time, at least, where all messages take as long as they may."""


def _possible(_: Profile, capabilities: frozenset[Capability]) -> bool:
    return Capability.SAVEPOINTS in capabilities


def _profile(_: st.DrawFn, profile: Profile) -> Profile:
    """Let checkpoints be frequent, records come slowly for long, and faults be few."""
    fewest, most = profile.faults.number
    tolerated = max(profile.checkpoints.tolerated_failures)
    return replace(
        profile,
        workload=replace(
            profile.workload, batches=(25, 60), batch_records=(1, 3), records_per_second=(150, 300)
        ),
        checkpoints=replace(
            profile.checkpoints,
            interval_ms=(8, 20),
            min_pause_ms=(0,),
            max_concurrent=(1, 2),
            alignment_timeouts_ms=(0, 5, 20),
            tolerated_failures=(*[tolerated] * _NEVER_TOO_MANY, *_FEW_TOLERATED),
            async_ms_max=(10, 30),
        ),
        network=replace(
            profile.network, latency_ms_max=(1, 6), slow_channel_per_mille=220, slow_factors=(4,)
        ),
        # Others are given so much time that nothing expires, because they may start for ever.
        restarts=replace(profile.restarts, strategies=("fixed_delay",)),
        faults=replace(profile.faults, number=(min(_FAULTS_MAX, fewest), min(_FAULTS_MAX, most))),
    )


def _load(drawing: Drawing, plan: TrialPlan) -> TrialPlan:
    if chance(drawing.draw, _EARLY_ENDS_PER_MILLE):
        plan = with_early_ends(drawing, plan)
    return with_short_timeout(plan, drawing.draw(st.sampled_from(_IN_TIME)))


def with_short_timeout(plan: TrialPlan, in_time: float, on_slow_channel: float = 1.0) -> TrialPlan:
    """Return the plan with a timeout that some of its checkpoints outlast, also after the end of all input.

    ``in_time`` is the share of those that do not, where all messages take as long as they may, and on a slow channel
    only that share of it, ``on_slow_channel``.
    """
    checkpoints, network, job = plan.checkpoints, plan.network, plan.job
    parts = sum(vertex.parallelism for vertex in job.vertices if keeps_by_key(vertex))
    slow = 0 if network.slow_channel is None else network.slow_factor - 1
    travels_ms = int(network.latency_ms_max * (2 + job.depth + on_slow_channel * slow))
    share = in_time ** (1 / max(1, parts))
    timeout_ms = max(checkpoints.async_ms_max, travels_ms + int(checkpoints.async_ms_max * share)) + 1
    return msgspec.structs.replace(
        plan, checkpoints=msgspec.structs.replace(checkpoints, timeout_ms=timeout_ms)
    )


def _savepoints(drawing: Drawing, plan: TrialPlan) -> TrialPlan:
    """Ask for several stops, some of them with an ordinary savepoint just before."""
    draw, claim_per_mille = drawing.draw, drawing.profile.savepoints.claim_per_mille
    asked: list[SavepointPlan] = []
    after = 0
    for _ in range(between(draw, _STOPS)):
        after += between(draw, _AFTER)
        delay_ms = between(draw, _DELAY_MS)
        if chance(draw, _PENDING_PER_MILLE):
            asked.append(SavepointPlan(after, delay_ms))
            delay_ms += between(draw, _LATER_MS)
        asked.append(SavepointPlan(after, delay_ms, stop=True, claim=chance(draw, claim_per_mille)))
    return msgspec.structs.replace(plan, savepoints=tuple(asked))


SCENARIO = Scenario(
    settles=frozenset({Part.INPUT, Part.PACE, Part.SAVEPOINTS, Part.FAULTS}),
    possible=_possible,
    profile=_profile,
    load=_load,
    savepoints=_savepoints,
)
