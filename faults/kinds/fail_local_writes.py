"""Leave no room for local copies of a subtask's state."""

from __future__ import annotations

import time
from typing import Self

from barrier_tck.faults.drawing import Aim, Chooser, DrawnAs
from barrier_tck.faults.fault import CopiesHit, CopyPlace, Fault, OnProgress, Wait
from barrier_tck.faults.fields import Subtask
from barrier_tck.faults.injectors.copies import refuse_writes
from barrier_tck.faults.injectors.injection import Injection
from barrier_tck.faults.targets import TargetKind, Targets


class FailLocalWrites(Fault, frozen=True, tag="fail_local_writes"):
    """Leave no room on the local disks for further copies of a subtask's state.

    Contract (LOC-2): no checkpoint fails because of it.
    """

    subtask: Subtask

    label = "local disk full"
    colour = "#4b6b4a"
    needs = TargetKind.STORAGE
    drawn_as = (DrawnAs("fail-local-writes", package="storage", weight=1),)
    on_progress = OnProgress.NOTHING

    @property
    def copies_hit(self) -> CopiesHit:
        """Return the subtask's further copies."""
        return CopiesHit(CopyPlace.LOCAL, self.subtask)

    def description(self) -> str:
        return f"no local room for copies of {self.subtask}"

    def inject(self, targets: Targets, wait: Wait = time.sleep) -> Injection:
        """Leave no room, and prove that a write would fail."""
        copies = targets.local_copies_of(self.subtask)
        return refuse_writes(copies, f"local copies of {self.subtask}", 1, wait)

    @classmethod
    def drawn(cls, choose: Chooser, aim: Aim) -> Self:
        """Leave no room for the subtask that the aim names."""
        return cls(aim.subtask)
