"""The input ends while a snapshot is being stored, and that checkpoint is restored (SNP-1, SNP-2, BAR-6).

Totals are emitted when the input has ended. A snapshot that was taken before says that they are still due, however long
it takes to store it. By chance an input ends in the asynchronous part of a snapshot now and then, but that checkpoint
is hardly ever the one that is restored: a newer one completes, or nothing fails any more. Here the input ends a little
after a checkpoint was triggered, its asynchronous parts are slow, and something dies when it is complete.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec
from hypothesis import strategies as st

from barrier_tck.faults.catalogue import FaultKind
from barrier_tck.faults.drawing import Aim, Plainest
from barrier_tck.faults.vocabulary import After, ProtocolPoint, ScheduledFault
from barrier_tck.harness.draw.choices import between
from barrier_tck.harness.draw.constraints import Drawing
from barrier_tck.harness.draw.counted_checkpoints import one_by_one
from barrier_tck.harness.draw.drawn_job import DrawnJob
from barrier_tck.harness.draw.profile import Profile
from barrier_tck.harness.draw.scenario import Part, Scenario
from barrier_tck.harness.draw.scenarios.changed_totals import SCENARIO as CHANGED_TOTALS
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.system.system_under_test import Capability
from barrier_tck.harness.workloads.changed_totals import ChangedTotals, ends_with_totals

_INTERVAL_MS = (15, 30)
_ASYNC_MS = (25, 40)
_BEHIND_MS = (2, 15)
"""How much later than a checkpoint is triggered the input ends; a slow asynchronous part takes longer."""
_RATE = 1_000


def _possible(profile: Profile, capabilities: frozenset[Capability]) -> bool:
    fewest, most = profile.faults.number
    return fewest <= 1 <= most and CHANGED_TOTALS.possible(profile, capabilities)


def _profile(draw: st.DrawFn, profile: Profile) -> Profile:
    """Return the profile of jobs that emit at the end, and whose snapshots take long to store."""
    counted = one_by_one(CHANGED_TOTALS.profile(draw, profile))
    early = tuple(shape for shape in ChangedTotals.shapes if not ends_with_totals(shape))
    return replace(
        counted,
        workload=replace(counted.workload, batch_records=(1, 2), records_per_second=(_RATE,)),
        job=replace(counted.job, shapes_left_out=(*counted.job.shapes_left_out, *early)),
        checkpoints=replace(
            counted.checkpoints, interval_ms=_INTERVAL_MS, min_pause_ms=(0,), async_ms_max=_ASYNC_MS
        ),
        network=replace(counted.network, latency_ms_max=(0, 2)),
    )


def _load(drawing: Drawing, plan: TrialPlan) -> TrialPlan:
    """Let the input end a little after the first checkpoint was triggered."""
    workload = plan.workload
    ends_ms = plan.checkpoints.interval_ms + between(drawing.draw, _BEHIND_MS)
    batches = max(1, ends_ms * _RATE // 1_000 // workload.batch_records)
    return msgspec.structs.replace(plan, workload=msgspec.structs.replace(workload, batches=batches))


def _faults(drawing: Drawing, job: DrawnJob, kinds: Sequence[FaultKind]) -> Sequence[ScheduledFault]:
    """Draw a kill between the completion of the first checkpoint and its commit; none if no sink is notified."""
    draw = drawing.draw
    killers = [kind for kind in kinds if kind.fault.ends is not None]
    if not (killers and job.committing):
        return ()
    sink = draw(st.sampled_from(job.committing))
    dies = draw(st.sampled_from(killers)).fault.drawn(Plainest(), Aim(sink))
    return (ScheduledFault(dies, After(ProtocolPoint.COMPLETION_NOTIFIED, sink)),)


SCENARIO = Scenario(
    settles=frozenset({Part.INPUT, Part.OPERATORS, Part.PACE, Part.FAULTS}),
    per_mille=25,
    possible=_possible,
    profile=_profile,
    load=_load,
    faults=_faults,
)
