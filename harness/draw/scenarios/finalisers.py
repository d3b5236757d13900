"""A process dies while it closes, because its attempt has failed or its coordinator is gone (REC-1, REC-2).

What it has begun to give up is then given up in part: some of its files are deleted and others not, and no operator has
released what it holds. By chance a kill finds a process that works; here another failure makes it close first.
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
_MOMENTS = (
    ProtocolPoint.BARRIER_RECEIVED,
    ProtocolPoint.SNAPSHOT_TAKEN,
    ProtocolPoint.SNAPSHOT_STORED,
    ProtocolPoint.ACKNOWLEDGED,
)
"""Moments of the first failure, at which snapshots of others are under way, too."""


def _possible(profile: Profile, _: frozenset[Capability]) -> bool:
    return profile.faults.number[1] >= _FAULTS_MIN


def _faults(drawing: Drawing, job: DrawnJob, kinds: Sequence[FaultKind]) -> Sequence[ScheduledFault]:
    """Draw both failures; none if no process of the system can be stopped while it closes."""
    draw, view, ranges = drawing.draw, job.view, drawing.profile.faults
    killers = [kind for kind in kinds if kind.fault.ends is Ends.SUBTASKS]
    first = [kind for kind in kinds if kind.fault.ends is Ends.COORDINATOR]
    first += [kind for kind in killers if kind.fault.needs is TargetKind.WORKER]
    closing = view.passing(ProtocolPoint.CLOSING)
    possible = [(subtask, point) for point in _MOMENTS for subtask in view.passing(point)]
    if not (killers and first and possible and len(closing) > 1):
        return ()
    failing, point = draw(st.sampled_from(possible))
    failure = draw(st.sampled_from(first)).fault.drawn(Plainest(), Aim(failing))
    dying = draw(st.sampled_from([subtask for subtask in closing if subtask != failing]))
    aim = Aim(
        dying,
        lose_unsynced_per_mille=ranges.lose_unsynced_per_mille,
        returns_per_mille=ranges.returns_per_mille,
    )
    death = draw(st.sampled_from(killers)).fault.drawn(DrawnChoices(draw), aim)
    step = draw(st.sampled_from(range(1, view.times(ProtocolPoint.CLOSING, dying) + 1)))
    return (
        ScheduledFault(failure, After(point, failing)),
        ScheduledFault(death, After(ProtocolPoint.CLOSING, dying, nth=step)),
    )


SCENARIO = Scenario(
    settles=frozenset({Part.FAULTS}),
    per_mille=30,
    possible=_possible,
    faults=_faults,
)
