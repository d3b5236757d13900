"""Three matrices over all trials, added up one by one: clause by verdict, and faults by phase and by protocol point."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from barrier_tck.conformance.clauses import CLAUSES
from barrier_tck.faults.vocabulary import Phase, ProtocolPoint
from barrier_tck.harness.record.hit_cells import phase_of
from barrier_tck.harness.record.records import CampaignRecord, FaultRecord, TrialSummary
from barrier_tck.harness.record.verdict import Verdict
from barrier_tck.reports.smallest import Smallest
from barrier_tck.reports.wording import plural

LISTED_MAX = 1_000
"""How many trials are named one by one: for each clause and verdict, and in the reports for machines."""

TIMED = "timed"
"""The phase of a fault that was aimed at a time, not at a protocol point."""


@dataclass(frozen=True, slots=True)
class ClauseRow:
    """What all trials say about one clause."""

    clause: str
    text: str
    """The clause's text; says so if the id is not one of ours."""
    trials: dict[Verdict, int]
    """How many trials came to each verdict; trials that did not check the clause are in none."""
    checkers: tuple[str, ...]
    worst_trials: tuple[int, ...]
    """Trials with the worst verdict, by number, the first LISTED_MAX; empty if the clause is valid."""
    also: tuple[int, ...] = ()
    """Trials with violations in which other clauses were broken first, and this one later or perhaps: UNKNOWN there.
    The first LISTED_MAX."""
    only_also: bool = False
    """Whether nothing but violations of other clauses keeps it from being VALID."""
    could_be_violated: int | None = None
    """Trials in which it could have been violated: they fail if recovery is broken. None if controls say nothing about
    this clause."""

    @property
    def verdict(self) -> Verdict:
        """Return the worst verdict of any trial; UNKNOWN if no trial checked the clause."""
        return Verdict.worst(verdict for verdict, count in self.trials.items() if count)


@dataclass(frozen=True, slots=True)
class Cell:
    """How many of the faults planned for one phase and kind fired."""

    fired: int = 0
    planned: int = 0


@dataclass(frozen=True, slots=True)
class FaultMatrix:
    """Fired and planned counts: a row for each phase (or protocol point), a column for each kind of fault."""

    rows: tuple[str, ...]
    kinds: tuple[str, ...]
    cells: dict[tuple[str, str], Cell]
    """By row and kind; where nothing was planned there is none."""
    reachable: tuple[tuple[str, str], ...] = ()
    """Cells that the system can reach, hit or not."""

    @property
    def total(self) -> Cell:
        """Return the sum of all cells."""
        return Cell(
            sum(cell.fired for cell in self.cells.values()), sum(cell.planned for cell in self.cells.values())
        )

    @property
    def possible(self) -> int:
        """Return how many cells the system can reach."""
        return len(self.reachable)

    @property
    def hit(self) -> tuple[tuple[str, str], ...]:
        """Return the cells that were hit by at least one fault, in order."""
        return tuple(key for key, cell in self.cells.items() if cell.fired)

    @property
    def fired(self) -> int:
        """Return how many cells were hit."""
        return len(self.hit)


class ClauseCounts:
    """What trials say about each clause, added up trial by trial.

    Of the clauses that the violations of a trial speak for, only the one that was broken first is INVALID; the others
    are named as such that were perhaps broken also, and are UNKNOWN.
    """

    def __init__(self) -> None:
        self._clauses: dict[str, _OneClause] = {}
        self._first: Counter[str] = Counter()
        self._beside_first: dict[str, None] = {}

    def add(self, trial: TrialSummary) -> None:
        """Add the findings of a trial."""
        first = _broken_first_in(trial)
        if first:
            self._first[first] += 1
        verdicts: dict[str, Verdict] = {}
        also: dict[str, None] = {}
        for finding in trial.findings:
            if finding.broken:
                self._beside_first |= dict.fromkeys(finding.clauses)
            for clause in finding.clauses:
                verdict = finding.verdict
                if verdict is Verdict.INVALID and clause != first:
                    verdict = Verdict.UNKNOWN
                    also[clause] = None
                verdicts[clause] = Verdict.worst((verdicts.get(clause, Verdict.VALID), verdict))
                self._clauses.setdefault(clause, _OneClause()).checkers[finding.checker] = None
        for clause, verdict in verdicts.items():
            self._clauses[clause].add(trial.trial, verdict, clause in also)

    def rows(self, could_be_violated: Mapping[str, int] | None = None) -> tuple[ClauseRow, ...]:
        """Return a row for every clause that a trial checked, the worst first, otherwise in the document's order.

        ``could_be_violated``: clause -> trials in which it could have been violated, as the campaign's controls say.
        """
        rows = [
            one.row(clause, (could_be_violated or {}).get(clause)) for clause, one in self._clauses.items()
        ]
        place = {clause: index for index, clause in enumerate(CLAUSES)}
        return tuple(
            sorted(
                rows, key=lambda row: (-row.verdict.severity, place.get(row.clause, len(place)), row.clause)
            )
        )

    def broken_first(self) -> str | None:
        """Return which clauses were broken first in the trials that are INVALID, and which else they speak of.

        One cause breaks many clauses, and only the first of them is a violation. None if no trial is INVALID by a
        clause.
        """
        if not self._first:
            return None
        said = ", ".join(
            f"{clause} first in {plural(count, 'trial')}" for clause, count in self._first.most_common()
        )
        others = [clause for clause in self._beside_first if clause not in self._first]
        return said + (f"; also {', '.join(others)}" if others else "")


class _OneClause:
    """The verdicts of trials on one clause."""

    def __init__(self) -> None:
        self.checkers: dict[str, None] = {}
        self._counts: Counter[Verdict] = Counter()
        self._bad = {
            verdict: Smallest[int](LISTED_MAX, int) for verdict in Verdict if verdict is not Verdict.VALID
        }
        self._also = Smallest[int](LISTED_MAX, int)

    def add(self, trial: int, verdict: Verdict, also: bool) -> None:
        self._counts[verdict] += 1
        if verdict is not Verdict.VALID:
            self._bad[verdict].add(trial)
        if also:
            self._also.add(trial)

    def row(self, clause: str, could_be_violated: int | None) -> ClauseRow:
        worst = Verdict.worst(self._counts)
        known = CLAUSES.get(clause)
        return ClauseRow(
            clause=clause,
            text=known.text if known else "Not a clause of this version.",
            trials={verdict: self._counts[verdict] for verdict in Verdict},
            checkers=tuple(self.checkers),
            worst_trials=() if worst is Verdict.VALID else self._bad[worst].values(),
            also=self._also.values(),
            # A trial in which it was perhaps broken also is UNKNOWN by it, and by nothing worse.
            only_also=worst is Verdict.UNKNOWN and self._counts[worst] == self._also.count,
            could_be_violated=could_be_violated,
        )


def _broken_first_in(trial: TrialSummary) -> str:
    """Return the clause that a trial broke first; empty if it broke none.

    Its findings stand as they were judged: first the one that says what was broken first.
    """
    return next((finding.broken for finding in trial.findings if finding.broken), "")


def unchecked_clauses(rows: tuple[ClauseRow, ...]) -> tuple[str, ...]:
    """Return the clauses that no trial checked, in the document's order."""
    checked = {row.clause for row in rows}
    return tuple(clause for clause in CLAUSES if clause not in checked)


class FaultCounts:
    """Faults that were planned and that fired, added up trial by trial."""

    def __init__(self) -> None:
        self._phases: dict[tuple[str, str], Cell] = {}
        self._points: dict[tuple[str, str], Cell] = {}

    def add(self, trial: TrialSummary) -> None:
        """Add the faults of a trial."""
        for fault in trial.faults:
            phase = phase_of(fault)
            if phase is not None:
                _count(self._phases, phase, fault)
            _count(self._points, fault.point or TIMED, fault)

    def by_phase(self, campaign: CampaignRecord) -> FaultMatrix:
        """Return faults by the phase of the protocol in which they fired and by kind.

        A fault that did not fire counts as planned for the phase of its point; one without a point then has no phase
        and is left out. Every fault that the system can suffer has its cell, hit or not.
        """
        cells = _ordered(self._phases)
        phases = [phase.value for phase in Phase]
        kinds = tuple(dict.fromkeys((*campaign.fault_kinds, *sorted(kind for _, kind in cells))))
        declared = [(phase, kind) for phase in campaign.fault_phases for kind in campaign.fault_kinds]
        hit = [key for key, cell in cells.items() if cell.fired]  # was possible, whatever the system declared
        return FaultMatrix(tuple(phases), kinds, cells, tuple(dict.fromkeys((*declared, *hit))))

    def by_point(self) -> FaultMatrix:
        """Return faults by the protocol point they were aimed at and by kind."""
        cells = _ordered(self._points)
        order = {point.value: index for index, point in enumerate(ProtocolPoint)}
        points = sorted(
            {point for point, _ in cells}, key=lambda point: (order.get(point, len(order)), point)
        )
        return FaultMatrix(tuple(points), tuple(sorted({kind for _, kind in cells})), cells, tuple(cells))


def _count(cells: dict[tuple[str, str], Cell], row: str, fault: FaultRecord) -> None:
    """Count a fault in its cell."""
    before = cells.get((row, fault.kind), Cell())
    cells[row, fault.kind] = Cell(before.fired + (fault.outcome == "fired"), before.planned + 1)


def _ordered(cells: Mapping[tuple[str, str], Cell]) -> dict[tuple[str, str], Cell]:
    return {key: cells[key] for key in sorted(cells)}
