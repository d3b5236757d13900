"""Let writes to durable storage fail: a subtask's, or those of the coordinator that make checkpoints complete."""

from __future__ import annotations

import time
from typing import Self

from barrier_tck.faults.drawing import Aim, Chooser, DrawnAs
from barrier_tck.faults.fault import CopiesHit, CopyPlace, Fault, OnProgress, Wait
from barrier_tck.faults.fields import Subtask, Times
from barrier_tck.faults.injectors.copies import refuse_writes
from barrier_tck.faults.injectors.injection import Injection
from barrier_tck.faults.targets import TargetKind, Targets

_METADATA_PER_MILLE = 220
"""How many of 1,000 are about metadata."""


class FailPrimaryWrites(Fault, frozen=True, tag="fail_primary_writes"):
    """Let a subtask's writes to durable storage fail, for one or more of its next checkpoints.

    Contract (LOC-2): those checkpoints fail, whatever became of the local copies; processing goes on, and later ones
    complete. ``metadata``: every subtask stores its part, and the coordinator's write that makes the checkpoint
    complete fails. Contract (COO-1, COO-2): no subtask is notified that it is complete.
    """

    subtask: Subtask
    checkpoints: Times = 1
    metadata: bool = False

    label = "primary writes fail"
    colour = "#9f6f3f"
    needs = TargetKind.STORAGE
    drawn_as = (DrawnAs("fail-primary-writes", package="storage", weight=1),)
    on_progress = OnProgress.NOTHING

    @property
    def copies_hit(self) -> CopiesHit | None:
        """Return the subtask's parts of further checkpoints; None if they are stored."""
        return None if self.metadata else CopiesHit(CopyPlace.DURABLE, self.subtask)

    @property
    def fails_metadata(self) -> bool:
        """Whether the coordinator's writes fail."""
        return self.metadata

    def description(self) -> str:
        if self.metadata:
            return f"metadata writes fail for {self.checkpoints} checkpoints"
        return f"primary writes of {self.subtask} fail for {self.checkpoints} checkpoints"

    def inject(self, targets: Targets, wait: Wait = time.sleep) -> Injection:
        """Let writes fail, and prove that one would."""
        if self.metadata:
            return refuse_writes(targets.metadata(), "metadata", self.checkpoints, wait)
        copies = targets.primary_of(self.subtask)
        return refuse_writes(copies, f"durable copy of {self.subtask}", self.checkpoints, wait)

    @classmethod
    def drawn(cls, choose: Chooser, aim: Aim) -> Self:
        """Let the next checkpoints of the subtask that the aim names fail, or the next metadata."""
        return cls(aim.subtask, aim.checkpoints, metadata=choose.chance(_METADATA_PER_MILLE))
