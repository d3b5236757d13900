"""The report for machines: one JSON object, and JUnit XML for continuous integration.

In JUnit's terms INVALID is a failure (the system is wrong), UNKNOWN is an error (the test could not decide):
a build never turns green on a trial that showed nothing.
"""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import junitparser
import msgspec

from barrier_tck.harness.record.records import TrialSummary
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.reports.loading import ReportedRun
from barrier_tck.reports.matrix import FaultMatrix, unchecked_clauses
from barrier_tck.reports.ranking import ranked_findings, trial_finding
from barrier_tck.reports.run_totals import verdict_of
from barrier_tck.reports.wording import median, percentile, printable

REPORT_VERSION = 1


def as_object(run: ReportedRun) -> dict[str, Any]:
    """Return the report as JSON-compatible values; first the keys of the campaign command's ``--json``."""
    campaign = run.campaign
    clauses, phases, totals = run.clauses, run.phases, run.totals
    return {
        "verdict": run.verdict.value,
        "trials": totals.trials,
        "valid": run.count(Verdict.VALID),
        "invalid": run.count(Verdict.INVALID),
        "unknown": run.count(Verdict.UNKNOWN),
        "faults_fired": totals.faults_fired,
        "faults_planned": totals.faults_planned,
        "recoveries": run.recoveries,
        "checkpoints_completed": totals.checkpoints,
        "run_directory": str(run.directory),
        "report_version": REPORT_VERSION,
        "why_unknown": run.why_unknown,
        "campaign": campaign.name,
        "system": campaign.system,
        "seed": campaign.seed,
        "started_at": campaign.started_at,
        "wall_seconds": campaign.wall_seconds,
        "interrupted": campaign.interrupted,
        "notices": list(run.notices),
        "environment": campaign.environment,
        "configuration": campaign.configuration,
        "clauses": [
            {
                "id": row.clause,
                "verdict": row.verdict.value,
                "trials": {verdict.value: row.trials[verdict] for verdict in Verdict},
                "could_have_failed": row.could_be_violated,
                "checkers": list(row.checkers),
                "worst_trials": list(row.worst_trials),
                "also": list(row.also),
            }
            for row in clauses
        ],
        "controls": msgspec.to_builtins(campaign.controls),
        "clauses_unchecked": list(unchecked_clauses(clauses)),
        "findings": finding_objects(run),
        "groups": msgspec.to_builtins(campaign.groups),
        "store": msgspec.to_builtins(campaign.store),
        "phase_fault_cells": phase_fault_cells(run),
        "phase_by_fault": _cells(phases, "phase"),
        "point_by_fault": _cells(totals.faults.by_point(), "point"),
        "distributions": {
            series.name: {
                "count": series.count,
                "trials": series.trials,
                "median": median(series.values),
                "p95": percentile(series.values, 0.95),
                "max": series.most,
            }
            for series in totals.lengths.series()
        },
        "trial_list": [_trial_object(run, trial) for trial in run.listed],
        "trials_not_listed": totals.trials - len(run.listed),
    }


def finding_objects(run: ReportedRun) -> list[dict[str, Any]]:
    """Return the findings that are not valid, as JSON-compatible values: the campaign's, then the worst first.

    They are those of the trials that a run lists. Of more trials that are not valid, the smallest of each finding is
    among these.

    Trials that are INVALID for the same reason are one finding: ``trials`` says how many, and ``trial`` which has the
    smallest plan. ``trial`` and ``replay``, the command line that repeats it, are None in a finding of all trials
    together.
    """
    of_all = [
        _finding_object(finding) | {"trial": None, "replay": None}
        for finding in run.campaign.findings
        if finding.verdict is not Verdict.VALID
    ]
    return of_all + [
        _finding_object(entry.finding)
        | {"trial": entry.trial.trial, "replay": _replay(run, entry.trial)}
        | ({"trials": entry.group.trials, "shape": entry.group.shape} if entry.group is not None else {})
        for entry in ranked_findings(run)
    ]


def _replay(run: ReportedRun, trial: TrialSummary) -> str | None:
    """Return the command line that replays a trial."""
    return run.replay_command(trial.trial)


def phase_fault_cells(run: ReportedRun) -> dict[str, int]:
    """Return how many cells of the phase by fault matrix were hit, and how many the system can reach."""
    matrix = run.phases
    return {"fired": matrix.fired, "possible": matrix.possible}


def _cells(matrix: FaultMatrix, row_name: str) -> list[dict[str, Any]]:
    """Return the cells of a matrix in which something was planned."""
    return [
        {row_name: row, "fault": kind, "fired": cell.fired, "planned": cell.planned}
        for (row, kind), cell in matrix.cells.items()
    ]


def _finding_object(finding: Finding) -> dict[str, Any]:
    """Return a finding as JSON-compatible values."""
    return {
        "checker": finding.checker,
        "clauses": list(finding.clauses),
        "verdict": finding.verdict.value,
        "summary": finding.summary,
        "counts": finding.counts,
        "examples": list(finding.examples),
        "broken": finding.broken,
        "also": list(finding.also),
        "evidence": msgspec.to_builtins(finding.evidence),
    }


def _trial_object(run: ReportedRun, trial: TrialSummary) -> dict[str, Any]:
    """Return one line of the trial list."""
    return {
        "trial": trial.trial,
        "verdict": verdict_of(trial).value,
        "seed": trial.seed,
        "end": trial.end,
        "end_reason": trial.end_reason,
        "duration_ms": trial.duration_ms,
        "wall_seconds": trial.wall_seconds,
        "faults_fired": trial.faults_fired,
        "faults_planned": max(trial.faults_planned, len(trial.faults)),
        "recoveries": trial.recoveries if trial.recoveries_reported else None,
        "checkpoints_completed": trial.checkpoints_completed,
        "checkpoints_aborted": trial.checkpoints_aborted,
        "measurements": trial.measurements,
        "replay": _replay(run, trial),
    }


def as_junit(run: ReportedRun) -> str:
    """Return JUnit XML: a test suite per run, a test case for each listed trial and checker.

    A trial whose verdict none of its findings explains gets a case named ``trial``; a run without trials gets
    one case, an error, for nothing was checked.
    """
    suite = junitparser.TestSuite(printable(run.campaign.name))
    suite.timestamp = printable(run.campaign.started_at)
    for name, value in (("system", run.campaign.system), ("seed", str(run.campaign.seed))):
        suite.add_property(name, printable(value))
    listed = run.listed
    unlisted = run.totals.trials - len(listed)
    if unlisted:
        suite.add_property("trials without a test case", str(unlisted))
    cases = [case for trial in listed for case in _cases(run, trial)]
    if not cases:
        nothing = Finding("campaign", (), Verdict.UNKNOWN, "No trial finished: nothing was checked.")
        cases = [_case(nothing, "campaign", 0.0, {}, None)]
    elif run.verdict.severity > run.totals.judged.severity:
        worse = Finding("campaign", (), run.verdict, "The campaign's own verdict is worse than its trials'.")
        cases.append(_case(worse, "campaign", 0.0, {}, None))
    suite.add_testcases(cases)
    document = junitparser.JUnitXml("barrier-tck")
    document.add_testsuite(suite)
    # Junitparser ships type hints but leaves some methods without.
    root = ElementTree.fromstring(document.tostring())  # type: ignore[no-untyped-call]
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _cases(run: ReportedRun, trial: TrialSummary) -> list[junitparser.TestCase]:
    """Return one trial's cases; its wall time is shared out evenly, so that the sum is right."""
    findings = list(trial.findings)
    judged = Verdict.worst(finding.verdict for finding in findings)
    if not findings or judged.severity < verdict_of(trial).severity:
        findings.append(trial_finding(trial))
    plan = run.plan_path(trial.trial)
    facts = {
        "trial": str(trial.trial),
        "seed": "" if trial.seed is None else str(trial.seed),
        "plan": "" if plan is None else str(plan),
    }
    group = f"{run.campaign.system}.trial-{trial.trial:05d}"
    command = run.replay_command(trial.trial)
    return [_case(finding, group, trial.wall_seconds / len(findings), facts, command) for finding in findings]


def _case(
    finding: Finding, group: str, seconds: float, facts: dict[str, str], command: str | None
) -> junitparser.TestCase:
    """Return one test case."""
    case = junitparser.TestCase(printable(finding.checker), printable(group), round(seconds, 3))
    properties = junitparser.Properties()  # type: ignore[no-untyped-call]
    broken = {"broken": finding.broken, "also": " ".join(finding.also)} if finding.broken else {}
    for name, value in {**facts, "clauses": " ".join(finding.clauses), **broken}.items():
        properties.add_property(junitparser.Property(name, printable(value)))
    case.append(properties)  # type: ignore[no-untyped-call]
    if finding.verdict is not Verdict.VALID:
        kind = junitparser.Failure if finding.verdict is Verdict.INVALID else junitparser.Error
        first = finding.first
        named = f"{finding.broken}: " if finding.broken else ""
        result = kind(printable(f"{named}{finding.summary}"), finding.verdict.value)
        seen = (first.description,) if first is not None else ()
        result.text = printable("\n".join((*seen, *finding.examples, *((command,) if command else ()))))
        case.result = result
    return case
