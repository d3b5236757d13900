"""Exactly-once for the committed output: every record has its effect once, whatever failed (SNK-1, REC-1, ALN-1).

Sums at intermediate counts depend on how the sources interleave, so they are not compared with one sequential run.
But for every interleaving this holds: the ids are those of the input, each once; a key's counts are 1 to n, each
once; and from count c - 1 to count c the sums grow by exactly the values of the row's own record.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from operator import add
from types import NoneType
from typing import Any, Self

import msgspec

from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.oracle.evidence.cut_preconditions import HELD_BACK_AND_RESTORED
from barrier_tck.harness.oracle.evidence.exactness import AT_LEAST_ONCE
from barrier_tck.harness.oracle.evidence.examples import chosen
from barrier_tck.harness.oracle.evidence.explained_failures import declined_cleanly
from barrier_tck.harness.oracle.evidence.named_places import at_sink, sinks_of
from barrier_tck.harness.oracle.evidence.preconditions import (
    OF_RESTORES,
    RAN_AGAIN,
    RECOVERED,
    SHOWN,
    of_restores,
)
from barrier_tck.harness.oracle.evidence.recoveries import committed_again, fell_back
from barrier_tck.harness.oracle.evidence.trial_input import TrialInput
from barrier_tck.harness.oracle.sign import Breach, Sign
from barrier_tck.harness.oracle.standard_checker import Meaning, StandardChecker, TrialToJudge
from barrier_tck.harness.record.history import End, OutputComparison, Row
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.workloads.kind_catalogue import keeps_by_key
from barrier_tck.harness.workloads.sequential_model import Key, values_of

LOSSES = ("lost",)
"""Counts that are a violation only if the job finished: output that is not committed yet may be missing."""

VIOLATIONS = ("duplicated", "unexpected", "wrong_key", "wrong_count", "wrong_sum")
"""Counts that are always a violation."""

_OF_STATE = ("wrong_count", "wrong_sum")
"""Those that the operator makes which counts, and not a sink."""

AGAIN = "committed_again"
"""Count of the rows that a checkpoint had committed that was given up, beside the one row of each record."""

_NOT_ONCE = Sign("records are lost or doubled in the output, and no checkpoint shows it before", "SNK-1")
_NOT_RESTORED = Sign(
    "in a trial with a recovery a key's count in the output ends above or below the number of its records, and no "
    "checkpoint shows it before",
    "REC-1",
)
_WITHOUT_SHUFFLE = Sign(
    "records are lost or doubled in at-least-once output, though there is no shuffle", "ALO-3"
)


class ExactlyOnceOutput(StandardChecker):
    """Compares the committed output with the input, in both directions, as multisets."""

    name = "exactly-once-output"
    requires = "Every record has its effect in the committed output once."
    judges = "workloads with a sequential model, unless a shuffle runs in at-least-once mode"
    covers = {
        "SNK-1": SHOWN,
        "REC-1": RECOVERED,
        "SRC-1": RECOVERED,
        "ALN-1": HELD_BACK_AND_RESTORED,
        "ALO-3": RAN_AGAIN,
        **OF_RESTORES,
    }
    signs = (_NOT_ONCE, _NOT_RESTORED, _WITHOUT_SHUFFLE)
    judges_output = True
    rank = 40

    @classmethod
    def applies(cls, trial: TrialToJudge) -> bool:
        return trial.meaning is Meaning.SEQUENTIAL and trial.exact

    @classmethod
    def made_for(cls, trial: TrialToJudge) -> Self:
        return cls(trial.input)

    def __init__(self, trial_input: TrialInput) -> None:
        self._input = trial_input
        # At least once without state is exact although nothing is aligned: there is no second channel to wait for.
        unaligned = trial_input.plan.checkpoints.mode == AT_LEAST_ONCE and not trial_input.spec.stateful
        restores = of_restores(trial_input.plan)
        self.clauses = ("SNK-1", "REC-1", "SRC-1", "ALO-3" if unaligned else "ALN-1", *restores)

    def check(self, context: TrialContext) -> Finding:
        """Judge the rows of one trial or, without rows, the batch query's result."""
        history = context.history
        if history.output is not None:
            return self._judge_rows(context, history.output)
        if history.output_query is not None:
            return self._judge_query(context, history.output_query)
        summary = "the committed output was not read, so nothing can be said about it"
        return Finding(self.name, self.clauses, Verdict.UNKNOWN, summary)

    def _judge_query(self, context: TrialContext, found: OutputComparison) -> Finding:
        if found.counts is None and not found.problem:
            summary = "the batch query gave no counts, so nothing can be said about the committed output"
            return Finding(self.name, self.clauses, Verdict.UNKNOWN, summary)
        if found.counts is None:
            summary = f"the committed output cannot be compared: {found.problem}"
            return Finding(self.name, self.clauses, Verdict.INVALID, summary)
        counts = msgspec.structs.asdict(found.counts)
        verdict, summary = _verdict(context, counts, counts_again=False)
        if verdict is Verdict.INVALID:
            place = sinks_of(self._input.plan.job)
            breaches = [
                Breach(self._usual_sign, next(iter(found.examples), summary), place=place or "output")
            ]
            return self.broken(context, summary, counts, breaches, found.examples)
        return Finding(self.name, self.clauses, verdict, summary, counts, chosen(found.examples))

    @property
    def _usual_sign(self) -> Sign:
        return _WITHOUT_SHUFFLE if "ALO-3" in self.clauses else _NOT_ONCE

    def _judge_rows(self, context: TrialContext, output: Sequence[Row]) -> Finding:
        again = committed_again(context, self._input)
        evidence = _Evidence(self._input, again or {})
        evidence.take(output, context.history.output_by)
        verdict, summary = _verdict(context, evidence.counts, again is not None)
        if verdict is not Verdict.INVALID:
            return Finding(
                self.name, self.clauses, verdict, summary, evidence.counts, chosen(evidence.examples)
            )
        recovered = RECOVERED.shown_in_output(context) and "ALO-3" not in self.clauses
        not_restored = evidence.wrong_state(output) if recovered else None
        if not_restored is not None:
            breach = Breach(_NOT_RESTORED, not_restored, place=evidence.counting)
        else:
            sentence = next(iter(evidence.examples), summary)
            place = evidence.places[0] if evidence.places else "output"
            breach = Breach(self._usual_sign, sentence, place=place or "output")
        return self.broken(context, summary, evidence.counts, [breach], evidence.examples)


def _verdict(context: TrialContext, counts: Mapping[str, int], counts_again: bool) -> tuple[Verdict, str]:
    """Return the verdict and a sentence; a job that did not finish may lack output, but must not invent any."""
    wrong = [f"{counts[name]} {name.replace('_', ' ')}" for name in VIOLATIONS if counts[name]]
    lost = counts["lost"]
    committed = f"{counts['committed']} rows committed of {counts['expected']} expected"
    back = fell_back(context)
    undecided = back is not None and not counts_again
    if wrong and undecided and not (lost or counts["unexpected"] or counts["wrong_key"]):
        return Verdict.UNKNOWN, f"{', '.join(wrong)}; {committed}, but {back}"
    if context.history.end is End.FINISHED:
        wrong = ([f"{lost} lost"] if lost else []) + wrong
        if wrong:
            return Verdict.INVALID, f"{', '.join(wrong)}; {committed}"
        if counts.get(AGAIN):
            return Verdict.VALID, f"{counts[AGAIN]} rows come once more, as they may: {back}; {committed}"
        return Verdict.VALID, f"all {counts['expected']} records have their effect in the output exactly once"
    if wrong:
        return Verdict.INVALID, f"{', '.join(wrong)}; {committed}, and the job had not even finished"
    if not lost:
        return Verdict.VALID, f"{context.history.end.sentence}, yet {committed}, each exactly once"
    if declined_cleanly(context):
        return Verdict.VALID, f"the job gave up as its restart strategy says; {committed}, none twice"
    return Verdict.UNKNOWN, f"{context.history.end.sentence}; {committed}, none twice so far"


class _Evidence:
    """Goes through the output once and counts what is wrong, with an example of each."""

    def __init__(self, trial_input: TrialInput, again: Mapping[int, int]) -> None:
        """Take how often rows of which ids may come beside their one time, because checkpoints were given up."""
        self._again = again
        self._spec = trial_input.spec
        self._records = trial_input.records
        self._count_index = trial_input.spec.count_index
        self.counts = {"expected": len(self._records), "committed": 0} | dict.fromkeys(
            (*LOSSES, *VIOLATIONS, AGAIN), 0
        )
        self.examples: list[str] = []
        self.places: list[str] = []
        """Where each of them was seen: at sinks, or at the operator that counts."""
        self._job = job = trial_input.plan.job
        self._sinks = sinks_of(job)
        self._writer = ""
        """The sink subtask that wrote the row that is looked at, if it is known."""
        self.counting = next((vertex.name for vertex in job.vertices if keeps_by_key(vertex)), self._sinks)
        """The operator that counts."""
        self._repeated: dict[Key, list[int]] = {}
        """Key -> which of the examples say that a count came twice."""
        self._numbers = Counter([record.key for record in self._records.values()])

    def take(self, output: Sequence[Row], writers: Sequence[str] = ()) -> None:
        """Judge all rows; ``writers`` are the sink subtasks that wrote them, if that is known."""
        self.counts["committed"] = len(output)
        times_seen: dict[int, int] = {}
        judged_kinds: dict[tuple[type, ...], bool] = {}
        # Key -> count -> (id, accumulators): each key's rows in the order in which its operator made them.
        by_count: dict[Key, dict[int, tuple[int, tuple[Any, ...]]]] = {}
        spec, records, count_index = self._spec, self._records, self._count_index
        read, first = values_of(spec.output_columns), 1 + len(spec.key_columns)
        for position, row in enumerate(output):
            self._writer = writers[position] if position < len(writers) else ""
            try:
                values = read(row)
            except KeyError as error:
                self._note("unexpected", f"row {row} has no column {error}")
                continue
            identifier, key, accumulators = values[0], values[1:first], values[first:]
            if None in accumulators:
                accumulators = tuple([0 if value is None else value for value in accumulators])
            kinds = tuple(map(type, values))
            well_typed = judged_kinds.get(kinds)
            if well_typed is None:
                well_typed = judged_kinds[kinds] = _well_typed(kinds[:first], kinds[first:])
            if not well_typed:
                self._note("unexpected", f"row {row} has values of other types than the job's")
                continue
            seen = times_seen[identifier] = times_seen.get(identifier, 0) + 1
            record = records.get(identifier)
            if record is None:
                self._note("unexpected", f"id {identifier!r} is not in the input: row {row}")
                continue
            again = self._again.get(identifier, 0)
            if seen > 1 + again:
                self._note("duplicated", f"id {identifier} ({record}) occurs {seen} times: row {row}")
                continue
            if key != record.key:
                self._note("wrong_key", f"id {identifier} ({record}) came out under key {_text(key)}")
                continue
            self.counts[AGAIN] += seen > 1
            if again:
                continue  # its rows were made twice, with the counts of two orders of reading
            rows_of_key = by_count.setdefault(key, {})
            count = accumulators[count_index]
            if count in rows_of_key:
                other = rows_of_key[count][0]
                self._repeated.setdefault(key, []).append(len(self.examples))
                self._note(
                    "wrong_count",
                    f"key {_text(key)}: ids {other} and {identifier} ({record}) both have count {count}",
                )
                continue
            rows_of_key[count] = (identifier, accumulators)
        self._writer = ""
        if len(times_seen) < len(records) or self.counts["unexpected"]:
            for identifier, record in records.items():
                if identifier not in times_seen:
                    self._note("lost", f"id {identifier} ({record}) is not in the output")
        for key, rows_of_key in by_count.items():
            self._judge_key(key, rows_of_key)
        for key, examples in self._repeated.items():
            if len(examples) == 1 and max(by_count[key]) == self._numbers[key] - 1:
                self.examples[examples[0]] += ": from there on the count is one too low"

    def wrong_state(self, output: Sequence[Row]) -> str | None:
        """Say of which key the operator that counts had another number of records than there are; None if of none.

        No sink can change a count, so the state and the positions of the sources did not belong together. A count that
        is too low says so only if each record of the key has its one row.
        """
        highest: dict[Key, int] = {}
        times_seen: Counter[Any] = Counter()
        read, first = values_of(self._spec.output_columns), 1 + len(self._spec.key_columns)
        for row in output:
            if not set(self._spec.output_columns) <= row.keys():
                return None
            values = read(row)
            key, accumulators = values[1:first], values[first:]
            record, count = self._records.get(values[0]), accumulators[self._count_index]
            if record is None or record.key != key or not isinstance(count, int):
                return None
            times_seen[values[0]] += 1
            highest[key] = max(highest.get(key, 0), count)
        not_once = {record.key for each, record in self._records.items() if times_seen[each] != 1}
        for key, count in highest.items():
            number = self._numbers[key]
            if count > number or (count < number and key not in not_once):
                return (
                    f"key {_text(key)} is counted up to {count}, and has {number} record{'s' * (number != 1)}"
                )
        return None

    def _judge_key(self, key: Key, rows: Mapping[int, tuple[int, tuple[Any, ...]]]) -> None:
        """Check that one key's counts are 1 to n, and that its sums grow by the records' own values."""
        records, count_index = self._records, self._count_index
        number = self._numbers[key]
        before_first = (0,) * len(self._spec.aggregates)
        for count in sorted(rows):
            identifier, accumulators = rows[count]
            # Rows that are only lost leave a gap, across which no sum can be compared. But no gap can explain a count
            # above the number of the key's records.
            if count < 1 or count > number:
                self._note(
                    "wrong_count",
                    f"id {identifier} ({records[identifier]}): count {count} of a key with {number} records",
                )
                continue
            previous = before_first if count == 1 else rows.get(count - 1, (0, None))[1]
            if previous is None or accumulators == tuple(map(add, previous, records[identifier].increments)):
                continue
            for i, grown in enumerate(records[identifier].increments):
                if i != count_index and accumulators[i] - previous[i] != grown:
                    self._note(
                        "wrong_sum",
                        f"id {identifier} ({records[identifier]}): {self._spec.aggregates[i].name} goes from "
                        f"{previous[i]} to {accumulators[i]} at count {count}, but the record adds {grown}",
                    )

    def _note(self, kind: str, example: str) -> None:
        self.counts[kind] += 1
        self.examples.append(f"{kind.replace('_', ' ')}: {example}")
        at = at_sink(self._job, self._writer) if self._writer else self._sinks
        self.places.append(self.counting if kind in _OF_STATE else at)


_SCALARS = (int, str, float, bool, bytes, NoneType)


def _well_typed(columns: tuple[type, ...], accumulators: tuple[type, ...]) -> bool:
    """Return whether values of these types (of id and key, and of the accumulators) can be counted and compared."""
    numbers = all(issubclass(kind, (int, float, NoneType)) for kind in accumulators)
    return numbers and all(issubclass(kind, _SCALARS) for kind in columns)


def _text(key: Key) -> str:
    return "/".join(map(str, key))
