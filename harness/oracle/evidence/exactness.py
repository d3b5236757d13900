"""Whether every record has to count once in a trial."""

from __future__ import annotations

from barrier_tck.harness.plan.trial_plan import TrialPlan

AT_LEAST_ONCE = "at_least_once"
"""The checkpointing mode in which records may count twice after a recovery (ALO-2)."""


def is_exact(plan: TrialPlan) -> bool:
    """Return whether output and snapshots must be exact: always, except with a shuffle in at-least-once mode.

    Without checkpoints the mode has no meaning, and without a shuffle no subtask has a second channel to wait for
    (ALO-3). A job that goes on wider after a stop may have a shuffle that the first one had not. The plan's job must
    be filled in.
    """
    at_least_once = plan.checkpoints.enabled and plan.checkpoints.mode == AT_LEAST_ONCE
    stops = range(len(plan.rescales) + 1)
    return not at_least_once or not any(plan.after_stops(number).job.shuffles for number in stops)
