"""A job becomes narrower and wide again before its sinks have committed, and may fall back (RSC-2, SNK-1, REC-4).

With ``on_unreadable = "older"`` a commit is put off at each restore, so a prepared transaction may wait while the
number of sinks changes, and changes back. If the newest checkpoint cannot be read then, what was prepared for it must
go, at whatever parallelism it was prepared. By chance no plan has all of that. Here the executor of a sink goes when a
checkpoint is complete, the coordinator when a later one is, before any sink has learned of that; and often the later
one is damaged. The executor has been replaced by then, or is lost for good. One checkpoint is in flight at a time, so
their numbers are certain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec
from hypothesis import strategies as st

from barrier_tck.faults.catalogue import KINDS, FaultKind
from barrier_tck.faults.drawing import Aim, Plainest
from barrier_tck.faults.fault import CopyPlace, Ends
from barrier_tck.faults.targets import Damage, TargetKind
from barrier_tck.faults.vocabulary import After, ProtocolPoint, ScheduledFault
from barrier_tck.harness.draw.choices import DrawnChoices, between, chance
from barrier_tck.harness.draw.constraints import Drawing
from barrier_tck.harness.draw.counted_checkpoints import one_by_one
from barrier_tck.harness.draw.drawn_job import DrawnJob
from barrier_tck.harness.draw.input_length import is_long_enough, long_enough
from barrier_tck.harness.draw.lost_executors import LOST, can_lose_executors
from barrier_tck.harness.draw.profile import Profile
from barrier_tck.harness.draw.rescaled_jobs import can_become_narrower
from barrier_tck.harness.draw.scenario import Part, Scenario
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.system.job_view import Role
from barrier_tck.harness.system.system_under_test import Capability

_FAULTS = (2, 3)
"""How many there are at least and at most."""
_NARROWER = (1, 3)
"""After which checkpoint the job becomes narrower."""
_APART = (1, 1, 1, 2)
"""How many more complete before the coordinator dies. After only one, no sink has learned that it completed."""
_CHECKPOINTS = _NARROWER[1] + max(_APART) + 3
_REPLACED_PER_MILLE, _DAMAGED_PER_MILLE = 700, 500
_WAIT_MS, _LATER_MS = 10, 12
"""How long the job waits for slots, and how much later than that a new executor comes."""
_KILLED = next(
    kind for kind in KINDS.values() if kind.fault.needs is TargetKind.EXECUTOR and kind.fault.ends is not None
)
_CRASH = next(kind for kind in KINDS.values() if kind.fault.ends is Ends.COORDINATOR)
_DAMAGES = (Damage.MISSING, Damage.TRUNCATED, Damage.BIT_FLIPPED)


def _possible(profile: Profile, capabilities: frozenset[Capability]) -> bool:
    able = {Capability.COORDINATOR_CRASH, Capability.EXECUTOR_KILL} <= capabilities
    return (
        able
        and can_lose_executors(profile, capabilities)
        and profile.faults.number[0] <= _FAULTS[0]
        and profile.faults.number[1] >= _FAULTS[1]
        and "older" in profile.storage.on_unreadable
    )


def _profile(_: st.DrawFn, profile: Profile) -> Profile:
    """Return the profile of jobs with many sinks, which put commits off and have no copies on hosts."""
    counted = one_by_one(profile)
    return replace(
        counted,
        workload=replace(counted.workload, batch_records=(1, 3), keys=(6, 20)),
        job=replace(
            counted.job,
            sources=(1, 2),
            keyed=(2, 3),
            sinks=(3, 5),
            shapes_left_out=(*counted.job.shapes_left_out, "fan-in"),
            drawn_per_mille=0,
        ),
        checkpoints=replace(counted.checkpoints, interval_ms=(20, 40), async_ms_max=(0, 8), retained=(2, 3)),
        storage=replace(counted.storage, local_recovery_per_mille=0, on_unreadable=("older",)),
        faults=replace(counted.faults, number=(0, 0)),
    )


def _slots(drawing: Drawing, plan: TrialPlan) -> TrialPlan:
    """Let the job be elastic, and let one executor less be too few for it."""
    if not can_become_narrower(plan):  # a campaign may prescribe its protocol
        return plan
    late = chance(drawing.draw, _REPLACED_PER_MILLE)
    deployment = msgspec.structs.replace(
        plan.deployment,
        executors=len(plan.job.subtasks),
        slots_per_executor=1,
        elastic_wait_ms=_WAIT_MS,
        replaced_after_ms=plan.restart.delay_ms + _WAIT_MS + _LATER_MS if late else 0,
    )
    longer = long_enough(plan, drawing.profile.limits.settle_ms, _CHECKPOINTS)
    return msgspec.structs.replace(longer, deployment=deployment)


def _faults(drawing: Drawing, job: DrawnJob, _: Sequence[FaultKind]) -> Sequence[ScheduledFault]:
    """Draw what becomes of executor, coordinator and checkpoint; nothing if the input is too short."""
    draw, plan, view = drawing.draw, job.plan, job.view
    counted = plan.checkpoints.max_concurrent == 1 and is_long_enough(
        job, drawing.profile.limits.settle_ms, _CHECKPOINTS
    )
    crashes = job.hit_by(_CRASH)
    if plan.deployment.elastic_wait_ms is None or not (counted and job.committing and crashes):
        return ()
    first = between(draw, _NARROWER)
    later = first + draw(st.sampled_from(_APART))
    wide = drawing.view(plan)
    # The narrower job has no such sink: another one takes over what it has not committed.
    gone = wide.like(draw(st.sampled_from(wide.in_role(Role.SINK))))[-1]
    goes = _KILLED if plan.deployment.replaced_after_ms else LOST
    faults = [
        ScheduledFault(
            goes.fault.drawn(Plainest(), Aim(gone)),
            After(ProtocolPoint.CHECKPOINT_COMPLETED, nth=first),
        ),
        ScheduledFault(
            _CRASH.fault.drawn(Plainest(), Aim("")), After(ProtocolPoint.CHECKPOINT_COMPLETED, nth=later)
        ),
    ]
    starts = view.times(ProtocolPoint.COORDINATOR_STARTING, None)
    stateful = view.in_role(Role.STATEFUL)
    # What increments share with the older checkpoint would be damaged with it.
    able = starts and stateful and plan.checkpoints.retained > 1 and not plan.checkpoints.incremental
    if able and chance(draw, _DAMAGED_PER_MILLE):
        damaged = _DAMAGE.fault.drawn(
            DrawnChoices(draw), Aim(draw(st.sampled_from(stateful)), damages=_DAMAGES)
        )
        faults.append(ScheduledFault(damaged, After(ProtocolPoint.COORDINATOR_STARTING, nth=starts + 1)))
    return faults


def _damages_primaries(kind: FaultKind) -> bool:
    hit = kind.fault.drawn(Plainest(), Aim("")).copies_hit
    return hit is not None and hit.damage is not None and hit.place is CopyPlace.DURABLE


_DAMAGE = next(kind for kind in KINDS.values() if _damages_primaries(kind))

SCENARIO = Scenario(
    settles=frozenset({Part.INPUT, Part.PACE, Part.SAVEPOINTS, Part.FAULTS}),
    possible=_possible,
    profile=_profile,
    slots=_slots,
    faults=_faults,
)
