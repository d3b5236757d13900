"""An acknowledgement that nobody gave arrives while the first checkpoint is under way (COO-3, COO-4, STA-3).

What is wrong with it matters most when a checkpoint waits for others: it must neither complete that checkpoint nor end
it. By chance one plan in a hundred forges one, in one of three ways. Often something dies afterwards, because what a
wrong acknowledgement left behind shows when it is restored.
"""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from barrier_tck.faults.catalogue import FaultKind
from barrier_tck.faults.drawing import Aim, Plainest
from barrier_tck.faults.vocabulary import After, ProtocolPoint, ScheduledFault
from barrier_tck.harness.draw.choices import DrawnChoices, chance
from barrier_tck.harness.draw.constraints import Drawing
from barrier_tck.harness.draw.drawn_job import DrawnJob
from barrier_tck.harness.draw.profile import Profile
from barrier_tck.harness.draw.scenario import Part, Scenario
from barrier_tck.harness.system.system_under_test import Capability

_FORGES = ("forge",)
"""The kinds of faults that forge an acknowledgement."""
_KILL_PER_MILLE = 500


def _possible(profile: Profile, _: frozenset[Capability]) -> bool:
    fewest, most = profile.faults.number
    return any(weight for name, weight in profile.faults.kinds if name in _FORGES) and fewest <= 1 < most


def _faults(drawing: Drawing, job: DrawnJob, kinds: Sequence[FaultKind]) -> Sequence[ScheduledFault]:
    """Draw the forgery, and perhaps something that dies; nothing if messages cannot be forged."""
    draw = drawing.draw
    forging = [kind for kind in kinds if kind.name in _FORGES]
    if not (forging and job.view.subtasks):
        return ()
    aim = Aim(draw(st.sampled_from([subtask.name for subtask in job.view.subtasks])))
    forged = ScheduledFault(
        draw(st.sampled_from(forging)).fault.drawn(DrawnChoices(draw), aim),
        After(ProtocolPoint.CHECKPOINT_TRIGGERED),
    )
    killers = [kind for kind in kinds if kind.fault.ends is not None]
    if not (killers and job.committing and chance(draw, _KILL_PER_MILLE)):
        return (forged,)
    sink = draw(st.sampled_from(job.committing))
    killed = draw(st.sampled_from(killers)).fault.drawn(Plainest(), Aim(sink))
    return (forged, ScheduledFault(killed, After(ProtocolPoint.COMPLETION_NOTIFIED, sink)))


SCENARIO = Scenario(settles=frozenset({Part.FAULTS}), possible=_possible, faults=_faults)
