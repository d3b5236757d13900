"""What a run's verdict says, and why it is UNKNOWN if it is: the first thing that every report shows."""

from __future__ import annotations

from dataclasses import dataclass

from barrier_tck.harness.record.unknown_trials import WhyUnknown
from barrier_tck.harness.record.verdict import Verdict
from barrier_tck.reports.loading import ReportedRun
from barrier_tck.reports.wording import MEANING, NO_PASS, plural


@dataclass(frozen=True, slots=True)
class Headline:
    """The first thing a reader sees."""

    verdict: Verdict
    title: str
    meaning: str


def headline(run: ReportedRun) -> Headline:
    """Return the verdict as a sentence; VALID is said only of trials that were checked."""
    verdict, count = run.verdict, run.totals.trials
    if not count:
        return Headline(verdict, "Nothing was checked", "No trial finished, so nothing can be said.")
    if not run.count(verdict):
        return Headline(verdict, _title_as_a_whole(run), f"{_why_as_a_whole(run)}.")
    titles = {
        Verdict.VALID: f"Valid: all {count} trials" if count > 1 else "Valid: the one trial",
        Verdict.UNKNOWN: f"Unknown: {run.count(Verdict.UNKNOWN)} of {plural(count, 'trial')}",
        Verdict.INVALID: f"Invalid: {run.count(Verdict.INVALID)} of {plural(count, 'trial')}",
    }
    meaning = _why_unknown(run) if verdict is Verdict.UNKNOWN else MEANING[verdict]
    if verdict is Verdict.VALID and (unshown := _recovery_not_shown(run)):
        meaning = (
            f"{meaning.rstrip('.')}, but no trial could have shown a wrong recovery ({', '.join(unshown)})."
        )
    return Headline(verdict, titles[verdict], meaning)


def _recovery_not_shown(run: ReportedRun) -> tuple[str, ...]:
    """Return the clauses of recovery if faults fired and no trial could have violated any of these clauses."""
    controls = run.campaign.controls
    if controls is None or not run.totals.faults_fired or any(controls.could_be_violated.values()):
        return ()
    return tuple(controls.could_be_violated)


def verdict_sentence(run: ReportedRun) -> str:
    """Return what the verdict says, for a report that has no title with the counts above it."""
    found = headline(run)
    if not run.totals.trials:
        return f"{found.title}. {found.meaning}"
    if run.count(run.verdict):
        return found.meaning
    return f"{found.title}: {found.meaning}"


def _title_as_a_whole(run: ReportedRun) -> str:
    """Return the title of a campaign that is worse than each of its trials."""
    judged, number = run.totals.judged, run.totals.trials
    trials = f"all {number} trials are" if number > 1 else "its one trial is"
    if run.count(judged) < number:
        return f"{run.verdict.value.capitalize()} as a whole, though no trial is"
    return f"{run.verdict.value.capitalize()} as a whole, though {trials} {judged.value}"


def _why_as_a_whole(run: ReportedRun) -> str:
    """Return what all trials together show to be missing or wrong."""
    found = [finding for finding in run.campaign.findings if finding.verdict is run.verdict]
    # A record may say of itself what its trials do not: then a note says that they disagree.
    return "; ".join(
        finding.summary + (f" ({', '.join(finding.clauses)})" if finding.clauses else "") for finding in found
    ) or ("the campaign's record says so, and none of its trials does: see the note")


def _why_unknown(run: ReportedRun) -> str:
    """Return why trials are UNKNOWN, each reason with its number of trials."""
    counts = {reason: run.why_unknown[reason.name.lower()] for reason in WhyUnknown}
    nothing = counts[WhyUnknown.NOTHING_HAPPENED]
    what = "it is" if nothing == 1 else "they are"
    phrases = {
        WhyUnknown.NOTHING_HAPPENED: f"in {plural(nothing, 'trial')} what {what} about did not happen",
        WhyUnknown.CHECKER_CRASHED: f"in {plural(counts[WhyUnknown.CHECKER_CRASHED], 'trial')} a checker crashed",
        WhyUnknown.NOT_RUN: f"{plural(counts[WhyUnknown.NOT_RUN], 'trial')} could not be run",
    }
    return f"No verdict: {', '.join(phrases[reason] for reason in WhyUnknown if counts[reason])}. {NO_PASS}"
