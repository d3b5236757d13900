"""What follows a failure: the restart strategy (REC-3) and the checkpoint to start from (REC-1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from reference_impl.config import RestartConfig
from reference_impl.protocol.messages import CompletedCheckpoint


@dataclass(frozen=True, slots=True)
class RecoveryPlan:
    """What the next attempt starts from; ``restore`` None means from the beginning of the input."""

    restore: CompletedCheckpoint | None


def plan_recovery(completed: Sequence[CompletedCheckpoint]) -> RecoveryPlan:
    """Choose the latest *completed* checkpoint, never a pending one (REC-1; CO-10 is the bug)."""
    return RecoveryPlan(max(completed, key=lambda checkpoint: checkpoint.checkpoint, default=None))


class RestartStrategy:
    """No restart (``attempts_max`` 0) or a restart after a fixed delay."""

    def __init__(self, config: RestartConfig) -> None:
        """Take the configuration; nothing has failed yet."""
        self._config = config
        self._used = 0

    def next_delay_ms(self) -> int | None:
        """Count a failure and return the delay before the next deployment, or None to give the job up."""
        if self._used >= self._config.attempts_max:
            return None
        self._used += 1
        return self._config.delay_ms

    def describe(self) -> str:
        """Return the state as a phrase for error messages."""
        if self._config.attempts_max == 0:
            return "the restart strategy is none"
        return f"all {self._config.attempts_max} restarts are used up"
