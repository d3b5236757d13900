"""Some subtasks of a vertex have seen the end of their input and others have not, and the job goes on narrower (RSC-2).

What operators have to emit at the end is still due in those that had not seen it, even if one subtask takes over from
both. A barrier that waits its turn reaches all subtasks of a vertex before the end of their input, or all of them after
it. One that overtakes records overtakes the end behind them, too. By chance the last records are hardly ever queued
before some subtasks only, and a checkpoint of that moment is hardly ever restored with another parallelism. Here all
records have few keys: they wait for few subtasks of a slow vertex, and the others are at the end. Then an executor is
lost for good.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec
from hypothesis import strategies as st

from barrier_tck.faults.catalogue import FaultKind
from barrier_tck.faults.drawing import Aim
from barrier_tck.faults.vocabulary import After, ProtocolPoint, ScheduledFault
from barrier_tck.harness.draw.choices import DrawnChoices, between
from barrier_tck.harness.draw.constraints import Drawing
from barrier_tck.harness.draw.drawn_job import DrawnJob
from barrier_tck.harness.draw.lost_executors import LOST, can_lose_executors
from barrier_tck.harness.draw.profile import Profile
from barrier_tck.harness.draw.rescaled_jobs import can_become_narrower, least_subtasks
from barrier_tck.harness.draw.scenario import Part, Scenario
from barrier_tck.harness.draw.scenarios.changed_totals import SCENARIO as CHANGED_TOTALS
from barrier_tck.harness.plan.trial_plan import OVERTAKING, CheckpointingMode, TrialPlan
from barrier_tck.harness.system.job_view import Role
from barrier_tck.harness.system.system_under_test import Capability
from barrier_tck.harness.workloads.changed_totals import ChangedTotals, ends_with_totals
from barrier_tck.harness.workloads.kinds.changes import CHANGES

_CAPACITIES = (8, 16, 32)
"""Room for what a source reads, so that it ends while its records wait."""
_SLOW_MS = (8, 15)
_SLOTS = (1, 1, 2)
"""How many subtasks are gone with an executor."""


def _overtaking(profile: Profile) -> tuple[CheckpointingMode, ...]:
    return tuple(mode for mode in profile.checkpoints.modes if mode in OVERTAKING)


def _possible(profile: Profile, capabilities: frozenset[Capability]) -> bool:
    able = can_lose_executors(profile, capabilities) and CHANGED_TOTALS.possible(profile, capabilities)
    return (
        able
        and bool(_overtaking(profile))
        and profile.faults.number[0] <= 1 <= profile.faults.number[1]
        # Where time is not virtual, so short an input is over before the first checkpoint.
        and Capability.DETERMINISTIC_REPLAY in capabilities
    )


def _profile(draw: st.DrawFn, profile: Profile) -> Profile:
    """Return the profile of totals that are emitted when they have changed, in modes whose barriers overtake."""
    changed = CHANGED_TOTALS.profile(draw, profile)
    # Where all totals are emitted at the end, a job that has emitted some of them refuses another parallelism.
    at_the_end = tuple(shape for shape in ChangedTotals.shapes if ends_with_totals(shape))
    return replace(
        changed,
        workload=replace(
            changed.workload,
            batches=(6, 12),
            batch_records=(1, 2),
            keys=(1, 3),
            records_per_second=(None, 2_000),
        ),
        job=replace(
            changed.job,
            sources=(1, 2),
            keyed=(2, 5),
            sinks=(1, 2),
            shapes_left_out=(*changed.job.shapes_left_out, *at_the_end),
        ),
        checkpoints=replace(
            changed.checkpoints,
            modes=_overtaking(profile),
            alignment_timeouts_ms=(0, 5),
            interval_ms=(20, 45),
            min_pause_ms=(0,),
            timeouts_ms=(max(changed.checkpoints.timeouts_ms),),
            tolerated_failures=(max(changed.checkpoints.tolerated_failures),),
            async_ms_max=(0, 5),
        ),
        network=replace(
            changed.network,
            latency_ms_max=(0, 3),
            slow_channel_per_mille=0,
            channel_capacities=_CAPACITIES,
        ),
        faults=replace(changed.faults, number=(0, 0)),
    )


def _load(drawing: Drawing, plan: TrialPlan) -> TrialPlan:
    """Let the vertex be slow that keeps the totals."""
    totals = [vertex.name for vertex in plan.job.vertices if vertex.kind == CHANGES]
    if not totals:
        return plan
    deployment = msgspec.structs.replace(
        plan.deployment,
        slow_vertex=drawing.draw(st.sampled_from(totals)),
        slow_batch_ms=drawing.draw(st.sampled_from(_SLOW_MS)),
    )
    return msgspec.structs.replace(plan, deployment=deployment)


def _slots(drawing: Drawing, plan: TrialPlan) -> TrialPlan:
    """Let all subtasks have just the slots that they need, so that the job is narrower when an executor is lost."""
    if not can_become_narrower(plan):  # a campaign may prescribe its protocol
        return plan
    draw, slots = drawing.draw, drawing.draw(st.sampled_from(_SLOTS))
    least = -(-least_subtasks(plan.job, ()) // slots)
    deployment = msgspec.structs.replace(
        plan.deployment,
        executors=max(-(-len(plan.job.subtasks) // slots), least + 1),
        slots_per_executor=slots,
        elastic_wait_ms=between(draw, drawing.profile.elastic.wait_ms),
    )
    return msgspec.structs.replace(plan, deployment=deployment)


def _faults(drawing: Drawing, job: DrawnJob, _: Sequence[FaultKind]) -> Sequence[ScheduledFault]:
    """Draw the loss of an executor when the first checkpoint is complete, which is restored then."""
    if job.plan.deployment.elastic_wait_ms is None:
        return ()
    sink = drawing.draw(st.sampled_from(job.view.in_role(Role.SINK)))
    lost = LOST.fault.drawn(DrawnChoices(drawing.draw), Aim(sink))
    return (ScheduledFault(lost, After(ProtocolPoint.CHECKPOINT_COMPLETED)),)


SCENARIO = Scenario(
    settles=frozenset(
        {Part.INPUT, Part.OPERATORS, Part.PACE, Part.SLOW_VERTEX, Part.SAVEPOINTS, Part.FAULTS}
    ),
    per_mille=60,
    possible=_possible,
    profile=_profile,
    load=_load,
    slots=_slots,
    faults=_faults,
)
