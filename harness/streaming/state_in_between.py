"""The state in between: after each micro-batch, what a query keeps is what the rows so far give."""

from __future__ import annotations

from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.support.first_line import first_line


class StateInBetween:
    """Judges what the judge read with Spark's state data source (``StateComparison``)."""

    name = "state-in-between"
    clauses = ("ALN-2",)

    def check(self, context: TrialContext) -> Finding:
        """Judge the state of one trial."""
        comparison = context.history.state_query
        if comparison is None:
            return Finding(
                self.name, self.clauses, Verdict.UNKNOWN, "the state was not compared with a batch"
            )
        if comparison.problem:
            detail = f"the state cannot be judged: {first_line(comparison.problem)}"
            return Finding(self.name, self.clauses, Verdict.UNKNOWN, detail)
        counts = {
            "batches": comparison.batches,
            "entries": comparison.entries,
            "missing": comparison.missing,
            "unexpected": comparison.unexpected,
        }
        wrong = [f"{counts[name]} {name}" for name in ("missing", "unexpected") if counts[name]]
        if wrong:
            summary = f"{' and '.join(wrong)} of the entries that {comparison.batches} micro-batches left"
            return Finding(self.name, self.clauses, Verdict.INVALID, summary, counts, comparison.examples)
        summary = f"after each of {comparison.batches} micro-batches the state is what the rows so far give"
        return Finding(self.name, self.clauses, Verdict.VALID, summary, counts)
