"""The exit codes of the command ``barrier-tck``; README and guide explain each of them."""

from __future__ import annotations

from barrier_tck.harness.record.verdict import Verdict

EXIT_CODES = {Verdict.VALID: 0, Verdict.INVALID: 1, Verdict.UNKNOWN: 2}
"""Verdict -> exit code."""
EXIT_USAGE = 3
"""The input or the machine does not allow what was asked."""
EXIT_INTERNAL = 4
"""A bug in this project."""
EXIT_INTERRUPTED = 130
"""What shells report for a program that Ctrl-C ended."""
EXIT_PIPE = 141
"""The code that shells report for a program whose reader left before it wrote anything."""


def exit_code_of(verdict: Verdict, interrupted: bool) -> int:
    """Return a campaign's exit code; never 0 if interrupted, because then it has not shown what it should show."""
    if interrupted and verdict is Verdict.VALID:
        return EXIT_CODES[Verdict.UNKNOWN]
    return EXIT_CODES[verdict]
