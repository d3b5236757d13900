"""Gathers what one night left, run directories, hunts for planted bugs and reports of tests, into one record.

What failed in the same way in several campaigns, or on several systems, is one finding, with the smallest plan of all.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import msgspec

from barrier_tck.harness.record.hit_cells import hit_cells
from barrier_tck.harness.record.night_record import (
    NIGHT_VERSION,
    NightBug,
    NightCampaign,
    NightFinding,
    NightRecord,
    NightTests,
)
from barrier_tck.harness.record.records import CampaignRecord, FindingGroup, TrialSummary
from barrier_tck.harness.record.run_directory import trial_directory
from barrier_tck.harness.record.run_reader import read_campaign, stored_trials
from barrier_tck.harness.record.unknown_trials import counted, too_many_unknown, why_unknown
from barrier_tck.harness.record.verdict import Verdict
from barrier_tck.harness.support.environment import environment
from barrier_tck.harness.support.errors import UsageProblem

TRIED = "tried"
"""The property of a test in a JUnit report that says how often it ran, if more than once."""
SLOWEST = 5
TOGETHER_MIN = 40
"""What all trials of a campaign together must show is asked of so many of them: fewer may show nothing by chance."""


def gathered(
    directories: Sequence[Path], commit: str, before: Sequence[NightRecord] = ()
) -> tuple[NightRecord, dict[str, tuple[Path, FindingGroup]]]:
    """Return what a night left below some directories, and for each ``NightFinding.plan`` the run directory and the
    finding of that run to which the plan belongs. ``before``: the nights before, oldest first.

    Raises UsageProblem if there is nothing, or something cannot be read.
    """
    runs = [(path, read_campaign(path)) for path in _below(directories, "campaign.json")]
    campaigns = tuple(_campaign(path, record) for path, record in runs)
    sessions = [(path, _document(path)) for path in _files(directories, "*.xml")]
    tests = tuple(_tests(path, document) for path, document in sessions)
    bugs = tuple(bug for path in _below(directories, "mutants.json") for bug in _bugs(path / "mutants.json"))
    if not (campaigns or tests or bugs):
        raise UsageProblem(
            "there is no run directory, no mutants.json and no JUnit report: nothing ran that night"
        )
    findings, plans = _findings(runs)
    began = [record.started_at for _, record in runs] + [_began(document) for _, document in sessions]
    night = NightRecord(
        version=NIGHT_VERSION,
        night=min(filter(None, began), default=datetime.now(UTC).isoformat()),
        commit=commit,
        on_version=environment()["barrier-tck"],
        campaigns=tuple(sorted(campaigns, key=lambda one: (one.name, one.system))),
        findings=findings,
        bugs=bugs,
        tests=tests,
    )
    return msgspec.structs.replace(night, problems=tuple(problems(night, before))), plans


def problems(night: NightRecord, before: Sequence[NightRecord] = ()) -> Iterator[str]:
    """Say why a night fails: what is INVALID, what left nothing, and what more is UNKNOWN than the shares allow."""
    ran = [campaign.name for campaign in night.campaigns]
    earlier = [one for one in before if one.night < night.night]
    for campaign in earlier[-1].campaigns if earlier else ():
        if campaign.name not in ran:
            yield f"{campaign.name} left nothing, and it ran the night before"
    for finding in night.findings:
        yield (
            f"{finding.clause or 'no clause'} is broken ({finding.checker}: {finding.shape}), in {finding.trials} "
            f"trials of {', '.join(finding.campaigns)}"
        )
    for campaign in night.campaigns:
        for why in too_many_unknown(campaign.why_unknown, campaign.trials):
            yield f"{campaign.name}: {why}"
        if campaign.interrupted:
            yield f"{campaign.name} was interrupted after {campaign.trials} trials"
        elif not campaign.trials:
            yield f"{campaign.name} ran no trial"
        if campaign.trials >= TOGETHER_MIN:
            yield from (f"{campaign.name}, all trials together: {said}" for said in campaign.findings)
    for bug in night.bugs:
        if not bug.caught:
            yield f"the planted bug {bug.id} was missed in {bug.trials} trials ({bug.world})"
    for session in night.tests:
        for test in session.failed:
            yield f"a test failed in {session.name}: {test}"


def _below(directories: Sequence[Path], name: str) -> list[Path]:
    """Return the directories that hold a file of this name, at most three levels down, each once."""
    found = [file.parent for file in _files(directories, name)]
    return list(dict.fromkeys(found))


def _files(directories: Sequence[Path], pattern: str) -> list[Path]:
    levels = ("", "*/", "*/*/", "*/*/*/")
    found = (file for path in directories for level in levels for file in path.glob(level + pattern))
    # A campaign writes a JUnit report of its own, which says nothing that its records do not.
    return sorted(file for file in dict.fromkeys(found) if file.name != "junit.xml")


def _campaign(path: Path, record: CampaignRecord) -> NightCampaign:
    counts = counted(())

    def passing(trial: TrialSummary) -> TrialSummary:
        for reason, count in counted([why_unknown(trial.verdict, trial.findings)]).items():
            counts[reason] += count
        return trial

    cells = hit_cells(record, map(passing, stored_trials(path)))
    return NightCampaign(
        name=record.name,
        system=record.system,
        seed=record.seed,
        verdict=record.verdict,
        trials=record.trials,
        invalid=record.invalid,
        why_unknown=counts,
        cells_hit=len(cells.hit),
        cells_possible=cells.possible,
        wall_seconds=record.wall_seconds,
        interrupted=record.interrupted,
        findings=tuple(one.summary for one in record.findings if one.verdict is not Verdict.VALID),
    )


def _findings(
    runs: Sequence[tuple[Path, CampaignRecord]],
) -> tuple[tuple[NightFinding, ...], dict[str, tuple[Path, FindingGroup]]]:
    """Return one finding for each way to fail, in the order of the runs, and where the smallest plan of each is."""
    by_key: dict[tuple[str, str, str], list[tuple[Path, CampaignRecord, FindingGroup]]] = {}
    for path, record in runs:
        for group in record.groups:
            by_key.setdefault((group.clause, group.checker, group.shape), []).append((path, record, group))
    findings, plans = [], {}
    for number, seen in enumerate(by_key.values(), start=1):
        path, record, smallest = min(seen, key=lambda one: (not one[2].plan, one[2].faults, one[1].name))
        own = trial_directory(path, smallest.smallest_trial) / "plan.json"
        there = path / smallest.plan if smallest.plan else own
        name = f"findings/{number:02d}.json" if there.is_file() else ""
        if name:
            plans[name] = (path, smallest)
        findings.append(
            NightFinding(
                clause=smallest.clause,
                checker=smallest.checker,
                shape=smallest.shape,
                trials=sum(group.trials for *_, group in seen),
                campaigns=tuple(dict.fromkeys(one.name for _, one, _ in seen)),
                summary=smallest.summary,
                faults=smallest.faults,
                plan=name,
                system=record.opened_as or record.system,
                failed_runs=smallest.failed_runs,
                runs=smallest.runs,
            )
        )
    return tuple(findings), plans


def _bugs(path: Path) -> Iterator[NightBug]:
    try:
        summary = json.loads(path.read_bytes())
        for one in summary["mutants"]:
            yield NightBug(
                id=str(one["id"]),
                world=str(summary["world"]),
                caught=bool(one["caught"]),
                trials=int(one["trials"]),
                seconds=float(one["seconds"]),
            )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageProblem(f"{path} is no summary of barrier-tck mutants: {error!r}") from error


def _document(path: Path) -> ElementTree.Element:
    try:
        return ElementTree.parse(path).getroot()
    except (OSError, ElementTree.ParseError) as error:
        raise UsageProblem(f"{path} is no JUnit report: {error}") from error


def _began(document: ElementTree.Element) -> str:
    """Return when a session of tests began; empty if its report does not say so."""
    return next((suite.get("timestamp", "") for suite in document.iter("testsuite")), "")


def _tests(path: Path, document: ElementTree.Element) -> NightTests:
    cases = [(_name(case), float(case.get("time", 0)), case) for case in document.iter("testcase")]
    longest = sorted(cases, key=lambda one: -one[1])[:SLOWEST]
    return NightTests(
        name=path.stem,
        tests=len(cases),
        failed=tuple(
            name
            for name, _, case in cases
            if case.find("failure") is not None or case.find("error") is not None
        ),
        seconds=sum(seconds for _, seconds, _ in cases),
        tried_again={name: tried for name, _, case in cases if (tried := _tried(case)) > 1},
        slowest={name: round(seconds, 1) for name, seconds, _ in longest},
    )


def _name(case: ElementTree.Element) -> str:
    return f"{case.get('classname', '')}::{case.get('name', '')}"


def _tried(case: ElementTree.Element) -> int:
    return max(
        (int(one.get("value", 1)) for one in case.iter("property") if one.get("name") == TRIED), default=1
    )


def read_history(path: Path) -> tuple[NightRecord, ...]:
    """Return the nights of a history, oldest first; raises UsageProblem for a line that is none."""
    if not path.is_file():
        return ()
    nights = []
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        try:
            night: Any = msgspec.json.decode(line, type=NightRecord)
        except msgspec.MsgspecError as error:
            raise UsageProblem(f"{path}, line {number}, is no night: {error}") from error
        if night.version > NIGHT_VERSION:
            raise UsageProblem(f"{path}, line {number}, was written by a newer version; use that one")
        nights.append(night)
    return tuple(sorted(nights, key=lambda night: night.night))


def with_night(nights: Sequence[NightRecord], night: NightRecord) -> tuple[NightRecord, ...]:
    """Return a history with one more night; one that began at the same moment is replaced."""
    return tuple(
        sorted([*(one for one in nights if one.night != night.night), night], key=lambda one: one.night)
    )


def history_lines(nights: Sequence[NightRecord]) -> bytes:
    """Return a history as its file has it, a night a line."""
    return b"".join(msgspec.json.encode(night) + b"\n" for night in nights)
