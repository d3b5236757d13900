"""How long a campaign goes on: a number of trials, or a time."""

from __future__ import annotations

import re
from dataclasses import dataclass

from barrier_tck.harness.support.errors import UsageProblem
from barrier_tck.harness.support.third_party import shown

DEFAULT_TRIALS = 200
"""Number of trials of a campaign that names no budget."""

TRIALS_MAX = 10_000_000
"""The most trials of a campaign."""
SECONDS_MAX = 366 * 86_400.0
"""The longest sensible time: a year."""

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)")


def parse_duration(text: str, name: str = "the duration") -> float:
    """Return seconds for ``90s``, ``5m``, ``1h30m`` or ``500ms``; raises UsageProblem with the value."""
    parts = _PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise UsageProblem(f"{name} is {text!r}; write a number with its unit, for instance 90s, 5m or 1h30m")
    seconds = sum(float(number) * _UNITS[unit] for number, unit in parts)
    if seconds <= 0:
        raise UsageProblem(f"{name} is {text!r}; it must be longer than 0")
    if seconds > SECONDS_MAX:
        raise UsageProblem(f"{name} is {shown(text)}; it must be a year or less")
    return seconds


@dataclass(frozen=True, slots=True)
class Budget:
    """Either ``trials`` or ``seconds`` is set. The last trial begins within the budget, and is finished; the first one
    begins in any case, since a campaign of none says nothing."""

    trials: int | None = DEFAULT_TRIALS
    seconds: float | None = None

    def __post_init__(self) -> None:
        if (self.trials is None) == (self.seconds is None):
            raise UsageProblem("a budget is either a number of trials or a time; give exactly one of them")
        if self.trials is not None and not 1 <= self.trials <= TRIALS_MAX:
            raise UsageProblem(f"trials is {self.trials}; it must be between 1 and {TRIALS_MAX}")

    def allows(self, done: int, elapsed_seconds: float) -> bool:
        """Return whether another trial may begin."""
        if self.trials is not None:
            return done < self.trials
        return done == 0 or elapsed_seconds < (self.seconds or 0.0)

    def with_trials(self, more: int) -> Budget:
        """Return the budget with some trials more; a time stays as it is."""
        return self if self.trials is None else Budget(min(self.trials + more, TRIALS_MAX))

    def __str__(self) -> str:
        return f"{self.trials} trials" if self.trials is not None else f"{self.seconds:g} s"
