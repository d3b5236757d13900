"""The trace: the scheduler's steps, one line each. Two runs of one plan have the same trace.

A line has the columns time (virtual ms), actor, step, details. Lines are rendered only when they are needed. Messages
are shown by kind, checkpoint and subtask, because readers search for these. What files a backend writes is not shown.
"""

from __future__ import annotations

from typing import Any


class Trace:
    """Collects steps."""

    def __init__(self) -> None:
        self._steps: list[tuple[float, str, str, Any]] = []
        self.add = self._steps.append

    def lines(self) -> tuple[str, ...]:
        """Return every step as ``time actor step details``."""
        return tuple(
            [
                f"{time:10.3f} {actor} {step}"
                if details is None
                else f"{time:10.3f} {actor} {step} {details if type(details) is int else _brief(details)}"
                for time, actor, step, details in self._steps
            ]
        )


def _brief(details: Any) -> str:
    kind = type(details)
    if kind in _PLAIN:
        return str(details)
    if kind is tuple:
        return " ".join(map(_brief, details))
    text = kind.__name__
    checkpoint, subtask = getattr(details, "checkpoint", None), getattr(details, "subtask", None)
    if checkpoint is not None:
        text = f"{text} {checkpoint}"
    return text if subtask is None else f"{text} {subtask}"


_PLAIN = frozenset({int, str, bool, type(None)})
