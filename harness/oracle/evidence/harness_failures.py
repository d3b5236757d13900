"""Which attempts an exception of the harness ended: what became of them says nothing about the system."""

from __future__ import annotations

from collections.abc import Mapping

from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.record.operations import Crashed


def ended_by_harness(context: TrialContext) -> Mapping[int, str]:
    """Return each attempt in which a process died of an exception of the harness -> the process and the exception.

    An attempt in which another process died of an exception of its own is none of them.
    """
    crashes = [line.operation for line in context.history.of(Crashed)]
    own = [crash.attempt for crash in crashes if not crash.of_harness]
    found: dict[int, str] = {}
    for crash in crashes:
        if crash.attempt is not None and crash.attempt not in own:
            found.setdefault(crash.attempt, died_of_harness(crash))
    return found


def died_of_harness(crash: Crashed) -> str:
    """Return the sentence about a process that an exception of the harness ended."""
    place = f" ({crash.place})" if crash.place else ""
    return f"{crash.process} died of an exception of the harness: {crash.error}{place}"
