"""Every attempt reads each split from its checkpoint's position on, and reads no record before it again (REC-1).
Reads are observed between the source and its reader; the positions that the system reports are not used. Records that
are read again and dropped do not show in the output, but are a fault: the source would have to keep them.
"""

from __future__ import annotations

from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.oracle.evidence.cut_signs import restored_view
from barrier_tck.harness.oracle.evidence.preconditions import RECOVERED
from barrier_tck.harness.oracle.sign import Breach, Directness, Sign
from barrier_tck.harness.oracle.standard_checker import StandardChecker, TrialToJudge
from barrier_tck.harness.record.history import History
from barrier_tck.harness.record.operations import AttemptStarted, InputRead
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.system.system_under_test import Capability

_RESCALED = Sign("after a change of parallelism a split is not read from its restored position on", "RSC-3")
_HAD_FINISHED = Sign("a source that had finished in the restored checkpoint reads again", "BAR-6")
_NOT_RESUMED = Sign(
    "a source does not resume at its restored position, and records are lost or count twice", "SRC-1"
)
_READ_AND_DROPPED = Sign(
    "records before the restored position are read again, without an effect on the output", "REC-1"
)


class InputReads(StandardChecker):
    """Every split is read from its restored position on."""

    name = "input-reads"
    requires = "Every attempt reads each split from its restored position on and nothing before it."
    judges = "systems whose checkpoints can be opened, where reads are recorded"
    covers = {"REC-1": RECOVERED, "SRC-1": RECOVERED}
    needs = frozenset({Capability.SNAPSHOT_INSPECTION})
    signs = (_RESCALED, _HAD_FINISHED, _NOT_RESUMED, _READ_AND_DROPPED)
    directness = Directness.OPERATIONS
    rank = 260

    @classmethod
    def applies(cls, trial: TrialToJudge) -> bool:
        return trial.opens_checkpoints

    def check(self, context: TrialContext) -> Finding:
        """Compare the first record that each attempt read of each split with the restored position."""
        history = context.history
        restored: dict[int, int | None] = {}
        begins = _positions(history)
        start = context.plan.workload.start_offset
        resumed, seen, problems = 0, 0, list[Breach]()
        for line in history.operations:
            if isinstance(line.operation, AttemptStarted):
                restored[line.operation.attempt] = line.operation.restored_checkpoint
            if not isinstance(line.operation, InputRead):
                continue
            read = line.operation
            checkpoint = restored.get(read.attempt)
            if read.attempt not in restored or (checkpoint is not None and checkpoint not in begins):
                continue  # the position from which it had to start is not known
            seen += 1
            resumed += checkpoint is not None
            due = start if checkpoint is None else max(start, begins[checkpoint].get(read.split, start))
            if read.offset != due:
                what = "records before it were read again" if read.offset < due else "records were left out"
                origin = "the beginning" if checkpoint is None else f"checkpoint {checkpoint}"
                sentence = (
                    f"attempt {read.attempt}, {read.subtask}: from {origin} the split {read.split} continues at record "
                    f"{due}, but it was read from record {read.offset} on: {what}"
                )
                sign = _sign_of(read, read.offset < due, context)
                problems.append(Breach(sign, sentence, line.index, read.subtask, checkpoint, read.attempt))
        counts = {"splits_read": seen, "resumed": resumed, "violations": len(problems)}
        if problems:
            which = "1 split was" if len(problems) == 1 else f"{len(problems)} splits were"
            summary = f"{which} read from a wrong position; the first: {problems[0].sentence}"
            return self.broken(context, summary, counts, problems)
        summary = (
            f"{seen} times a split was begun, {resumed} times at a restored position, always as required"
        )
        return Finding(self.name, self.clauses if resumed else (), Verdict.VALID, summary, counts)


def _sign_of(read: InputRead, again: bool, context: TrialContext) -> Sign:
    before = restored_view(context, read.attempt)
    if before is not None and context.job_number(before.attempt) != context.job_number(read.attempt):
        return _RESCALED
    if before is not None and read.subtask in before.finished:
        return _HAD_FINISHED
    return _READ_AND_DROPPED if again and _had_no_effect(context) else _NOT_RESUMED


def _had_no_effect(context: TrialContext) -> bool:
    """Return whether the output has no record twice by the same path, so that records read again were dropped."""
    output = context.history.output
    if output is None:
        return False
    return len({(str(row.get("id", row)), str(row.get("path"))) for row in output}) == len(output)


def _positions(history: History) -> dict[int, dict[str, int]]:
    """Return the positions of every checkpoint that could be opened."""
    return {view.checkpoint: view.positions for view in history.checkpoints if view.problem is None}
