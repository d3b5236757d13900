"""The output in event time is that of a batch: Spark SQL's, over the input without the records that came late (EVT-2).

Which records were late is what the side output says; the replay of each subtask (``event_time``) judges that. All
others have their effect as if they had come in any order. So this checker needs nothing of how the job ran, and shares
no model with the other one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Self

from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.oracle.evidence.batch_result import (
    Result,
    is_late,
    late_ids,
    query_in_process,
    result_of,
)
from barrier_tck.harness.oracle.evidence.event_time_preconditions import FIRED, JOINED, JOINS
from barrier_tck.harness.oracle.evidence.explained_failures import declined_cleanly
from barrier_tck.harness.oracle.evidence.recoveries import fell_back
from barrier_tck.harness.oracle.evidence.trial_input import TrialInput
from barrier_tck.harness.oracle.precondition import Precondition
from barrier_tck.harness.oracle.sign import Breach, Sign
from barrier_tck.harness.oracle.standard_checker import Meaning, StandardChecker, TrialToJudge
from barrier_tck.harness.record.history import End, Row
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.workloads.batch_query import RESULT, BatchQuery, HasBatchQuery

_WINDOWS = Sign("the windows that are committed are not those that a batch gives", "EVT-2")
_JOIN = Sign("the pairs and rows alone that are committed are not those that a batch gives", "EVT-4")


def _is_compared(context: TrialContext) -> bool:
    return context.history.end is End.FINISHED and fell_back(context) is None


COMPARED = Precondition(
    "a window or a ranking held or emitted something, and the job finished without going back",
    lambda context: _is_compared(context) and FIRED.holds(context),
)
JOIN_COMPARED = Precondition(
    "a join held or emitted something, and the job finished without going back",
    lambda context: _is_compared(context) and JOINED.holds(context),
)


class BatchResult(StandardChecker):
    """Compares the committed output with the result of the workload's batch query, as multisets."""

    name = "batch-result"
    requires = (
        "The committed output is what the workload's query gives as a batch in Spark SQL over the input without the "
        "records that came late; an update of a window is the only one with its number, and has more records than the "
        "one before."
    )
    judges = "workloads in event time with a batch query, unless a shuffle runs in at-least-once mode"
    covers = {"EVT-2": COMPARED, "EVT-4": JOIN_COMPARED}
    signs = (_WINDOWS, _JOIN)
    judges_output = True
    rank = 26

    @classmethod
    def applies(cls, trial: TrialToJudge) -> bool:
        return (
            trial.meaning is Meaning.REPLAYED
            and trial.exact
            and isinstance(trial.input.workload, HasBatchQuery)
        )

    @classmethod
    def made_for(cls, trial: TrialToJudge) -> Self:
        assert isinstance(trial.input.workload, HasBatchQuery)
        return cls(trial.input, trial.input.workload.batch_query(trial.plan.job))

    def __init__(self, trial_input: TrialInput, query: BatchQuery) -> None:
        """Take the input of the trial, and the query over it."""
        self._input, self._query = trial_input, query
        kinds = {operator.kind for vertex in trial_input.plan.job.vertices for operator in vertex.operators}
        self._sign = _JOIN if kinds.intersection(JOINS) else _WINDOWS
        self.clauses = (self._sign.clause,)

    def check(self, context: TrialContext) -> Finding:
        """Judge the committed output."""
        history, output = context.history, context.history.output
        if output is None:
            summary = "the committed output was not read, so nothing can be said about it"
            return Finding(self.name, self.clauses, Verdict.UNKNOWN, summary)
        back = fell_back(context)
        if back is not None:
            return Finding(self.name, self.clauses, Verdict.VALID, f"not compared with the batch: {back}")
        if history.end is not End.FINISHED:
            verdict = Verdict.VALID if declined_cleanly(context) else Verdict.UNKNOWN
            summary = (
                f"{history.end.sentence}, so the output is not complete, and not compared with the batch"
            )
            return Finding(self.name, self.clauses, verdict, summary)
        expected, problems = self._expected(context, output), list(self._late_problems(output))
        last, of_updates = _last_firings([row for row in output if not is_late(row)])
        problems += of_updates
        got = Counter(result_of(row) for row in last)
        lost, unexpected = expected - got, got - expected
        problems += [f"{_shown(one)} is {number} times too few in the output" for one, number in lost.items()]
        problems += [
            f"{_shown(one)} is {number} times too many in the output" for one, number in unexpected.items()
        ]
        counts = {
            "expected": expected.total(),
            "committed": len(output),
            "late": len(late_ids(output)),
            "lost": lost.total(),
            "unexpected": unexpected.total(),
        }
        by = "Spark SQL" if history.batch is not None else "the batch query"
        if problems:
            summary = f"{len(problems)} things are not what {by} gives"
            breaches = [Breach(self._sign, problem, place="output") for problem in problems]
            return self.broken(context, summary, counts, breaches)
        summary = f"the {expected.total()} rows of {by} are committed, once each; {counts['late']} records were late"
        return Finding(self.name, self.clauses, Verdict.VALID, summary, counts)

    def _expected(self, context: TrialContext, output: Sequence[Row]) -> Counter[Result]:
        if context.history.batch is not None:
            return Counter(result_of(row) for row in context.history.batch)
        schemas = self._input.workload.schemas(self._input.plan.job)
        return query_in_process(self._query, schemas, self._input.splits, late_ids(output))

    def _late_problems(self, output: Sequence[Row]) -> Iterator[str]:
        """Yield which records count as late that are not in the input, or count so twice."""
        known: Mapping[int, Row] = {row["id"]: row for split in self._input.splits for row in split.input}
        seen = Counter(row["id"] for row in output if is_late(row))
        for row in output:
            if is_late(row) and known.get(row["id"]) != row:
                yield f"{row} is in the output as a record that came late, and is not in the input"
        yield from (
            f"record {one} is in the output {number} times as one that came late"
            for one, number in seen.items()
            if number > 1
        )


def _last_firings(rows: Sequence[Row]) -> tuple[list[Row], list[str]]:
    """Return rows without those that later ones replace, and what is wrong with the numbers of firings.

    A window that fires again for a late record shows itself as ``window[start,end)#number``, and has grown.
    """
    last: list[Row] = []
    firings: dict[tuple[str, str], list[tuple[int, Row]]] = {}
    for row in rows:
        of, mark, number = row["how"].rpartition("#")
        if mark:
            firings.setdefault((row["key"], of), []).append((int(number), row))
        else:
            last.append(row)
    problems: list[str] = []
    for (key, of), fired in firings.items():
        fired.sort(key=lambda one: one[0])
        last.append(fired[-1][1])
        numbers, sizes = [number for number, _ in fired], [row["n"] for _, row in fired]
        if numbers != list(range(len(fired))):
            problems.append(f"{of} of {key} is in the output with the numbers {numbers}")
        elif any(after <= before for before, after in pairwise(sizes)):
            problems.append(f"{of} of {key} fired again with {sizes} records")
    return last, problems


def _shown(one: Result) -> str:
    return ", ".join(f"{name} {value}" for name, value in zip(RESULT, one, strict=True))
