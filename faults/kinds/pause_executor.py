"""Stop an executor for a time."""

from __future__ import annotations

import time
from typing import Self

from barrier_tck.faults.drawing import Aim, Chooser, DrawnAs
from barrier_tck.faults.fault import Fault, OnProgress, Wait
from barrier_tck.faults.fields import Duration, Subtask
from barrier_tck.faults.injectors.injection import Injection
from barrier_tck.faults.injectors.pauses import pause_process
from barrier_tck.faults.targets import TargetKind, Targets


class PauseExecutor(Fault, frozen=True, tag="pause_executor"):
    """Stop the executor that hosts a subtask, and all of its subtasks' processes, for a time.

    Contract (REC-2): if they were replaced meanwhile, they are zombies: nothing that they still do may count.
    """

    subtask: Subtask
    duration_ms: Duration

    label = "pause executor"
    colour = "#1f4f7f"
    needs = TargetKind.PAUSE
    drawn_as = (DrawnAs("pause-executor", package="pause", weight=1),)
    on_progress = OnProgress.STOPS
    shown_as = "paused"

    @property
    def silences(self) -> tuple[str, ...]:
        return (self.subtask,)

    def description(self) -> str:
        return f"pause executor of {self.subtask} for {self.duration_ms} ms"

    def inject(self, targets: Targets, wait: Wait = time.sleep) -> Injection:
        """Stop it, and prove that it stands still."""
        return pause_process(targets.executor_of(self.subtask), f"executor of {self.subtask}", wait)

    @classmethod
    def drawn(cls, choose: Chooser, aim: Aim) -> Self:
        """Draw for how long."""
        return cls(aim.subtask, choose.between(aim.duration_ms))
