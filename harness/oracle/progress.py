"""Progress: after the faults stop the job goes on, or it declines as its restart strategy says (REC-6)."""

from __future__ import annotations

from faults.vocabulary import DamagePrimary
from harness.oracle.checker import TrialContext
from harness.oracle.examples import chosen
from harness.oracle.history import End, Operation, Outcome
from harness.oracle.trial_input import TrialInput
from harness.oracle.verdict import Finding, Verdict
from harness.workloads.workload import split_name


class Progress:
    """The job must finish; with checkpointing on, a checkpoint must complete after the last fault."""

    name = "progress"
    clauses = ("REC-6",)

    def __init__(self, trial_input: TrialInput) -> None:
        """Take the input: a job that was restored at its very end needs no further checkpoint."""
        self._input = trial_input

    def check(self, context: TrialContext) -> Finding:
        """Judge how one trial ended."""
        history = context.history
        counts = {"faults_fired": faults_fired(context), "attempts_failed": attempts_failed(context)}
        match history.end:
            case End.FINISHED:
                verdict, summary = self._judge_finished(context)
            case End.STUCK:
                waits = f"; it waits for {', '.join(history.pending)}" if history.pending else ""
                verdict, summary = Verdict.INVALID, f"the job is stuck: {history.end_reason}{waits}"
            case End.FAILED if NO_CHECKPOINT in history.end_reason and declined_cleanly(context):
                verdict, summary = (
                    Verdict.VALID,
                    f"the job gave up and said what it tried: {history.end_reason}",
                )
                return Finding(self.name, (*self.clauses, "REC-4"), verdict, summary, counts)
            case End.FAILED if declined_cleanly(context):
                verdict = Verdict.VALID
                summary = f"the job gave up, as {_strategy(context)} says: {history.end_reason}"
            case End.FAILED:
                verdict = Verdict.INVALID
                summary = (
                    f"the job gave up after {counts['attempts_failed']} failed attempts and "
                    f"{counts['faults_fired']} faults, which {_strategy(context)} does not explain: "
                    f"{history.end_reason}"
                )
            case End.ERROR:
                verdict, summary = Verdict.UNKNOWN, f"the harness could not run the job: {history.end_reason}"
        return Finding(self.name, self.clauses, verdict, summary, counts, chosen(history.pending))

    def _judge_finished(self, context: TrialContext) -> tuple[Verdict, str]:
        """Judge a job that finished: was there still a checkpoint after the last fault?"""
        if not context.plan.checkpoints.enabled:
            return Verdict.VALID, "the job finished; checkpointing is off"
        faults = [o.time_ms for o in context.history.operations if _is_fired_fault(o)]
        completed = [o.time_ms for o in context.history.operations if _is_completion(o)]
        if not faults:
            if completed:
                return Verdict.VALID, f"the job finished with {len(completed)} checkpoints completed"
            return Verdict.INVALID, "the job finished without a single checkpoint, though checkpointing is on"
        after = sum(time >= max(faults) for time in completed)
        if after:
            return Verdict.VALID, f"the job finished; {after} checkpoints completed after the last fault"
        if not any(_is_deployment(o) and o.time_ms >= max(faults) for o in context.history.operations):
            return Verdict.VALID, "the job finished; the last fault came so late that nothing had to recover"
        if self._restored_at_the_end(context):
            return Verdict.VALID, "the job finished; the checkpoint restored last covers the whole input"
        return Verdict.INVALID, "the job finished, but no checkpoint completed after the last fault"

    def _restored_at_the_end(self, context: TrialContext) -> bool:
        """Tell whether the last attempt began where the input ends."""
        restored = [
            operation.value.get("restored_checkpoint")
            for operation in context.history.operations
            if _is_deployment(operation)
        ]
        ends = {name: extent.end for name, extent in self._input.extents.items()}
        for view in context.history.checkpoints:
            if restored and view.checkpoint == restored[-1]:
                positions = {split_name(name): position for name, position in view.positions.items()}
                return all(positions.get(name, 0) >= end for name, end in ends.items())
        return False


def faults_fired(context: TrialContext) -> int:
    """Return how many faults hit something, by the nemesis's records or, without them, by the history."""
    if context.faults:
        return sum(fault.outcome == "fired" for fault in context.faults)
    return sum(_is_fired_fault(operation) for operation in context.history.operations)


def attempts_failed(context: TrialContext) -> int:
    """Return how many attempts ended without finishing the job, those that a crash cut off included."""
    started: dict[int, None] = {}
    for operation in context.history.operations:
        if operation.operation == "attempt" and operation.outcome is Outcome.INVOKE:
            started[operation.value["attempt"]] = None
    return len(started) - (1 if context.history.end is End.FINISHED and started else 0)


def declined_cleanly(context: TrialContext) -> bool:
    """Tell whether a job was right to give up: it used up its restarts, and each failed attempt had its own
    fault.

    The second half matters: one fault that makes every restart fail is a bug, not a used-up budget (SI-02).
    """
    if context.history.end is not End.FAILED:
        return False
    if damaged_primaries(context) and NO_CHECKPOINT in context.history.end_reason:
        return True
    restart = context.plan.restart
    allowed = 0 if restart.strategy == "none" else restart.attempts_max
    failed = attempts_failed(context)
    return failed > allowed and faults_fired(context) >= failed


NO_CHECKPOINT = "no checkpoint can be restored"
"""What the reason says when a job gave up because all that it may restore is unreadable (REC-4)."""


def damaged_primaries(context: TrialContext) -> tuple[str, ...]:
    """Return what durable storage was damaged, as the fault records say: a system may find it unreadable (REC-4)."""
    return tuple(
        record.target
        for record in context.faults
        if record.outcome == "fired" and isinstance(context.planned_faults[record.index].fault, DamagePrimary)
    )


def _strategy(context: TrialContext) -> str:
    restart = context.plan.restart
    bound = "" if restart.strategy == "none" else f" ({restart.attempts_max} restarts)"
    return f"its restart strategy {restart.strategy}{bound}"


def _is_fired_fault(operation: Operation) -> bool:
    return operation.operation == "fault" and operation.outcome is Outcome.OK


def _is_deployment(operation: Operation) -> bool:
    return operation.operation == "attempt" and operation.outcome is Outcome.INVOKE


def _is_completion(operation: Operation) -> bool:
    return operation.operation == "checkpoint" and operation.outcome is Outcome.OK
