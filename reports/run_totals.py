"""What all trials of a run show together, added up one by one: reports of a million trials keep a few of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container

from barrier_tck.harness.record.records import TrialSummary
from barrier_tck.harness.record.unknown_trials import WhyUnknown, why_unknown
from barrier_tck.harness.record.verdict import Verdict
from barrier_tck.reports.intervals import Lengths
from barrier_tck.reports.matrix import LISTED_MAX, ClauseCounts, FaultCounts
from barrier_tck.reports.smallest import Smallest

NAMED_MAX = 10
"""How many trials a notice names."""


class RunTotals:
    """Counts over all trials, and the trials that reports show one by one.

    Shown are the first LISTED_MAX that are VALID, and as many of the others: the worst ones, of these the smallest.
    """

    def __init__(self, shown: Container[int] = ()) -> None:
        """``shown``: trials that are shown in any case."""
        self.trials = 0
        self.verdicts: Counter[Verdict] = Counter()
        self.faults_fired = 0
        self.faults_planned = 0
        self.recoveries = 0
        self.recoveries_reported = 0
        """How many trials reported their attempts."""
        self.checkpoints = 0
        self.batches = 0
        self.why_unknown: Counter[WhyUnknown] = Counter()
        self.clauses = ClauseCounts()
        self.faults = FaultCounts()
        self.lengths = Lengths()
        self._named_unknown = {why: Smallest[int](NAMED_MAX, int) for why in WhyUnknown}
        self._unchecked = Smallest[int](NAMED_MAX, int)
        self._shown = shown
        self._in_any_case: list[TrialSummary] = []
        self._valid = Smallest[TrialSummary](LISTED_MAX, _number)
        self._others = Smallest[TrialSummary](LISTED_MAX, _worst_first)

    def add(self, trial: TrialSummary) -> None:
        """Add a trial; each number once."""
        verdict = verdict_of(trial)
        self.trials += 1
        self.verdicts[verdict] += 1
        self.faults_fired += trial.faults_fired
        self.faults_planned += max(trial.faults_planned, len(trial.faults))
        if trial.recoveries_reported:
            self.recoveries += trial.recoveries
            self.recoveries_reported += 1
        self.checkpoints += trial.checkpoints_completed
        self.batches += trial.batches_committed
        why = why_unknown(verdict, trial.findings)
        if why is not None:
            self.why_unknown[why] += 1
            self._named_unknown[why].add(trial.trial)
        if not trial.findings:
            self._unchecked.add(trial.trial)
        self.clauses.add(trial)
        self.faults.add(trial)
        self.lengths.add(trial.measurements)
        if trial.trial in self._shown:
            self._in_any_case.append(trial)
        else:
            (self._valid if verdict is Verdict.VALID else self._others).add(trial)

    @property
    def listed(self) -> tuple[TrialSummary, ...]:
        """Return the trials that are shown one by one, by number."""
        shown = (*self._in_any_case, *self._valid.values(), *self._others.values())
        return tuple(sorted(shown, key=_number))

    @property
    def judged(self) -> Verdict:
        """Return the worst verdict of a trial; UNKNOWN if there is none."""
        return Verdict.worst(self.verdicts)

    def unknown_because(self, why: WhyUnknown) -> str:
        """Return the trials that are UNKNOWN for a reason, as a list that may end in dots."""
        return _as_list(self._named_unknown[why])

    @property
    def unchecked(self) -> str:
        """Return the trials that no checker judged, as a list that may end in dots; empty if there is none."""
        return _as_list(self._unchecked)


def verdict_of(trial: TrialSummary) -> Verdict:
    """Return the worst of a trial's own verdict and its findings'; UNKNOWN if nothing was checked."""
    return Verdict.worst((trial.verdict, Verdict.worst(finding.verdict for finding in trial.findings)))


def size_of(trial: TrialSummary) -> tuple[float, ...]:
    """Return by what trials are ordered, the smallest first: faults, recoveries, checkpoints, length, number."""
    checkpoints = trial.checkpoints_completed + trial.checkpoints_aborted
    faults = max(trial.faults_planned, len(trial.faults))
    return faults, trial.recoveries, checkpoints, trial.duration_ms, trial.trial


def _number(trial: TrialSummary) -> int:
    return trial.trial


def _worst_first(trial: TrialSummary) -> tuple[float, ...]:
    return -verdict_of(trial).severity, *size_of(trial)


def _as_list(numbers: Smallest[int]) -> str:
    return ", ".join(map(str, numbers.values())) + (", ..." if numbers.count > NAMED_MAX else "")
