"""Let a host run out of memory."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Self

from barrier_tck.faults.drawing import Aim, Chooser, DrawnAs
from barrier_tck.faults.fault import Ends, Fault, Wait
from barrier_tck.faults.fields import Subtask
from barrier_tck.faults.injectors.injection import Injection
from barrier_tck.faults.injectors.processes import kill_process
from barrier_tck.faults.targets import TargetKind, Targets


class ExhaustMemory(Fault, frozen=True, tag="exhaust_memory"):
    """Use up the memory limit of the host of a subtask's executor, until the kernel kills the executor for it.

    The kernel counts such kills for each host, and its count proves this one. Contract: the job recovers from the last
    completed checkpoint and the output stays as promised.
    """

    subtask: Subtask

    label = "exhaust memory"
    colour = "#8c2f6b"
    needs = TargetKind.MEMORY
    drawn_as = (DrawnAs("memory", package="memory"),)
    ends = Ends.SUBTASKS

    def description(self) -> str:
        return f"exhaust the memory of the host of {self.subtask}"

    def inject(self, targets: Targets, wait: Wait = time.sleep) -> Injection:
        """Let the kernel kill the executor, and prove that it is dead and that the kernel has done it."""
        target = targets.memory_of(self.subtask)
        found = kill_process(target, f"memory limit of the host of {self.subtask}", wait)
        # Only now it can say what the kernel did.
        return replace(found, target=target.description) if target is not None and found.fired else found

    @classmethod
    def drawn(cls, choose: Chooser, aim: Aim) -> Self:
        """Exhaust the memory of the host of the subtask that the aim names."""
        return cls(aim.subtask)
