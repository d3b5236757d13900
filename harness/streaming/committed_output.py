"""Structured Streaming's own promise: the committed output is what the same function gives as a batch."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.oracle.evidence.first_breaches import with_evidence
from barrier_tck.harness.oracle.sign import Breach, Sign
from barrier_tck.harness.record.history import End, OutputComparison
from barrier_tck.harness.record.operations import SinkCalled
from barrier_tck.harness.record.query_times import Reference
from barrier_tck.harness.record.verdict import EXERCISED, Finding, Verdict
from barrier_tck.harness.support.first_line import first_line

_WITHOUT_A_FAULT = (
    "no micro-batch is known to have run more than once, so it may be wrong without any fault: look at the sink, or "
    "say in the job what its output is (latest_by, upserts, final_by, batch; the guide tells of each)"
)
_GIVES = {
    Reference.BATCH: "the query gives as a batch",
    Reference.UNDISTURBED: "an undisturbed run of the same micro-batches gives",
}
_GIVEN = {
    Reference.BATCH: "the query as a batch over the same input",
    Reference.UNDISTURBED: "an undisturbed run of the same micro-batches",
}
_MAYBE_MERGED = "if the sink keeps only the newest row of each key, the job must say so (upserts)"


def _rows(number: int) -> str:
    return f"{number} row{'s' * (number != 1)}"


def _rows_of_kinds(counts: Mapping[str, int]) -> str:
    """Return for instance ``3 lost and 1 unexpected rows``."""
    kinds = " and ".join(f"{number} {name}" for name, number in counts.items())
    return f"{kinds} row{'s' * (sum(counts.values()) != 1)}"


def _counts_by_time(comparison: OutputComparison) -> dict[str, int]:
    """Return how many rows are there by when they are due, and how many input was too late for; empty if none wait."""
    counts: dict[str, int] = {}
    if comparison.rows_due is not None:
        counts |= {name: getattr(comparison.rows_due, name) for name in ("final", "at_once", "held_back")}
    if comparison.late is not None:
        counts |= {"late_input": comparison.late.number, "missing_because_late": comparison.late.missing}
    return counts


def _not_due(comparison: OutputComparison) -> str:
    """Return what is said of rows that the batch gives, and that need not be there."""
    late = comparison.late
    if late is None:
        return ""
    first = f", for instance {late.rows[0].sentence}" if late.rows else ""
    missing = (
        f"{_rows(late.missing)} of the batch may be missing because of them, for instance {late.examples[0]}"
        if late.examples
        else "no row of the batch is missing because of them"
    )
    return f"; {_rows(late.number)} of the input came late{first}; {missing}"


def _lost_where_it_ran_again(comparison: OutputComparison) -> bool:
    """Return whether only micro-batches that ran more than once read the input of the lost rows, as far as is known."""
    readers = [batch for row in comparison.wrong if row.kind == "lost" for batch in row.read_by]
    return bool(readers) and all(batch in comparison.run_again for batch in readers)


def _guilty(comparison: OutputComparison) -> frozenset[int]:
    """Return the micro-batches that ran again and that a wrong row names; all that ran again if none is named."""
    named = {batch for row in comparison.wrong for batch in (*row.micro_batches, *row.read_by)}
    again = frozenset(comparison.run_again)
    return (again & named) or again


def _called_again(context: TrialContext, batches: Collection[int]) -> int | None:
    """Return the line at which the sink was first called once more with one of these micro-batches; None if there is
    none.
    """
    called: dict[int, None] = {}
    for line in context.history.of(SinkCalled):
        batch = line.operation.micro_batch
        if batch in called and batch in batches:
            return line.index
        called[batch] = None
    return None


class CommittedOutput:
    """Judges what the judge's batch found (``OutputComparison``).

    A run that did not end is judged only for rows that are too many: those that are missing may still come.
    """

    name = "committed-output"
    clauses = ("SNK-1",)

    def check(self, context: TrialContext) -> Finding:
        """Judge the output of one trial."""
        comparison = context.history.output_query
        if comparison is None:
            return self._finding(Verdict.UNKNOWN, "the output was not compared with a batch")
        found = comparison.counts
        if found is None:
            return self._finding(
                Verdict.UNKNOWN, f"the output cannot be judged: {first_line(comparison.problem)}"
            )
        counts = {
            "expected": found.expected,
            "committed": found.committed,
            "lost": found.lost,
            "duplicated": found.duplicated,
            "unexpected": found.unexpected,
            "copies_excused": sum(sum(sides.values()) for sides in comparison.checks.values()),
            **_counts_by_time(comparison),
            EXERCISED: comparison.replayed,
        }
        if context.history.end is End.FINISHED:  # before that a multiple may be what was right for a while
            for name in ("lost", "unexpected"):
                counts[name] -= comparison.added_again
            counts["duplicated"] += comparison.added_again
        wrong = [name for name in ("lost", "duplicated", "unexpected") if counts[name]]
        if context.history.end is not End.FINISHED:
            wrong = [name for name in wrong if name == "duplicated"]
            if not wrong:
                return self._finding(Verdict.UNKNOWN, "the query did not consume its input", counts)
        if not wrong:
            summary = (
                f"the output has the {_rows(found.expected)} that {_GIVES[comparison.against]}, and no other"
            )
            if counts["copies_excused"]:
                copies = "copy" if counts["copies_excused"] == 1 else "copies"
                summary += (
                    f"; besides, {counts['copies_excused']} {copies} of rows of micro-batches that ran again"
                )
            elif comparison.ran_again:
                summary += (
                    f"; {comparison.ran_again} of the micro-batches ran more than once, as a whole or in a task, and "
                    f"of {comparison.replayed} the sink had been given rows before"
                )
            return self._finding(Verdict.VALID, summary + _not_due(comparison), counts)
        summary = (
            f"{_rows_of_kinds({name: counts[name] for name in wrong})}; the output has {_rows(found.committed)}, and "
            f"{_GIVEN[comparison.against]} gives {found.expected}"
        )
        if comparison.added_again and context.history.end is End.FINISHED:
            summary += f"; to {comparison.added_again} of the duplicated rows something was added more often than once"
        if wrong == ["lost"] and found.committed and not _lost_where_it_ran_again(comparison):
            summary += f"; {_MAYBE_MERGED}"
        if not comparison.ran_again:
            summary += f"; {_WITHOUT_A_FAULT}"
        found_wrong = self._finding(Verdict.INVALID, summary, counts, comparison.examples[:10])
        line = _called_again(context, _guilty(comparison))
        sentence = next(iter(found_wrong.examples), summary)
        return with_evidence(found_wrong, context, [Breach(Sign("", "SNK-1"), sentence, line)])

    def _finding(
        self,
        verdict: Verdict,
        summary: str,
        counts: dict[str, int] | None = None,
        examples: tuple[str, ...] = (),
    ) -> Finding:
        return Finding(self.name, self.clauses, verdict, summary, counts or {}, examples)
