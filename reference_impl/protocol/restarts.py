"""Restart strategies: whether a job that failed is deployed again, and when (REC-3).

A strategy belongs to one coordinator. It learns of each failure once, with its time and with how long the attempt had
run, and it knows nothing else. There is no random part in a delay: a job has one coordinator, so no crowd of them
could come back at the same moment.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

from barrier_tck.reference_impl.config import (
    AnyRestart,
    ExponentialDelayRestart,
    FailureRateRestart,
    RestartConfig,
)


class RestartStrategy(Protocol):
    """Decides after each failure."""

    def next_delay_ms(self, failed_ms: float, ran_ms: float) -> float | None:
        """Count a failure and return the delay before the next deployment, or None to give the job up.

        ``failed_ms`` is the time of the failure, ``ran_ms`` for how long every subtask of the attempt had run, 0 if
        not all of them ever ran.
        """

    def describe(self) -> str:
        """Return why the job is given up, as a phrase for error messages."""


class FixedDelay:
    """No restart (``attempts_max`` 0), or a number of restarts after a fixed delay."""

    def __init__(self, config: RestartConfig) -> None:
        self._config = config
        self._used = 0

    def next_delay_ms(self, failed_ms: float, ran_ms: float) -> float | None:
        """Use up one restart."""
        if self._used >= self._config.attempts_max:
            return None
        self._used += 1
        return self._config.delay_ms

    def describe(self) -> str:
        """Return the state as a phrase."""
        if self._config.attempts_max == 0:
            return "the restart strategy is none"
        return f"all {self._config.attempts_max} restarts are used up"


class FailureRate:
    """A fixed delay, unless there were too many failures within some time."""

    def __init__(self, config: FailureRateRestart) -> None:
        self._config = config
        self._failures: deque[float] = deque()
        """Times of the failures that still count, oldest first."""

    def next_delay_ms(self, failed_ms: float, ran_ms: float) -> float | None:
        """Forget the failures that are too old, and count this one."""
        self._failures.append(failed_ms)
        while failed_ms - self._failures[0] >= self._config.interval_ms:
            self._failures.popleft()
        return None if len(self._failures) > self._config.failures_max else self._config.delay_ms

    def describe(self) -> str:
        """Return the state as a phrase."""
        return (
            f"{len(self._failures)} failures within {self._config.interval_ms} ms are more than the "
            f"{self._config.failures_max} that the restart strategy allows"
        )


class ExponentialDelay:
    """A delay that grows with each failure in a row."""

    def __init__(self, config: ExponentialDelayRestart) -> None:
        self._config = config
        self._in_row = 0
        self._delay_ms: float = config.initial_ms

    def next_delay_ms(self, failed_ms: float, ran_ms: float) -> float | None:
        """Begin a new row after a long run; then use up one restart of the row."""
        config = self._config
        if ran_ms >= config.reset_after_ms:
            self._in_row, self._delay_ms = 0, config.initial_ms
        if self._in_row >= config.attempts_max:
            return None
        self._in_row += 1
        delay_ms = self._delay_ms
        self._delay_ms = min(delay_ms * config.factor, config.max_ms)
        return delay_ms

    def describe(self) -> str:
        """Return the state as a phrase."""
        return f"all {self._config.attempts_max} restarts in a row are used up"


def restart_strategy(config: AnyRestart) -> RestartStrategy:
    """Return the strategy that a job's configuration asks for."""
    match config:
        case RestartConfig():
            return FixedDelay(config)
        case FailureRateRestart():
            return FailureRate(config)
        case ExponentialDelayRestart():
            return ExponentialDelay(config)
