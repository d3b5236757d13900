"""A subtask of which nothing is heard any more has failed: its attempt ends within the time that is promised (REC-1).

A process that hangs, or is cut off from its coordinator, closes no connection; only missing heartbeats show it. Until
the failure detector notices, nothing is recovered. A fault that lasts long enough must therefore end the attempt that
it strikes, unless something else ended it before, or the coordinator died: its successor begins to wait anew. Where
connections were disturbed before, what was sent last may still arrive late, so silence is counted from then on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import inf

from barrier_tck.faults.fault import Ends
from barrier_tck.faults.targets import TargetKind
from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.oracle.evidence.moments import line_at
from barrier_tck.harness.oracle.precondition import ALWAYS
from barrier_tck.harness.oracle.sign import Breach, Directness, Sign
from barrier_tck.harness.oracle.standard_checker import StandardChecker, TrialToJudge
from barrier_tck.harness.record.operations import (
    AttemptEnded,
    AttemptRunning,
    FaultFired,
    FaultHealed,
    Finished,
    JobCut,
    JobFailed,
    JobFinished,
    JobStopped,
)
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.system.system_under_test import Capability

_CONNECTIONS = (TargetKind.CHANNEL, TargetKind.PARTITION, TargetKind.PACKETS)
"""What faults hit that make messages late."""
_UNNOTICED = Sign("an attempt goes on although one of its subtasks has been silent for too long", "REC-1")


class SilenceNoticed(StandardChecker):
    """Compares when subtasks fell silent with when their attempts ended."""

    name = "silence-noticed"
    requires = "An attempt ends in time after one of its subtasks has fallen silent."
    judges = (
        "systems that promise how soon silence is noticed, if the plan has a fault that silences a subtask"
    )
    covers = {"REC-1": ALWAYS}
    needs = frozenset({Capability.ATTEMPTS})
    signs = (_UNNOTICED,)
    directness = Directness.ABSENCE
    rank = 155

    @classmethod
    def applies(cls, trial: TrialToJudge) -> bool:
        return any(scheduled.fault.silences for scheduled in trial.plan.faults)

    def check(self, context: TrialContext) -> Finding:
        """Judge the silences of one trial."""
        silences = list(_silences(context))
        late = [_breach(silence, context) for silence in silences if silence.until_ms > silence.noticed_by_ms]
        counts = {"silences": len(silences), "violations": len(late)}
        if late:
            summary = (
                f"{len(late)} of {len(silences)} silent subtasks were not noticed in time; {late[0].sentence}"
            )
            return self.broken(context, summary, counts, late)
        summary = f"{len(silences)} subtasks fell silent for long, and their attempts ended in time"
        return Finding(self.name, self.clauses if silences else (), Verdict.VALID, summary, counts)


@dataclass
class _Silence:
    """A subtask falls silent while its attempt runs."""

    fault: int
    subtask: str
    attempt: int
    from_ms: float
    noticed_by_ms: float
    until_ms: float = field(default=inf)
    """When the attempt ended, or the silence; infinity if neither did."""


def _breach(silence: _Silence, context: TrialContext) -> Breach:
    sentence = (
        f"{silence.subtask} of attempt {silence.attempt} was silent from {silence.from_ms:g} ms, and the attempt "
        f"went on for longer than until {silence.noticed_by_ms:g} ms, when that must have been noticed"
    )
    at = line_at(context, silence.noticed_by_ms)
    return Breach(_UNNOTICED, sentence, at, silence.subtask, attempt=silence.attempt)


def _silences(context: TrialContext) -> Iterator[_Silence]:
    """Yield the silences that had to be noticed: they last for long enough, and nothing else intervened."""
    promised_ms = None if context.job is None else context.job.silence_noticed_ms
    if promised_ms is None:
        return
    attempt: int | None = None
    finished: set[str] = set()
    open_ones: list[_Silence] = []
    disturbing: dict[int, None] = {}
    """Faults that make messages late, and last."""
    heard_until_ms = 0.0
    """When all arrived that was sent while such faults lasted that are over."""
    for line in context.history.operations:
        now_ms = line.time_ms
        match line.operation:
            case AttemptRunning(attempt=number):
                attempt, finished = number, set()
            case Finished(subtask=subtask):
                finished.add(subtask)
                open_ones = [silence for silence in open_ones if silence.subtask != subtask]
            case FaultFired(fault=number):
                fault = context.plan.faults[number].fault
                if fault.ends is Ends.COORDINATOR:
                    attempt, open_ones = None, []
                lasts_ms = fault.heals_after_ms or 0
                if attempt is not None and lasts_ms > promised_ms:
                    heard_ms = inf if disturbing else max(now_ms, heard_until_ms)
                    open_ones += [
                        _Silence(number, subtask, attempt, now_ms, heard_ms + promised_ms)
                        for subtask in fault.silences
                        if subtask not in finished
                    ]
                if fault.needs in _CONNECTIONS:
                    disturbing[number] = None
            case FaultHealed(fault=number):
                over = [one for one in open_ones if one.fault == number]
                yield from _ended(over, now_ms)
                open_ones = [silence for silence in open_ones if silence.fault != number]
                if number in disturbing:
                    del disturbing[number]
                    lingers_ms = context.plan.faults[number].fault.lingers_ms
                    heard_until_ms = max(heard_until_ms, now_ms + lingers_ms)
                    for silence in () if disturbing else open_ones:
                        silence.noticed_by_ms = min(silence.noticed_by_ms, heard_until_ms + promised_ms)
            case AttemptEnded() | JobFinished() | JobStopped() | JobFailed() | JobCut():
                yield from _ended(open_ones, now_ms)
                attempt, open_ones = None, []
            case _:
                pass


def _ended(silences: Sequence[_Silence], now_ms: float) -> Iterator[_Silence]:
    for silence in silences:
        silence.until_ms = now_ms
        yield silence
