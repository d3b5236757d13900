"""Lose a host with its disk."""

from __future__ import annotations

import time
from typing import Self

from barrier_tck.faults.drawing import Aim, Chooser, DrawnAs
from barrier_tck.faults.fault import CopiesHit, CopyPlace, Ends, Fault, Wait
from barrier_tck.faults.fields import Subtask
from barrier_tck.faults.injectors.injection import Injection, proved, unproved
from barrier_tck.faults.injectors.processes import kill_process
from barrier_tck.faults.targets import Damage, ReturningHost, TargetKind, Targets


class LoseHost(Fault, frozen=True, tag="lose_host"):
    """Kill the executor that hosts a subtask and wipe its host's local disk, as if the machine were gone.

    Lost is also what any process of the host, a dead one included, wrote to shared storage and did not sync, as far as
    the system can take it back; the reference runtime can. ``returns``: it comes back under its own name, empty;
    otherwise another host may take its place. Contract (LOC-8): the job recovers from the last completed checkpoint and
    the output stays as promised; the host's subtasks restore from durable storage, others from their own copies.
    """

    subtask: Subtask
    returns: bool = False

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
        return f"lose host of {self.subtask}{', which comes back empty' if self.returns else ''}"

    def inject(self, targets: Targets, wait: Wait = time.sleep) -> Injection:
        """Kill the executor, wipe the disk, and prove both; and that the host is back, if it comes back."""
        target = targets.host_of(self.subtask)
        if target is None or not self.returns:
            return kill_process(target, f"host of {self.subtask}", wait)
        if not isinstance(target, ReturningHost):
            return Injection("skipped", target.description, "hosts of this system do not come back")
        target.come_back()
        killed = kill_process(target, f"host of {self.subtask}", wait)
        if killed.fired and not proved(target.is_back, wait):
            return unproved(target.description, "no empty host of its name was there")
        return killed

    @classmethod
    def drawn(cls, choose: Chooser, aim: Aim) -> Self:
        """Lose the host of the subtask that the aim names; draw whether it comes back."""
        return cls(aim.subtask, choose.chance(aim.returns_per_mille))
