"""Why a trial is UNKNOWN: what it is about did not happen, a checker crashed, or the trial could not be run.

The first is up to the schedule, so it may be expected of a few trials. The other two are faults of the suite or of the
machine: nothing was judged that should have been, however often it is tried again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum

from barrier_tck.harness.record.verdict import Finding, Verdict

NOT_RUN_CHECKER = "trial-ran"
"""The name in findings of trials that could not be run."""
CRASHED = "the checker itself crashed"
"""How the summary of a finding begins whose checker crashed."""


NOTHING_HAPPENED_MAX = 0.05
"""The share of trials in which nothing may happen before CI fails; one trial always may."""
NOT_JUDGED_MAX = 0.02
"""The share of trials that may not be judged before CI fails, because a checker crashed or they could not be run; one
trial always may: a machine may be busy."""


class WhyUnknown(StrEnum):
    """Why a trial shows nothing, as reports say it."""

    NOTHING_HAPPENED = "what it is about did not happen"
    CHECKER_CRASHED = "a checker crashed"
    NOT_RUN = "no run was possible"

    @property
    def of_the_schedule(self) -> bool:
        """Whether another run of the plan may show more."""
        return self is WhyUnknown.NOTHING_HAPPENED


def why_unknown(verdict: Verdict, findings: Iterable[Finding]) -> WhyUnknown | None:
    """Return why a trial is UNKNOWN, the worst reason first; None if it is VALID or INVALID."""
    if verdict is not Verdict.UNKNOWN:
        return None
    unknown = [finding for finding in findings if finding.verdict is Verdict.UNKNOWN]
    if any(finding.checker == NOT_RUN_CHECKER for finding in unknown):
        return WhyUnknown.NOT_RUN
    if any(finding.summary.startswith(CRASHED) for finding in unknown):
        return WhyUnknown.CHECKER_CRASHED
    return WhyUnknown.NOTHING_HAPPENED


def counted(reasons: Iterable[WhyUnknown | None]) -> dict[str, int]:
    """Return how many trials have each reason, with a zero for each that none has."""
    counts = Counter(reason for reason in reasons if reason is not None)
    return {reason.name.lower(): counts[reason] for reason in WhyUnknown}


def too_many_unknown(counts: Mapping[str, int], trials: int) -> Iterator[str]:
    """Say that more trials are UNKNOWN than CI allows, by what ``counted`` gave for some trials, and what to do."""
    nothing = counts.get(WhyUnknown.NOTHING_HAPPENED.name.lower(), 0)
    crashed, not_run = (
        counts.get(why.name.lower(), 0) for why in (WhyUnknown.CHECKER_CRASHED, WhyUnknown.NOT_RUN)
    )
    if nothing > max(1, NOTHING_HAPPENED_MAX * trials):
        yield (
            f"in {nothing} of {trials} trials nothing happened, more than {NOTHING_HAPPENED_MAX:.0%}: their findings "
            "say why; a fault that waits for what its plan does not reach is drawn wrongly"
        )
    if crashed + not_run > max(1, NOT_JUDGED_MAX * trials):
        yield (
            f"{crashed + not_run} of {trials} trials were not judged, more than {NOT_JUDGED_MAX:.0%}: a checker "
            f"crashed in {crashed}, {not_run} could not be run; their findings have the exceptions"
        )
