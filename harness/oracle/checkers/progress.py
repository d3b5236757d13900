"""Progress: after the faults stop, the job goes on, or it gives up as its restart strategy says (REC-6).

A system that takes checkpoints must complete one; if a system takes none, a commit shows that it goes on. Lasting
faults stop when they heal: from then on the job must go on, or end, within the plan's ``limits.progress_ms``. A real
machine that is slow, or busy with other things, is given more time (``harness.record.slow_machine``). As long
as a fault that may cut off the whole job lasts, nothing is required of the job; but a paused process or a slow
connection is no excuse. Nor is anything required of an elastic job while the slots that are left are too few for it at
any parallelism (RSC-2).

Where runs are exactly repeatable, an attempt ends for a reason that the trial knows. A subtask that fails by itself,
far from any fault, is a bug, even if the next attempt does better.

A job that gives up because no checkpoint can be read, although nothing had happened to them, breaks REC-4.

A loop that is said to have ended, and round which something still goes, ended too early: that breaks CHL-5.

A job that did not end names what it waits for, also where a fault excuses it: an empty list helps nobody.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf
from typing import Self

import msgspec

from barrier_tck.faults.fault import CopyPlace, OnProgress
from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.oracle.evidence.advance import (
    advanced_since,
    covers_the_input,
    input_is_empty,
    restored_last,
)
from barrier_tck.harness.oracle.evidence.checkpoint_obstacles import NOTICED_MS
from barrier_tck.harness.oracle.evidence.cut_preconditions import IN_A_LOOP
from barrier_tck.harness.oracle.evidence.examples import chosen
from barrier_tck.harness.oracle.evidence.explained_failures import (
    attempts_failed,
    declined_cleanly,
    failures_explained,
    faults_fired,
)
from barrier_tck.harness.oracle.evidence.first_breaches import evidence_of
from barrier_tck.harness.oracle.evidence.named_places import subtasks_named
from barrier_tck.harness.oracle.evidence.slots import without_capacity_at_the_end
from barrier_tck.harness.oracle.evidence.trial_input import TrialInput
from barrier_tck.harness.oracle.precondition import ALWAYS
from barrier_tck.harness.oracle.sign import Breach, Sign
from barrier_tck.harness.oracle.standard_checker import StandardChecker, TrialToJudge
from barrier_tck.harness.record.history import End, History
from barrier_tck.harness.record.operations import (
    AttemptEnded,
    AttemptStarted,
    CheckpointCompleted,
    Committed,
    Crashed,
    FaultFired,
    FaultHealed,
    FaultStarted,
    FaultUnclear,
    JobCut,
    JobFailed,
    JobFinished,
)
from barrier_tck.harness.record.reasons import Reason
from barrier_tck.harness.record.slow_machine import allowed_on_a_slow_machine_ms
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.support.first_line import first_line
from barrier_tck.harness.system.system_under_test import Capability

_STANDS_STILL = Sign("the job does not go on, gives up or dies, and nothing explains it", "REC-6")
_GIVEN_UP = Sign("the job gives up because no checkpoint can be read, and nothing explains that", "REC-4")
_LOOP_ENDED = Sign("something goes round a loop that had ended: it ended too early", "CHL-5")


class Progress(StandardChecker):
    """The job must finish; with checkpointing on, a checkpoint must complete after the last fault, and in time.

    In a system whose runs are exactly repeatable, each failed attempt must also have its fault, and no subtask may fail
    by itself, far from any fault. On a real machine other things may happen, so there the finding only mentions it.
    """

    name = "progress"
    requires = (
        "After the faults the job goes on, or it gives up as its restart strategy says. No subtask fails "
        "by itself, and none dies of an exception of its own."
    )
    judges = "every trial"
    covers = {"REC-6": ALWAYS, "REC-4": ALWAYS, "CHL-5": IN_A_LOOP}
    signs = (_STANDS_STILL, _GIVEN_UP, _LOOP_ENDED)
    rank = 910
    clauses = ("REC-6",)

    @classmethod
    def made_for(cls, trial: TrialToJudge) -> Self:
        return cls(trial.input)

    def __init__(self, trial_input: TrialInput) -> None:
        self._input = trial_input

    def check(self, context: TrialContext) -> Finding:
        """Judge how one trial ended."""
        history = context.history
        counts = {"faults_fired": faults_fired(context), "attempts_failed": attempts_failed(context)}
        match history.end:
            case End.FINISHED:
                verdict, summary = self._judge_finished(context)
                unexplained = counts["attempts_failed"] - failures_explained(context)
                alone = _failed_by_themselves(context)
                if (unexplained > 0 or alone) and verdict is Verdict.VALID:
                    summary += (
                        f"; a subtask failed by itself in {alone[0]}"
                        if alone
                        else f"; failed attempts that no fault explains: {unexplained}"
                    )
                    if Capability.DETERMINISTIC_REPLAY.name in context.capabilities:
                        verdict = Verdict.INVALID
            case End.STUCK if not history.pending and _says_what_it_waits_for(context):
                verdict = Verdict.INVALID
                summary = f"{history.explanation}, and the job does not name anything that it waits for"
            case End.STUCK if (blocking := _blocking_to_the_end(context)) is not None:
                verdict = Verdict.UNKNOWN
                summary = (
                    f"the trial was over before a fault healed, and nothing was required until then: {blocking}"
                    f"{_waits_for(history)}"
                )
            case End.STUCK if (missing := without_capacity_at_the_end(context)) is not None:
                verdict = Verdict.UNKNOWN
                summary = (
                    f"the trial was over before there was room for the job: {missing}{_waits_for(history)}"
                )
            case End.STUCK if (lately := _advanced_lately(context, self._input)) is not None:
                verdict = Verdict.UNKNOWN
                summary = (
                    f"{history.explanation}, and the job was still advancing: {lately}; give it more time"
                    f"{_waits_for(history)}"
                )
            case End.STUCK:
                verdict = Verdict.INVALID
                summary = f"the job is stuck: {history.explanation}{_waits_for(history)}"
            case End.FAILED if history.reason is Reason.CHECKPOINT_UNREADABLE and declined_cleanly(context):
                verdict, summary = (
                    Verdict.VALID,
                    f"the job gave up and said what it tried: {history.explanation}",
                )
                return Finding(self.name, (*self.clauses, "REC-4"), verdict, summary, counts)
            case End.FAILED if declined_cleanly(context):
                verdict = Verdict.VALID
                summary = f"the job gave up, as {_strategy(context)} says: {history.explanation}"
            case End.FAILED:
                verdict = Verdict.INVALID
                summary = (
                    f"the job gave up after {counts['attempts_failed']} failed attempts and "
                    f"{counts['faults_fired']} faults, which {_strategy(context)} does not explain: "
                    f"{history.explanation}"
                )
                if not counts["faults_fired"]:
                    summary += "; no fault had struck, so it fails by itself"
            case End.ERROR:
                verdict, summary = (
                    Verdict.UNKNOWN,
                    f"the harness could not run the job: {history.explanation}",
                )
        finding = Finding(self.name, self.clauses, verdict, summary, counts, chosen(history.pending))
        judged = _with_crashes(finding, [line.operation for line in history.of(Crashed)])
        if judged.verdict is not Verdict.INVALID:
            return judged
        # The first thing that is pending is the state of the job, which alone explains nothing.
        evidence = evidence_of(context, list(_breaches(context, judged.summary)))
        clauses = tuple(dict.fromkeys((*(entry.clause for entry in evidence), *judged.clauses)))
        first = evidence[0]
        shown = (first.sentence, *judged.examples) if first.sign == _LOOP_ENDED.seen else judged.examples
        return msgspec.structs.replace(judged, clauses=clauses, examples=shown, evidence=evidence)

    def _judge_finished(self, context: TrialContext) -> tuple[Verdict, str]:
        """Judge a job that finished: did it go on after the last fault?"""
        history = context.history
        if not context.plan.checkpoints.enabled:
            return Verdict.VALID, "the job finished; checkpointing is off"
        faults = [fired.time_ms for fired in history.of(FaultFired)]
        signs = _signs_of_life(context)
        took_ms = _went_on_after_healing(context, signs)
        bound_ms = _progress_bound_ms(context, took_ms)
        if took_ms is not None and took_ms > bound_ms:
            return (
                Verdict.INVALID,
                f"the job did not go on within {bound_ms:.0f} ms after the last healing; it took {took_ms:.0f} ms",
            )
        if input_is_empty(self._input):
            return Verdict.VALID, "the job finished; there was no input"
        if not _takes_checkpoints(context):
            return (
                Verdict.VALID,
                f"the job finished with {len(signs)} commits; the system reports no checkpoints",
            )
        if not signs and restored_last(history) is None:
            return Verdict.INVALID, "the job finished without a single checkpoint, though checkpointing is on"
        if not faults:
            return Verdict.VALID, f"the job finished with {len(signs)} checkpoints completed"
        after = sum(time_ms >= max(faults) for time_ms in signs)
        if after:
            return Verdict.VALID, f"the job finished; {after} checkpoints completed after the last fault"
        if not any(started.time_ms >= max(faults) for started in history.of(AttemptStarted)):
            return Verdict.VALID, "the job finished; the last fault came so late that nothing had to recover"
        covers = covers_the_input(context, self._input)
        if covers:
            return Verdict.VALID, "the job finished; the last restored checkpoint covers the whole input"
        if covers is None and Capability.SNAPSHOT_INSPECTION.name not in context.capabilities:
            return (
                Verdict.UNKNOWN,
                "the job finished, and nothing shows whether the last restored checkpoint covers the whole input",
            )
        return Verdict.INVALID, "the job finished, but no checkpoint completed after the last fault"


def _breaches(context: TrialContext, summary: str) -> Iterator[Breach]:
    """Yield what a job breaks that did not go on, or of which a process died."""
    crashes = [line for line in context.history.of(Crashed) if not line.operation.of_harness]
    for line in crashes:
        crash = line.operation
        if crash.behind_loop:
            sentence = (
                f"{crash.process} died because something still went round the loop {crash.behind_loop}, which had "
                f"ended: {crash.error}"
            )
            yield Breach(_LOOP_ENDED, sentence, line.index, crash.process, attempt=crash.attempt)
    if crashes:
        first = crashes[0].operation
        yield Breach(_STANDS_STILL, summary, place=first.process, attempt=first.attempt)
        return
    failed = [line.operation for line in context.history.of(AttemptEnded)]
    texts = context.history.pending or [attempt.detail for attempt in failed[-1:]]
    unreadable = context.history.end is End.FAILED and context.history.reason is Reason.CHECKPOINT_UNREADABLE
    yield Breach(
        _GIVEN_UP if unreadable else _STANDS_STILL,
        summary,
        place=subtasks_named(texts, context),
        attempt=max((line.operation.attempt for line in context.history.of(AttemptStarted)), default=None),
    )


def _with_crashes(finding: Finding, crashes: Sequence[Crashed]) -> Finding:
    """Return the finding with what processes died of by themselves: no fault excuses that, near or far.

    An exception of the harness may be why the job ended as it did, so then this says nothing.
    """
    if not crashes:
        return finding
    own = [crash for crash in crashes if not crash.of_harness]
    first = (own or crashes)[0]
    what = f"{first.process} died of an exception of {'its own' if own else 'the harness'}: {first.error}"
    if first.place:
        what += f" ({first.place})"
    verdict = Verdict.INVALID if own else Verdict.UNKNOWN
    return msgspec.structs.replace(
        finding,
        verdict=verdict,
        summary=f"{what}; {finding.summary}",
        counts=finding.counts | {"crashes": len(own)},
    )


def _waits_for(history: History) -> str:
    """Return the end of a sentence: all that the job waits for."""
    return f"; it waits for {', '.join(history.pending)}" if history.pending else ""


def _says_what_it_waits_for(context: TrialContext) -> bool:
    """Return whether the system knows its attempts and checkpoints, so that it can name what it waits for."""
    return {Capability.ATTEMPTS.name, Capability.CHECKPOINTS.name} <= set(context.capabilities)


def _failed_by_themselves(context: TrialContext) -> list[str]:
    """Return the attempts that ended because a subtask failed, although no fault was near.

    A fault is near if it was injected, or still lasted, after the attempt before had ended, or shortly before that.
    What damages copies of state or refuses writes may show at any later time.
    """
    near = list(_times_of_faults(context))
    found: list[str] = []
    before_ms = 0.0
    for line in context.history.of(AttemptEnded):
        after_ms, ended_ms = before_ms - NOTICED_MS, line.time_ms
        excused = any(began <= ended_ms and after_ms <= until for began, until in near)
        if line.operation.reason is Reason.SUBTASK_FAILED and not excused:
            found.append(f"attempt {line.operation.attempt}: {first_line(line.operation.detail)}")
        before_ms = ended_ms
    return found


def _times_of_faults(context: TrialContext) -> Iterator[tuple[float, float]]:
    """Yield from when until when each fault that fired can be why a subtask fails."""
    started = {line.operation.fault: line.time_ms for line in context.history.of(FaultStarted)}
    healed = {line.operation.fault: line.time_ms for line in context.history.of(FaultHealed)}
    for line in context.history.operations:
        if not isinstance(line.operation, FaultFired | FaultUnclear):
            continue
        number, fired_ms = line.operation.fault, line.time_ms
        fault, began_ms = context.plan.faults[number].fault, started.get(number, fired_ms)
        hit = fault.copies_hit
        if fault.fails_metadata or fault.loses_unsynced or (hit and hit.place is CopyPlace.DURABLE):
            yield began_ms, inf
        elif fault.on_progress is not OnProgress.NOTHING:
            yield began_ms, healed.get(number, inf) if fault.heals_after_ms is not None else fired_ms


def _takes_checkpoints(context: TrialContext) -> bool:
    """Return whether a system takes checkpoints: it says so, or has taken one."""
    reports_checkpoints = Capability.CHECKPOINTS.name in context.capabilities
    return reports_checkpoints or any(context.history.of(CheckpointCompleted))


def _signs_of_life(context: TrialContext) -> list[float]:
    """Return when checkpoints completed or, for a system without checkpoints, when something was committed."""
    if _takes_checkpoints(context):
        return [line.time_ms for line in context.history.of(CheckpointCompleted)]
    return [line.time_ms for line in context.history.of(Committed)]


def _advanced_lately(context: TrialContext, trial_input: TrialInput) -> str | None:
    """Say how a job advanced shortly before the trial's bound, or return None if it stood still or ran in circles.

    "Shortly" means within ``limits.progress_ms``, and within the second half of the trial.
    """
    bound_ms = _bound_ms(context.history)
    if bound_ms is None:
        return None
    window_ms = min(context.plan.limits.progress_ms, bound_ms / 2)
    advanced = advanced_since(bound_ms - window_ms, context.history, trial_input)
    return None if advanced is None else f"{advanced} within the last {window_ms:.0f} ms"


def _went_on_after_healing(context: TrialContext, signs: Sequence[float]) -> float | None:
    """Return after how many milliseconds the job went on after the last healing; None if there was nothing to do."""
    history = context.history
    healed = _healed_last_ms(history)
    ended = _ended_ms(history)
    if healed is None or ended is None or ended <= healed:
        return None
    return min((time_ms for time_ms in (*signs, ended) if time_ms >= healed), default=ended) - healed


def _healed_last_ms(history: History) -> float | None:
    return max((line.time_ms for line in history.of(FaultHealed)), default=None)


def _progress_bound_ms(context: TrialContext, took_ms: float | None) -> float:
    """Return within which time a job must go on that took so long; a real machine that is slow or busy is given
    more."""
    bound_ms = float(context.plan.limits.progress_ms)
    healed_ms = _healed_last_ms(context.history)
    if Capability.DETERMINISTIC_REPLAY.name in context.capabilities or took_ms is None or healed_ms is None:
        return bound_ms
    went_on_ms = healed_ms + took_ms
    return bound_ms + allowed_on_a_slow_machine_ms(
        context.history.operations, bound_ms, healed_ms, went_on_ms
    )


def _blocking_to_the_end(context: TrialContext) -> str | None:
    """Return a fault that may cut off the whole job and whose time was not over when the trial was."""
    for record in context.faults:
        fault = context.plan.faults[record.index].fault
        if fault.on_progress is not OnProgress.STOPS or record.fired_at_ms is None:
            continue
        lasted_ms = (record.healed_at_ms or float("inf")) - record.fired_at_ms
        if record.healed_at_ms is None or lasted_ms < (fault.heals_after_ms or 0):
            return record.label
    return None


def _strategy(context: TrialContext) -> str:
    restart = context.plan.restart
    bound = "" if restart.strategy == "none" else f" ({restart.attempts_max} restarts)"
    return f"its restart strategy {restart.strategy}{bound}"


def _bound_ms(history: History) -> float | None:
    """Return when the trial's time limit ended the job; None for a job that ended before, with nothing left to do."""
    cuts = [cut.time_ms for cut in history.of(JobCut) if cut.operation.reason is Reason.OUT_OF_TIME]
    return cuts[0] if cuts else None


def _ended_ms(history: History) -> float | None:
    """Return when the job ended, or was cut off."""
    ends = (JobFinished, JobFailed, JobCut)
    return min(
        (line.time_ms for line in history.operations if isinstance(line.operation, ends)), default=None
    )
