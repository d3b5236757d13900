"""A fault strikes while no subtask is deployed: as a coordinator starts, or before the next attempt (COO-6, REC-1).

Other plans aim faults at subtasks and checkpoints, so their faults strike running jobs. Here the first fault is certain
to end an attempt or the coordinator, and the second one strikes before any subtask runs again.
"""

from __future__ import annotations

from collections.abc import Sequence

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
_OF_EXECUTORS = (TargetKind.EXECUTOR, TargetKind.HOST)
"""Targets that can be hit while no subtask runs on them."""


def _possible(profile: Profile, capabilities: frozenset[Capability]) -> bool:
    return Capability.COORDINATOR_CRASH in capabilities and profile.faults.number[1] >= _FAULTS_MIN


def _faults(drawing: Drawing, job: DrawnJob, kinds: Sequence[FaultKind]) -> Sequence[ScheduledFault]:
    """Draw both faults; return none if it is not certain that there is a moment at which no subtask is deployed."""
    draw, view = drawing.draw, job.view
    crashes = [kind for kind in kinds if kind.fault.ends is Ends.COORDINATOR]
    kills = [kind for kind in kinds if kind.fault.ends is Ends.SUBTASKS]
    of_executors = [kind for kind in kills if kind.fault.needs in _OF_EXECUTORS]
    starts = view.times(ProtocolPoint.COORDINATOR_STARTING, None)
    if not (starts and crashes and job.committing):
        return ()
    sink = draw(st.sampled_from(job.committing))
    first = draw(st.sampled_from(kills + crashes))
    if first.fault.ends is Ends.COORDINATOR:
        nth = draw(st.integers(starts + 1, 2 * starts))
        while_starting: tuple[After, ...] = (After(ProtocolPoint.COORDINATOR_STARTING, nth=nth),)
        second, moments = draw(st.sampled_from(crashes)), while_starting
    else:
        second = draw(st.sampled_from(crashes + of_executors))
        moments = (After(ProtocolPoint.ATTEMPT_FAILED), After(ProtocolPoint.ATTEMPT_STARTED, nth=2))
    failed = ScheduledFault(
        first.fault.drawn(Plainest(), Aim(sink)), After(ProtocolPoint.COMPLETION_NOTIFIED, sink)
    )
    ranges = drawing.profile.faults
    aim = Aim(
        draw(st.sampled_from(view.names)),
        duration_ms=ranges.duration_ms,
        lose_unsynced_per_mille=ranges.lose_unsynced_per_mille,
        unreadable_per_mille=ranges.unreadable_per_mille,
        returns_per_mille=ranges.returns_per_mille,
    )
    moment = draw(st.sampled_from(moments))
    return (failed, ScheduledFault(second.fault.drawn(DrawnChoices(draw), aim), moment))


SCENARIO = Scenario(
    settles=frozenset({Part.FAULTS}),
    per_mille=30,
    possible=_possible,
    faults=_faults,
)
