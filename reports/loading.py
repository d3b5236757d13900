"""Reads a run directory: ``campaign.json``, ``trials.jsonl`` and the trials kept in full.

What comes out is a `ReportedRun`, the one value that every report renders. Loading is strict about what it cannot
understand (missing, corrupt and newer files are errors that say what to do), honest about what is not there:
a half-written last line of a killed campaign, or counts that disagree, become notices on the report.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from barrier_tck.faults.vocabulary import After, Trigger
from barrier_tck.harness.plan.trial_plan import PLAN_VERSION
from barrier_tck.harness.record.records import (
    RECORD_VERSION,
    CampaignRecord,
    FaultRecord,
    TrialRecord,
    TrialSummary,
    summary_of,
)
from barrier_tck.harness.record.verdict import Verdict
from barrier_tck.harness.support.errors import UsageProblem
from barrier_tck.reports.wording import replay_command

_Decoded = TypeVar("_Decoded")


class RunDirectoryError(UsageProblem):
    """A run directory cannot be reported; the message names the file and says what to do."""


class RunDirectoryMissing(RunDirectoryError):
    """There is no run directory, or a file is missing that every run directory has."""


class RunDirectoryCorrupt(RunDirectoryError):
    """A file of the run directory is not what its name says."""


class RunDirectoryNewer(RunDirectoryError):
    """A file was written by a newer version than this one understands."""


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
        return replay_command(self.plan_path(trial), self.campaign.opened_as or self.campaign.system)


def verdict_of(trial: TrialSummary) -> Verdict:
    """Return the worst of a trial's own verdict and its findings'; UNKNOWN if nothing was checked."""
    return Verdict.worst((trial.verdict, Verdict.worst(finding.verdict for finding in trial.findings)))


def trial_directory(run_directory: Path, trial: int) -> Path:
    """Return where a trial is kept if it is kept in full."""
    return run_directory / "trials" / f"{trial:05d}"


def load_run(directory: Path) -> ReportedRun:
    """Read a run directory.

    Raises RunDirectoryMissing, RunDirectoryCorrupt or RunDirectoryNewer, each with the path and what to do.
    """
    if not directory.is_dir():
        raise RunDirectoryMissing(f"{directory} is not a directory; name the run directory of a campaign")
    campaign = _read(directory / "campaign.json", CampaignRecord)
    details = _read_details(directory)
    trials, notices = _read_trials(directory / "trials.jsonl")
    known = {trial.trial for trial in trials}
    for number in sorted(set(details) - known):
        trials.append(summary_of(details[number]))
        notices.append(f"Trial {number} is kept in full but missing from trials.jsonl; it is counted.")
    completed = tuple(_completed(trial, details.get(trial.trial)) for trial in trials)
    run = ReportedRun(directory, campaign, tuple(sorted(completed, key=lambda trial: trial.trial)), details)
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
                    label=scheduled.fault.told(),
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


def _read_details(directory: Path) -> dict[int, TrialRecord]:
    """Read every trial that was kept in full."""
    details: dict[int, TrialRecord] = {}
    for path in sorted((directory / "trials").glob("*/record.json")):
        record = _read(path, TrialRecord)
        details[record.trial] = record
    return details


def _read_trials(path: Path) -> tuple[list[TrialSummary], list[str]]:
    """Read ``trials.jsonl``; a half-written last line (of a killed campaign) is left out, with a notice."""
    lines = _text(path).splitlines(keepends=True)
    trials: list[TrialSummary] = []
    notices: list[str] = []
    seen: set[int] = set()
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            trial = msgspec.json.decode(line, type=TrialSummary)
        except msgspec.MsgspecError as error:
            if number == len(lines) and not line.endswith("\n"):
                notices.append("The last line of trials.jsonl is incomplete and was left out.")
                break
            raise RunDirectoryCorrupt(
                f"{path}, line {number}: not a trial ({error}); restore the file or remove that line"
            ) from error
        if trial.trial in seen:
            raise RunDirectoryCorrupt(f"{path}, line {number}: trial {trial.trial} is there twice")
        seen.add(trial.trial)
        trials.append(trial)
    return trials, notices


def _disagreements(run: ReportedRun) -> list[str]:
    """Say where ``campaign.json`` and the trials do not tell the same."""
    campaign = run.campaign
    pairs = (
        ("trials", campaign.trials, len(run.trials)),
        ("faults fired", campaign.faults_fired, sum(trial.faults_fired for trial in run.trials)),
        ("valid trials", campaign.valid, run.count(Verdict.VALID)),
        ("unknown trials", campaign.unknown, run.count(Verdict.UNKNOWN)),
        ("invalid trials", campaign.invalid, run.count(Verdict.INVALID)),
    )
    notices = [
        f"campaign.json counts {said} {name}, the trials themselves {found}; this report shows {found}."
        for name, said, found in pairs
        if said != found
    ]
    notices += [
        f"All trials together: {finding.summary} ({', '.join(finding.clauses)})."
        for finding in campaign.findings
    ]
    unchecked = [trial.trial for trial in run.trials if not trial.findings]
    if unchecked:
        listed = ", ".join(map(str, unchecked[:10])) + (", ..." if len(unchecked) > 10 else "")
        notices.append(f"No checker judged trial {listed}: nothing was checked, so the verdict is unknown.")
    return notices


def _text(path: Path) -> str:
    """Read a file of the run directory as text."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise RunDirectoryMissing(
            f"{path} is missing; name the directory that holds campaign.json and trials.jsonl"
        ) from error
    except UnicodeDecodeError as error:
        raise RunDirectoryCorrupt(f"{path} is not text ({error}); restore it or run again") from error
    except OSError as error:
        raise RunDirectoryMissing(f"{path} cannot be read: {error.strerror or error}") from error


def _read(path: Path, kind: type[_Decoded]) -> _Decoded:
    """Decode a JSON file, refusing versions newer than ours before looking at anything else."""
    text = _text(path)
    try:
        raw = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RunDirectoryCorrupt(f"{path} is not JSON ({error}); restore it or run again") from error
    if not isinstance(raw, dict):
        raise RunDirectoryCorrupt(f"{path} holds a JSON {type(raw).__name__}, not an object")
    _refuse_newer(path, raw, RECORD_VERSION, "record")
    if isinstance(raw.get("plan"), dict):
        _refuse_newer(path, raw["plan"], PLAN_VERSION, "plan")
    try:
        return msgspec.convert(raw, type=kind)
    except msgspec.ValidationError as error:
        raise RunDirectoryCorrupt(f"{path} is not a {kind.__name__} ({error})") from error


def _refuse_newer(path: Path, raw: dict[str, Any], known: int, what: str) -> None:
    """Raise if a version is newer than we understand."""
    version = raw.get("version", 1)
    if isinstance(version, int) and version > known:
        raise RunDirectoryNewer(
            f"{path}: {what} version {version} is newer than version {known}, the newest that this"
            " barrier-tck reads; report it with the version that wrote it, or upgrade"
        )
