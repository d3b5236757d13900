"""Plans of elastic jobs that lose several executors for good, one after the other (RSC-2, REC-4, REC-5).

What such a job hands on from one parallelism to the next, it hands on again: a redistributed state becomes part of a
checkpoint, or of an increment, and is redistributed once more; a transaction that waits for its commit waits through
several jobs. By chance two losses are next to never drawn with nothing but a few checkpoints between them. Here the
checkpoints are counted. One is in flight at a time, so their numbers are certain.
"""

from __future__ import annotations

from dataclasses import replace

import msgspec
from hypothesis import strategies as st

from barrier_tck.faults.catalogue import KINDS
from barrier_tck.faults.drawing import Aim
from barrier_tck.faults.targets import TargetKind
from barrier_tck.faults.vocabulary import After, ProtocolPoint, ScheduledFault
from barrier_tck.harness.draw.chain_plans import for_chains
from barrier_tck.harness.draw.choices import DrawnChoices, between, numbers
from barrier_tck.harness.draw.drawn_job import DrawnJob
from barrier_tck.harness.draw.elastic_plans import draw_lost_executor, least_subtasks
from barrier_tck.harness.draw.profile import Profile
from barrier_tck.harness.draw.storage_faults import is_long_enough, long_enough
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.system.job_view import JobView, Role

LOSSES_MIN, _LOSSES_MAX = 2, 3
_DRAWN_JOBS_PER_MILLE = 160
"""How many of these plans in 1,000 may have a drawn job. In most of them no vertex becomes narrower twice."""
_WIDE, _NARROWER = (5, 6), (2, 4)
"""How wide the vertices are that become narrower each time, and the others."""
_FIRST = (1, 3)
"""After which checkpoint the first executor is lost."""
_APART = (1, 1, 1, 2)
"""How many checkpoints complete from one loss to the next. After only one, nobody has heard that it completed."""
_CHECKPOINTS = _FIRST[1] + max(_APART) * (_LOSSES_MAX - 1) + 2
"""How many checkpoints must come while there is input, with two to spare."""


def for_losses(draw: st.DrawFn, profile: Profile) -> Profile:
    """Return the profile of such plans: wide jobs without savepoints and without other faults.

    Sinks or keyed vertices are the widest, for those become narrower each time. Sinks often put off commits, and
    checkpoints are often incremental.
    """
    keyed, sinks = draw(st.sampled_from(((_NARROWER, _WIDE), (_NARROWER, _WIDE), (_WIDE, _NARROWER))))
    older = tuple(one for one in profile.on_unreadable if one == "older")
    return replace(
        for_chains(profile),
        sources=(1, 1),
        # Eleven sources that read for so long give more records than can be judged in time.
        shapes_left_out=(*profile.shapes_left_out, "fan-in"),
        batch_records=(2, 3),
        keys=(10, 30),
        # Between two checkpoints every sink gets something.
        records_per_second=(300,),
        interval_ms=(20, 40),
        keyed=keyed,
        sinks=sinks,
        drawn_jobs_per_mille=min(_DRAWN_JOBS_PER_MILLE, profile.drawn_jobs_per_mille),
        on_unreadable=(*profile.on_unreadable, *older),
        incremental_per_mille=max(290, profile.incremental_per_mille),
        savepoints_per_mille=0,
        elastic_per_mille=1_000,
        faults=(0, 0),
    )


def with_slots_for_losses(draw: st.DrawFn, profile: Profile, plan: TrialPlan) -> TrialPlan:
    """Return the plan with an elastic job that each of several losses makes narrower; its job must be filled in."""
    slots = draw(st.sampled_from((1, 1, 2)))
    least = -(-least_subtasks(plan.job, ()) // slots)
    deployment = msgspec.structs.replace(
        plan.deployment,
        executors=max(-(-len(plan.job.subtasks) // slots), least + LOSSES_MIN),
        slots_per_executor=slots,
        elastic_wait_ms=between(draw, profile.elastic_wait_ms),
    )
    longer = long_enough(plan, profile.settle_ms, _CHECKPOINTS)
    return msgspec.structs.replace(longer, deployment=deployment)


def draw_losses(
    draw: st.DrawFn, profile: Profile, plan: TrialPlan, wide: JobView, lasting: JobView
) -> tuple[ScheduledFault, ...]:
    """Draw when executors are lost; if a campaign made the input too short or the job too narrow, only one is.

    ``wide`` is the job as it starts, ``lasting`` has the subtasks that it has until the end. The first loss is that of
    a last sink, of which the narrower job has none: another one takes over what it has not committed.
    """
    slots = plan.deployment.slots_per_executor or 1
    room = plan.deployment.executors - -(-least_subtasks(plan.job, plan.deployment.fixed_vertices) // slots)
    one_by_one = plan.checkpoints.max_concurrent == 1
    if room < LOSSES_MIN or not (
        one_by_one and is_long_enough(DrawnJob(plan, wide), profile.settle_ms, _CHECKPOINTS)
    ):
        return (draw_lost_executor(draw, lasting, ()),)
    kind = next(one for one in KINDS.values() if one.fault.needs is TargetKind.CAPACITY)
    losses = draw(numbers(LOSSES_MIN, min(_LOSSES_MAX, room)))
    first = wide.like(draw(st.sampled_from(wide.in_role(Role.SINK))))[-1]
    hit = (first, *(draw(st.sampled_from(lasting.in_role(Role.SINK))) for _ in range(losses - 1)))
    nth, faults = between(draw, _FIRST), []
    for subtask in hit:
        trigger = After(ProtocolPoint.CHECKPOINT_COMPLETED, nth=nth)
        faults.append(ScheduledFault(kind.fault.drawn(DrawnChoices(draw), Aim(subtask)), trigger))
        nth += draw(st.sampled_from(_APART))
    return tuple(faults)
