"""Elastic jobs that lose several executors for good, one after the other (RSC-2, REC-4, REC-5).

What such a job hands on from one parallelism to the next, it hands on again: a redistributed state becomes part of a
checkpoint, or of an increment, and is redistributed once more; a transaction that waits for its commit waits through
several jobs. By chance two losses are next to never drawn with nothing but a few checkpoints between them. Here the
checkpoints are counted. One is in flight at a time, so their numbers are certain.
"""

from __future__ import annotations

from dataclasses import replace

import msgspec
from hypothesis import strategies as st

from barrier_tck.faults.drawing import Aim
from barrier_tck.faults.vocabulary import After, ProtocolPoint, ScheduledFault
from barrier_tck.harness.draw.choices import DrawnChoices, between, numbers
from barrier_tck.harness.draw.constraints import Drawing
from barrier_tck.harness.draw.counted_checkpoints import one_by_one
from barrier_tck.harness.draw.drawn_job import DrawnJob
from barrier_tck.harness.draw.input_length import is_long_enough, long_enough
from barrier_tck.harness.draw.lost_executors import (
    LOST,
    can_lose_executors,
    draw_lost_executor,
    with_late_replacements,
)
from barrier_tck.harness.draw.profile import Profile
from barrier_tck.harness.draw.rescaled_jobs import can_become_narrower, least_subtasks
from barrier_tck.harness.draw.scenario import Part, Scenario
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.system.job_view import Role
from barrier_tck.harness.system.system_under_test import Capability

_LOSSES_MIN, _LOSSES_MAX = 2, 3
_DRAWN_JOBS_PER_MILLE = 160
"""How many of these plans in 1,000 may have a drawn job. In most of them no vertex becomes narrower twice."""
_INCREMENTAL_PER_MILLE = 290
"""How many of these plans in 1,000 have incremental checkpoints, at least."""
_WIDE, _NARROWER = (5, 6), (2, 4)
"""How wide the vertices are that become narrower each time, and the others."""
_FIRST = (1, 3)
"""After which checkpoint the first executor is lost."""
_APART = (1, 1, 1, 2)
"""How many checkpoints complete from one loss to the next. After only one, no subtask has been notified that it
completed."""
_CHECKPOINTS = _FIRST[1] + max(_APART) * (_LOSSES_MAX - 1) + 2
"""How many checkpoints must come while there is input, with two to spare."""


def _possible(profile: Profile, capabilities: frozenset[Capability]) -> bool:
    return can_lose_executors(profile, capabilities) and profile.faults.number[1] >= _LOSSES_MIN


def _profile(draw: st.DrawFn, profile: Profile) -> Profile:
    """Return the profile of wide jobs without other faults.

    Sinks or keyed vertices are the widest, for those become narrower each time. Sinks often put off commits, and
    checkpoints are often incremental.
    """
    keyed, sinks = draw(st.sampled_from(((_NARROWER, _WIDE), (_NARROWER, _WIDE), (_WIDE, _NARROWER))))
    older = tuple(policy for policy in profile.storage.on_unreadable if policy == "older")
    counted = one_by_one(profile)
    return replace(
        counted,
        workload=replace(
            counted.workload,
            batch_records=(2, 3),
            keys=(10, 30),
            # Between two checkpoints every sink gets something.
            records_per_second=(300,),
        ),
        job=replace(
            counted.job,
            sources=(1, 1),
            keyed=keyed,
            sinks=sinks,
            # Eleven sources that read for so long give more records than can be judged in time.
            shapes_left_out=(*profile.job.shapes_left_out, "fan-in"),
            drawn_per_mille=min(_DRAWN_JOBS_PER_MILLE, profile.job.drawn_per_mille),
        ),
        checkpoints=replace(
            counted.checkpoints,
            interval_ms=(20, 40),
            incremental_per_mille=max(_INCREMENTAL_PER_MILLE, profile.checkpoints.incremental_per_mille),
        ),
        storage=replace(counted.storage, on_unreadable=(*profile.storage.on_unreadable, *older)),
        faults=replace(counted.faults, number=(0, 0)),
    )


def _slots(drawing: Drawing, plan: TrialPlan) -> TrialPlan:
    """Let the job be elastic, and become narrower with each of several losses."""
    if not can_become_narrower(plan):  # a campaign may prescribe its protocol
        return plan
    draw, profile = drawing.draw, drawing.profile
    slots = draw(st.sampled_from((1, 1, 2)))
    least = -(-least_subtasks(plan.job, ()) // slots)
    deployment = msgspec.structs.replace(
        plan.deployment,
        executors=max(-(-len(plan.job.subtasks) // slots), least + _LOSSES_MIN),
        slots_per_executor=slots,
        elastic_wait_ms=between(draw, profile.elastic.wait_ms),
    )
    longer = long_enough(plan, profile.limits.settle_ms, _CHECKPOINTS)
    return msgspec.structs.replace(longer, deployment=deployment)


def _add_faults(drawing: Drawing, plan: TrialPlan) -> TrialPlan:
    if plan.deployment.elastic_wait_ms is None:
        return plan
    faults = (*plan.faults, *_losses(drawing, plan))
    return with_late_replacements(drawing, msgspec.structs.replace(plan, faults=faults))


def _losses(drawing: Drawing, plan: TrialPlan) -> tuple[ScheduledFault, ...]:
    """Draw when executors are lost; if a campaign made the input too short or the job too narrow, only one is.

    The first loss is that of a last sink, of which the narrower job has none: another one takes over what it has not
    committed.
    """
    draw, wide, lasting = drawing.draw, drawing.view(plan), drawing.lasting(plan)
    slots = plan.deployment.slots_per_executor or 1
    needed = -(-least_subtasks(plan.job, plan.deployment.fixed_vertices) // slots)
    to_spare = plan.deployment.executors - needed
    counted = plan.checkpoints.max_concurrent == 1 and is_long_enough(
        DrawnJob(plan, wide), drawing.profile.limits.settle_ms, _CHECKPOINTS
    )
    if to_spare < _LOSSES_MIN or not counted:
        return (draw_lost_executor(draw, lasting, ()),)
    losses = draw(numbers(_LOSSES_MIN, min(_LOSSES_MAX, to_spare)))
    first = wide.like(draw(st.sampled_from(wide.in_role(Role.SINK))))[-1]
    hit = (first, *(draw(st.sampled_from(lasting.in_role(Role.SINK))) for _ in range(losses - 1)))
    nth, faults = between(draw, _FIRST), []
    for subtask in hit:
        trigger = After(ProtocolPoint.CHECKPOINT_COMPLETED, nth=nth)
        faults.append(ScheduledFault(LOST.fault.drawn(DrawnChoices(draw), Aim(subtask)), trigger))
        nth += draw(st.sampled_from(_APART))
    return tuple(faults)


SCENARIO = Scenario(
    settles=frozenset({Part.INPUT, Part.PACE, Part.SAVEPOINTS, Part.FAULTS}),
    possible=_possible,
    profile=_profile,
    slots=_slots,
    add_faults=_add_faults,
)
