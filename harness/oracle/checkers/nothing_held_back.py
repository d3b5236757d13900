"""In at-least-once mode no channel waits for the barriers of others: all inputs go on being processed (ALO-1).

An acknowledgement says how many bytes had arrived in channels that the subtask held back when it took its snapshot.
The world that runs the subtask counts them in the queues of the channels. A subtask that aligns has some as soon as one
channel is later than another and records keep coming. No result shows this: a job that aligns is right in
every mode.
"""

from __future__ import annotations

from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.oracle.evidence.exactness import AT_LEAST_ONCE
from barrier_tck.harness.oracle.evidence.preconditions import COMPLETED_BY_BARRIERS
from barrier_tck.harness.oracle.sign import Breach, Directness, Sign
from barrier_tck.harness.oracle.standard_checker import StandardChecker, TrialToJudge
from barrier_tck.harness.record.history import Recorded
from barrier_tck.harness.record.operations import Acknowledged
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.system.system_under_test import Capability

_HELD_BACK = Sign(
    "in at-least-once mode a subtask holds back a channel until other barriers have come", "ALO-1"
)


class NothingHeldBack(StandardChecker):
    """No subtask holds back a channel until the others have delivered their barriers."""

    name = "nothing-held-back"
    requires = "In at-least-once mode no channel waits for the barriers of others."
    judges = "systems with barriers in at-least-once mode, if they report what was held back"
    covers = {"ALO-1": COMPLETED_BY_BARRIERS}
    needs = frozenset({Capability.CHECKPOINTS, Capability.BARRIERS})
    signs = (_HELD_BACK,)
    directness = Directness.OPERATIONS
    rank = 190

    @classmethod
    def applies(cls, trial: TrialToJudge) -> bool:
        return trial.takes_checkpoints and trial.plan.checkpoints.mode == AT_LEAST_ONCE

    def check(self, context: TrialContext) -> Finding:
        """Look at what was held back for each snapshot of one trial."""
        snapshots = [
            line
            for line in context.history.of(Acknowledged)
            if line.operation.held_bytes is not None and line.operation.subtask in context.every_subtask
        ]
        problems = [_breach(line) for line in snapshots if line.operation.held_bytes]
        counts = {"snapshots": len(snapshots), "held_back": len(problems)}
        if problems:
            summary = f"{len(problems)} snapshots held back channels; the first: {problems[0].sentence}"
            return self.broken(context, summary, counts, problems)
        summary = f"nothing was held back for {len(snapshots)} snapshots"
        return Finding(self.name, self.clauses if snapshots else (), Verdict.VALID, summary, counts)


def _breach(line: Recorded[Acknowledged]) -> Breach:
    snapshot = line.operation
    sentence = (
        f"{snapshot.subtask} of attempt {snapshot.attempt} took its snapshot of checkpoint {snapshot.checkpoint} "
        f"while {snapshot.held_bytes} bytes waited in channels that it held back (ALO-1)"
    )
    return Breach(_HELD_BACK, sentence, line.index, snapshot.subtask, snapshot.checkpoint, snapshot.attempt)
