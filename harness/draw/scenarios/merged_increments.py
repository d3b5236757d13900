"""A job becomes narrower, and what it stores then is an increment on the files of several subtasks (SNP-5, RSC-2).

A subtask that takes over key groups of others restores the files of each. Whether its next snapshot may build on these,
and whether it then holds everything, shows if that snapshot is restored. By chance plans with increments next to never
lose an executor when there are several of them, complete a checkpoint in the narrower job, and fail then. And a job
that loses one slot of many hands on parts of key group ranges, on which nothing builds. Here vertices by key have many
keys, of which few change from one checkpoint to the next, and the loss mostly halves their width: ranges are merged.
"""

from __future__ import annotations

from dataclasses import replace

import msgspec
from hypothesis import strategies as st

from barrier_tck.faults.targets import TargetKind
from barrier_tck.harness.draw.choices import chance, numbers
from barrier_tck.harness.draw.constraints import Drawing
from barrier_tck.harness.draw.counted_checkpoints import one_by_one
from barrier_tck.harness.draw.lost_executors import can_lose_executors
from barrier_tck.harness.draw.profile import Profile
from barrier_tck.harness.draw.scenario import Part, Scenario
from barrier_tck.harness.draw.scenarios import conditions
from barrier_tck.harness.draw.scenarios.conditions import LATER_MS, WAIT_MS, Act, Link, chained
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.system.system_under_test import Capability

_NEEDS = frozenset(
    {
        Capability.WORKER_KILL,
        Capability.EXECUTOR_KILL,
        Capability.COORDINATOR_CRASH,
        Capability.DETERMINISTIC_REPLAY,
    }
)
_WORKLOADS = ("keyed-totals", "lineage")
"""Workloads whose vertices by key are as wide as a profile says."""
_WIDTHS = (2, 4, 4)
"""How wide vertices by key are. Half of these takes over whole key group ranges."""
_BEFORE = (2, 5)
"""How many checkpoints complete before an executor is lost. Increments are small once there are most of the keys."""
_HALVED_PER_MILLE = 750
"""In how many of these plans in 1,000 each vertex is half as wide after the loss; in others it is wider than that."""
_LOSSES = (Act.EXECUTOR_IS_LOST, Act.EXECUTOR_IS_LOST, Act.EXECUTOR_IS_LATE)
_AFTER = (
    Link(1, Act.SUBTASK_DIES),
    Link(1, Act.SUBTASK_DIES),
    Link(2, Act.SUBTASK_DIES),
    Link(1, Act.COORDINATOR_DIES),
)
"""What restores a checkpoint of the narrower job. After only one, no subtask has been notified that it completed."""
_AFTER_MAX = 2


def _possible(profile: Profile, capabilities: frozenset[Capability]) -> bool:
    """Return whether a job can become narrower, and fail then, in virtual time."""
    able = capabilities >= _NEEDS
    named = any(name in _WORKLOADS for name in profile.workload.names)
    return able and named and can_lose_executors(profile, capabilities) and profile.faults.number[1] > 1


def _profile(draw: st.DrawFn, profile: Profile) -> Profile:
    counted = one_by_one(profile)
    width = draw(st.sampled_from(_WIDTHS))
    return replace(
        counted,
        workload=replace(
            counted.workload,
            names=tuple(name for name in counted.workload.names if name in _WORKLOADS),
            batches=(10, 20),
            batch_records=(1, 2),
            keys=(16, 40),
            records_per_second=(200,),
        ),
        job=replace(
            counted.job,
            sources=(1, 1),
            keyed=(width, width),
            sinks=(1, 2),
            shapes_left_out=(*counted.job.shapes_left_out, "fan-in", "mixed", "apart"),
            drawn_per_mille=0,
        ),
        checkpoints=replace(
            counted.checkpoints, interval_ms=(10, 20), async_ms_max=(0, 4), incremental_per_mille=1_000
        ),
        faults=replace(counted.faults, lose_unsynced_per_mille=0, unreadable_per_mille=0),
    )


def _savepoints(drawing: Drawing, plan: TrialPlan) -> TrialPlan:
    """Draw the loss of an executor, and what comes after it."""
    if not plan.checkpoints.enabled:
        return plan
    draw, most = drawing.draw, drawing.profile.faults.number[1]
    loss = Link(draw(numbers(*_BEFORE)), draw(st.sampled_from(_LOSSES)))
    after = [draw(st.sampled_from(_AFTER)) for _ in range(draw(numbers(1, min(_AFTER_MAX, most - 1))))]
    return chained(drawing, plan, [loss, *after])


def _slots(drawing: Drawing, plan: TrialPlan) -> TrialPlan:
    """Let the job be elastic, on two executors; one has room for about half of it."""
    if not plan.faults:
        return plan
    draw, wanted = drawing.draw, len(plan.job.subtasks)
    left = sum(-(-vertex.parallelism // 2) for vertex in plan.job.vertices)
    if not chance(draw, _HALVED_PER_MILLE):
        left = draw(numbers(left, max(left, wanted - 1)))
    late = any(planned.fault.needs is TargetKind.EXECUTOR for planned in plan.faults)
    deployment = msgspec.structs.replace(
        plan.deployment,
        executors=2,
        slots_per_executor=left,
        elastic_wait_ms=WAIT_MS,
        replaced_after_ms=plan.restart.delay_ms + WAIT_MS + LATER_MS if late else 0,
    )
    return msgspec.structs.replace(plan, deployment=deployment)


SCENARIO = Scenario(
    per_mille=45,
    settles=frozenset({Part.INPUT, Part.OPERATORS, Part.PACE, Part.SAVEPOINTS, Part.FAULTS}),
    possible=_possible,
    profile=_profile,
    savepoints=_savepoints,
    slots=_slots,
    faults=conditions.SCENARIO.faults,
)
