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
