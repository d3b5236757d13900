"""Worst first: findings in the order a reader should see them, and the trials worth a timeline."""

from __future__ import annotations

from dataclasses import dataclass

from barrier_tck.harness.record.records import FindingGroup, TrialRecord, TrialSummary
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.support.first_line import first_line
from barrier_tck.reports.loading import ReportedRun, planned_faults
from barrier_tck.reports.run_totals import size_of, verdict_of

TIMELINES_MAX = 6
"""How many timelines a page holds at most."""


@dataclass(frozen=True, slots=True)
class RankedFinding:
    """A finding that is not valid, with the trial it comes from."""

    trial: TrialSummary
    finding: Finding
    group: FindingGroup | None = None
    """The trials that show the same, if the finding stands for them; None for records of older versions."""


def ranked_findings(run: ReportedRun) -> tuple[RankedFinding, ...]:
    """Return all findings that are not valid: the worst first, and of these the ones of the smallest trial.

    Trials that are INVALID for the same reason are one finding, that of the trial with the smallest plan.

    Those of one trial stand as in its record: first the one that says what was broken first.

    A trial that is not valid although no finding says so (nothing was checked, a fault did not fire) gets a
    finding of its own, so that it is never overlooked.
    """
    ranked = []
    groups = {(group.smallest_trial, group.checker): group for group in run.campaign.groups}
    for trial in run.listed:
        bad = [finding for finding in trial.findings if finding.verdict is not Verdict.VALID]
        worst = Verdict.worst(finding.verdict for finding in bad) if bad else Verdict.VALID
        if worst.severity < verdict_of(trial).severity:
            bad.append(trial_finding(trial))
        for finding in bad:
            group = groups.get((trial.trial, finding.checker))
            grouped = bool(groups) and finding.verdict is Verdict.INVALID and finding in trial.findings
            if not grouped:
                ranked.append(RankedFinding(trial, finding))
            elif group is not None and group.clause == finding.broken:
                ranked.append(RankedFinding(trial, finding, group))
    return tuple(sorted(ranked, key=lambda entry: (-entry.finding.verdict.severity, *size_of(entry.trial))))


def trial_finding(trial: TrialSummary) -> Finding:
    """Return a finding that speaks for a trial whose verdict none of its own findings explains."""
    missed = [fault for fault in trial.faults if fault.outcome != "fired"]
    if not trial.findings:
        summary = "No checker judged this trial, so nothing is known."
    elif missed:
        summary = f"{len(missed)} of {len(trial.faults)} planned faults did not fire."
    else:
        summary = "The trial's own verdict is worse than that of its findings."
    if trial.end_reason:
        summary += f" The trial ended {trial.end or 'somehow'}: {first_line(trial.end_reason)}"
    return Finding(
        checker="trial",
        clauses=("CAM-3",) if missed else (),
        verdict=verdict_of(trial),
        summary=summary,
        examples=tuple(f"{fault.label}: {fault.reason or fault.outcome}" for fault in missed[:10]),
    )


def timeline_trials(run: ReportedRun) -> tuple[TrialRecord, ...]:
    """Return the trials to draw: up to five of the worst, then valid ones that show each kind of fault once.

    Of the worst the smallest comes first. The valid trial in which the most happened is always drawn.
    """
    kept = [trial for trial in run.listed if trial.trial in run.details and _events(run.details[trial.trial])]
    bad = [trial for trial in kept if verdict_of(trial) is not Verdict.VALID]
    bad.sort(key=lambda trial: (-verdict_of(trial).severity, *size_of(trial)))
    good = [trial for trial in kept if verdict_of(trial) is Verdict.VALID]
    good.sort(key=lambda trial: (-_events(run.details[trial.trial]), trial.trial))
    chosen = bad[: TIMELINES_MAX - 1]
    shown = frozenset[str]().union(*map(_kinds, chosen))
    for place, trial in enumerate(good):
        if len(chosen) < TIMELINES_MAX and (not place or not _kinds(trial) <= shown):
            chosen.append(trial)
            shown |= _kinds(trial)
    return tuple(run.details[trial.trial] for trial in chosen)


def _kinds(trial: TrialSummary) -> frozenset[str]:
    """Return the kinds of fault that fired in a trial."""
    return frozenset(fault.kind for fault in trial.faults if fault.outcome == "fired")


def _events(record: TrialRecord) -> int:
    """Count what a timeline would show."""
    return (
        len(record.attempts) + len(record.checkpoints) + len(record.snapshots) + len(planned_faults(record))
    )
