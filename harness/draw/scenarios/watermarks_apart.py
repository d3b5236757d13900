"""Subtasks of a vertex stand at different watermarks when a job is stopped, and goes on with other widths (EVT-3).

Each key group keeps the watermark that it had, and watermarks in flight count for the key groups that they were on
their way to, over any number of such starts. By chance next to no key group is further than its new subtask: receivers
differ only if barriers overtake what one of them has not read, few stops come amid that, and the next one comes when
all of it is read. Here one channel into a vertex with keyed state lags behind the others, its barriers overtake, and
the job is stopped some times in a row, each time after a few checkpoints, while there is input.
"""

from __future__ import annotations

from dataclasses import replace

import msgspec
from hypothesis import strategies as st

from barrier_tck.harness.draw.choices import between, chance
from barrier_tck.harness.draw.constraints import Drawing
from barrier_tck.harness.draw.profile import Profile
from barrier_tck.harness.draw.rescaled_jobs import groups_that_change
from barrier_tck.harness.draw.scenario import Part, Scenario
from barrier_tck.harness.draw.scenarios import savepoints
from barrier_tck.harness.plan.job_graph import JobPlan
from barrier_tck.harness.plan.trial_plan import OVERTAKING, TrialPlan
from barrier_tck.harness.system.system_under_test import Capability
from barrier_tck.harness.workloads.kind_catalogue import keeps_by_key

_WIDE = (2, 3)
_LAGS = (20, 60, 150)
"""How many times longer than on other channels elements are on their way on the one that lags."""
_SLOW_PER_MILLE = 400
"""In how many plans of 1,000 a vertex with keyed state is slow, so that more is in flight before it."""


def _possible(profile: Profile, capabilities: frozenset[Capability]) -> bool:
    overtakes = any(mode in OVERTAKING for mode in profile.checkpoints.modes)
    return overtakes and {Capability.SAVEPOINTS, Capability.RESCALING} <= capabilities


def _profile(_: st.DrawFn, profile: Profile) -> Profile:
    """Return ranges of short jobs in which barriers overtake often, and stops follow each other."""
    return replace(
        profile,
        workload=replace(
            profile.workload,
            batches=(16, 40),
            batch_records=(2, 4),
            keys=(4, 12),
            records_per_second=(600, 1_000),
        ),
        job=replace(profile.job, sources=(1, 2), keyed=(1, 3), sinks=(1, 2), subtasks_max=8),
        checkpoints=replace(
            profile.checkpoints,
            modes=tuple(mode for mode in profile.checkpoints.modes if mode in OVERTAKING),
            alignment_timeouts_ms=(0, 5),
            interval_ms=(3, 8),
            min_pause_ms=(0,),
            async_ms_max=(0, 3),
            timeouts_ms=(max(profile.checkpoints.timeouts_ms),),
        ),
        network=replace(
            profile.network,
            latency_ms_max=(1, 3),
            slow_channel_per_mille=0,
            channel_capacities=(2, 4, 8),
        ),
        savepoints=replace(
            profile.savepoints,
            number=(1, 3),
            # Some come at once: then what is in flight is taken over once more before it was read.
            after=(0, 4),
            in_turn=True,
            delay_ms=(0, 2),
            stop_per_mille=1_000,
            rescale_per_mille=1_000,
            rescaled_vertices_per_mille=700,
            rescaled_width_max=4,
            rescaled_subtasks_max=16,
        ),
    )


def _job(drawing: Drawing, plan: TrialPlan) -> TrialPlan:
    """Let a vertex that keeps state by key have several subtasks, if it has only one."""
    able = _keyed(plan.job)
    if not able or any(plan.job.vertex(name).parallelism > 1 for name in able):
        return plan
    width = min(between(drawing.draw, _WIDE), plan.deployment.max_parallelism)
    together = [group for group in groups_that_change(plan.job) if any(name in able for name in group)]
    if not together:
        return plan
    widths = dict.fromkeys(drawing.draw(st.sampled_from(together)), width)
    return msgspec.structs.replace(plan, job=plan.job.at_widths(widths))


def _load(drawing: Drawing, plan: TrialPlan) -> TrialPlan:
    """Let a channel lag into one of several subtasks with keyed state; in some plans these are slow, too."""
    job = plan.job
    several = [name for name in _keyed(job) if job.vertex(name).parallelism > 1]
    targets = [edge.target for edge in job.edges for _ in job.channels_of(edge)]
    able = [number for number, target in enumerate(targets) if target in several]
    if not able:
        return plan
    lags = msgspec.structs.replace(
        plan.network,
        slow_channel=drawing.draw(st.sampled_from(able)),
        slow_factor=drawing.draw(st.sampled_from(_LAGS)),
    )
    plan = msgspec.structs.replace(plan, network=lags)
    if not chance(drawing.draw, _SLOW_PER_MILLE):
        return plan
    slow_ms = drawing.draw(st.sampled_from(drawing.profile.deployment.slow_batch_ms))
    deployment = msgspec.structs.replace(
        plan.deployment, slow_vertex=drawing.draw(st.sampled_from(several)), slow_batch_ms=slow_ms
    )
    return msgspec.structs.replace(plan, deployment=deployment)


def _keyed(job: JobPlan) -> list[str]:
    return [vertex.name for vertex in job.vertices if keeps_by_key(vertex)]


SCENARIO = Scenario(
    settles=frozenset({Part.INPUT, Part.PACE, Part.SLOW_VERTEX, Part.SAVEPOINTS}),
    possible=_possible,
    profile=_profile,
    job=_job,
    load=_load,
    savepoints=savepoints.SCENARIO.savepoints,
)
