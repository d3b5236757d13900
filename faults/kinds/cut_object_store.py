"""Cut all processes off from the storage service, an object store or HDFS."""

from __future__ import annotations

import time
from typing import Self

from barrier_tck.faults.drawing import Aim, Chooser, DrawnAs
from barrier_tck.faults.fault import Fault, OnProgress, Wait
from barrier_tck.faults.fields import Duration
from barrier_tck.faults.injectors.connections import Closure
from barrier_tck.faults.injectors.injection import Injection
from barrier_tck.faults.injectors.object_stores import disturb_connections
from barrier_tck.faults.targets import TargetKind, Targets


class CutObjectStore(Fault, frozen=True, tag="cut_object_store"):
    """Close every connection with the object store or the HDFS that holds the checkpoints, and let none be opened
    until ``duration_ms`` have passed.

    Contract: a request whose answer was lost is repeated, and finds what it has put itself (COO-1); what still fails
    fails its checkpoint, and checkpoints complete afterwards (REC-6).
    """

    duration_ms: Duration

    label = "cut off storage service"
    colour = "#a02860"
    needs = TargetKind.OBJECT_STORE
    drawn_as = (DrawnAs("cut-object-store", package="object-store"),)
    on_progress = OnProgress.STOPS
    shown_as = "storage service cut off"

    def description(self) -> str:
        return f"cut off storage service for {self.duration_ms} ms"

    def inject(self, targets: Targets, wait: Wait = time.sleep) -> Injection:
        """Close the connections."""
        return disturb_connections(targets.object_store(), Closure(), wait)

    @classmethod
    def drawn(cls, choose: Chooser, aim: Aim) -> Self:
        """Draw for how long."""
        return cls(choose.between(aim.duration_ms))
