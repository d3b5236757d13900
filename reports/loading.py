"""A run directory as reports see it: `ReportedRun`, the one value that every report renders.

What is missing is stated and not guessed: a half-written last line of a killed campaign, or counts that disagree,
become notices on the report.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
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
from barrier_tck.harness.record.run_reader import open_run
from barrier_tck.harness.record.unknown_trials import WhyUnknown, counted, why_unknown
from barrier_tck.harness.record.verdict import Verdict
from barrier_tck.reports.wording import replay_command

CHECKPOINTS, BATCHES = "checkpoints completed", "batches committed"


@dataclass(frozen=True, slots=True)
class ReportedRun:
    """A campaign with its trials, as far as it went."""

    directory: Path
    """As the caller named it: repro command lines start with it."""
    campaign: CampaignRecord
    trials: tuple[TrialSummary, ...]
    """Every finished trial, by number."""
    details: dict[int, TrialRecord]
    """Trials kept in full, by number: all that were not valid and the first few that were."""
    notices: tuple[str, ...] = ()
    """What the reader must know about the data, for instance that a count disagrees."""

    @property
    def verdict(self) -> Verdict:
        """Return the campaign's verdict, never better than its trials; UNKNOWN if there are none."""
        judged = Verdict.worst(verdict_of(trial) for trial in self.trials)
        return Verdict.worst((judged, self.campaign.verdict))

    @property
    def could_be_violated(self) -> dict[str, int]:
        """Return clause -> trials in which it could have been violated; empty if the campaign's record has no
        controls."""
        controls = self.campaign.controls
        return controls.could_be_violated if controls is not None else {}

    @property
    def recoveries(self) -> int | None:
        """Return how often the jobs recovered; None if the system reported that in no trial."""
        known = [trial.recoveries for trial in self.trials if trial.recoveries_reported]
        return sum(known) if known or not self.trials else None

    @property
    def went_on(self) -> tuple[int | None, str]:
        """Return how often the jobs went on, and how that is called: a system without checkpoints commits batches.

        None for a system that reports neither, nor its attempts: then a zero would claim what is not known.
        """
        checkpoints = sum(trial.checkpoints_completed for trial in self.trials)
        batches = sum(trial.batches_committed for trial in self.trials)
        if not checkpoints and not batches and self.recoveries is None:
            return None, CHECKPOINTS
        return (batches, BATCHES) if batches and not checkpoints else (checkpoints, CHECKPOINTS)

    @property
    def why_unknown(self) -> dict[str, int]:
        """Return how many trials are UNKNOWN for each reason: nothing happened, a checker crashed, it was not run."""
        return counted(why_unknown(verdict_of(trial), trial.findings) for trial in self.trials)

    def count(self, verdict: Verdict) -> int:
        """Return how many trials have this verdict."""
        return sum(verdict_of(trial) is verdict for trial in self.trials)

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


def verdict_of(trial: TrialSummary) -> Verdict:
    """Return the worst of a trial's own verdict and its findings'; UNKNOWN if nothing was checked."""
    return Verdict.worst((trial.verdict, Verdict.worst(finding.verdict for finding in trial.findings)))


def load_run(directory: Path) -> ReportedRun:
    """Read a run directory.

    Raises RunDirectoryError, with the path and what to do.
    """
    stored = open_run(directory)
    details = {number: stored.record(number) for number in stored.kept}
    trials, notices = list(stored.trials), list(stored.notices)
    known = {trial.trial for trial in trials}
    for number in sorted(set(details) - known):
        trials.append(summary_of(details[number]))
        notices.append(f"Trial {number} is kept in full but missing from trials.jsonl; it is counted.")
    completed = tuple(_completed(trial, details.get(trial.trial)) for trial in trials)
    run = ReportedRun(
        directory, stored.campaign, tuple(sorted(completed, key=lambda trial: trial.trial)), details
    )
    return replace(run, notices=tuple(notices + _disagreements(run)))


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
    campaign = run.campaign
    pairs = (
        ("trials", campaign.trials, len(run.trials)),
        ("faults fired", campaign.faults_fired, sum(trial.faults_fired for trial in run.trials)),
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
    unchecked = [trial.trial for trial in run.trials if not trial.findings]
    if unchecked:
        listed = ", ".join(map(str, unchecked[:10])) + (", ..." if len(unchecked) > 10 else "")
        notices.append(f"No checker judged trial {listed}: nothing was checked, so the verdict is unknown.")
    return notices


def _not_judged(run: ReportedRun) -> list[str]:
    """Say which trials are UNKNOWN for another reason than that nothing happened."""
    notices = []
    for reason in WhyUnknown:
        trials = [
            trial.trial for trial in run.trials if why_unknown(verdict_of(trial), trial.findings) is reason
        ]
        if trials and not reason.of_the_schedule:
            listed = ", ".join(map(str, trials[:10])) + (", ..." if len(trials) > 10 else "")
            many = "trial is" if len(trials) == 1 else "trials are"
            notices.append(f"{len(trials):,} {many} UNKNOWN because {reason}: trial {listed}.")
    return notices
