"""Event time: all watermarks, and what operators emit, follow from the order in which elements came (EVT-1 to EVT-5).

Which records are late, and what a window holds when it fires, depends on that order alone. So it is recorded, and a
model of every subtask replays it (``evidence.event_time``). The models begin where those of the restored checkpoint
stood: a firing that comes again after a restore, a watermark that goes back, a timer that is lost show themselves
there, and in what checkpoints hold.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Self

from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.oracle.evidence.event_time import Divergence, EventTimeReplay, Wrong
from barrier_tck.harness.oracle.evidence.event_time_preconditions import (
    ADVANCED,
    FIRED,
    HELD_BACK,
    IN_TIME,
    JOINED,
    JOINS,
    OF_ONE_INPUT,
    OVERTOOK_WATERMARKS,
)
from barrier_tck.harness.oracle.evidence.trial_input import TrialInput
from barrier_tck.harness.oracle.sign import Breach, Sign
from barrier_tck.harness.oracle.standard_checker import Meaning, StandardChecker, TrialToJudge
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.workloads.event_time_parameters import DRIFT

_WATERMARK = Sign("a watermark is not the smallest of the active inputs, or goes back", "EVT-1")
_IN_LINE = Sign("a watermark, or a record, is lost, doubled or out of line on its channel", "EVT-1")
_TIME_OF_CHECKPOINT = Sign("a checkpoint shows another watermark than its subtask had", "EVT-1")
_WINDOW = Sign("windows emit what they must not, or do not emit what they must", "EVT-2")
_WINDOW_STATE = Sign("a checkpoint shows other windows than there were", "EVT-2")
_OUTPUT = Sign("the output is not what reached the sinks", "EVT-2")
_OVERTAKEN = Sign("after a barrier that overtook records, event time is not that of an aligned run", "EVT-3")
_TIMER = Sign("a timer in event time does not go off when it is due, or not once", "EVT-5")

_EXPIRED = Sign(
    "state with a time to live goes too early or too late, or comes again: its last use does not count",
    "EVT-5",
)
_AHEAD = Sign("an aligned source reads further ahead of its group than is allowed", "EVT-6")
_HELD = Sign("an aligned source is held back for nothing, or its group is told what does not follow", "EVT-6")
_JOIN = Sign("a join holds or emits other pairs, or rows alone, than it must", "EVT-4")

_OF_EVT_5 = {"event_timer": _TIMER, "expiring": _EXPIRED}
_OF_KIND = {**_OF_EVT_5, **dict.fromkeys(JOINS, _JOIN), "": _IN_LINE, "shift": _IN_LINE}
"""Kind of an operator -> what it is called if what it emits is wrong; without one, a source has sent its records."""


class EventTime(StandardChecker):
    """Compares what every subtask did with a model that takes the same elements in the same order."""

    name = "event-time"
    requires = (
        "Every watermark, and all that windows, joins and timers emit, is what the recorded order of arrival gives, "
        "over any number of restores; checkpoints hold it, and the output is what reached the sinks."
    )
    judges = "workloads in event time, of systems that record the order of arrival"
    covers = {
        "EVT-1": ADVANCED,
        "EVT-2": FIRED,
        "EVT-3": OVERTOOK_WATERMARKS,
        "EVT-4": JOINED,
        "EVT-5": IN_TIME,
        "EVT-6": HELD_BACK,
    }
    judges_output = True
    signs = (
        _WATERMARK,
        _IN_LINE,
        _TIME_OF_CHECKPOINT,
        _WINDOW,
        _WINDOW_STATE,
        _OUTPUT,
        _OVERTAKEN,
        _TIMER,
        _EXPIRED,
        _JOIN,
        _AHEAD,
        _HELD,
    )
    rank = 25

    @classmethod
    def applies(cls, trial: TrialToJudge) -> bool:
        return trial.meaning is Meaning.REPLAYED

    @classmethod
    def made_for(cls, trial: TrialToJudge) -> Self:
        return cls(trial.input)

    def __init__(self, trial_input: TrialInput) -> None:
        """Take the input of the trial."""
        self._input = trial_input
        plan = trial_input.plan
        kinds = {operator.kind for vertex in plan.job.vertices for operator in vertex.operators}
        self.clauses = (
            "EVT-1",
            *(("EVT-2",) if kinds.intersection(OF_ONE_INPUT) else ()),
            *(("EVT-3",) if plan.checkpoints.overtakes else ()),
            *(("EVT-4",) if kinds.intersection(JOINS) else ()),
            *(("EVT-5",) if kinds.intersection(_OF_EVT_5) else ()),
            *(("EVT-6",) if any(DRIFT in vertex.parameters for vertex in plan.job.sources) else ()),
        )

    def check(self, context: TrialContext) -> Finding:
        """Replay the trial."""
        elements = context.history.elements
        if elements is None:
            summary = "the order of arrival was not recorded, so nothing can be said"
            return Finding(self.name, self.clauses, Verdict.UNKNOWN, summary)
        replay = EventTimeReplay(self._input, context, elements)
        replay.run()
        counts = {
            "steps": replay.steps,
            "emitted": replay.firings,
            "aside": replay.late,
            "watermarks": replay.watermarks,
            "state_entries": replay.states,
            "in_flight": replay.in_flight,
            "stored_in_flight": replay.stored,
            "held_back": replay.held,
            "violations": len(replay.divergences),
        }
        if replay.divergences:
            breaches = [_breach(one) for one in _told_apart(replay.divergences)]
            summary = f"{len(breaches)} things are not what the order of arrival gives"
            return self.broken(context, summary, counts, breaches)
        summary = f"{replay.steps} steps of all subtasks are what the order of arrival gives"
        return Finding(self.name, self.clauses, Verdict.VALID, summary, counts)


def _told_apart(divergences: Sequence[Divergence]) -> Iterator[Divergence]:
    """Yield what is wrong, without what was overtaken where the vertex was wrong before without that: it is not why."""
    wrong_before: dict[str, int] = {}
    for one in divergences:
        if not one.overtaken and one.attempt is not None:
            vertex = _vertex_of(one)
            wrong_before[vertex] = min(one.attempt, wrong_before.get(vertex, one.attempt))
    for one in divergences:
        since = wrong_before.get(_vertex_of(one))
        if one.overtaken and since is not None and one.attempt is not None and since < one.attempt:
            yield replace(one, overtaken=False)
        else:
            yield one


def _vertex_of(one: Divergence) -> str:
    """Return the vertex at which something went wrong; of a channel, the one that sends on it."""
    return one.place.partition("->")[0].rpartition("[")[0]


def _breach(one: Divergence) -> Breach:
    return Breach(_sign_of(one), one.sentence, None, one.place, one.checkpoint, one.attempt)


def _sign_of(one: Divergence) -> Sign:
    if one.overtaken and one.wrong in (Wrong.EMITTED, Wrong.WATERMARK, Wrong.CHANNEL, Wrong.LEFT):
        return _OVERTAKEN
    match one.wrong:
        case Wrong.EMITTED | Wrong.STATE:
            of_windows = _WINDOW if one.wrong is Wrong.EMITTED else _WINDOW_STATE
            return _OF_KIND.get(one.kind, of_windows)
        case Wrong.STATE_TIME:
            return _TIME_OF_CHECKPOINT
        case Wrong.OUTPUT:
            return _OUTPUT
        case Wrong.WATERMARK | Wrong.IDLE:
            return _WATERMARK
        case Wrong.AHEAD:
            return _AHEAD
        case Wrong.HELD:
            return _HELD
        case _:
            return _IN_LINE
