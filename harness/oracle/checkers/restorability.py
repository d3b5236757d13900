"""Restorability: a job can be started from completed checkpoints; it is not enough that they can be opened (REC-1,
SNK-1).

Opening a checkpoint shows that its files are there. Only a real start shows whether an attempt can be started from
it: operators must accept their state, and sinks must finish the prepared commits (SI-02). One attempt may fail
because of what the last fault left behind; but if several attempts in a row fail, from the same checkpoint and with
no fault in force, the checkpoint is the cause. An attempt for which there were no slots says nothing. Nor does one that
an exception of the harness ended: if only such attempts make a row, the finding is UNKNOWN.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.oracle.evidence.cut_signs import restored_view
from barrier_tck.harness.oracle.evidence.harness_failures import ended_by_harness
from barrier_tck.harness.oracle.evidence.moments import started_at
from barrier_tck.harness.oracle.evidence.preconditions import RECOVERED
from barrier_tck.harness.oracle.evidence.slots import attempts_without_capacity
from barrier_tck.harness.oracle.precondition import ALWAYS
from barrier_tck.harness.oracle.sign import Breach, Directness, Sign
from barrier_tck.harness.oracle.standard_checker import StandardChecker, TrialToJudge
from barrier_tck.harness.record.history import History
from barrier_tck.harness.record.operations import (
    Acknowledged,
    AttemptEnded,
    AttemptRunning,
    AttemptStarted,
    FaultFired,
    FaultHealed,
    FaultUnclear,
)
from barrier_tck.harness.record.reasons import Reason
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.system.system_under_test import Capability

FAILURES_IN_A_ROW = 3
"""If this many attempts in a row start from one checkpoint and none of them reaches running, it is no accident."""


_RESCALED = Sign("attempt after attempt with another parallelism fails before it runs", "RSC-2")
_SINK = Sign("attempt after attempt fails before it runs, in a sink that had prepared a transaction", "SNK-1")
_OTHER = Sign("attempt after attempt from one checkpoint fails before it runs", "REC-1")


class Restorability(StandardChecker):
    """No completed checkpoint makes attempt after attempt fail before it runs."""

    name = "restorability"
    requires = "The job can be started from its completed checkpoints."
    judges = "systems whose checkpoints can be opened"
    covers = {"REC-1": RECOVERED, "SNK-1": ALWAYS}
    needs = frozenset({Capability.SNAPSHOT_INSPECTION})
    signs = (_RESCALED, _SINK, _OTHER)
    directness = Directness.ABSENCE
    rank = 240

    @classmethod
    def applies(cls, trial: TrialToJudge) -> bool:
        return trial.opens_checkpoints

    def check(self, context: TrialContext) -> Finding:
        """Judge the attempts of one trial."""
        attempts = _attempts(context.history)
        harness = ended_by_harness(context)
        of_system = [attempt for attempt in attempts if attempt.number not in harness]
        restored = [attempt for attempt in attempts if attempt.checkpoint is not None]
        counts = {"attempts": len(attempts), "restored": len(restored)}
        problems = [_breach(row, context) for row in _rows_of_failures(of_system, context)]
        if problems:
            summary = f"a completed checkpoint cannot be restored: {problems[0].sentence}"
            return self.broken(context, summary, counts, problems)
        for row in _rows_of_failures(attempts, context):
            first = next(attempt.number for attempt in row if attempt.number in harness)
            summary = f"{_described(row)}; in attempt {first} {harness[first]}"
            return Finding(self.name, self.clauses, Verdict.UNKNOWN, summary, counts)
        restores = {attempt.checkpoint for attempt in restored}
        prepared = any(
            line.operation.prepared and line.operation.checkpoint in restores
            for line in context.history.of(Acknowledged)
        )
        covered = (*(("REC-1",) if restored else ()), *(("SNK-1",) if prepared else ()))
        summary = (
            f"{len(restored)} attempts were started from a checkpoint, and every checkpoint could be restored"
        )
        return Finding(self.name, covered, Verdict.VALID, summary, counts)


def _rows_of_failures(attempts: Sequence[_Attempt], context: TrialContext) -> Iterator[Sequence[_Attempt]]:
    """Yield the first attempts of each row that fails from one checkpoint without a fault in force."""
    disturbed, waiting = _disturbed(context), attempts_without_capacity(context)
    row = list[_Attempt]()
    for attempt in attempts:
        excused = attempt.number in waiting or any(attempt.overlaps(*times) for times in disturbed)
        fails = attempt.fails and not excused
        goes_on = not row or row[-1].checkpoint == attempt.checkpoint
        row = [*(row if goes_on else ()), attempt] if fails else []
        if len(row) == FAILURES_IN_A_ROW:
            yield row


def _described(row: Sequence[_Attempt]) -> str:
    return (
        f"attempts {row[0].number} to {row[-1].number} started from checkpoint {row[-1].checkpoint} and none of "
        f"them reached running: {row[-1].why}"
    )


def _breach(row: Sequence[_Attempt], context: TrialContext) -> Breach:
    at = started_at(context, row[0].number)
    sign = _sign_of(row[-1], context)
    return Breach(sign, _described(row), at, checkpoint=row[-1].checkpoint, attempt=row[0].number)


def _sign_of(attempt: _Attempt, context: TrialContext) -> Sign:
    """Return what is probably to blame: the change of parallelism, or a transaction if the state can be read."""
    before = restored_view(context, attempt.number)
    if before is None or not attempt.in_subtask:
        return _OTHER
    if context.job_number(before.attempt) != context.job_number(attempt.number):
        return _RESCALED
    prepared = any(
        line.operation.checkpoint == attempt.checkpoint and line.operation.prepared
        for line in context.history.of(Acknowledged)
    )
    return _SINK if prepared else _OTHER


@dataclass(slots=True)
class _Attempt:
    """What the history shows about one attempt."""

    number: int
    checkpoint: int | None
    started_ms: float
    ran: bool = False
    ended_ms: float | None = None
    failed: bool = False
    why: str = ""
    """For people."""
    in_subtask: bool = False
    """Whether a subtask failed."""

    @property
    def fails(self) -> bool:
        """Whether it was started from a checkpoint and failed before it ran."""
        return self.checkpoint is not None and self.failed and not self.ran

    def overlaps(self, from_ms: float, to_ms: float) -> bool:
        """Return whether a period overlaps the attempt's."""
        return from_ms <= (self.ended_ms or self.started_ms) and self.started_ms <= to_ms


def _attempts(history: History) -> Sequence[_Attempt]:
    found: dict[int, _Attempt] = {}
    for line in history.operations:
        match line.operation:
            case AttemptStarted(attempt=number, restored_checkpoint=checkpoint):
                found[number] = _Attempt(number, checkpoint, line.time_ms)
            case AttemptRunning(attempt=number) if number in found:
                found[number].ran = True
            case AttemptEnded(attempt=number, reason=reason, detail=detail) if number in found:
                found[number].ended_ms = line.time_ms
                found[number].failed = reason not in (Reason.FINISHED, Reason.STOPPED)
                found[number].why = detail or reason.value
                found[number].in_subtask = reason is Reason.SUBTASK_FAILED
    return list(found.values())


def _disturbed(context: TrialContext) -> Sequence[tuple[float, float]]:
    """Return from when to when each fault was in force; a fault that does not last is in force for a moment."""
    lasting = [planned.fault.heals_after_ms is not None for planned in context.planned_faults]
    times: dict[int, tuple[float, float]] = {}
    for line in context.history.operations:
        match line.operation:
            case FaultFired(fault=fault) | FaultUnclear(fault=fault):
                lasts = 0 <= fault < len(lasting) and lasting[fault]
                times[fault] = (line.time_ms, float("inf") if lasts else line.time_ms)
            case FaultHealed(fault=fault) if fault in times:
                times[fault] = (times[fault][0], line.time_ms)
    return list(times.values())
