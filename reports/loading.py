"""A run directory as reports see it: `ReportedRun`, the one value that every report renders. It keeps no row of most
trials, so that a report of a million trials takes no more memory than one of some thousand.

What is missing is stated and not guessed: a half-written last line of a killed campaign, or counts that disagree,
become notices on the report.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import msgspec

from barrier_tck.faults.vocabulary import After, Trigger
from barrier_tck.harness.record.records import (
    CampaignRecord,
    FaultRecord,
    TrialRecord,
    TrialSummary,
    summary_of,
)
from barrier_tck.harness.record.run_directory import trial_directory
from barrier_tck.harness.record.run_reader import StoredRun, open_run, place_of_rows
from barrier_tck.harness.record.unknown_trials import WhyUnknown
from barrier_tck.harness.record.verdict import Verdict
from barrier_tck.reports.matrix import ClauseRow, FaultMatrix
from barrier_tck.reports.run_totals import RunTotals
from barrier_tck.reports.wording import replay_command

CHECKPOINTS, BATCHES = "checkpoints completed", "batches committed"

_READ_MAX = 500
"""How many trials kept in full are in memory at the most."""


class KeptTrials(Mapping[int, TrialRecord]):
    """The trials of a run that were kept in full, by number. They are read when they are asked for."""

    def __init__(self, run: StoredRun) -> None:
        self._run = run
        self._numbers = frozenset(run.kept)
        self._read = lru_cache(maxsize=_READ_MAX)(run.record)

    def __getitem__(self, trial: int) -> TrialRecord:
        """Read a record; raises KeyError if the trial was not kept, RunDirectoryError if it cannot be read."""
        if trial not in self._numbers:
            raise KeyError(trial)
        return self._read(trial)

    def __iter__(self) -> Iterator[int]:
        return iter(self._run.kept)

    def __len__(self) -> int:
        return len(self._numbers)

    def __contains__(self, trial: object) -> bool:
        return trial in self._numbers


@dataclass(frozen=True, slots=True)
class ReportedRun:
    """A campaign with its trials, as far as it went."""

    directory: Path
    """As the caller named it: repro command lines start with it."""
    campaign: CampaignRecord
    totals: RunTotals
    """What all finished trials show together."""
    details: Mapping[int, TrialRecord]
    """Trials kept in full, by number: all that were not valid and the first few that were."""
    notices: tuple[str, ...] = ()
    """What the reader must know about the data, for instance that a count disagrees."""

    @property
    def listed(self) -> tuple[TrialSummary, ...]:
        """Return the trials that are shown one by one, by number: all, unless there are very many (``RunTotals``)."""
        return self.totals.listed

    @property
    def verdict(self) -> Verdict:
        """Return the campaign's verdict, never better than its trials; UNKNOWN if there are none."""
        return Verdict.worst((self.totals.judged, self.campaign.verdict))

    @property
    def clauses(self) -> tuple[ClauseRow, ...]:
        """Return a row for each clause that was checked, the worst first."""
        return self.totals.clauses.rows(self.could_be_violated)

    @property
    def phases(self) -> FaultMatrix:
        """Return faults by phase of the protocol and kind."""
        return self.totals.faults.by_phase(self.campaign)

    @property
    def could_be_violated(self) -> dict[str, int]:
        """Return clause -> trials in which it could have been violated; empty if the campaign's record has no
        controls."""
        controls = self.campaign.controls
        return controls.could_be_violated if controls is not None else {}

    @property
    def recoveries(self) -> int | None:
        """Return how often the jobs recovered; None if the system reported that in no trial."""
        return self.totals.recoveries if self.totals.recoveries_reported or not self.totals.trials else None

    @property
    def went_on(self) -> tuple[int | None, str]:
        """Return how often the jobs went on, and how that is called: a system without checkpoints commits batches.

        None for a system that reports neither, nor its attempts: then a zero would claim what is not known.
        """
        checkpoints, batches = self.totals.checkpoints, self.totals.batches
        if not checkpoints and not batches and self.recoveries is None:
            return None, CHECKPOINTS
        return (batches, BATCHES) if batches and not checkpoints else (checkpoints, CHECKPOINTS)

    @property
    def why_unknown(self) -> dict[str, int]:
        """Return how many trials are UNKNOWN for each reason: nothing happened, a checker crashed, it was not run."""
        return {why.name.lower(): self.totals.why_unknown[why] for why in WhyUnknown}

    def rows(self) -> Iterator[TrialSummary]:
        """Yield every finished trial, read anew; raises RunDirectoryError."""
        return whole_rows(open_run(self.directory), self.details, [])

    def count(self, verdict: Verdict) -> int:
        """Return how many trials have this verdict."""
        return self.totals.verdicts[verdict]

    def plan_path(self, trial: int) -> Path | None:
        """Return the plan that replays a trial, the smallest known one first; None if none was kept."""
        shrunk = self.campaign.shrunk.get(str(trial))
        if shrunk is not None and (self.directory / shrunk).is_file():
            return self.directory / shrunk
        kept = trial_directory(self.directory, trial) / "plan.json"
        return kept if kept.is_file() else None

    def replay_command(self, trial: int) -> str | None:
        """Return the exact command line that replays a trial, or None if no plan of it was kept."""
        kept = self.details.get(trial)
        system = self.campaign.opened_as or self.campaign.system
        return replay_command(self.plan_path(trial), system, kept.plan if kept is not None else None)


def load_run(directory: Path) -> ReportedRun:
    """Read a run directory, row by row.

    Raises RunDirectoryError, with the path and what to do.
    """
    stored = open_run(directory)
    details, notices = KeptTrials(stored), list[str]()
    totals = RunTotals(shown={group.smallest_trial for group in stored.campaign.groups})
    for trial in whole_rows(stored, details, notices):
        totals.add(trial)
    for record in details.values():
        totals.lengths.add_record(record)
    run = ReportedRun(directory, stored.campaign, totals, details)
    return replace(run, notices=tuple(notices + _disagreements(run)))


def whole_rows(
    stored: StoredRun, details: Mapping[int, TrialRecord], notices: list[str]
) -> Iterator[TrialSummary]:
    """Yield every trial once; what its row lacks, and rows that are missing, are filled in from trials kept in full."""
    without_row = dict.fromkeys(stored.kept)
    for trial in stored.rows(notices):
        without_row.pop(trial.trial, None)
        yield _completed(trial, details.get(trial.trial))
    for number in without_row:
        where = place_of_rows(stored.path)
        notices.append(f"Trial {number} is kept in full but missing from {where}; it is counted.")
        yield _completed(summary_of(details[number]), details[number])


def planned_faults(record: TrialRecord) -> tuple[FaultRecord, ...]:
    """Return what became of every planned fault; one without a record counts as not fired (CAM-3)."""
    recorded = {fault.index: fault for fault in record.faults}
    faults = list(record.faults)
    for index, scheduled in enumerate(record.plan.faults):
        if index not in recorded:
            aimed = scheduled.trigger if isinstance(scheduled.trigger, After) else None
            faults.append(
                FaultRecord(
                    index=index,
                    label=scheduled.fault.description(),
                    kind=str(scheduled.fault.__struct_config__.tag),
                    trigger=_trigger_phrase(scheduled.trigger),
                    point=aimed.point.value if aimed else None,
                    outcome="not_fired",
                    reason="no record was left of it",
                )
            )
    return tuple(sorted(faults, key=lambda fault: fault.index))


def _trigger_phrase(trigger: Trigger) -> str:
    """Describe a trigger whose fault left no record."""
    if isinstance(trigger, After):
        return f"after {trigger.point.value} of {trigger.subtask or 'any subtask'}, occurrence {trigger.nth}"
    return f"at {trigger.time_ms} ms"


def _completed(trial: TrialSummary, record: TrialRecord | None) -> TrialSummary:
    """Fill what a line of ``trials.jsonl`` left out from the record in full, if there is one."""
    if record is None:
        return trial
    faults = planned_faults(record)
    whole = msgspec.structs.replace(summary_of(record), faults=faults, faults_planned=len(faults))
    own = {name: getattr(trial, name) for name in TrialSummary.__struct_fields__}
    kept = {name: value for name, value in own.items() if value and name not in ("faults", "faults_planned")}
    return msgspec.structs.replace(whole, **kept)


def _disagreements(run: ReportedRun) -> list[str]:
    """Say where ``campaign.json`` and the trials disagree."""
    campaign, totals = run.campaign, run.totals
    pairs = (
        ("trials", campaign.trials, totals.trials),
        ("faults fired", campaign.faults_fired, totals.faults_fired),
        ("valid trials", campaign.valid, run.count(Verdict.VALID)),
        ("unknown trials", campaign.unknown, run.count(Verdict.UNKNOWN)),
        ("invalid trials", campaign.invalid, run.count(Verdict.INVALID)),
    )
    notices = [
        f"campaign.json counts {recorded} {name}, the trials themselves {found}; this report shows {found}."
        for name, recorded, found in pairs
        if recorded != found
    ]
    notices += [
        f"All trials together: {finding.summary} ({', '.join(finding.clauses)})."
        for finding in campaign.findings
    ]
    notices += _not_judged(run)
    if campaign.store is not None:
        notices += [
            f"A stored plan that failed on barrier-tck {each.on_version} ({each.clause or 'no clause'}, "
            f"{each.checker}: {each.shape}) passes now: trial {each.trial}. It is not tried again."
            for each in campaign.store.passing_now
        ]
        notices += campaign.store.notices
    if totals.unchecked:
        notices.append(
            f"No checker judged trial {totals.unchecked}: nothing was checked, so the verdict is unknown."
        )
    unlisted = totals.trials - len(run.listed)
    if unlisted:
        notices.append(
            f"Of {totals.trials:,} trials, {len(run.listed):,} are shown one by one, the worst first. All are counted, "
            f"and all are in {place_of_rows(run.directory)}."
        )
    return notices


def _not_judged(run: ReportedRun) -> list[str]:
    """Say which trials are UNKNOWN for another reason than that nothing happened."""
    notices = []
    for reason in WhyUnknown:
        trials = run.totals.why_unknown[reason]
        if trials and not reason.of_the_schedule:
            many = "trial is" if trials == 1 else "trials are"
            listed = run.totals.unknown_because(reason)
            notices.append(f"{trials:,} {many} UNKNOWN because {reason}: trial {listed}.")
    return notices
