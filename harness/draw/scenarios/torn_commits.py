"""A process dies between two steps of a commit, or of a publication, and later its host does (SNK-1, COO-1).

What a process has not made durable survives its own death, and whoever takes over finds it. It must make it durable
before anything is built on it: if the host dies later, it is lost. By chance the two failures seldom follow each other
like this, on the same host, and before another commit makes the names durable. A sink that prepares anything does that,
too, so mostly all output belongs to one checkpoint, and each sink is alone in its directory.
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
from barrier_tck.harness.draw.choices import DrawnChoices
from barrier_tck.harness.draw.constraints import Drawing
from barrier_tck.harness.draw.drawn_job import DrawnJob
from barrier_tck.harness.draw.profile import Profile
from barrier_tck.harness.draw.scenario import Part, Scenario
from barrier_tck.harness.system.system_under_test import Capability

_FAULTS_MIN = 2
_ALWAYS = 1_000
_UNPACED = (None, None, None)
_INTERVAL_MS = (40, 90)
"""Mostly enough for all that the sources have to reach the sinks."""


def _possible(profile: Profile, capabilities: frozenset[Capability]) -> bool:
    return Capability.UNSYNCED_LOSS in capabilities and profile.faults.number[1] >= _FAULTS_MIN


def _profile(_: st.DrawFn, profile: Profile) -> Profile:
    """Let most jobs read their input before the first checkpoint, so that no other commit follows the first one.

    They have few hosts, because the one on which the first process died must be lost. What a restore finds is
    committed at once, and not with the next checkpoint, which would list it again.
    """
    workload = profile.workload
    return replace(
        profile,
        workload=replace(workload, records_per_second=(*_UNPACED, *workload.records_per_second)),
        job=replace(profile.job, sinks=(1, 1)),
        deployment=replace(profile.deployment, executors=(1, 2)),
        checkpoints=replace(profile.checkpoints, interval_ms=_INTERVAL_MS),
        storage=replace(profile.storage, on_unreadable=("fail",)),
    )


def _faults(drawing: Drawing, job: DrawnJob, kinds: Sequence[FaultKind]) -> Sequence[ScheduledFault]:
    """Draw both failures; none if the system has no such points, or the profile no such faults."""
    draw, view = drawing.draw, job.view
    of_subtasks = [kind for kind in kinds if kind.fault.ends is Ends.SUBTASKS]
    of_coordinator = [kind for kind in kinds if kind.fault.ends is Ends.COORDINATOR]
    sinks = view.passing(ProtocolPoint.COMMIT_STEP)
    possible = [(of_subtasks, sink, After(ProtocolPoint.COMMIT_STEP, sink)) for sink in sinks if of_subtasks]
    published = view.times(ProtocolPoint.PUBLICATION_STEP, None)
    if of_coordinator and published and not (possible and job.plan.workload.records_per_second is None):
        possible = [(of_coordinator, view.names[0], After(ProtocolPoint.PUBLICATION_STEP))]
    if not possible:
        return ()
    killers, subtask, between = draw(st.sampled_from(possible))
    aim = Aim(subtask, lose_unsynced_per_mille=_ALWAYS)
    sparing = [kind for kind in killers if kind.fault.needs is not TargetKind.HOST]
    losing = [kind for kind in killers if kind.fault.needs is not TargetKind.WORKER]
    if not (losing and sparing):
        return ()
    killed = draw(st.sampled_from(sparing)).fault.drawn(Plainest(), aim)
    lost = draw(st.sampled_from(losing)).fault.drawn(DrawnChoices(draw), aim)
    return (ScheduledFault(killed, between), ScheduledFault(lost, draw(st.sampled_from(_later(between)))))


def _later(between: After) -> tuple[After, ...]:
    """Return moments after the process that died was replaced, when its successor builds on what it finds."""
    if between.subtask is None:
        return (After(ProtocolPoint.ATTEMPT_RUNNING, nth=2), After(ProtocolPoint.CHECKPOINT_TRIGGERED, nth=2))
    return (
        After(ProtocolPoint.CHECKPOINT_COMPLETED, nth=2),
        After(ProtocolPoint.COMPLETION_NOTIFIED, between.subtask, nth=2),
    )


SCENARIO = Scenario(
    settles=frozenset({Part.INPUT, Part.PACE, Part.FAULTS}),
    per_mille=70,
    possible=_possible,
    profile=_profile,
    faults=_faults,
)
