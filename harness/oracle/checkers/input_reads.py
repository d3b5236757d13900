"""Every attempt reads each split from its checkpoint's position on, and reads nothing before it again (REC-1). This
is observed between the source and its reader; positions that the system reports are not used. Records that are read
again and dropped appear in no output, but the source has to keep them nevertheless.
"""

from __future__ import annotations

from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.oracle.evidence.examples import chosen
from barrier_tck.harness.oracle.evidence.preconditions import RECOVERED
from barrier_tck.harness.oracle.standard_checker import StandardChecker, TrialToJudge
from barrier_tck.harness.record.history import History
from barrier_tck.harness.record.operations import AttemptStarted, InputRead
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.system.system_under_test import Capability


class InputReads(StandardChecker):
    """Every split is read from its restored position on."""

    name = "input-reads"
    requires = "Every attempt reads each split from its restored position on and nothing before it."
    judges = "systems whose checkpoints can be opened, where reads are recorded"
    covers = {"REC-1": RECOVERED, "SRC-1": RECOVERED}
    needs = frozenset({Capability.SNAPSHOT_INSPECTION})
    rank = 260

    @classmethod
    def applies(cls, trial: TrialToJudge) -> bool:
        return trial.opens_checkpoints

    def check(self, context: TrialContext) -> Finding:
        """Compare the first record that each attempt read of each split with the restored position."""
        history = context.history
        restored = {
            line.operation.attempt: line.operation.restored_checkpoint for line in history.of(AttemptStarted)
        }
        begins = _positions(history)
        start = context.plan.workload.start_offset
        resumed, seen, problems = 0, 0, list[str]()
        for line in history.of(InputRead):
            read = line.operation
            checkpoint = restored.get(read.attempt)
            if read.attempt not in restored or (checkpoint is not None and checkpoint not in begins):
                continue  # the position from which it had to start is not known
            seen += 1
            resumed += checkpoint is not None
            due = start if checkpoint is None else max(start, begins[checkpoint].get(read.split, start))
            if read.offset != due:
                what = "asked again for what lay before it" if read.offset < due else "left records out"
                since = "the beginning" if checkpoint is None else f"checkpoint {checkpoint}"
                problems.append(
                    f"attempt {read.attempt}, {read.subtask}: by {since} the split {read.split} goes on at record "
                    f"{due}, and was read from {read.offset} on: it {what} (REC-1)"
                )
        counts = {"splits_read": seen, "resumed": resumed, "violations": len(problems)}
        if problems:
            summary = f"{len(problems)} splits were read from elsewhere; the first: {problems[0]}"
            return Finding(self.name, self.clauses, Verdict.INVALID, summary, counts, chosen(problems))
        summary = f"{seen} times a split was begun, {resumed} of them at a restored position, each where it should be"
        return Finding(self.name, self.clauses if resumed else (), Verdict.VALID, summary, counts)


def _positions(history: History) -> dict[int, dict[str, int]]:
    """Return the positions of every checkpoint that could be opened."""
    return {view.checkpoint: view.positions for view in history.checkpoints if view.problem is None}
