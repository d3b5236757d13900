"""A subtask that was told of an abort has given its part up: it acknowledges that checkpoint no more (COO-2, SNP-2).

What a subtask sends arrives in order, so its word that it learned of the abort comes before whatever it sends later. An
acknowledgement that had come before, and comes again, is no new one.
"""

from __future__ import annotations

from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.oracle.examples import chosen
from barrier_tck.harness.record.operations import AbortLearned, Acknowledged
from barrier_tck.harness.record.verdict import Finding, Verdict


class AbortsObeyed:
    """Nobody acknowledges what it knows to be aborted."""

    name = "aborts-obeyed"
    clauses = ("COO-2", "SNP-2")

    def check(self, context: TrialContext) -> Finding:
        """Follow what each subtask of one trial learned and acknowledged."""
        learned: dict[tuple[int, int, str], float] = {}
        acknowledged: set[tuple[int, int, str]] = set()
        problems: list[str] = []
        for line in context.history.operations:
            match line.operation:
                case AbortLearned(checkpoint=checkpoint, attempt=attempt, subtask=subtask):
                    learned.setdefault((checkpoint, attempt, subtask), line.time_ms)
                case Acknowledged(checkpoint=checkpoint, attempt=attempt, subtask=subtask):
                    part = (checkpoint, attempt, subtask)
                    if part in learned and part not in acknowledged:
                        problems.append(
                            f"at {line.time_ms:g} ms {subtask} of attempt {attempt} acknowledged checkpoint "
                            f"{checkpoint}, of whose abort it knew at {learned[part]:g} ms (COO-2)"
                        )
                    acknowledged.add(part)
        counts = {"learned": len(learned), "violations": len(problems)}
        if problems:
            summary = f"{len(problems)} acknowledgements of what was given up; the first: {problems[0]}"
            return Finding(self.name, self.clauses, Verdict.INVALID, summary, counts, chosen(problems))
        summary = f"aborts were learned of {len(learned)} times, and nobody acknowledged one afterwards"
        return Finding(self.name, self.clauses if learned else (), Verdict.VALID, summary, counts)
