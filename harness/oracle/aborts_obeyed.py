"""A subtask that learned of an abort has given up its part: it must not acknowledge that checkpoint any more (COO-2,
SNP-2).

The messages of a subtask arrive in order, so its report that it learned of the abort comes before everything that it
sends later. An acknowledgement that came before and is repeated does not count as a new one, and one that a fault
forged was not sent by the subtask.
"""

from __future__ import annotations

from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.oracle.examples import chosen
from barrier_tck.harness.record.operations import AbortLearned, Acknowledged
from barrier_tck.harness.record.verdict import Finding, Verdict


class AbortsObeyed:
    """No subtask acknowledges a checkpoint that it knows to be aborted."""

    name = "aborts-obeyed"
    clauses = ("COO-2", "SNP-2")

    def check(self, context: TrialContext) -> Finding:
        """Compare what each subtask of one trial learned with what it acknowledged."""
        learned: dict[tuple[int, int, str], float] = {}
        acknowledged: set[tuple[int, int, str]] = set()
        problems: list[str] = []
        for line in context.history.operations:
            match line.operation:
                case AbortLearned(checkpoint=checkpoint, attempt=attempt, subtask=subtask):
                    learned.setdefault((checkpoint, attempt, subtask), line.time_ms)
                case Acknowledged(checkpoint=checkpoint, attempt=attempt, subtask=subtask, forged=False):
                    part = (checkpoint, attempt, subtask)
                    if part in learned and part not in acknowledged:
                        problems.append(
                            f"at {line.time_ms:g} ms {subtask} of attempt {attempt} acknowledged checkpoint "
                            f"{checkpoint}, of whose abort it knew at {learned[part]:g} ms (COO-2)"
                        )
                    acknowledged.add(part)
        counts = {"learned": len(learned), "violations": len(problems)}
        if problems:
            summary = f"{len(problems)} acknowledgements of aborted checkpoints; the first: {problems[0]}"
            return Finding(self.name, self.clauses, Verdict.INVALID, summary, counts, chosen(problems))
        summary = f"subtasks learned of {len(learned)} aborts, and acknowledged none of these checkpoints afterwards"
        return Finding(self.name, self.clauses if learned else (), Verdict.VALID, summary, counts)
