"""Records that count twice, as they may after a recovery in at-least-once mode (ALO-2)."""

from __future__ import annotations

from barrier_tck.harness.oracle.sometimes import Sightings, Sometimes
from barrier_tck.harness.record.records import TrialSummary
from barrier_tck.harness.record.verdict import Finding

DUPLICATED = "duplicated"
"""The count of them in a finding: the allowed rows beyond one per record."""


def _duplicates(finding: Finding, _: TrialSummary) -> Sightings | None:
    """Return how many there were, if the trial was judged in this mode."""
    judged = DUPLICATED in finding.counts or "ALO-2" in finding.clauses
    return {"duplicates": finding.counts.get(DUPLICATED, 0)} if judged else None


SOMETIMES_DUPLICATES = Sometimes(
    name="sometimes-duplicates",
    clauses=("ALO-2",),
    seen=_duplicates,
    things={"duplicates": "with_duplicates"},
    shown="{with_duplicates} of {trials} trials in at-least-once mode had duplicates, {duplicates} in all",
    not_shown=(
        "no duplicate was seen in the {trials} trials in at-least-once mode, so it was not shown that the mode "
        "differs from exactly-once; run more trials, slow one of several input channels, and kill after a completed "
        "checkpoint"
    ),
)
"""In at-least-once mode duplicates must occur, or the mode has not been tested."""
