"""The watermarks of a query's micro-batches: faults must not let them go back, get ahead, or stay behind."""

from __future__ import annotations

from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.record.history import End
from barrier_tck.harness.record.verdict import EXERCISED, Finding, Verdict
from barrier_tck.harness.support.first_line import first_line


class BatchWatermarks:
    """Judges what the judge read in the query's own log of offsets (``WatermarkComparison``).

    A watermark that went back lets state that was given be given again; one that is ahead drops rows that are in time.
    """

    name = "batch-watermarks"
    clauses = ("EVT-1",)

    def check(self, context: TrialContext) -> Finding:
        """Judge the watermarks of one trial."""
        output = context.history.output_query
        compared = output.watermarks if output is not None else None
        if compared is None:
            why = f": {first_line(output.problem)}" if output is not None and output.problem else ""
            return Finding(
                self.name,
                self.clauses,
                Verdict.UNKNOWN,
                f"the watermarks of the micro-batches were not looked at{why}",
            )
        counts = {"micro_batches": compared.batches, EXERCISED: compared.advances}
        if not compared.batches:
            return Finding(self.name, self.clauses, Verdict.VALID, "the query has no watermark", counts)
        if compared.differences:
            examples = tuple(difference.sentence for difference in compared.differences)
            return Finding(self.name, self.clauses, Verdict.INVALID, examples[0], counts, examples)
        if context.history.end is not End.FINISHED:
            return Finding(
                self.name, self.clauses, Verdict.UNKNOWN, "the query did not consume its input", counts
            )
        what = "those of an undisturbed run" if compared.exact else "none beyond what the rows allow"
        summary = (
            f"the watermarks of {compared.batches} micro-batches never went back, and are {what}; they went on "
            f"{compared.advances} times"
        )
        return Finding(self.name, self.clauses, Verdict.VALID, summary, counts)
