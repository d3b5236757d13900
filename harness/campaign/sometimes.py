"""What a campaign must have seen at least once: properties of all its trials together, not of a single one."""

from __future__ import annotations

from dataclasses import dataclass, field

from barrier_tck.harness.campaign.mix import DEALT
from barrier_tck.harness.oracle.checkers.at_least_once_output import NAME
from barrier_tck.harness.oracle.checkers.consistent_cut import BEGUN_ANYWHERE
from barrier_tck.harness.oracle.checkers.dataflow import Dataflow
from barrier_tck.harness.oracle.checkers.finished_subtasks import AFTER_FINISH, DUE
from barrier_tck.harness.oracle.checkers.local_recovery import DONE, MET, LocalRecovery
from barrier_tck.harness.oracle.checkers.narrowed_jobs import LOST_FOR_GOOD, NARROWED, NarrowedJobs
from barrier_tck.harness.oracle.checkers.shared_files import REUSED, SharedFilesKept
from barrier_tck.harness.oracle.checkers.stop_with_savepoint import StopWithSavepoint
from barrier_tck.harness.oracle.evidence.duplicates import DUPLICATED
from barrier_tck.harness.oracle.evidence.in_flight import IN_FLIGHT
from barrier_tck.harness.oracle.evidence.rescales import NARROWER, RESCALED, WIDER
from barrier_tck.harness.record.records import TrialSummary
from barrier_tck.harness.record.verdict import Finding, Verdict


def _is_listed(trial: TrialSummary) -> bool:
    return bool(trial.note) and not trial.note.startswith(DEALT)


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


_IN_FLIGHT_BY = ("UNA-1", "CHL-1", "CHL-5")
"""The clauses that put records in flight into checkpoints."""


@dataclass(slots=True)
class SometimesInFlight:
    """If checkpoints may hold records in flight, some must: because barriers overtake (UNA-1), because channels are
    recorded (CHL-1), or because of a loop (CHL-5). A campaign that saw none has not tested this.
    """

    trials: int = 0
    """Trials whose checkpoints may hold records in flight."""
    with_records: int = 0
    records: int = 0
    clauses: tuple[str, ...] = ()
    """Why they may, in the order of ``_IN_FLIGHT_BY``."""

    def add(self, trial: TrialSummary) -> None:
        """Count the records in flight in the checkpoints of a finished trial, if they may hold any."""
        for finding in trial.findings:
            if IN_FLIGHT in finding.counts:
                seen = finding.counts[IN_FLIGHT]
                self.trials += 1
                self.with_records += seen > 0
                self.records += seen
                named = {*self.clauses, *finding.clauses}
                self.clauses = tuple(clause for clause in _IN_FLIGHT_BY if clause in named)

    def finding(self) -> Finding | None:
        """Return what the campaign shows; None if no checkpoint of any trial could hold records in flight."""
        if not self.trials:
            return None
        counts = {"trials": self.trials, "with_records": self.with_records, "records": self.records}
        if self.records:
            verdict = Verdict.VALID
            summary = (
                f"{self.with_records} of {self.trials} trials whose checkpoints may hold records in flight had "
                f"some, {self.records} in all"
            )
        else:
            verdict = Verdict.UNKNOWN
            summary = (
                f"no record was in flight in any checkpoint of the {self.trials} trials that may have some: it was "
                "not shown that what is in flight becomes part of a checkpoint; run more trials, and make a channel "
                "or a sink slow"
            )
        return Finding("sometimes-in-flight", self.clauses, verdict, summary, counts)


@dataclass(slots=True)
class SometimesAfterFinish:
    """If sources end early, checkpoints must complete after some subtasks had finished, or BAR-6 was not tested."""

    trials: int = 0
    """Trials some of whose sources end early."""
    with_checkpoints: int = 0
    checkpoints: int = 0

    def add(self, trial: TrialSummary) -> None:
        """Count the checkpoints of a finished trial without some of their subtasks, if sources end early in it."""
        for finding in trial.findings:
            if finding.counts.get(DUE):
                seen = finding.counts.get(AFTER_FINISH, 0)
                self.trials += 1
                self.with_checkpoints += seen > 0
                self.checkpoints += seen

    def finding(self) -> Finding | None:
        """Return what the campaign shows; None if no source of any trial ends early."""
        if not self.trials:
            return None
        counts = {
            "trials": self.trials,
            "with_checkpoints": self.with_checkpoints,
            "checkpoints": self.checkpoints,
        }
        if self.checkpoints:
            verdict = Verdict.VALID
            summary = (
                f"in {self.with_checkpoints} of {self.trials} trials with sources that end early, checkpoints "
                f"completed after some of their subtasks had finished, {self.checkpoints} in all"
            )
        else:
            verdict = Verdict.UNKNOWN
            summary = (
                f"no checkpoint completed after some of its subtasks had finished, in none of the {self.trials} trials "
                "with sources that end early; run more trials, with more batches or shorter checkpoint intervals"
            )
        return Finding("sometimes-after-finish", ("BAR-6",), verdict, summary, counts)


@dataclass(slots=True)
class SometimesFallsBack:
    """Damage of a local copy that a campaign lists must be met by a restore, or the fallback was not tested (LOC-4).

    A listed trial has a note. Trials with one note and one setup are the repetitions of one cell of a matrix: one of
    them is enough. Drawn trials owe nothing, because nobody said what they are to show.
    """

    done: dict[tuple[str, str, str], int] = field(default_factory=dict)
    """(note, setup, damage) -> how many restores met it."""

    def add(self, trial: TrialSummary) -> None:
        """Count the damage that a listed trial did, and the restores that met it."""
        for finding in trial.findings:
            for name in finding.counts:
                if _is_listed(trial) and finding.checker == LocalRecovery.name and name.startswith(DONE):
                    damage = name.removeprefix(DONE)
                    cell = (trial.note, trial.setup, damage)
                    self.done[cell] = self.done.get(cell, 0) + finding.counts.get(f"{MET}{damage}", 0)

    def finding(self) -> Finding | None:
        """Return what the campaign shows; None if no listed trial damaged local copies."""
        if not self.done:
            return None
        missed = [(note, damage) for (note, _, damage), met in self.done.items() if not met]
        counts = {"cells": len(self.done), "met": len(self.done) - len(missed)}
        if missed:
            note, damage = missed[0]
            verdict = Verdict.UNKNOWN
            summary = (
                f"in {len(missed)} of {len(self.done)} listed cases no restore came to the host of the damaged copy, "
                f"first of all in {note!r} ({damage}); repeat it more often, or kill only the process of one subtask"
            )
        else:
            verdict = Verdict.VALID
            summary = f"in each of {len(self.done)} listed cases a restore met the damaged copy"
        return Finding("sometimes-falls-back", ("LOC-4",), verdict, summary, counts)


@dataclass(slots=True)
class SometimesReused:
    """If checkpoints are incremental, some must refer to files of older ones, or SNP-5 was not tested."""

    trials: int = 0
    """Trials with incremental checkpoints."""
    with_reuse: int = 0
    reused: int = 0

    def add(self, trial: TrialSummary) -> None:
        """Count the files that checkpoints of a finished trial took from older ones."""
        for finding in trial.findings:
            if finding.checker == SharedFilesKept.name:
                seen = finding.counts.get(REUSED, 0)
                self.trials += 1
                self.with_reuse += seen > 0
                self.reused += seen

    def finding(self) -> Finding | None:
        """Return what the campaign shows; None if no trial has incremental checkpoints."""
        if not self.trials:
            return None
        counts = {"trials": self.trials, "with_reuse": self.with_reuse, REUSED: self.reused}
        if self.reused:
            verdict = Verdict.VALID
            summary = (
                f"in {self.with_reuse} of {self.trials} trials with incremental checkpoints, they named files of "
                f"older ones, {self.reused} times in all"
            )
        else:
            verdict = Verdict.UNKNOWN
            summary = (
                f"no checkpoint named a file of an older one in any of the {self.trials} trials with incremental "
                "checkpoints; run more trials, with more keys and shorter checkpoint intervals"
            )
        return Finding("sometimes-reused", SharedFilesKept.clauses, verdict, summary, counts)


INITIATED_MIN = 20
"""Of so many trials of Chandy-Lamport, some must have snapshots that a chosen process began."""


@dataclass(slots=True)
class SometimesInitiated:
    """Any process may begin a snapshot, not only the sources; a campaign in which none did has not tested CHL-1."""

    trials: int = 0
    """Trials of Chandy-Lamport whose cuts were judged."""
    with_chosen: int = 0
    snapshots: int = 0

    def add(self, trial: TrialSummary) -> None:
        """Count the snapshots of a finished trial that chosen processes began."""
        for finding in trial.findings:
            if BEGUN_ANYWHERE in finding.counts:
                seen = finding.counts[BEGUN_ANYWHERE]
                self.trials += 1
                self.with_chosen += seen > 0
                self.snapshots += seen

    def finding(self) -> Finding | None:
        """Return what the campaign shows; None if it has few trials of Chandy-Lamport."""
        if self.trials < INITIATED_MIN:
            return None
        counts = {"trials": self.trials, "with_chosen": self.with_chosen, BEGUN_ANYWHERE: self.snapshots}
        if self.snapshots:
            verdict = Verdict.VALID
            summary = (
                f"in {self.with_chosen} of {self.trials} trials of Chandy-Lamport chosen processes began "
                f"snapshots, {self.snapshots} in all"
            )
        else:
            verdict = Verdict.UNKNOWN
            summary = (
                f"in none of the {self.trials} trials of Chandy-Lamport did anybody but the sources begin a snapshot; "
                "name others in 'initiators', or draw them with the profile chandy-lamport"
            )
        return Finding("sometimes-initiated", ("CHL-1",), verdict, summary, counts)


@dataclass(slots=True)
class SometimesNarrowed:
    """If executors are lost for good under elastic jobs, some must go on narrower, or that was not tested (RSC-2)."""

    trials: int = 0
    """Trials of an elastic job that lost an executor for good."""
    with_narrower: int = 0
    attempts: int = 0

    def add(self, trial: TrialSummary) -> None:
        """Count the attempts of a finished trial that ran with fewer subtasks."""
        for finding in trial.findings:
            if finding.checker == NarrowedJobs.name and finding.counts.get(LOST_FOR_GOOD, 0):
                seen = finding.counts.get(NARROWED, 0)
                self.trials += 1
                self.with_narrower += seen > 0
                self.attempts += seen

    def finding(self) -> Finding | None:
        """Return what the campaign shows; None if no elastic job lost an executor for good."""
        if not self.trials:
            return None
        counts = {"trials": self.trials, "with_narrower": self.with_narrower, NARROWED: self.attempts}
        if self.attempts:
            verdict = Verdict.VALID
            summary = (
                f"in {self.with_narrower} of {self.trials} trials of elastic jobs that lost an executor for good, they "
                f"went on narrower, in {self.attempts} attempts"
            )
        else:
            verdict = Verdict.UNKNOWN
            summary = (
                f"none of the {self.trials} elastic jobs that lost an executor for good went on narrower; give "
                "executors fewer slots, or the jobs more subtasks"
            )
        return Finding("sometimes-narrowed", NarrowedJobs.clauses, verdict, summary, counts)


RESCALED_MIN = 20
"""Of so many drawn trials with rescaled jobs, some must have become narrower, and some wider."""
_ONE_OF = 10
"""Some are at least one of so many. A width of before is drawn now and then, which makes some narrower by itself."""


@dataclass(slots=True)
class SometimesRescaled:
    """Jobs that are rescaled after stops must become narrower now and then, and wider, or RSC-2 was half tested.

    Listed trials owe nothing: somebody said how each of their jobs is rescaled.
    """

    trials: int = 0
    """Drawn trials with a job that went on with another parallelism."""
    with_narrower: int = 0
    with_wider: int = 0

    def add(self, trial: TrialSummary) -> None:
        """Count a drawn trial if a job of it was rescaled."""
        for finding in trial.findings:
            if (
                finding.checker == StopWithSavepoint.name
                and finding.counts.get(RESCALED)
                and not _is_listed(trial)
            ):
                self.trials += 1
                self.with_narrower += finding.counts[NARROWER] > 0
                self.with_wider += finding.counts[WIDER] > 0

    def finding(self) -> Finding | None:
        """Return what the campaign shows; None if few drawn trials rescaled a job."""
        if self.trials < RESCALED_MIN:
            return None
        seen = {NARROWER: self.with_narrower, WIDER: self.with_wider}
        counts = {"trials": self.trials, **seen}
        missing = [f"{how} in {trials}" for how, trials in seen.items() if trials * _ONE_OF < self.trials]
        if missing:
            verdict = Verdict.UNKNOWN
            summary = (
                f"of {self.trials} drawn trials with a job that was rescaled after a stop it became "
                f"{' and '.join(missing)} only; look at what is drawn, or give the first job another parallelism"
            )
        else:
            verdict = Verdict.VALID
            summary = (
                f"in {self.with_narrower} of {self.trials} drawn trials with jobs that were rescaled after a stop some "
                f"vertex became narrower, and in {self.with_wider} some became wider"
            )
        return Finding("sometimes-rescaled", ("RSC-2",), verdict, summary, counts)
