"""Totals that are emitted when they have changed: at every cut, the latest of each key is what its state holds.

At which moments rows are emitted depends on the barriers, those of checkpoints that fail included, so no model says
which rows there must be. But three things are exact. At a cut, the totals of a key are those of the records before it,
less what is under way to the operator, and if rows are emitted ahead of each barrier, the latest row of each key that
has reached the sinks or is under way to them shows these totals: it belongs to the checkpoint. No two rows of a key
have the same count, for each stands for a change. And a row between two cuts shows totals that some records between
them give, of each split the first ones. Rows of the end of the input show the totals of the whole input.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import accumulate, pairwise
from operator import sub
from typing import Self

from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.oracle.evidence.cut_preconditions import (
    OVERTAKEN,
    RECORDED,
    STATE_CHANGED,
    STATE_HELD,
)
from barrier_tck.harness.oracle.evidence.cut_signs import (
    SKIPPED_SIGN,
    UNREADABLE_SIGNS,
    breach_of,
    circumstances_of,
    unreadable,
)
from barrier_tck.harness.oracle.evidence.in_flight import (
    IN_FLIGHT,
    SOMETIMES_IN_FLIGHT,
    edge_of,
    in_flight_problems,
)
from barrier_tck.harness.oracle.evidence.increment_chains import skipped
from barrier_tck.harness.oracle.evidence.key_totals import Between, KeyTotals
from barrier_tck.harness.oracle.evidence.keys import key_of_text
from barrier_tck.harness.oracle.evidence.moments import completed_at
from barrier_tck.harness.oracle.evidence.opened_checkpoints import (
    going_back,
    misplaced,
    missing_parts,
    opened_checkpoints,
    positions_of,
)
from barrier_tck.harness.oracle.evidence.preconditions import (
    COMPLETED,
    OF_RESTORES,
    RAN_AGAIN,
    RECOVERED,
    SHOWN,
    of_restores,
)
from barrier_tck.harness.oracle.evidence.record_routes import placement_problems
from barrier_tck.harness.oracle.evidence.recoveries import fell_back
from barrier_tck.harness.oracle.evidence.sink_losses import lost_at_sinks
from barrier_tck.harness.oracle.evidence.sink_rows import SinkRows
from barrier_tck.harness.oracle.evidence.trial_input import TrialInput
from barrier_tck.harness.oracle.sign import Breach, Sign
from barrier_tck.harness.oracle.sometimes import Sometimes, counted
from barrier_tck.harness.oracle.standard_checker import Meaning, StandardChecker, TrialToJudge
from barrier_tck.harness.record.history import End, Row, SnapshotView
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.workloads.changed_totals import (
    COLUMNS,
    KEY,
    NOTHING,
    Totals,
    added,
    is_combined,
    totals_in,
    totals_of_record,
)
from barrier_tck.harness.workloads.kinds.changes import AT_THE_END, CHANGES

EMITTED_BEFORE = "emitted_before"
"""The count of a finding that says how many keys had a row at the sinks of a checkpoint."""

_SIGNS = {
    "BAR-2": Sign(
        "a total that changed before a barrier has no row before it, or a split went back", "BAR-2"
    ),
    "STA-3": Sign("a checkpoint of totals lacks a part, or a position", "STA-3"),
    "SNP-5": SKIPPED_SIGN,
    "STA-1": Sign("a total is kept by a subtask that does not own its key", "STA-1"),
    "ALN-2": Sign("a total is not what the records before the barriers give", "ALN-2"),
    "UNA-1": Sign("a total and what is in flight are not what the records before the barriers give", "UNA-1"),
    "CHL-2": Sign("a total and the recorded channels are not what was sent before the cut", "CHL-2"),
    "SNK-1": Sign("rows of changed totals are lost, wrong or emitted twice", "SNK-1"),
    "ALO-2": Sign("in at-least-once mode rows of changed totals are lost or wrong", "ALO-2"),
}
_NOT_GIVEN = ", which no records before a barrier give"
_Problem = tuple[str, str]
"""The clause that it breaks first, and what is wrong."""


@dataclass(frozen=True, slots=True)
class _Cut:
    """What is certain at one checkpoint."""

    positions: Mapping[str, int]
    totals: Mapping[str, Totals]
    """Key -> the totals that its operator must hold."""
    whole: bool
    """Whether nothing was under way to the operator, so that exactly the records before the cut are in the totals."""


class _RowsOfKey:
    """The rows that were emitted for one key."""

    def __init__(self, rows: Iterable[Totals] = ()) -> None:
        self._by_count: dict[float, list[Totals]] = {}
        self._doubled: dict[float, None] = {}
        """The counts that several rows have."""
        self.latest = NOTHING
        """The greatest one."""
        for row in rows:
            self.add(row)

    def add(self, row: Totals) -> None:
        self.latest = max(row, self.latest) if self._by_count else row
        same = self._by_count.setdefault(row[0], [])
        same.append(row)
        if len(same) > 1:
            self._doubled[row[0]] = None

    def remove(self, row: Totals) -> None:
        """Remove one that was added."""
        same = self._by_count[row[0]]
        same.remove(row)
        if len(same) < 2:
            self._doubled.pop(row[0], None)
        if not same:
            del self._by_count[row[0]]
        if row == self.latest:
            self.latest = max((max(rows) for rows in self._by_count.values()), default=NOTHING)

    def has(self, row: Totals) -> bool:
        """Return whether there is such a row."""
        return row in self._by_count.get(row[0], ())

    @property
    def twice(self) -> Iterator[str]:
        """Yield which two rows have one count: each stands for a change, so one of them was emitted twice."""
        for count in self._doubled:
            for one, other in pairwise(self._by_count[count]):
                yield f"{_shown(one)} and {_shown(other)}: it is emitted twice,"

    def __len__(self) -> int:
        return len(self._by_count)


class _Emitted:
    """The rows that had been emitted at a cut, by key, from one cut to the next."""

    def __init__(self) -> None:
        self.keys: dict[str, _RowsOfKey] = {}
        self._sinks = SinkRows()

    def follow(self, view: SnapshotView) -> None:
        """Go on to a cut, with what has reached the sinks."""
        for _, times, row in self._sinks.changes(view):
            (self._add if times > 0 else self._remove)(row)

    @contextmanager
    def and_also(self, rows: Sequence[Row]) -> Iterator[None]:
        """Have these rows, too, for a while."""
        for row in rows:
            self._add(row)
        yield
        for row in rows:
            self._remove(row)

    def shows(self, key: str, totals: Totals) -> bool:
        """Return whether a row shows these totals."""
        return key in self.keys and self.keys[key].has(totals)

    def _add(self, row: Row) -> None:
        self.keys.setdefault(row[KEY[0]], _RowsOfKey()).add(totals_in(row))

    def _remove(self, row: Row) -> None:
        rows = self.keys[row[KEY[0]]]
        rows.remove(totals_in(row))
        if not len(rows):
            del self.keys[row[KEY[0]]]


class ChangedTotals(StandardChecker):
    """The latest row of each key shows what is kept for it, at every cut and at the end, and no row comes twice."""

    name = "changed-totals"
    requires = (
        "At every cut, the totals of each key are right, and the latest row that was emitted for it shows them; at the "
        "end of the input, too. No row is emitted twice."
    )
    judges = "the workload `changed-totals`"
    covers = {
        "BAR-2": COMPLETED,
        "CHL-2": RECORDED,
        "ALN-2": COMPLETED,
        "UNA-1": OVERTAKEN,
        "STA-1": STATE_HELD,
        "STA-3": COMPLETED,
        "SNP-1": STATE_CHANGED,
        "SNK-1": SHOWN,
        "REC-1": RECOVERED,
        "SRC-1": RECOVERED,
        "ALO-2": RAN_AGAIN,
        **OF_RESTORES,
    }
    judges_output = True
    sometimes = (
        SOMETIMES_IN_FLIGHT,
        Sometimes(
            name="sometimes-emitted-before-a-barrier",
            clauses=("SNK-1",),
            seen=counted(EMITTED_BEFORE),
            things={EMITTED_BEFORE: "with_rows"},
            shown="in {with_rows} of {trials} trials rows were emitted ahead of barriers, for {emitted_before} keys",
            not_shown=(
                "in none of {trials} trials a row was emitted ahead of the barrier of a checkpoint that completed; let "
                "the input last longer than the first checkpoint"
            ),
            trials_min=10,
        ),
    )
    signs = (*_SIGNS.values(), *UNREADABLE_SIGNS)
    rank = 15

    @classmethod
    def applies(cls, trial: TrialToJudge) -> bool:
        return trial.meaning is Meaning.EMITTED

    @classmethod
    def made_for(cls, trial: TrialToJudge) -> Self:
        return cls(trial.input, trial.exact)

    def __init__(self, trial_input: TrialInput, exact: bool) -> None:
        self._input, self._exact = trial_input, exact
        job, checkpoints = trial_input.plan.job, trial_input.plan.checkpoints
        self._operator = next(vertex for vertex in job.vertices if vertex.kind == CHANGES)
        self._combined = is_combined(job)
        self._at_the_end = bool(self._operator.parameters.get(AT_THE_END))
        self._cut_clause = (
            "CHL-2" if checkpoints.records_all else "UNA-1" if checkpoints.overtakes else "ALN-2"
        )
        # A row that is emitted ahead of a barrier stays ahead of it, or is in flight.
        self._overtaken = "BAR-2" if self._cut_clause == "ALN-2" else self._cut_clause
        self._of_cuts = (self._cut_clause, "BAR-2", "STA-1", "SNP-1", "STA-3")
        self._of_output = ("SNK-1", "REC-1", "SRC-1") if exact else ("ALO-2", "REC-1", "SRC-1")
        of_cuts = self._of_cuts if exact else ()
        self.clauses: tuple[str, ...] = (*self._of_output, *of_cuts, *of_restores(trial_input.plan))

    @cached_property
    def _key_totals(self) -> KeyTotals:
        return KeyTotals(self._input.splits)

    def check(self, context: TrialContext) -> Finding:
        """Judge every completed checkpoint if the mode is exact, and the committed output in any case."""
        opened = opened_checkpoints(context)
        again = not self._exact or fell_back(context) is not None
        problems: list[Breach] = []
        cuts: list[_Cut] = []
        earlier: dict[int | None, SnapshotView] = {}
        rows, emitted = _Emitted(), 0
        for view in opened.judged if self._exact else ():
            unfit = list(misplaced(view, self._input.extents, self._input.start_offset))
            if view.problem is not None:
                circumstances = circumstances_of(context, view, was_right=False)
                problems.append(breach_of(unreadable(view, context), circumstances, context, view))
                continue
            if unfit:
                problems += _breaches(_breaking("STA-3", unfit[:1]), context, view)
                continue
            cut = self._cut(view)
            cuts.append(cut)
            found: list[_Problem] = [
                *_breaking("STA-3", missing_parts(view, context)),
                *_breaking("STA-1", placement_problems(context.job_of(view.attempt), view)),
                *_breaking(self._cut_clause, in_flight_problems(context.plan_of(view.attempt), view)),
                *_breaking("BAR-2", going_back(earlier.get(view.attempt), view)),
            ]
            if again or view.reached_sinks is None:
                found += self._state_problems(cut, view, _Emitted(), context)
            else:
                rows.follow(view)
                with rows.and_also(self._under_way(view)):
                    emitted += len(rows.keys) if not self._at_the_end else 0
                    found += self._state_problems(cut, view, rows, context)
                    found += self._row_problems(cut, rows, context, view)
            problems += _breaches(found, context, view)
            earlier[view.attempt] = view
        of_output, not_compared = self._problems_of_output(context, cuts, again)
        in_output = _breaking(self._of_output[0], of_output)
        problems += [Breach(_SIGNS[clause], sentence, place="output") for clause, sentence in in_output]
        counts = {
            "checkpoints": len(cuts),
            "rows": len(context.history.output or ()),
            "violations": len(problems),
            "not_opened": len(opened.unopened),
            "rows_not_compared": not_compared,
        }
        if self._exact:
            counts[EMITTED_BEFORE] = emitted
        if context.plan.checkpoints.overtakes or context.plan.checkpoints.records_all:
            counts[IN_FLIGHT] = sum(len(channel.rows) for view in opened.judged for channel in view.in_flight)
        return self._finding(context, problems, counts, bool(cuts))

    def _finding(
        self, context: TrialContext, problems: Sequence[Breach], counts: dict[str, int], opened: bool
    ) -> Finding:
        if problems:
            summary = f"{len(problems)} totals or rows are wrong; the first: {problems[0].sentence}"
            return self.broken(context, summary, counts, problems)
        if context.history.output is None and not opened:
            summary = "neither a checkpoint nor the output could be read, so nothing can be said"
            return Finding(self.name, self.clauses, Verdict.UNKNOWN, summary, counts)
        if self._exact and counts["not_opened"]:
            summary = f"{counts['not_opened']} completed checkpoints were not opened"
            return Finding(self.name, self.clauses, Verdict.UNKNOWN, summary, counts)
        covered = self.clauses if opened else self._of_output
        summary = f"the totals of {counts['checkpoints']} checkpoints and {counts['rows']} rows of the output are right"
        return Finding(self.name, covered, Verdict.VALID, summary, counts)

    # --- what a checkpoint holds ----------------------------------------------------------------------------

    def _cut(self, view: SnapshotView) -> _Cut:
        positions = positions_of(view)
        totals = self._key_totals.before(positions)
        whole = True
        for channel in view.in_flight:
            edge = edge_of(self._input.plan.job, channel)
            if edge is None or edge.target != self._operator.name:
                continue
            for row in channel.rows:
                whole = False
                less = tuple(-number for number in self._arriving(row))
                key = row[KEY[0]]
                totals[key] = added(totals.get(key, NOTHING), less)
        return _Cut(positions, {key: found for key, found in totals.items() if any(found)}, whole)

    def _arriving(self, row: Row) -> Totals:
        """Return what a row on its way to the operator adds."""
        return totals_in(row) if self._combined else totals_of_record(row)

    def _under_way(self, view: SnapshotView) -> list[Row]:
        """Return the rows that were emitted before a cut and have not reached the sinks."""
        job = self._input.plan.job
        return [
            row
            for channel in view.in_flight
            if (edge := edge_of(job, channel)) is not None and edge.source == self._operator.name
            for row in channel.rows
        ]

    def _row_problems(
        self, cut: _Cut, rows: _Emitted, context: TrialContext, view: SnapshotView
    ) -> Iterator[_Problem]:
        """Yield which keys were emitted twice before a cut, and of which the latest row does not show the totals."""
        wrong: dict[str, tuple[Totals, Totals, str]] = {}
        for key, emitted in rows.keys.items():
            yield from _breaking("SNK-1", (f"key {key} has {twice} up to the cut" for twice in emitted.twice))
        for key in dict.fromkeys((*cut.totals, *rows.keys)):
            emitted_of_key = rows.keys.get(key)
            if emitted_of_key is None and self._at_the_end:
                continue
            latest = emitted_of_key.latest if emitted_of_key is not None else NOTHING
            due = cut.totals.get(key, NOTHING)
            if latest != due:
                problem = (
                    f"the latest row of key {key} before the barrier shows {_shown(latest)}, and its totals are "
                    f"{_shown(due)}"
                )
                if emitted_of_key is None:
                    problem = f"key {key} has {_shown(due)}, and no row was emitted for it before the barrier"
                wrong[key] = (latest, due, problem)
        lost = bool(wrong) and (lost_at_sinks(context, view) or _never_come(wrong, context))
        clause = "SNK-1" if lost else self._overtaken
        yield from ((clause, problem) for *_, problem in wrong.values())

    def _state_problems(
        self, cut: _Cut, view: SnapshotView, rows: _Emitted, context: TrialContext
    ) -> Iterator[_Problem]:
        """Yield the keys whose state is not what the records before a cut give; ``rows`` are those emitted before it.

        A row that shows what is due was made of state that was right, so an increment must have skipped the change, if
        this is so of each key that is wrong.
        """
        wrong = list(_wrong_totals(cut, view))
        whence = [
            skipped(
                context,
                view,
                self._operator.name,
                (key,),
                sent=partial(rows.shows, key, due),
                comes_later=False,
            )
            if seen[0] < due[0]
            else ""
            for key, seen, due in wrong
        ]
        clause = "SNP-5" if all(whence) else self._cut_clause
        for (key, seen, due), base in zip(wrong, whence, strict=True):
            problem = f"key {key} has {_shown(seen)} in its state instead of {_shown(due)}{_one(seen, due)}"
            yield clause, f"{problem}, {base}" if base else problem

    # --- the output -----------------------------------------------------------------------------------------

    def _problems_of_output(
        self, context: TrialContext, cuts: Sequence[_Cut], again: bool
    ) -> tuple[list[str], int]:
        """Return what is wrong with the output, and how many rows were not compared: too many sums are possible."""
        history = context.history
        problems: list[str] = []
        if history.output is None:
            return problems, 0
        ends = {name: extent.end for name, extent in self._input.extents.items()}
        whole = _Cut(ends, self._key_totals.before(ends), whole=True)
        rows: dict[str, list[Totals]] = {}
        for row in history.output:
            if tuple(row) != (*KEY, *COLUMNS) or row[KEY[0]] not in whole.totals:
                problems.append(f"row {row} has other columns, or a key that the input does not have")
                continue
            rows.setdefault(row[KEY[0]], []).append(totals_in(row))
        not_compared = 0
        if not again:
            for key, emitted in rows.items():
                problems += [f"key {key} has {twice} in the output" for twice in _RowsOfKey(emitted).twice]
            for key, shown, given in self._between(rows, cuts, whole):
                not_compared += given is None
                if given is False:
                    impossible = not 0 <= shown[0] <= whole.totals[key][0]
                    why = ": it counts more than the input has" if impossible else _NOT_GIVEN
                    problems.append(f"a row of key {key} shows {_shown(shown)}{why}")
        if history.end is not End.FINISHED:
            return problems, not_compared
        for key, due in whole.totals.items():
            latest = max(rows.get(key, [NOTHING]))
            if latest != due and (self._exact or latest[0] < due[0]):
                shows = f"shows {_shown(latest)} instead of {_shown(due)}{_one(latest, due)}"
                problems.append(f"the latest row of key {key} in the output {shows}")
        if not again and not self._at_the_end:
            problems += _lost(rows, cuts)
        return problems, not_compared

    def _between(
        self, rows: Mapping[str, list[Totals]], cuts: Sequence[_Cut], whole: _Cut
    ) -> Iterator[tuple[str, Totals, bool | None]]:
        """Yield (key, row, whether records between two cuts give it); None if there are too many sums to say."""
        start = _Cut(dict.fromkeys(whole.positions, 0), {}, whole=True)
        known = [start, *(cut for cut in cuts if cut.whole), whole]
        for key, emitted in rows.items():
            totals = [cut.totals.get(key, NOTHING) for cut in known]
            # Positions of later checkpoints are greater, or `going_back` says so.
            counts = list(accumulate((total[0] for total in totals), max))
            windows: dict[tuple[int, int], Between] = {}
            for row in emitted:
                before, after = bisect_right(counts, row[0]) - 1, bisect_left(counts, row[0])
                if before < 0 or after == len(known):
                    yield key, row, False
                    continue
                if (before, after) not in windows:
                    windows[before, after] = self._key_totals.between(
                        key, known[before].positions, known[after].positions
                    )
                yield key, row, windows[before, after].gives(tuple(map(sub, row, totals[before])))


def _breaking(clause: str, problems: Iterable[object]) -> list[_Problem]:
    return [(clause, str(problem)) for problem in problems]


def _breaches(problems: Iterable[_Problem], context: TrialContext, view: SnapshotView) -> Iterator[Breach]:
    number, at = view.checkpoint, completed_at(context, view.checkpoint)
    for clause, problem in problems:
        sentence = f"checkpoint {number}: {problem}"
        yield Breach(_SIGNS[clause], sentence, at, checkpoint=number, attempt=view.attempt)


def _wrong_totals(cut: _Cut, view: SnapshotView) -> Iterator[tuple[str, Totals, Totals]]:
    """Yield the keys whose state is not what the records before the cut give: the key, what it has, what is due."""
    held: dict[str, Totals] = {}
    for part in view.state:
        for text, entry in part.entries.items():
            key = str(key_of_text(text)[0])
            held[key] = added(held.get(key, NOTHING), tuple(entry))
    for key in dict.fromkeys((*cut.totals, *held)):
        seen, due = held.get(key, NOTHING), cut.totals.get(key, NOTHING)
        if seen != due:
            yield key, seen, due


def _never_come(wrong: Mapping[str, tuple[Totals, Totals, str]], context: TrialContext) -> bool:
    """Return whether all that keys lack at a cut is in no row of the output: a row behind the barrier would be there.

    ``wrong`` gives each key's latest totals, and those that are due.
    """
    if context.history.end is not End.FINISHED or context.history.output is None:
        return False
    there = {
        (row[KEY[0]], totals_in(row)): None
        for row in context.history.output
        if tuple(row) == (*KEY, *COLUMNS)
    }
    return all(latest[0] < due[0] and (key, due) not in there for key, (latest, due, _) in wrong.items())


def _lost(rows: Mapping[str, Sequence[Totals]], cuts: Sequence[_Cut]) -> Iterator[str]:
    """Yield the totals of completed checkpoints that the output does not show."""
    for key, emitted in rows.items():
        there = dict.fromkeys(emitted)
        for due in dict.fromkeys(cut.totals[key] for cut in cuts if key in cut.totals):
            if due not in there:
                yield f"key {key} had {_shown(due)} in a completed checkpoint, and no row of the output shows it"


def _one(seen: Totals, due: Totals) -> str:
    """Return that a count is wrong by one, if it is."""
    more = seen[0] - due[0]
    return f": the count is one too {'high' if more > 0 else 'low'}" if abs(more) == 1 else ""


def _shown(totals: Totals) -> str:
    return ", ".join(f"{column} {number}" for column, number in zip(COLUMNS, totals, strict=True))
