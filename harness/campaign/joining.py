"""Puts the run directories of all shards of a campaign together: one run directory, as if one process had run it all.

Trials are taken in the order of their numbers, and what depends on the trials before is decided again: which drawn
faults may be dropped, which valid trials are kept. Rows are read one after the other and never kept. Controls and
smallest plans are those of the shards.
"""

from __future__ import annotations

import heapq
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from barrier_tck.faults.vocabulary import Phase
from barrier_tck.harness.campaign import controls
from barrier_tck.harness.campaign.chosen_clauses import JudgedClauses
from barrier_tck.harness.campaign.configuration import CampaignConfiguration, stored_configuration
from barrier_tck.harness.campaign.dropped_faults import DroppedFaults
from barrier_tck.harness.campaign.finding_groups import joined_groups
from barrier_tck.harness.campaign.runner import VALID_KEPT, Tally
from barrier_tck.harness.campaign.shards import Shard, shard_of
from barrier_tck.harness.record.control_records import ControlsRecord
from barrier_tck.harness.record.records import CampaignRecord, FindingGroup, TrialSummary, summary_of
from barrier_tck.harness.record.run_directory import (
    RunDirectory,
    alternative_directory,
    held,
    trial_directory,
)
from barrier_tck.harness.record.run_reader import read_campaign, read_record, stored_trials
from barrier_tck.harness.record.trial_rows import PARQUET
from barrier_tck.harness.record.verdict import Verdict
from barrier_tck.harness.support.errors import UsageProblem

_VERSIONS = ("barrier-tck", "hypothesis", "python")
"""What must be the same in all shards, because other plans would be drawn."""


@dataclass(frozen=True, slots=True)
class _Part:
    """The run directory of one shard."""

    path: Path
    shard: Shard
    record: CampaignRecord

    def places(self) -> int:
        """Return how many trials it should have; raises UsageProblem for a budget of time, which no shard has."""
        configuration = stored_configuration(self.record.configuration, str(self.path / "campaign.json"))
        trials = configuration.budget_of_trials().trials
        if trials is None:
            raise UsageProblem(f"{self.path} has a budget of time, so it cannot be one of several shards")
        return self.shard.places(trials)

    def trials(self) -> Iterator[TrialSummary]:
        """Yield its trials, in order; raises UsageProblem if these are not those of the shard."""
        place, expected = 0, self.places()
        for trial in stored_trials(self.path):
            if place >= expected or trial.trial != self.shard.number(place):
                raise UsageProblem(
                    f"{self.path}: trial {trial.trial} is not the one that comes next in shard {self.shard}; run the "
                    "shard anew"
                )
            place += 1
            yield trial
        if place < expected:
            raise UsageProblem(
                f"{self.path}: shard {self.shard} has {place} trials, not {expected}; run the shard anew"
            )


def run_directories(paths: Sequence[Path]) -> tuple[Path, ...]:
    """Return the run directories that are named: themselves, or those in a directory of several.

    Raises UsageProblem for a path that holds none.
    """
    found: list[Path] = []
    for path in paths:
        inside = [path] if (path / "campaign.json").is_file() else []
        for pattern in ("*/campaign.json", "*/*/campaign.json"):
            inside = inside or sorted(file.parent for file in path.glob(pattern))
        if not inside:
            raise UsageProblem(f"{path} is no run directory, and holds none; name those of the shards")
        found += inside
    return tuple(dict.fromkeys(found))


def joinable(paths: Sequence[Path]) -> tuple[_Part, ...]:
    """Return the shards of one campaign, in their order.

    Raises UsageProblem if one is no shard or is not finished, if they are of different campaigns, seeds or versions,
    or if one is missing or there twice.
    """
    parts = [_part(path) for path in paths]
    first = parts[0]
    for other in parts[1:]:
        _require_same(first, other)
    by_index: dict[int, _Part] = {}
    for part in parts:
        twin = by_index.setdefault(part.shard.index, part)
        if twin is not part:
            raise UsageProblem(
                f"shard {part.shard} is there twice: {twin.path} and {part.path}; leave one out"
            )
    missing = [str(Shard(index, first.shard.of)) for index in _indices(first) if index not in by_index]
    if missing:
        listed = ", ".join(missing[:10]) + (", ..." if len(missing) > 10 else "")
        raise UsageProblem(f"{len(missing)} of {first.shard.of} shards are missing: {listed}")
    return tuple(by_index[index] for index in _indices(first))


def _indices(part: _Part) -> range:
    return range(1, part.shard.of + 1)


def _part(path: Path) -> _Part:
    record = read_campaign(path)
    shard = shard_of(record.shard, str(path / "campaign.json"))
    if not shard.is_part:
        raise UsageProblem(
            f"{path} is a whole campaign and no shard of one; run shards with --shard 1/2 and so on"
        )
    if record.interrupted:
        raise UsageProblem(
            f"{path} (shard {shard}) was interrupted; finish it: barrier-tck campaign --resume {path}"
        )
    part = _Part(path, shard, record)
    if record.trials != part.places():
        raise UsageProblem(
            f"{path} has {record.trials} trials, and shard {shard} {part.places()}; run it anew"
        )
    return part


def _require_same(one: _Part, other: _Part) -> None:
    """Raise UsageProblem if two run directories are not of shards of one campaign."""
    for what, here, there in (
        ("campaigns", one.record.name, other.record.name),
        ("systems", one.record.system, other.record.system),
        ("seeds", one.record.seed, other.record.seed),
        ("numbers of shards", one.shard.of, other.shard.of),
        *(
            (f"versions of {name}", one.record.environment.get(name), other.record.environment.get(name))
            for name in _VERSIONS
        ),
    ):
        if here != there:
            raise UsageProblem(f"{one.path} and {other.path} are of different {what}: {here} and {there}")
    key = _difference(one.record.configuration, other.record.configuration)
    if key is not None:
        raise UsageProblem(f"{one.path} and {other.path} are of different campaigns: {key} is not the same")


def _difference(one: Mapping[str, Any], other: Mapping[str, Any]) -> str | None:
    """Return the first key whose value differs in two configurations."""
    plain = [json.loads(json.dumps(value)) for value in (one, other)]
    keys = dict.fromkeys((*plain[0], *plain[1]))
    return next((key for key in keys if plain[0].get(key) != plain[1].get(key)), None)


def join(paths: Sequence[Path], out: Path) -> CampaignRecord:
    """Join the shards of a campaign into a new run directory, and return its record.

    Raises UsageProblem as ``joinable`` does, before anything is written, and RunDirectoryError.
    """
    parts = joinable(paths)
    configuration = stored_configuration(parts[0].record.configuration, str(parts[0].path / "campaign.json"))
    directory = RunDirectory.create(out, in_parquet=any((part.path / PARQUET).is_dir() for part in parts))
    with held(out):
        return _Joining(parts, configuration, directory).joined()


def _world(parts: Sequence[_Part]) -> str:
    """Return the world in which the trials ran: at least one of them is kept in full."""
    kept = (directory for part in parts for directory in sorted((part.path / "trials").glob("[0-9]*")))
    return next((read_record(directory).world for directory in kept), "simulated")


class _Joining:
    """Counts the trials of all shards."""

    def __init__(
        self, parts: tuple[_Part, ...], configuration: CampaignConfiguration, directory: RunDirectory
    ) -> None:
        self._parts = parts
        self._configuration = configuration
        self._directory = directory
        self._tally = Tally(judged_clauses=JudgedClauses(configuration.only))
        self._dropped = DroppedFaults()
        self._keep_all = _world(parts) != "simulated"

    def joined(self) -> CampaignRecord:
        """Write everything, and return the record."""
        for trial in self._in_order():
            self._book(trial)
        groups = joined_groups(group for part in self._parts for group in part.record.groups)
        for group in groups:
            if group.plan:
                self._copy_file(self._parts[group.smallest_trial % len(self._parts)], group.plan)
        for part in self._parts:
            for control in part.record.controls.ran if part.record.controls is not None else ():
                self._copy_file(part, control.plan)
        record = self._record(groups)
        self._directory.write_campaign(record)
        return record

    def _in_order(self) -> Iterator[TrialSummary]:
        return heapq.merge(*(part.trials() for part in self._parts), key=lambda trial: trial.trial)

    def _book(self, trial: TrialSummary) -> None:
        part = self._parts[trial.trial % len(self._parts)]
        chosen, kept = self._chosen(part, trial)
        self._tally.add(chosen)
        if chosen.verdict is not Verdict.VALID or self._tally.valid <= VALID_KEPT or self._keep_all:
            target = self._directory.trial(trial.trial)
            if kept.is_dir():
                shutil.copytree(kept, target, symlinks=True)
        self._directory.append(chosen)

    def _chosen(self, part: _Part, trial: TrialSummary) -> tuple[TrialSummary, Path]:
        """Return the row that counts, with the directory in which that trial is, if it was kept: the shard's own, or
        the other result that it kept because drawn faults could be dropped.
        """
        own = trial_directory(part.path, trial.trial)
        alternative = alternative_directory(part.path, trial.trial)
        if not alternative.is_dir():
            return trial, own
        other = summary_of(read_record(alternative))
        pair = sorted(((trial, own), (other, alternative)), key=lambda one: one[0].faults_planned)
        (fitted, _), (whole, _) = pair
        self._dropped.add(whole.faults_planned - fitted.faults_planned)
        return pair[0] if self._dropped.allowed(self._tally.faults_fired) else pair[1]

    def _copy_file(self, part: _Part, name: str) -> None:
        source = part.path / name
        if source.resolve().is_relative_to(part.path.resolve()) and source.is_file():
            target = self._directory.path / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)

    def _record(self, groups: tuple[FindingGroup, ...]) -> CampaignRecord:
        tally, records = self._tally, [part.record for part in self._parts]
        of_controls = self._controls(records)
        found = None
        if of_controls is not None:
            configuration = self._configuration
            recovered_min = (
                controls.RECOVERED_MIN_DRAWN if configuration.draws else controls.RECOVERED_MIN_LISTED
            )
            found = controls.finding_of(
                of_controls, configuration.controls_wanted(), recovered_min, configuration.only
            )
        findings = (*tally.findings, *((found,) if found is not None else ()))
        phases = {phase for record in records for phase in record.fault_phases}
        return msgspec.structs.replace(
            records[0],
            verdict=Verdict.worst((tally.verdict(), *(finding.verdict for finding in findings))),
            trials=tally.trials,
            valid=tally.valid,
            invalid=tally.invalid,
            unknown=tally.unknown,
            faults_fired=tally.faults_fired,
            recoveries=tally.recoveries,
            recoveries_reported=tally.recoveries_reported or not tally.trials,
            checkpoints_completed=tally.checkpoints_completed,
            started_at=min(record.started_at for record in records),
            wall_seconds=sum(record.wall_seconds for record in records),
            fault_phases=tuple(phase.value for phase in Phase if phase.value in phases),
            findings=findings,
            failing=tally.worst_first,
            shrunk={str(group.smallest_trial): group.plan for group in groups if group.plan},
            groups=groups,
            store=None,
            refused_connections=dict(tally.refused_connections),
            controls=of_controls,
            shard="",
        )

    def _controls(self, records: Sequence[CampaignRecord]) -> ControlsRecord | None:
        known = [record.controls for record in records if record.controls is not None]
        return controls.joined(known) if known else None
