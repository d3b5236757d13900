"""Lose a host with its disk."""

from __future__ import annotations

import time
from typing import Self

from barrier_tck.faults.drawing import Aim, Chooser, DrawnAs
from barrier_tck.faults.fault import CopiesHit, CopyPlace, Ends, Fault, Wait
from barrier_tck.faults.fields import Subtask
from barrier_tck.faults.injectors.injection import Injection
from barrier_tck.faults.injectors.processes import kill_process
from barrier_tck.faults.targets import Damage, TargetKind, Targets


class LoseHost(Fault, frozen=True, tag="lose_host"):
    """Kill the executor that hosts a subtask and wipe its host's local disk, as if the machine were gone.

    Lost is also what any process of the host, a dead one included, wrote to shared storage and did not sync, as far as
    the system can take it back; the reference runtime can. Contract (LOC-8): the job recovers from the last completed
    checkpoint and the output stays as promised; the host's subtasks restore from durable storage, others from their
    own copies.
    """

    subtask: Subtask

    label = "lose host"
    colour = "#7a1f1f"
    needs = TargetKind.HOST
    drawn_as = (DrawnAs("host", package="host-loss", weight=1),)
    ends = Ends.SUBTASKS

    @property
    def copies_hit(self) -> CopiesHit:
        """Return the copies of all subtasks on the host."""
        return CopiesHit(CopyPlace.LOCAL, self.subtask, Damage.MISSING, whole_host=True)

    def description(self) -> str:
        return f"lose host of {self.subtask}"

    def inject(self, targets: Targets, wait: Wait = time.sleep) -> Injection:
        """Kill the executor, wipe the disk, and prove both."""
        return kill_process(targets.host_of(self.subtask), f"host of {self.subtask}", wait)

    @classmethod
    def drawn(cls, choose: Chooser, aim: Aim) -> Self:
        """Lose the host of the subtask that the aim names."""
        return cls(aim.subtask)
