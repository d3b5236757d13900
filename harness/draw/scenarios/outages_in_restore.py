"""The storage service is away when a job is restored (REC-1, REC-4, STA-2).

A service that does not answer says nothing about its files: what cannot be read now must be read later, and nothing may
start from less than the checkpoint holds. By chance a service is hardly ever away just then, because its faults are
aimed where something is stored. Here a first failure makes a restore certain. The service is throttled or cut off when
a subtask begins to read its state, when the next attempt is planned, or when a coordinator starts. Mostly it is back
before the next checkpoint, which would otherwise fail together with an attempt that has lost something.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import strategies as st

from barrier_tck.faults.catalogue import FaultKind
from barrier_tck.faults.drawing import Aim, Plainest
from barrier_tck.faults.fault import Ends
from barrier_tck.faults.vocabulary import After, ProtocolPoint, ScheduledFault
from barrier_tck.harness.draw.choices import DrawnChoices
from barrier_tck.harness.draw.constraints import Drawing
from barrier_tck.harness.draw.drawn_job import DrawnJob
from barrier_tck.harness.draw.outages import OUTAGES, has_outages
from barrier_tck.harness.draw.profile import Profile
from barrier_tck.harness.draw.scenario import Part, Scenario
from barrier_tck.harness.system.job_view import Role
from barrier_tck.harness.system.system_under_test import Capability

_FAULTS_MIN = 2
_BATCHES, _RATE = (12, 30), 300
_READS_PER_START = 3
"""How many outages begin when a subtask reads its state, for each one that begins with a coordinator or an attempt."""


def _possible(profile: Profile, _: frozenset[Capability]) -> bool:
    return profile.faults.number[1] >= _FAULTS_MIN and has_outages(profile)


def _profile(_: st.DrawFn, profile: Profile) -> Profile:
    """Let all state be read from the service, not from a copy on the host, and let the input go on afterwards."""
    workload = profile.workload
    return replace(
        profile,
        workload=replace(
            workload,
            batches=_BATCHES,
            records_per_second=tuple(rate for rate in workload.records_per_second if rate) or (_RATE,),
        ),
        storage=replace(profile.storage, local_recovery_per_mille=0),
    )


def _faults(drawing: Drawing, job: DrawnJob, kinds: Sequence[FaultKind]) -> Sequence[ScheduledFault]:
    """Draw both faults; none if the job's checkpoints are in no service, or no restore is certain."""
    draw, view = drawing.draw, job.view
    outages = [kind for kind in kinds if kind.name in OUTAGES]
    killers = [kind for kind in kinds if kind.fault.ends is not None]
    stateful = view.in_role(Role.STATEFUL)
    if not (outages and killers and job.committing and stateful):
        return ()
    sink, killer = draw(st.sampled_from(job.committing)), draw(st.sampled_from(killers))
    failure = ScheduledFault(
        killer.fault.drawn(Plainest(), Aim(sink)), After(ProtocolPoint.COMPLETION_NOTIFIED, sink)
    )
    moments = [After(ProtocolPoint.RESTORE_STARTED, draw(st.sampled_from(stateful)))] * _READS_PER_START
    starts = view.times(ProtocolPoint.COORDINATOR_STARTING, None)
    if killer.fault.ends is Ends.COORDINATOR and starts:
        moments.append(After(ProtocolPoint.COORDINATOR_STARTING, nth=starts + 1))
    elif killer.fault.ends is Ends.SUBTASKS:
        moments.append(After(ProtocolPoint.ATTEMPT_STARTED, nth=2))
    short_ms = (1, max(1, job.plan.checkpoints.interval_ms // 2))
    duration_ms = draw(st.sampled_from((short_ms, short_ms, drawing.profile.faults.duration_ms)))
    aim = Aim(sink, duration_ms=duration_ms)
    outage = draw(st.sampled_from(outages)).fault.drawn(DrawnChoices(draw), aim)
    return (failure, ScheduledFault(outage, draw(st.sampled_from(moments))))


SCENARIO = Scenario(
    settles=frozenset({Part.INPUT, Part.FAULTS}),
    per_mille=220,
    possible=_possible,
    profile=_profile,
    faults=_faults,
)
