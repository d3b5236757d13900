"""A subtask takes its snapshot when the barrier has come from all its inputs: not before, and then it does (BAR-3).

An input that has ended counts as one that has delivered every barrier. Where one had ended, and the snapshot came too
early or not at all, that rule was broken (BAR-6).

Both is observed at the subtasks, as output shows neither for sure. A snapshot that is taken before the last barrier is
wrong only if a record comes in between, and seen only if it is restored or opened. A checkpoint that a subtask never
begins although it has all the barriers looks like one that was slow, until it expires; a fault elsewhere that makes
checkpoints fail then seems to explain it. Where barriers overtake, only the second is a rule.
"""

from __future__ import annotations

from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.oracle.evidence.exactness import AT_LEAST_ONCE
from barrier_tck.harness.oracle.precondition import ALWAYS
from barrier_tck.harness.oracle.sign import Breach, Directness, Sign
from barrier_tck.harness.oracle.standard_checker import StandardChecker, TrialToJudge
from barrier_tck.harness.record.operations import Acknowledged, SnapshotLeftOut, SnapshotTooEarly
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.system.system_under_test import Capability

_EARLY = Sign("an aligned snapshot is taken before the barrier has come from every input", "BAR-3")
_EARLY_AT_LEAST_ONCE = Sign(
    "an at-least-once snapshot is taken before the barrier has come from every input", "ALO-1"
)
_LEFT_OUT = Sign("the barrier has come from every input, and no snapshot is taken", "BAR-3")
_EARLY_BY_AN_END = Sign(
    "an input has ended, and a snapshot is taken before the barrier has come from all others", "BAR-6"
)
_LEFT_OUT_BY_AN_END = Sign("an input that has ended holds up a snapshot", "BAR-6")


class SnapshotAtBarriers(StandardChecker):
    """No snapshot is taken before the last barrier, and none is left out after it."""

    name = "snapshot-at-barriers"
    requires = "A subtask takes its snapshot when the barrier has come from all its inputs, and not before."
    judges = (
        "systems with barriers whose messages can be observed; where barriers overtake, it may be earlier"
    )
    covers = {"BAR-3": ALWAYS}
    needs = frozenset({Capability.BARRIERS, Capability.CHECKPOINTS, Capability.MESSAGE_LOG})
    signs = (_EARLY, _EARLY_AT_LEAST_ONCE, _LEFT_OUT, _EARLY_BY_AN_END, _LEFT_OUT_BY_AN_END)
    directness = Directness.OPERATIONS
    rank = 172

    @classmethod
    def applies(cls, trial: TrialToJudge) -> bool:
        return trial.takes_checkpoints and trial.plan.checkpoints.protocol == "barriers"

    def check(self, context: TrialContext) -> Finding:
        """Look at what the subtasks of one trial were seen to do when barriers came."""
        history = context.history
        early = _EARLY_AT_LEAST_ONCE if context.plan.checkpoints.mode == AT_LEAST_ONCE else _EARLY
        problems = [
            Breach(
                _EARLY_BY_AN_END if seen.ended else early,
                f"at {line.time_ms:g} ms {seen.subtask} of attempt {seen.attempt} took its snapshot of checkpoint "
                f"{seen.checkpoint} before the barrier had come on {seen.missing}{_after_ends(seen.ended)}",
                line.index,
                seen.subtask,
                seen.checkpoint,
                seen.attempt,
            )
            for line in history.of(SnapshotTooEarly)
            for seen in (line.operation,)
        ]
        problems += [
            Breach(
                _LEFT_OUT_BY_AN_END if seen.ended else _LEFT_OUT,
                f"at {line.time_ms:g} ms {seen.subtask} of attempt {seen.attempt} had the barrier of checkpoint "
                f"{seen.checkpoint} from all its inputs, and took no snapshot{_after_ends(seen.ended)}",
                line.index,
                seen.subtask,
                seen.checkpoint,
                seen.attempt,
            )
            for line in history.of(SnapshotLeftOut)
            for seen in (line.operation,)
        ]
        acknowledged = sum(1 for _ in history.of(Acknowledged))
        counts = {"acknowledged": acknowledged, "violations": len(problems)}
        if problems:
            first = min(problems, key=lambda breach: breach.operation or 0)
            summary = (
                f"{len(problems)} snapshots were taken too early or left out; the first: {first.sentence}"
            )
            return self.broken(context, summary, counts, problems)
        summary = f"every snapshot was taken when the last barrier had come; {acknowledged} were acknowledged"
        return Finding(self.name, self.clauses if acknowledged else (), Verdict.VALID, summary, counts)


def _after_ends(ended: str) -> str:
    return f", after the end of {ended}" if ended else ""
