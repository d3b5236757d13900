"""Let a subtask's writes to durable storage fail."""

from __future__ import annotations

import time
from typing import Self

from barrier_tck.faults.drawing import Aim, Chooser, DrawnAs
from barrier_tck.faults.fault import CopiesHit, CopyPlace, Fault, OnProgress, Wait
from barrier_tck.faults.fields import Subtask, Times
from barrier_tck.faults.injectors.copies import refuse_writes
from barrier_tck.faults.injectors.injection import Injection
from barrier_tck.faults.targets import TargetKind, Targets


class FailPrimaryWrites(Fault, frozen=True, tag="fail_primary_writes"):
    """Let a subtask's writes to durable storage fail, for its next ``checkpoints`` checkpoints.

    Contract (LOC-2): those checkpoints fail, whatever became of the local copies; processing goes on, and later ones
    complete.
    """

    subtask: Subtask
    checkpoints: Times = 1

    label = "primary writes fail"
    colour = "#9f6f3f"
    needs = TargetKind.STORAGE
    drawn_as = (DrawnAs("fail-primary-writes", package="storage", weight=1),)
    on_progress = OnProgress.NOTHING

    @property
    def copies_hit(self) -> CopiesHit:
        """Return the subtask's parts of further checkpoints."""
        return CopiesHit(CopyPlace.DURABLE, self.subtask)

    def told(self) -> str:
        """Return the fault as a phrase."""
        return f"primary writes of {self.subtask} fail for {self.checkpoints} checkpoints"

    def inject(self, targets: Targets, wait: Wait = time.sleep) -> Injection:
        """Let writes fail, and prove that one would."""
        copies = targets.primary_of(self.subtask)
        return refuse_writes(copies, f"durable copy of {self.subtask}", self.checkpoints, wait)

    @classmethod
    def drawn(cls, choose: Chooser, aim: Aim) -> Self:
        """Let the next checkpoint of the subtask that the aim names fail."""
        return cls(aim.subtask)
