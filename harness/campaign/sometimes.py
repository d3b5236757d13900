"""What only all trials of a campaign together can show: that what happens sometimes did happen.

Each checker says what that is (``harness.oracle.sometimes``). What no trial has shown has not been tested, and then the
campaign is UNKNOWN.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from barrier_tck.harness.oracle.catalogue import standard_checkers
from barrier_tck.harness.oracle.sometimes import Sometimes
from barrier_tck.harness.record.records import TrialSummary
from barrier_tck.harness.record.verdict import Finding, Verdict


class SeenSometimes:
    """What the trials of a campaign have shown of one thing that happens sometimes."""

    def __init__(self, wanted: Sometimes, checkers: Collection[str]) -> None:
        self._what = wanted
        self._checkers = checkers
        self._trials = 0
        """Trials that had something to show."""
        self._seen_in = dict.fromkeys(wanted.things, 0)
        """Thing, or case -> in how many trials it was seen."""
        self._times = dict.fromkeys(wanted.things, 0)
        """Thing, or case -> how often it was seen in all."""
        self._covered: dict[str, None] = {}
        """Clauses for which the findings spoke."""

    def add(self, trial: TrialSummary) -> None:
        """Take a finished trial. If several checkers saw the same, the one that saw it most often counts."""
        most: dict[str, int] = {}
        had = False
        for finding in trial.findings:
            seen = self._what.seen(finding, trial) if finding.checker in self._checkers else None
            if seen is not None:
                had = True
                most |= {thing: max(times, most.get(thing, 0)) for thing, times in seen.items()}
                self._covered |= dict.fromkeys(finding.clauses)
        self._trials += had
        for thing, times in most.items():
            self._seen_in[thing] = self._seen_in.get(thing, 0) + (times > 0)
            self._times[thing] = self._times.get(thing, 0) + times

    def finding(self) -> Finding | None:
        """Return what the campaign shows; None if it shows nothing, with too few trials that had anything to show."""
        wanted = self._what
        if self._trials < wanted.trials_min or not self._seen_in:
            return None
        missed = [thing for thing, trials in self._seen_in.items() if wanted.is_missed(trials, self._trials)]
        if wanted.usual is not None and not missed and not all(self._seen_in.values()):
            return None  # it was not seen, and chance explains that: nothing is shown
        counts = self._counts(len(missed))
        if missed:
            shown = " and ".join(f"{thing} in {self._seen_in[thing]}" for thing in missed)
            summary = wanted.not_shown.format(
                **counts, missed=shown if wanted.things else len(missed), first=missed[0]
            )
        else:
            summary = wanted.shown.format(**counts)
        clauses = tuple(clause for clause in wanted.clauses if clause in self._covered) or wanted.clauses
        return Finding(wanted.name, clauses, Verdict.UNKNOWN if missed else Verdict.VALID, summary, counts)

    def _counts(self, missed: int) -> dict[str, int]:
        things = self._what.things
        if not things:
            return {"cells": len(self._seen_in), "met": len(self._seen_in) - missed}
        return {
            "trials": self._trials,
            **{in_trials: self._seen_in[thing] for thing, in_trials in things.items()},
            **{thing: self._times[thing] for thing, in_trials in things.items() if thing != in_trials},
        }


class AllSometimes:
    """All that the trials of a campaign must show now and then, as the checkers say it."""

    def __init__(self) -> None:
        listing = [(wanted, checker.name) for checker in standard_checkers() for wanted in checker.sometimes]
        self.each = {
            wanted.name: SeenSometimes(
                wanted, [checker for other, checker in listing if other.name == wanted.name]
            )
            for wanted, _ in sorted(listing, key=lambda entry: entry[0].name)
        }

    def add(self, trial: TrialSummary) -> None:
        """Take a finished trial."""
        for seen in self.each.values():
            seen.add(trial)

    def findings(self) -> Iterator[Finding]:
        """Yield what the campaign shows, in the order of names."""
        for seen in self.each.values():
            finding = seen.finding()
            if finding is not None:
                yield finding
