"""Copies on hosts of several checkpoints that are in flight at once, and a restore from one of them (LOC-1, LOC-3).

When a checkpoint completes, older copies go and newer ones stay, whether they are being written or wait for their own
checkpoint. By chance that is seldom drawn: most plans with copies take one checkpoint at a time, or nothing that needs
a copy dies while two of them are there. Here checkpoints come faster than they complete, and subtasks die when one
that was overlapped has completed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import strategies as st

from barrier_tck.faults.catalogue import FaultKind
from barrier_tck.faults.drawing import Aim, Plainest
from barrier_tck.faults.fault import Ends
from barrier_tck.faults.targets import TargetKind
from barrier_tck.faults.vocabulary import After, ProtocolPoint, ScheduledFault
from barrier_tck.harness.draw.choices import numbers
from barrier_tck.harness.draw.constraints import Drawing
from barrier_tck.harness.draw.drawn_job import DrawnJob
from barrier_tck.harness.draw.input_length import is_long_enough, long_enough
from barrier_tck.harness.draw.profile import Profile
from barrier_tck.harness.draw.scenario import Part, Scenario
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.system.system_under_test import Capability

_SURE = 8
"""Checkpoints for which the input lasts one after the other; of those that overlap far more begin."""
_COMPLETED = (2, 4)
"""At which completion a subtask dies."""


def _possible(profile: Profile, capabilities: frozenset[Capability]) -> bool:
    able = {Capability.LOCAL_RECOVERY, Capability.WORKER_KILL} <= capabilities
    return able and profile.faults.number[0] <= 1 <= profile.faults.number[1]


def _profile(_: st.DrawFn, profile: Profile) -> Profile:
    return replace(
        profile,
        workload=replace(profile.workload, batch_records=(1, 3), records_per_second=(600, 1_000)),
        checkpoints=replace(
            profile.checkpoints,
            interval_ms=(5, 10),
            min_pause_ms=(0,),
            max_concurrent=(2, 4),
            timeouts_ms=(max(profile.checkpoints.timeouts_ms),),
            tolerated_failures=(1_000,),
            async_ms_max=(4, 16),
        ),
        storage=replace(profile.storage, local_recovery_per_mille=1_000, on_unreadable=("fail",)),
        network=replace(profile.network, latency_ms_max=(1, 4), slow_channel_per_mille=0),
        restarts=replace(profile.restarts, strategies=("fixed_delay",)),
    )


def _load(drawing: Drawing, plan: TrialPlan) -> TrialPlan:
    return long_enough(plan, drawing.profile.limits.settle_ms, _SURE)


def _faults(drawing: Drawing, job: DrawnJob, kinds: Sequence[FaultKind]) -> Sequence[ScheduledFault]:
    """Draw a kill at the completion of a checkpoint; none if the input is too short."""
    draw = drawing.draw
    killers = [
        kind for kind in kinds if kind.fault.needs is TargetKind.WORKER and kind.fault.ends is Ends.SUBTASKS
    ]
    long = is_long_enough(job, drawing.profile.limits.settle_ms, _SURE)
    if not (killers and long and job.committing):
        return ()
    sink = draw(st.sampled_from(job.committing))
    dies = draw(st.sampled_from(killers)).fault.drawn(Plainest(), Aim(sink))
    completed = After(ProtocolPoint.COMPLETION_NOTIFIED, sink, draw(numbers(*_COMPLETED)))
    return (ScheduledFault(dies, completed),)


SCENARIO = Scenario(
    settles=frozenset({Part.INPUT, Part.PACE, Part.FAULTS}),
    possible=_possible,
    profile=_profile,
    load=_load,
    faults=_faults,
)
