"""At-least-once for the committed output: nothing is lost, and every duplicate can be explained (ALO-2).

The check is two-sided: a system that counts twice where it must not is as wrong as one that loses records. What may
come twice follows from how the mode works. Let n be a checkpoint from which an attempt was restored, and S_n its
positions.

*Which records.* The restore replays exactly the records at or after S_n. Whatever the previous attempt had done with
these records is discarded, except what got into snapshot n: records that came early, on channels that delivered
barrier n before the others did. This happens in two places. At the keyed operator, the *state* then already counts
them. At the sink, which is itself an operator with several inputs, rows that it took after barrier n on one channel
and before barrier n on another are committed *with* n, and come again. An attempt emits at most one row per record.
So a record has at most one row, plus one for each checkpoint that was restored and has the record at or after its
S_n. A checkpoint that was restored twice counts once, because what the attempt in between had emitted belongs to no
completed checkpoint. (A history does not show how far the failed attempt had come, so the only upper bound is the end
of the split.) A record before S_n, or a record in a job that never recovered, must not come twice.

*Which totals.* Let V_0 = 0, let V_i be the state of a key in the i-th restored checkpoint, and let V_end be the state
with which the job ends: the totals of the whole input plus the surplus of the last restored checkpoint over the fold
of its prefix (no barrier comes after the end, so nothing more is added). Checkpoint n covers what an operator emitted
before its barrier n. So, attempt by attempt, the running totals of a key lead from V_i to V_i+1 without a gap: there
is one row for each count, and each row adds exactly its own record to the totals before it. In this *main chain*, the
part from V_i to V_i+1 contains every record between S_i and S_i+1 once, and early records behind S_i+1, none of them
twice. Rows outside the main chain are those that a sink took early: their record is behind some restored S_n, their
count is above that of V_n, and no attempt makes two rows with one count. They form their own chains, one for each
restored checkpoint, which begins at its V_n: the number of rows that continue from given totals is at most the number
that led there or began there. (With several sinks the next row of a chain may have gone to another sink, later, and
may be lost with the attempt: then records and counts are compared, but not the totals.)

Everything else is INVALID. If a job did not finish, rows may be missing, so only the records and their numbers are
judged, not the chain.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Self

from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.oracle.evidence.duplicates import DUPLICATED, SOMETIMES_DUPLICATES
from barrier_tck.harness.oracle.evidence.examples import chosen
from barrier_tck.harness.oracle.evidence.explained_failures import declined_cleanly
from barrier_tck.harness.oracle.evidence.opened_checkpoints import opened_checkpoint
from barrier_tck.harness.oracle.evidence.preconditions import (
    COMPLETED_BY_BARRIERS,
    OF_RESTORES,
    RAN_AGAIN,
    RECOVERED,
    SHOWN,
    of_restores,
)
from barrier_tck.harness.oracle.evidence.recoveries import (
    Cut,
    attempts_that_ran,
    cut_of,
    fell_back,
    restored_checkpoints,
)
from barrier_tck.harness.oracle.evidence.running_chain import (
    ChainTooAmbiguous,
    OutputRow,
    chain_of,
    output_row,
)
from barrier_tck.harness.oracle.evidence.sink_losses import lost_transactions
from barrier_tck.harness.oracle.evidence.trial_input import InputRecord, TrialInput
from barrier_tck.harness.oracle.sign import Breach, Sign
from barrier_tck.harness.oracle.standard_checker import Meaning, StandardChecker, TrialToJudge
from barrier_tck.harness.record.history import End, Row
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.system.job_view import Role
from barrier_tck.harness.workloads.sequential_model import Key

VIOLATIONS = ("unexpected", "wrong_key", "unexplained", "wrong_totals")
"""Counts that are always a violation; ``lost`` is a violation only if the job finished."""


_BEYOND_REPLAY = Sign(
    "after a recovery records are lost, or come more often than they were replayed", "ALO-2"
)
_LOST = Sign("a transaction that a completed checkpoint covers never became visible", "SNK-1")
_NOT_RECOVERED = Sign("without a recovery records are lost, or come twice", "ALO-1")


class AtLeastOnceOutput(StandardChecker):
    """Compares the committed output with the input and with the restored checkpoints."""

    name = "at-least-once-output"
    requires = "Nothing is lost, and every duplicate can be explained."
    judges = "workloads with a sequential model, if a shuffle runs in at-least-once mode"
    covers = {
        "ALO-2": RAN_AGAIN,
        "ALO-1": COMPLETED_BY_BARRIERS,
        "SNK-1": SHOWN,
        "REC-1": RECOVERED,
        "SRC-1": RECOVERED,
        **OF_RESTORES,
    }
    judges_output = True
    sometimes = (SOMETIMES_DUPLICATES,)
    signs = (_LOST, _BEYOND_REPLAY, _NOT_RECOVERED)
    rank = 50

    @classmethod
    def applies(cls, trial: TrialToJudge) -> bool:
        return trial.meaning is Meaning.SEQUENTIAL and not trial.exact

    @classmethod
    def made_for(cls, trial: TrialToJudge) -> Self:
        return cls(trial.input)

    def __init__(self, trial_input: TrialInput) -> None:
        self._input = trial_input
        others = [clause for clause in self.covers if clause not in OF_RESTORES]
        self.clauses = (*others, *of_restores(trial_input.plan))

    def check(self, context: TrialContext) -> Finding:
        """Judge the committed rows of one trial."""
        history = context.history
        if history.output is None:
            summary = "the committed rows were not read, so nothing can be said about them"
            return Finding(self.name, self.clauses, Verdict.UNKNOWN, summary)
        ran = attempts_that_ran(history)
        started = restored_checkpoints(history).items()
        # An attempt that never ran, for instance because its checkpoint could not be read, added nothing.
        restored = dict.fromkeys(n for attempt, n in started if n is not None and attempt in ran)
        views = {n: view for n in restored if (view := opened_checkpoint(context, n)) is not None}
        unopened = [n for n in restored if n not in views]
        if unopened:
            summary = f"checkpoint {unopened[0]} was restored but never opened, so it is not known what may come twice"
            return Finding(self.name, self.clauses, Verdict.UNKNOWN, summary)
        cuts = [cut_of(views[n], self._input) for n in sorted(restored)]
        sinks = _sinks_of(context)
        evidence = _Evidence(self._input, cuts, several_sinks=sinks > 1)
        evidence.take(history.output, finished=history.end is End.FINISHED)
        verdict, summary = _verdict(context, evidence)
        if verdict is Verdict.INVALID:
            lost = lost_transactions(context) if evidence.counts["lost"] else ()
            sign = _BEYOND_REPLAY if len(ran) > 1 else _NOT_RECOVERED
            breaches = [Breach(sign, next(iter(evidence.examples), summary), place="output")]
            breaches[:0] = [
                Breach(_LOST, str(found), found.line, checkpoint=found.checkpoint, attempt=found.attempt)
                for found in lost
            ]
            return self.broken(context, summary, evidence.counts, breaches, evidence.examples)
        return Finding(self.name, self.clauses, verdict, summary, evidence.counts, chosen(evidence.examples))


def _sinks_of(context: TrialContext) -> int:
    """Return the number of sinks: as the system says or, if it does not say, as in the plan."""
    if context.job is not None:
        return max(len(job.in_role(Role.SINK)) for job in (context.job, *context.later_jobs))
    return sum(vertex.parallelism for vertex in context.plan.job.sinks)


def _verdict(context: TrialContext, evidence: _Evidence) -> tuple[Verdict, str]:
    counts, end = evidence.counts, context.history.end
    wrong = [f"{counts[name]} {name.replace('_', ' ')}" for name in VIOLATIONS if counts[name]]
    if end is End.FINISHED and counts["lost"]:
        wrong.insert(0, f"{counts['lost']} lost")
    committed = f"{counts['committed']} rows committed for {counts['expected']} records"
    back = fell_back(context)
    if wrong and back is not None and not counts["lost"]:
        return Verdict.UNKNOWN, f"{', '.join(wrong)}; {committed}, but {back}"
    if wrong:
        return Verdict.INVALID, f"{', '.join(wrong)}; {committed}"
    if evidence.undecided:
        return Verdict.UNKNOWN, f"the order of rows is too ambiguous: {evidence.undecided}; {committed}"
    duplicates = f"{counts[DUPLICATED]} duplicates, all of them explained"
    if end is End.FINISHED or not counts["lost"]:
        return Verdict.VALID, f"no record is lost; {duplicates}; {committed}"
    if declined_cleanly(context):
        return Verdict.VALID, f"the job gave up as its restart strategy says; {duplicates}; {committed}"
    return Verdict.UNKNOWN, f"{end.sentence}; {committed}; {duplicates}"


class _Evidence:
    """Goes through the output once and counts what is wrong, with an example of each."""

    def __init__(self, trial_input: TrialInput, cuts: Sequence[Cut], several_sinks: bool) -> None:
        self._input = trial_input
        self._cuts = cuts
        self._several_sinks = several_sinks
        self._width = len(trial_input.spec.aggregates)
        self._names_of_totals = [aggregate.name for aggregate in trial_input.spec.aggregates]
        self._count_index = trial_input.spec.count_index
        names = ("expected", "committed", DUPLICATED, "lost", "carried", *VIOLATIONS)
        self.counts = dict.fromkeys(names, 0)
        self.examples: list[str] = []
        self.undecided = ""

    def take(self, output: Sequence[Row], finished: bool) -> None:
        """Judge all rows."""
        records = self._input.records
        self.counts["expected"], self.counts["committed"] = len(records), len(output)
        if self._cuts:
            last, count = self._cuts[-1], self._input.spec.count_index
            self.counts["carried"] = sum(last.surplus(key, self._width)[count] for key in last.state)
        by_key: dict[Key, list[OutputRow]] = {}
        times_seen: dict[Any, int] = {}
        for row in output:
            known = self._known(row)
            if known is not None:
                by_key.setdefault(known.record.key, []).append(known)
                times_seen[known.identifier] = times_seen.get(known.identifier, 0) + 1
        for identifier, record in records.items():
            self._judge_number(identifier, record, times_seen.get(identifier, 0))
        if finished:
            for key in dict.fromkeys([*by_key, *self._totals]):
                self._judge_key(key, by_key.get(key, []))

    @property
    def _totals(self) -> Mapping[Key, Sequence[int]]:
        return self._input.totals

    def _known(self, row: Row) -> OutputRow | None:
        """Return the row if it belongs to a record of the input and has the right key; otherwise note what is wrong."""
        spec = self._input.spec
        try:
            identifier, key = row[spec.id_column], spec.key_of(row)
            totals = tuple([row[name] or 0 for name in self._names_of_totals])
        except KeyError as error:
            self._note("unexpected", f"row {row} has no column {error}")
            return None
        record = self._input.records.get(identifier)
        if record is None:
            self._note("unexpected", f"id {identifier!r} is not in the input: row {row}")
            return None
        if key != record.key:
            self._note(
                "wrong_key", f"id {identifier} ({record}) came out under key {'/'.join(map(str, key))}"
            )
            return None
        return output_row(identifier, record, totals, self._count_index)

    def _judge_number(self, identifier: Any, record: InputRecord, seen: int) -> None:
        """Compare how often a record came with how often it may come."""
        if not seen:
            self._note("lost", f"id {identifier} ({record}) is not in the output")
            return
        if seen == 1:
            return
        self.counts[DUPLICATED] += seen - 1
        behind = [cut.checkpoint for cut in self._cuts if cut.is_behind(record)]
        if seen > 1 + len(behind):
            if not self._cuts:
                why = "no checkpoint was ever restored"
            elif not behind:
                why = f"it lies before the barriers of every restored checkpoint ({self._names()})"
            else:
                why = f"only these restored checkpoints replayed it: {', '.join(map(str, behind))}"
            self._note("unexplained", f"id {identifier} ({record}) came {seen} times, but {why}")

    def _names(self) -> str:
        return ", ".join(str(cut.checkpoint) for cut in self._cuts)

    def _judge_key(self, key: Key, rows: list[OutputRow]) -> None:
        """Follow the running totals of a key from attempt to attempt, and judge the other rows."""
        left = list(rows)
        ends = [*self._cuts, None]
        for start, end in zip([None, *self._cuts], ends, strict=True):
            first, goal = self._totals_at(start, key), self._end_totals(end, key)
            try:
                taken, problem = chain_of(left, first, goal, start, end, self._input.spec.count_index)
            except ChainTooAmbiguous as error:
                self.undecided = f"key {'/'.join(map(str, key))}: {error}"
                return
            if problem:
                self._note("wrong_totals", f"key {'/'.join(map(str, key))}: {problem}")
                return
            taken_ids = {id(row) for row in taken}
            left = [row for row in left if id(row) not in taken_ids]
        self._judge_early(key, left)

    def _totals_at(self, cut: Cut | None, key: Key) -> tuple[int, ...]:
        zero = (0,) * self._width
        return zero if cut is None else tuple(cut.state.get(key, zero))

    def _end_totals(self, cut: Cut | None, key: Key) -> tuple[int, ...]:
        """Return the totals at a checkpoint, or at the end: those of the whole input plus the restored surplus."""
        if cut is not None:
            return self._totals_at(cut, key)
        whole = self._totals.get(key, [0] * self._width)
        carried = self._cuts[-1].surplus(key, self._width) if self._cuts else [0] * self._width
        return tuple(a + b for a, b in zip(whole, carried, strict=True))

    def _judge_early(self, key: Key, rows: Sequence[OutputRow]) -> None:
        """Judge the rows outside the main chain: a sink took them early, before its part of a checkpoint."""
        states = {cut.checkpoint: self._totals_at(cut, key) for cut in self._cuts}
        count_index = self._input.spec.count_index
        bases = Counter(states.values())
        followed = Counter(row.before for row in rows)
        reached = Counter(row.totals for row in rows)
        at_count = Counter(row.number for row in rows)
        for row in rows:
            behind = [
                states[cut.checkpoint]
                for cut in self._cuts
                if cut.is_behind(row.record) and states[cut.checkpoint][count_index] < row.number
            ]
            began = sum(state[count_index] < row.number for state in states.values())
            if not behind:
                why = f"no restored checkpoint ({self._names() or 'there was none'}) explains that"
            elif at_count[row.number] > began:
                why = f"{at_count[row.number]} such rows have that count, and {began} attempts can have made one"
            elif not self._several_sinks and followed[row.before] > reached[row.before] + bases[row.before]:
                why = f"neither a restored checkpoint nor another such row led to {list(row.before)}"
            else:
                continue
            self._note(
                "unexplained",
                f"id {row.identifier} ({row.record}) came with {list(row.totals)} beside the running totals of "
                f"its key, and {why}",
            )

    def _note(self, kind: str, example: str) -> None:
        self.counts[kind] += 1
        self.examples.append(f"{kind.replace('_', ' ')}: {example}")
