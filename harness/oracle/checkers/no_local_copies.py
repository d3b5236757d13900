"""Without local recovery nothing is copied to the hosts of subtasks (LOC-1).

What a system reports is not enough: whoever copies state and says nothing of it fills the disks of its hosts. So the
adapter lists the places of local copies on all hosts, whenever a checkpoint is complete or at least at the end.
"""

from __future__ import annotations

from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.oracle.evidence.preconditions import COMPLETED
from barrier_tck.harness.oracle.sign import Breach, Directness, Sign
from barrier_tck.harness.oracle.standard_checker import StandardChecker, TrialToJudge
from barrier_tck.harness.record.history import Recorded
from barrier_tck.harness.record.operations import Acknowledged
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.system.system_under_test import Capability

_LEFT = Sign("without local recovery a copy of state lies on a host", "LOC-1")
_REPORTED = Sign("without local recovery a subtask reports a copy of its state", "LOC-1")


class NoLocalCopies(StandardChecker):
    """Local recovery is off by default: no subtask writes or reports a copy on its host then."""

    name = "no-local-copies"
    requires = "Without local recovery no copy of state is written to a host, nor reported."
    judges = "plans without local recovery, where the hosts were inspected"
    covers = {"LOC-1": COMPLETED}
    needs = frozenset({Capability.CHECKPOINTS, Capability.LOCAL_RECOVERY})
    signs = (_LEFT, _REPORTED)
    directness = Directness.OPERATIONS
    rank = 355

    @classmethod
    def applies(cls, trial: TrialToJudge) -> bool:
        return trial.takes_checkpoints and not trial.plan.local_recovery

    def check(self, context: TrialContext) -> Finding:
        """Look at what lay on hosts, and at what was reported."""
        history = context.history
        problems = [Breach(_LEFT, f"{path} lies on a host", place=path) for path in history.local_files or ()]
        problems += [_reported(line) for line in history.of(Acknowledged) if line.operation.local is not None]
        counts = {"copies": len(problems)}
        if problems:
            summary = f"local recovery is off, and still {problems[0].sentence}"
            return self.broken(context, summary, counts, problems)
        if history.local_files is None:
            return Finding(self.name, (), Verdict.VALID, "the hosts were not inspected", counts)
        # A job that stores no state has nothing that could be copied.
        stores = any(view.files for view in history.checkpoints) or not history.checkpoints
        covered = self.clauses if stores else ()
        return Finding(self.name, covered, Verdict.VALID, "no copy lay on any host", counts)


def _reported(line: Recorded[Acknowledged]) -> Breach:
    part = line.operation
    sentence = f"{part.subtask} reported a local copy of checkpoint {part.checkpoint}"
    return Breach(_REPORTED, sentence, line.index, part.subtask, part.checkpoint, part.attempt)
