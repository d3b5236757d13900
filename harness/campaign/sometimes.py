"""What a campaign must have seen at least once: properties of all its trials together, not of a single one."""

from __future__ import annotations

from dataclasses import dataclass

from barrier_tck.harness.oracle.at_least_once_output import DUPLICATED, NAME
from barrier_tck.harness.oracle.dataflow import Dataflow
from barrier_tck.harness.oracle.in_flight import IN_FLIGHT
from barrier_tck.harness.record.records import TrialSummary
from barrier_tck.harness.record.verdict import Finding, Verdict


@dataclass(slots=True)
class SometimesDuplicates:
    """In at-least-once mode duplicates must occur; a campaign that saw none has not tested the mode (ALO-2)."""

    trials: int = 0
    """Trials whose output was judged as at-least-once."""
    with_duplicates: int = 0
    duplicates: int = 0

    def add(self, trial: TrialSummary) -> None:
        """Count the duplicates of a finished trial, if it was judged in this mode."""
        for finding in trial.findings:
            if finding.checker == NAME or (finding.checker == Dataflow.name and DUPLICATED in finding.counts):
                seen = finding.counts.get(DUPLICATED, 0)
                self.trials += 1
                self.with_duplicates += seen > 0
                self.duplicates += seen

    def finding(self) -> Finding | None:
        """Return what the campaign shows; None if no trial was judged in this mode."""
        if not self.trials:
            return None
        counts = {
            "trials": self.trials,
            "with_duplicates": self.with_duplicates,
            "duplicates": self.duplicates,
        }
        if self.duplicates:
            verdict = Verdict.VALID
            summary = (
                f"{self.with_duplicates} of {self.trials} trials in at-least-once mode had duplicates, "
                f"{self.duplicates} in all"
            )
        else:
            verdict = Verdict.UNKNOWN
            summary = (
                f"no duplicate was seen in all {self.trials} of the trials in at-least-once mode, so it was not "
                "shown that the mode differs from exactly-once; run more trials, slow one of several input "
                "channels, and kill after a completed checkpoint"
            )
        return Finding("sometimes-duplicates", ("ALO-2",), verdict, summary, counts)


@dataclass(slots=True)
class SometimesInFlight:
    """If barriers may overtake, some must; a campaign that saw no record in flight has not tested the mode (UNA-1)."""

    trials: int = 0
    """Trials whose barriers may overtake records."""
    with_records: int = 0
    records: int = 0

    def add(self, trial: TrialSummary) -> None:
        """Count the records in flight in the checkpoints of a finished trial, if its barriers may overtake."""
        for finding in trial.findings:
            if IN_FLIGHT in finding.counts:
                seen = finding.counts[IN_FLIGHT]
                self.trials += 1
                self.with_records += seen > 0
                self.records += seen

    def finding(self) -> Finding | None:
        """Return what the campaign shows; None if no barrier of any trial could overtake."""
        if not self.trials:
            return None
        counts = {"trials": self.trials, "with_records": self.with_records, "records": self.records}
        if self.records:
            verdict = Verdict.VALID
            summary = (
                f"{self.with_records} of {self.trials} trials whose barriers may overtake had records in flight in "
                f"their checkpoints, {self.records} in all"
            )
        else:
            verdict = Verdict.UNKNOWN
            summary = (
                f"no record was in flight in any checkpoint of the {self.trials} trials whose barriers may overtake: "
                "it was not shown that the mode differs from aligned barriers; run more trials, and make a channel "
                "or a sink slow"
            )
        return Finding("sometimes-in-flight", ("UNA-1",), verdict, summary, counts)
