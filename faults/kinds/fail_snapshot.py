"""Let the synchronous part of a subtask's snapshots fail."""

from __future__ import annotations

import time
from typing import Self

from barrier_tck.faults.drawing import Aim, Chooser, DrawnAs
from barrier_tck.faults.fault import CopiesHit, CopyPlace, Fault, OnProgress, Wait
from barrier_tck.faults.fields import Subtask, Times
from barrier_tck.faults.injectors.injection import Injection, skipped
from barrier_tck.faults.targets import TargetKind, Targets


class FailSnapshot(Fault, frozen=True, tag="fail_snapshot"):
    """Let the synchronous part of one or more of a subtask's next snapshots fail, at the last operator of its chain.

    What is before that operator in the chain has captured its state by then. Contract (COO-2, SNP-2): the subtask
    declines those checkpoints, keeps nothing for them and goes on, and later ones complete.
    """

    subtask: Subtask
    checkpoints: Times = 1

    label = "snapshot fails"
    colour = "#a3554f"
    needs = TargetKind.SNAPSHOTS
    drawn_as = (DrawnAs("fail-snapshot", package="storage"),)
    on_progress = OnProgress.NOTHING
    waits_for_upload = True

    @property
    def copies_hit(self) -> CopiesHit:
        """Return the subtask's parts of further checkpoints."""
        return CopiesHit(CopyPlace.DURABLE, self.subtask)

    def description(self) -> str:
        which = "snapshot" if self.checkpoints == 1 else f"{self.checkpoints} snapshots"
        return f"the next {which} of {self.subtask} fail" + ("s" if self.checkpoints == 1 else "")

    def inject(self, targets: Targets, wait: Wait = time.sleep) -> Injection:
        """Wait for snapshots, which is proved at the end of the run."""
        snapshots = targets.snapshots_of(self.subtask)
        if snapshots is None:
            return skipped(f"snapshots of {self.subtask}")
        return Injection("fired", snapshots.description, met=snapshots.fail(self.checkpoints))

    @classmethod
    def drawn(cls, choose: Chooser, aim: Aim) -> Self:
        """Let the next snapshots of the subtask that the aim names fail."""
        return cls(aim.subtask, aim.checkpoints)
