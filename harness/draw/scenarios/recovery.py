"""A checkpoint is taken while restored records in flight are not processed yet (UNA-4).

That needs several things at once, which plans seldom have by chance: a checkpoint with full queues, a failure right
after it, an input that lasts, a checkpoint soon after the restore, and a vertex that is slow to process what was
restored. If a barrier of another channel completes the snapshot there, what is left of the restored records belongs to
it (UR-01). So the slow vertex also reads a broadcast: its channels stay aligned while barriers overtake on the others.
"""

from __future__ import annotations

from dataclasses import replace

import msgspec
from hypothesis import strategies as st

from barrier_tck.harness.draw.constraints import Drawing
from barrier_tck.harness.draw.profile import Profile
from barrier_tck.harness.draw.scenario import Part, Scenario
from barrier_tck.harness.plan.job_graph import SOURCE, EdgePlan, JobPlan, Spread, VertexPlan
from barrier_tck.harness.plan.trial_plan import OVERTAKING, TrialPlan
from barrier_tck.harness.system.system_under_test import Capability
from barrier_tck.harness.workloads.generated_jobs import GENERATED
from barrier_tck.harness.workloads.kind_catalogue import keeps_by_key
from barrier_tck.harness.workloads.lineage import source
from barrier_tck.harness.workloads.workload import DrawsJobs
from barrier_tck.harness.workloads.workload_names import workload_named

_BROADCAST_SOURCE = "told"
"""The source whose records reach every subtask of the slow vertex."""
_FAULTS_MIN = 2
"""A failure after a checkpoint that is sure to have completed is drawn for plans with several faults only."""


def _possible(profile: Profile, _: frozenset[Capability]) -> bool:
    """Return whether barriers may overtake, and several faults may strike."""
    overtakes = any(mode in OVERTAKING for mode in profile.checkpoints.modes)
    return overtakes and profile.faults.number[1] >= _FAULTS_MIN


def _profile(_: st.DrawFn, profile: Profile) -> Profile:
    """Let barriers overtake, checkpoints be frequent, and a restore come soon."""
    fewest, most = profile.faults.number
    workloads, checkpoints = profile.workload, profile.checkpoints
    drawn = tuple(name for name in workloads.names if isinstance(workload_named(name), DrawsJobs))
    return replace(
        profile,
        workload=replace(
            workloads,
            names=drawn or workloads.names,
            batches=(10, 16),
            batch_records=(1, 2),
            records_per_second=(None, 2_000),
        ),
        job=replace(profile.job, drawn_per_mille=1_000, subtasks_max=10),
        checkpoints=replace(
            checkpoints,
            modes=tuple(mode for mode in checkpoints.modes if mode in OVERTAKING),
            alignment_timeouts_ms=tuple(time for time in checkpoints.alignment_timeouts_ms if time) or (20,),
            interval_ms=(6, 15),
            min_pause_ms=(0,),
            max_concurrent=(1, 2),
            # A checkpoint that hangs must not end by itself before the trial does.
            timeouts_ms=(2_000, 120_000),
            async_ms_max=(0, 5),
        ),
        network=replace(
            profile.network, latency_ms_max=(0, 3), slow_channel_per_mille=0, channel_capacities=(4, 8)
        ),
        faults=replace(profile.faults, number=(max(_FAULTS_MIN, fewest), most), restore_per_mille=1_000),
    )


def _job(drawing: Drawing, plan: TrialPlan) -> TrialPlan:
    """Give the plan a slow vertex. If its graph was drawn, that vertex also reads a broadcast."""
    draw, job = drawing.draw, plan.job
    able = [vertex.name for vertex in job.vertices if vertex.kind != SOURCE and not keeps_by_key(vertex)]
    slow = draw(st.sampled_from(able))
    slow_batch_ms = draw(st.sampled_from(drawing.profile.deployment.slow_batch_ms))
    deployment = msgspec.structs.replace(plan.deployment, slow_vertex=slow, slow_batch_ms=slow_batch_ms)
    broadcast = _with_broadcast(job, slow)
    if job.shape == GENERATED and workload_named(plan.workload.name).problem_of(broadcast) is None:
        job = broadcast
    return msgspec.structs.replace(plan, job=job, deployment=deployment)


def _with_broadcast(job: JobPlan, vertex: str) -> JobPlan:
    """Return the job with one more source, all of whose records go to every subtask of a vertex.

    These are two at least: with one receiver none can have applied what another has not (UNA-5). Where the vertex was
    joined to others of its width, records are dealt out instead.
    """
    new: VertexPlan = source(_BROADCAST_SOURCE, 1)
    edges = job.edges
    if job.vertex(vertex).parallelism == 1:
        edges = tuple(
            msgspec.structs.replace(edge, by=Spread.REBALANCE)
            if edge.by is Spread.FORWARD and vertex in (edge.source, edge.target)
            else edge
            for edge in edges
        )
        job = msgspec.structs.replace(job, edges=edges).at_widths({vertex: 2})
    return msgspec.structs.replace(
        job,
        vertices=(new, *job.vertices),
        edges=(*edges, EdgePlan(_BROADCAST_SOURCE, vertex, Spread.BROADCAST)),
    )


SCENARIO = Scenario(
    settles=frozenset({Part.INPUT, Part.OPERATORS, Part.PACE, Part.SLOW_VERTEX, Part.FAULTS}),
    possible=_possible,
    profile=_profile,
    job=_job,
)
