"""Kill the process of one subtask."""

from __future__ import annotations

import time
from typing import Self

from barrier_tck.faults.drawing import Aim, Chooser, DrawnAs
from barrier_tck.faults.fault import Ends, Fault, Wait
from barrier_tck.faults.fields import Subtask
from barrier_tck.faults.injectors.injection import Injection
from barrier_tck.faults.injectors.processes import kill_process
from barrier_tck.faults.targets import TargetKind, Targets


class KillWorker(Fault, frozen=True, tag="kill_worker"):
    """Kill the one process that runs a subtask (a Python worker), with SIGKILL; its executor lives on.

    Contract: the job recovers from the last completed checkpoint and the output stays as promised.
    """

    subtask: Subtask

    label = "kill worker"
    colour = "#d9730d"
    needs = TargetKind.WORKER
    drawn_as = (DrawnAs("worker", package="kill", weight=3),)
    ends = Ends.SUBTASKS
    plain_failure = True

    def description(self) -> str:
        return f"kill worker of {self.subtask}"

    def inject(self, targets: Targets, wait: Wait = time.sleep) -> Injection:
        """Kill it, and prove that it is dead."""
        return kill_process(targets.worker_of(self.subtask), f"worker of {self.subtask}", wait)

    @classmethod
    def drawn(cls, choose: Chooser, aim: Aim) -> Self:
        """Kill the worker of the subtask that the aim names."""
        return cls(aim.subtask)
