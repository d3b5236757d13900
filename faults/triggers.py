"""Triggers at work: the phrase that a report shows, and the counting that decides when a fault is due.

Occurrences of a protocol point are counted over all attempts, from 1. A fault that is due stays due until it is
carried out: if its target is not there at that very moment (a subtask between two attempts), the next matching
occurrence serves as well.
"""

from __future__ import annotations

from barrier_tck.faults.vocabulary import After, At, ProtocolPoint, Trigger

_ORDINAL_ENDINGS = {1: "st", 2: "nd", 3: "rd"}


def ordinal(number: int) -> str:
    """Return ``1st``, ``2nd``, ``3rd``, ``4th``, ``11th`` and so on."""
    ending = "th" if 10 <= number % 100 <= 20 else _ORDINAL_ENDINGS.get(number % 10, "th")
    return f"{number}{ending}"


def describe(trigger: Trigger) -> str:
    """Return a phrase such as ``after snapshot_taken of totals[0], 2nd time`` or ``at 120 ms``."""
    match trigger:
        case At(time_ms=time_ms):
            return f"at {time_ms:.10g} ms"
        case After(point=point, subtask=subtask, nth=nth):
            of_subtask = "" if subtask is None else f" of {subtask}"
            return f"after {point.value}{of_subtask}, {ordinal(nth)} time"


def matches(trigger: After, point: ProtocolPoint, subtask: str | None) -> bool:
    """Return whether passing this point counts as an occurrence for the trigger."""
    return trigger.point is point and (trigger.subtask is None or trigger.subtask == subtask)


class OccurrenceCounter:
    """Counts the occurrences that one ``After`` waits for; over all attempts, since points name no attempt."""

    __slots__ = ("_count", "trigger")

    def __init__(self, trigger: After) -> None:
        self.trigger = trigger
        self._count = 0

    @property
    def count(self) -> int:
        """Return how many matching occurrences were seen."""
        return self._count

    def passed(self, point: ProtocolPoint, subtask: str | None) -> bool:
        """Count an occurrence if it matches; return whether the fault is due (the nth, or later)."""
        if not matches(self.trigger, point, subtask):
            return False
        self._count += 1
        return self._count >= self.trigger.nth
