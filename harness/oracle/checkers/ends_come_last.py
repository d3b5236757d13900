"""No record comes behind the end of input, and nothing at all behind the end of a channel (BAR-6).

Who has learned that a channel has ended counts on it: barriers are not waited for, last results are given, and state is
not asked for again. A record behind that comes too late for the last results, or for the last checkpoint. Output shows
it only now and then. So it is observed where subtasks send and, at the end of the job, where they process, and one such
record is a violation, in every mode.
"""

from __future__ import annotations

from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.oracle.precondition import ALWAYS
from barrier_tck.harness.oracle.sign import Breach, Directness, Sign
from barrier_tck.harness.oracle.standard_checker import StandardChecker, TrialToJudge
from barrier_tck.harness.record.operations import Finished, SentBehindEnd, TookBehindEnd
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.system.system_under_test import Capability

_BEHIND = Sign("a subtask sends on a channel that it has ended", "BAR-6")
_TAKEN = Sign("a subtask processes records after it has said that its input is consumed", "BAR-6")


class EndsComeLast(StandardChecker):
    """No subtask sends on a channel that has ended, or processes records behind the end of all its input."""

    name = "ends-come-last"
    requires = "No record comes behind the end of input, and nothing behind the end of a channel."
    judges = "systems whose subtasks finish early and whose messages can be observed"
    covers = {"BAR-6": ALWAYS}
    needs = frozenset({Capability.EARLY_FINISH, Capability.MESSAGE_LOG})
    signs = (_BEHIND, _TAKEN)
    directness = Directness.OPERATIONS
    rank = 175

    @classmethod
    def applies(cls, trial: TrialToJudge) -> bool:
        return trial.takes_checkpoints

    def check(self, context: TrialContext) -> Finding:
        """Look at what one trial's subtasks were seen to send too late."""
        history = context.history
        problems = [
            Breach(
                _BEHIND,
                f"at {line.time_ms:g} ms {behind.subtask} of attempt {behind.attempt} sent {behind.sent} on "
                f"{behind.channel}, which it had ended",
                line.index,
                behind.subtask,
                attempt=behind.attempt,
            )
            for line in history.of(SentBehindEnd)
            for behind in (line.operation,)
        ]
        problems += [
            Breach(
                _TAKEN,
                f"at {line.time_ms:g} ms {late.subtask} of attempt {late.attempt} processed records after it had said "
                "that all its input was consumed",
                line.index,
                late.subtask,
                attempt=late.attempt,
            )
            for line in history.of(TookBehindEnd)
            for late in (line.operation,)
        ]
        finished = sum(1 for _ in history.of(Finished))
        counts = {"finished": finished, "violations": len(problems)}
        if problems:
            summary = f"{len(problems)} times something came behind an end; the first: {problems[0].sentence}"
            return self.broken(context, summary, counts, problems)
        summary = f"nothing came behind the ends of inputs and channels; {finished} subtasks finished before the job"
        return Finding(self.name, self.clauses if finished else (), Verdict.VALID, summary, counts)
