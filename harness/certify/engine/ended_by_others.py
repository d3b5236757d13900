"""Tells whether a candidate's process was ended by another program, so that the candidate has violated nothing."""

from __future__ import annotations

import signal

_ASKED_TO_END = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""A candidate has no reason to send these; whoever stops a machine or a job has."""
_HANDLED = 128
"""A JVM handles such a signal, and then ends with this plus the signal's number, as a shell does."""


def ended_by_others(code: int | None, handles_signals: bool = False) -> bool:
    """Return whether a process with this exit code (negative: a signal; None: it runs) was asked to end.

    ``handles_signals``: the process is a JVM, of which the exit code itself says so.
    """
    if code is None:
        return False
    asked = {-one for one in _ASKED_TO_END}
    if handles_signals:
        asked |= {_HANDLED + one for one in _ASKED_TO_END}
    return code in asked
