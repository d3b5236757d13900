"""Plans in which a checkpoint is taken while restored records in flight are not processed yet (UNA-4).

That needs several things at once, which plans seldom have by chance: a checkpoint with full queues, a failure right
after it, an input that lasts, a checkpoint soon after the restore, and a vertex that is slow to process what was
restored. If a barrier of another channel completes the snapshot there, what is left of the restored records belongs to
it (UR-01). So the slow vertex also reads a broadcast: its channels stay aligned while barriers overtake on the others.
"""

from __future__ import annotations

from dataclasses import replace

import msgspec
from hypothesis import strategies as st

from barrier_tck.harness.draw.profile import Profile
from barrier_tck.harness.plan.job_graph import SOURCE, EdgePlan, JobPlan, Spread, VertexPlan
from barrier_tck.harness.plan.trial_plan import OVERTAKING, TrialPlan
from barrier_tck.harness.workloads.generated_jobs import GENERATED
from barrier_tck.harness.workloads.kind_catalogue import keeps_by_key
from barrier_tck.harness.workloads.lineage import source
from barrier_tck.harness.workloads.workload import DrawsJobs
from barrier_tck.harness.workloads.workload_names import workload_named

_TOLD = "told"
"""The source whose records reach every subtask of the slow vertex."""
_FAULTS_MIN = 2
"""A failure after a checkpoint that is sure to have completed is drawn for plans with several faults only."""


def can_recover_in_flight(profile: Profile) -> bool:
    """Tell whether such plans can be drawn from a profile: barriers may overtake, and several faults may strike."""
    return profile.faults[1] >= _FAULTS_MIN and any(mode in OVERTAKING for mode in profile.modes)


def for_recovery(profile: Profile) -> Profile:
    """Return the profile of such plans. Its modes are those whose barriers overtake."""
    fewest, most = profile.faults
    drawn = tuple(name for name in profile.workloads if isinstance(workload_named(name), DrawsJobs))
    return replace(
        profile,
        modes=tuple(mode for mode in profile.modes if mode in OVERTAKING),
        workloads=drawn or profile.workloads,
        drawn_jobs_per_mille=1_000,
        subtasks_max=10,
        tiny_inputs_per_mille=0,
        batches=(10, 16),
        batch_records=(1, 2),
        records_per_second=(None, 2_000),
        alignment_timeouts_ms=tuple(time for time in profile.alignment_timeouts_ms if time) or (20,),
        interval_ms=(6, 15),
        min_pause_ms=(0,),
        max_concurrent=(1, 2),
        # A checkpoint that hangs must not end by itself before the trial does.
        timeouts_ms=(2_000, 120_000),
        async_ms_max=(0, 5),
        latency_ms_max=(0, 3),
        slow_channel_per_mille=0,
        slow_vertex_per_mille=0,
        channel_capacities=(4, 8),
        storage_per_mille=0,
        faults=(max(_FAULTS_MIN, fewest), most),
        restore_per_mille=1_000,
    )


def with_meeting(draw: st.DrawFn, profile: Profile, plan: TrialPlan) -> TrialPlan:
    """Return the plan with a slow vertex. If its graph was drawn, that vertex also reads a broadcast."""
    job = plan.job
    able = [vertex.name for vertex in job.vertices if vertex.kind != SOURCE and not keeps_by_key(vertex)]
    slow = draw(st.sampled_from(able))
    deployment = msgspec.structs.replace(
        plan.deployment, slow_vertex=slow, slow_batch_ms=draw(st.sampled_from(profile.slow_batch_ms))
    )
    told = _told_to(job, slow)
    if job.shape == GENERATED and workload_named(plan.workload.name).problem_of(told) is None:
        job = told
    return msgspec.structs.replace(plan, job=job, deployment=deployment)


def _told_to(job: JobPlan, vertex: str) -> JobPlan:
    """Return the job with one more source, all of whose records go to every subtask of a vertex."""
    told: VertexPlan = source(_TOLD, 1)
    return msgspec.structs.replace(
        job,
        vertices=(told, *job.vertices),
        edges=(*job.edges, EdgePlan(_TOLD, vertex, Spread.BROADCAST)),
    )
