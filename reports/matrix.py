"""Two matrices over all trials: clause by verdict, and phase (protocol point) by fault kind."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from conformance.clauses import CLAUSES
from faults.vocabulary import ProtocolPoint
from harness.oracle.verdict import Verdict
from harness.record import TrialSummary

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
class PhaseFaultMatrix:
    """Protocol point aimed at by fault kind: fired and planned counts."""

    phases: tuple[str, ...]
    kinds: tuple[str, ...]
    cells: dict[tuple[str, str], Cell]

    @property
    def total(self) -> Cell:
        """Return the sum of all cells."""
        return Cell(
            sum(cell.fired for cell in self.cells.values()), sum(cell.planned for cell in self.cells.values())
        )


def clause_matrix(trials: tuple[TrialSummary, ...]) -> tuple[ClauseRow, ...]:
    """Return a row for every clause that a trial checked: the worst first, then in the document's order."""
    votes: dict[str, dict[int, Verdict]] = {}
    checkers: dict[str, list[str]] = {}
    for trial in trials:
        for finding in trial.findings:
            for clause in finding.clauses:
                by_trial = votes.setdefault(clause, {})
                by_trial[trial.trial] = Verdict.worst(
                    (by_trial.get(trial.trial, Verdict.VALID), finding.verdict)
                )
                if finding.checker not in checkers.setdefault(clause, []):
                    checkers[clause].append(finding.checker)
    rows = [_row(clause, by_trial, tuple(checkers[clause])) for clause, by_trial in votes.items()]
    place = {clause: index for index, clause in enumerate(CLAUSES)}
    return tuple(
        sorted(rows, key=lambda row: (-row.verdict.severity, place.get(row.clause, len(place)), row.clause))
    )


def _row(clause: str, by_trial: dict[int, Verdict], checkers: tuple[str, ...]) -> ClauseRow:
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
    )


def unchecked_clauses(rows: tuple[ClauseRow, ...]) -> tuple[str, ...]:
    """Return the clauses that no trial checked, in the document's order."""
    checked = {row.clause for row in rows}
    return tuple(clause for clause in CLAUSES if clause not in checked)


def phase_fault_matrix(trials: tuple[TrialSummary, ...]) -> PhaseFaultMatrix:
    """Count planned and fired faults by the protocol point they were aimed at and by kind."""
    planned: Counter[tuple[str, str]] = Counter()
    fired: Counter[tuple[str, str]] = Counter()
    for trial in trials:
        for fault in trial.faults:
            key = (fault.point or TIMED, fault.kind)
            planned[key] += 1
            fired[key] += fault.outcome == "fired"
    order = {point.value: index for index, point in enumerate(ProtocolPoint)}
    phases = sorted({phase for phase, _ in planned}, key=lambda phase: (order.get(phase, len(order)), phase))
    return PhaseFaultMatrix(
        phases=tuple(phases),
        kinds=tuple(sorted({kind for _, kind in planned})),
        cells={key: Cell(fired[key], planned[key]) for key in sorted(planned)},
    )
