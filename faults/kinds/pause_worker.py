"""Stop the process of one subtask for a time."""

from __future__ import annotations

import time
from typing import Self

from barrier_tck.faults.drawing import Aim, Chooser, DrawnAs
from barrier_tck.faults.fault import Fault, OnProgress, Wait
from barrier_tck.faults.fields import Duration, Subtask
from barrier_tck.faults.injectors.injection import Injection
from barrier_tck.faults.injectors.pauses import pause_process
from barrier_tck.faults.targets import TargetKind, Targets


class PauseWorker(Fault, frozen=True, tag="pause_worker"):
    """Stop the process of one subtask (SIGSTOP) for a time, and let it go on (SIGCONT).

    Contract (REC-2): if it was replaced meanwhile, it is a zombie: nothing that it still does may count.
    """

    subtask: Subtask
    duration_ms: Duration

    label = "pause worker"
    colour = "#2f6f9f"
    needs = TargetKind.PAUSE
    drawn_as = (
        DrawnAs("pause-worker", package="pause", weight=1),
        DrawnAs("zombie-paused", package="zombie", weight=1, outlasts_heartbeat=True),
    )
    on_progress = OnProgress.SLOWS
    shown_as = "paused"

    @property
    def silences(self) -> tuple[str, ...]:
        return (self.subtask,)

    def description(self) -> str:
        return f"pause worker of {self.subtask} for {self.duration_ms} ms"

    def inject(self, targets: Targets, wait: Wait = time.sleep) -> Injection:
        """Stop it, and prove that it stands still."""
        return pause_process(targets.worker_of(self.subtask), f"worker of {self.subtask}", wait)

    @classmethod
    def drawn(cls, choose: Chooser, aim: Aim) -> Self:
        """Draw for how long."""
        return cls(aim.subtask, choose.between(aim.duration_ms))
