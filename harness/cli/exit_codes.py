"""What the command ``barrier-tck`` exits with; README and guide explain each."""

from __future__ import annotations

from barrier_tck.harness.record.verdict import Verdict

EXIT_CODES = {Verdict.VALID: 0, Verdict.INVALID: 1, Verdict.UNKNOWN: 2}
"""Verdict -> exit code."""
EXIT_USAGE = 3
"""The input or the machine is not fit for what was asked."""
EXIT_INTERNAL = 4
"""A bug of ours."""
EXIT_INTERRUPTED = 130
"""As shells say it of a program that Ctrl-C ended."""
