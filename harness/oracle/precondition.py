"""Preconditions of a verdict: what must have happened in a trial before its VALID says something about a clause."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.system.system_under_test import Capability


@dataclass(frozen=True)
class Precondition:
    """What must have happened in a trial, lest keeping a clause was no merit."""

    sentence: str
    """What it is, for the page of checkers: 'a checkpoint completed'."""
    holds: Callable[[TrialContext], bool]
    or_in_output: Callable[[TrialContext], bool] | None = None
    """What is enough for a checker that compares the committed output with the input, and so sees what was survived, no
    matter how (``judges_output``)."""
    mechanism: Capability | None = None
    """The capability without which the clause means nothing; then it is not reported at all. If nothing is aligned,
    wrong output is no sign of a wrong alignment."""

    def shown_in_output(self, context: TrialContext) -> bool:
        """Return whether it holds, as far as a checker can see that compares the output with the input."""
        return self.holds(context) or (self.or_in_output is not None and self.or_in_output(context))


ALWAYS = Precondition("any trial", lambda context: True)
"""For a clause that every trial may break, or for which the checker itself says when it was exercised."""
