"""Three matrices over all trials: clause by verdict, and faults by phase and by protocol point."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from barrier_tck.conformance.clauses import CLAUSES
from barrier_tck.faults.vocabulary import Phase, ProtocolPoint
from barrier_tck.harness.record.hit_cells import phase_of
from barrier_tck.harness.record.records import CampaignRecord, FaultRecord, TrialSummary
from barrier_tck.harness.record.verdict import Verdict
from barrier_tck.reports.wording import plural

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
    """Trials with the worst verdict, by number; empty if the clause is valid."""
    also: tuple[int, ...] = ()
    """Trials with violations in which other clauses were broken first, and this one later or perhaps: UNKNOWN there."""
    could_be_violated: int | None = None
    """Trials in which it could have been violated: they fail if recovery is broken. None if controls say nothing about
    this clause."""

    @property
    def verdict(self) -> Verdict:
        """Return the worst verdict of any trial; UNKNOWN if no trial checked the clause."""
        return Verdict.worst(verdict for verdict, count in self.trials.items() if count)

    @property
    def only_also(self) -> bool:
        """Whether nothing but violations of other clauses keeps it from being VALID."""
        return (
            bool(self.also) and self.verdict is Verdict.UNKNOWN and set(self.worst_trials) <= set(self.also)
        )


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
    def fired(self) -> int:
        """Return how many cells were hit by at least one fault."""
        return sum(cell.fired > 0 for cell in self.cells.values())


def clause_matrix(
    trials: tuple[TrialSummary, ...], could_be_violated: Mapping[str, int] | None = None
) -> tuple[ClauseRow, ...]:
    """Return a row for every clause that a trial checked, the worst first, otherwise in the document's order.

    Of the clauses that the violations of a trial speak for, only the one that was broken first is INVALID; the others
    are named as such that were perhaps broken also, and are UNKNOWN.

    ``could_be_violated``: clause -> trials in which it could have been violated, as the campaign's controls say.
    """
    votes: dict[str, dict[int, Verdict]] = {}
    checkers: dict[str, list[str]] = {}
    also: dict[str, dict[int, None]] = {}
    for trial in trials:
        first = _broken_first_in(trial)
        for finding in trial.findings:
            for clause in finding.clauses:
                verdict = finding.verdict
                if verdict is Verdict.INVALID and clause != first:
                    verdict = Verdict.UNKNOWN
                    also.setdefault(clause, {})[trial.trial] = None
                by_trial = votes.setdefault(clause, {})
                by_trial[trial.trial] = Verdict.worst((by_trial.get(trial.trial, Verdict.VALID), verdict))
                if finding.checker not in checkers.setdefault(clause, []):
                    checkers[clause].append(finding.checker)
    rows = [
        _row(
            clause,
            by_trial,
            tuple(checkers[clause]),
            tuple(also.get(clause, ())),
            (could_be_violated or {}).get(clause),
        )
        for clause, by_trial in votes.items()
    ]
    place = {clause: index for index, clause in enumerate(CLAUSES)}
    return tuple(
        sorted(rows, key=lambda row: (-row.verdict.severity, place.get(row.clause, len(place)), row.clause))
    )


def _broken_first_in(trial: TrialSummary) -> str:
    """Return the clause that a trial broke first; empty if it broke none.

    Its findings stand as they were judged: first the one that says what was broken first.
    """
    return next((finding.broken for finding in trial.findings if finding.broken), "")


def _row(
    clause: str,
    by_trial: dict[int, Verdict],
    checkers: tuple[str, ...],
    also: tuple[int, ...],
    could_be_violated: int | None,
) -> ClauseRow:
    """Count one clause's verdicts."""
    counts = Counter(by_trial.values())
    worst = Verdict.worst(by_trial.values())
    known = CLAUSES.get(clause)
    return ClauseRow(
        clause=clause,
        text=known.text if known else "Not a clause of this version.",
        trials={verdict: counts[verdict] for verdict in Verdict},
        checkers=checkers,
        worst_trials=()
        if worst is Verdict.VALID
        else tuple(sorted(trial for trial, verdict in by_trial.items() if verdict is worst)),
        also=also,
        could_be_violated=could_be_violated,
    )


def broken_first(trials: tuple[TrialSummary, ...]) -> str | None:
    """Return which clauses were broken first in the trials that are INVALID, and which else these findings speak of.

    One cause breaks many clauses, and only the first of them is a violation. None if no trial is INVALID by a clause.
    """
    first: Counter[str] = Counter()
    also: dict[str, None] = {}
    for trial in trials:
        if broken := _broken_first_in(trial):
            first[broken] += 1
            also |= dict.fromkeys(
                clause for finding in trial.findings if finding.broken for clause in finding.clauses
            )
    if not first:
        return None
    said = ", ".join(f"{clause} first in {plural(count, 'trial')}" for clause, count in first.most_common())
    others = [clause for clause in also if clause not in first]
    return said + (f"; also {', '.join(others)}" if others else "")


def unchecked_clauses(rows: tuple[ClauseRow, ...]) -> tuple[str, ...]:
    """Return the clauses that no trial checked, in the document's order."""
    checked = {row.clause for row in rows}
    return tuple(clause for clause in CLAUSES if clause not in checked)


def phase_fault_matrix(campaign: CampaignRecord, trials: tuple[TrialSummary, ...]) -> FaultMatrix:
    """Count faults by the phase of the protocol in which they fired and by kind.

    A fault that did not fire counts as planned for the phase of its point; one without a point then has no phase and
    is left out. Every fault that the system can suffer has its cell, hit or not.
    """
    cells = _counted((phase_of(fault), fault) for trial in trials for fault in trial.faults)
    phases = [phase.value for phase in Phase]
    kinds = tuple(dict.fromkeys((*campaign.fault_kinds, *sorted(kind for _, kind in cells))))
    declared = [(phase, kind) for phase in campaign.fault_phases for kind in campaign.fault_kinds]
    hit = [key for key, cell in cells.items() if cell.fired]  # was possible, whatever the system declared
    return FaultMatrix(tuple(phases), kinds, cells, tuple(dict.fromkeys((*declared, *hit))))


def point_fault_matrix(trials: tuple[TrialSummary, ...]) -> FaultMatrix:
    """Count planned and fired faults by the protocol point they were aimed at and by kind."""
    cells = _counted((fault.point or TIMED, fault) for trial in trials for fault in trial.faults)
    order = {point.value: index for index, point in enumerate(ProtocolPoint)}
    points = sorted({point for point, _ in cells}, key=lambda point: (order.get(point, len(order)), point))
    return FaultMatrix(tuple(points), tuple(sorted({kind for _, kind in cells})), cells, tuple(cells))


def _counted(faults: Iterable[tuple[str | None, FaultRecord]]) -> dict[tuple[str, str], Cell]:
    """Count faults that belong to some row, by row and kind."""
    planned: Counter[tuple[str, str]] = Counter()
    fired: Counter[tuple[str, str]] = Counter()
    for row, fault in faults:
        if row is not None:
            planned[row, fault.kind] += 1
            fired[row, fault.kind] += fault.outcome == "fired"
    return {key: Cell(fired[key], planned[key]) for key in sorted(planned)}
